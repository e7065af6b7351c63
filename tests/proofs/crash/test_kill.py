"""SIGKILL of a real process: at each named point of each operation, and at random moments."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.engine.store import open_store, parse, upgrade
from airflow_mq.testing import assert_sound

from .aftermath import assert_conserved, finish, processor
from .children import end_child, probed, run_child, start_child
from .scenes import SCENES, Scene, State, chosen, mixed
from .states import alike

pytestmark = pytest.mark.crash

#: Scenes of which the others are variants. They run on a server, too, and are killed within transactions on SQLite;
#: `make soak` does so for all.
TYPICAL = (
    "enqueue keyed", "enqueue and cut", "plan", "report", "settle", "release", "service", "execute", "requeue",
    "complete", "transfer",
)  # fmt: skip
MARKED = [scene if scene.name in TYPICAL else pytest.param(scene, marks=pytest.mark.sqlite_first) for scene in SCENES]


class Place:
    """A store in which each run has its own ring."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.count = 0
        upgrade(parse(uri))
        # Connections to a server survive a fork unharmed, and are the largest cost. A SQLite file is opened anew each
        # time, as after a crash.
        self.store = None if uri.startswith("sqlite") else open_store(uri, 5.0)

    @contextmanager
    def open(self, ring: str = "default") -> Iterator[MessageQueue]:
        """Open a queue with a busy timeout of five seconds."""
        queue = MessageQueue(self.store or self.uri, ring, busy_timeout=5)
        try:
            yield queue
        finally:
            if self.store is None:
                queue.close()

    def begin(self, scene: Scene) -> tuple[str, State]:
        """Make a new ring for the scene.

        All connections are closed, so that a child can be forked.
        """
        self.count += 1
        ring, state = f"r{self.count}", State()
        with self.open() as queue:
            queue.admin.create_ring(ring, scene.config)
        with self.open(ring) as queue:
            scene.prepare(queue, state)
        return ring, state


@pytest.fixture
def place(store_uri: str) -> Iterator[Place]:
    place = Place(store_uri)
    yield place
    if place.store:
        place.store.close()


def acting(place: Place, scene: Scene, ring: str, state: State) -> Callable[[Callable[[str], None]], None]:
    def work(probe: Callable[[str], None]) -> None:
        listeners = [lambda origin, footprint: None] if scene.listens else []
        queue = probed(MessageQueue(place.uri, ring, listeners=listeners), probe)
        probe("called")
        scene.act(queue, state)
        probe("returned")

    return work


@pytest.mark.parametrize("scene", MARKED, ids=lambda scene: scene.name.replace(" ", "-"))
def test_operation_survives_a_kill_at_each_point(place: Place, scene: Scene) -> None:
    """After the kill the store is sound, and after recovery each message has ended exactly once."""
    ring, state = place.begin(scene)
    points = run_child(acting(place, scene, ring, state)).points
    assert points[0] == "called" and points[-1] == "returned"
    acknowledged = points.index("committed") if "committed" in points else len(points) - 1
    commits = [points[: index + 1].count("committed") for index in range(len(points))]
    numbers, seen = chosen(points, everywhere=place.store is None and scene.name in TYPICAL), set()
    for number, following in zip(numbers, [*numbers[1:], len(points) - 1], strict=True):
        name = points[number]
        ring, state = place.begin(scene)
        ended = run_child(acting(place, scene, ring, state), kill_at=number)
        assert ended.killed, f"the child did not reach {name} at {number}"
        try:
            with place.open(ring) as queue:
                assert_sound(queue)
                if place.store:
                    # Recovery on a server is slow. Of all kills in a transaction that left the same rows, recover after
                    # the first one and after the last one, when the dead process held the most locks.
                    rows_and_commits = (commits[number], number >= acknowledged, alike(queue))
                    if rows_and_commits in seen and commits[following] == commits[number] and following != number:
                        continue
                    seen.add(rows_and_commits)
                scene.repeat(queue, state)
                assert_sound(queue)
                finish(queue)
                assert_sound(queue)
                if number >= acknowledged or scene.name == "enqueue keyed":
                    assert_conserved(queue, sent=[*state.sent, *scene.sends])
                else:
                    assert_conserved(queue, sent=state.sent, doubtful=[scene.sends] if scene.sends else [])
        except BaseException as error:
            error.add_note(f"killed at point {number}, {name}, of {points}") if hasattr(error, "add_note") else None
            raise


def test_rings_with_the_same_past_are_alike(place: Place) -> None:
    """A message more or less, or in another state, makes a difference."""
    scene = next(scene for scene in SCENES if scene.name == "plan")
    states = []
    for act in (lambda queue: None, lambda queue: None, lambda queue: queue.enqueue_message("a", b"one more"),
                lambda queue: queue.blocks.plan(), lambda queue: queue.blocks.plan(limit=Weight(3, 1_000)),
                lambda queue: queue.admin.pause("a")):  # fmt: skip
        with place.open(place.begin(scene)[0]) as queue:
            act(queue)
            states.append(alike(queue))
    assert states[0] == states[1]
    assert len(set(states)) == len(states) - 1


def test_scenes_cover_enough_points(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The scenes have at least thirty named points."""
    place = Place(f"sqlite:///{tmp_path_factory.mktemp('points') / 'store.db'}")
    seen: set[str] = set()
    total = 0
    for scene in SCENES:
        ring, state = place.begin(scene)
        points = run_child(acting(place, scene, ring, state)).points
        seen.update(points)
        total += len(points)
    print(f"\n{len(seen)} named points, {total} in all over {len(SCENES)} scenes")
    assert len(seen) >= 30
    assert total >= 300


@pytest.mark.parametrize("seed", [3, 14, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (15, 92))])
def test_messages_survive_kills_at_random_moments(place: Place, seed: int) -> None:
    """A sender, a service and a planner are killed repeatedly at random moments."""
    rng = random.Random(seed)
    scene = Scene("random", lambda queue, state: None, mixed)
    ring, state = place.begin(scene)
    doubtful: list[list[bytes]] = []
    for turn in range(12):
        calls = [
            [f"turn {turn} call {call} {n}".encode() for n in range(rng.choice([1, 3, 30]))] for call in range(200)
        ]

        def send(calls: list[list[bytes]] = calls) -> None:
            with MessageQueue(place.uri, ring) as queue:
                for call in calls:
                    queue.enqueue_messages("a", call)

        def serve() -> None:
            with MessageQueue(place.uri, ring) as queue:
                while True:
                    queue.service_queues(processor, slice_messages=20)

        def plan() -> None:
            with MessageQueue(place.uri, ring) as queue:
                while True:
                    block = queue.blocks.plan()
                    queue.blocks.report(block, [batch.answer() for batch in block.batches() if batch.origin != "c"])
                    queue.blocks.settle(block)

        # The planner's blocks send no children, so parents are only in the queue of the service.
        children = [start_child(send), start_child(serve)]
        if turn and rng.random() < 0.7:
            children.append(start_child(plan))
        for child in rng.sample(children, len(children)):
            time.sleep(rng.random() * 0.06)
            end_child(child, kill=True)
        doubtful += calls
        with place.open(ring) as queue:
            assert_sound(queue)
            if turn % 3 == 0:
                finish(queue)
    with place.open(ring) as queue:
        finish(queue)
        finish(queue)
        assert_sound(queue)
        assert_conserved(queue, sent=state.sent, doubtful=doubtful)
