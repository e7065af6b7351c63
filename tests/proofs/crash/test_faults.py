"""Errors at each statement of plan, settle and service; disconnected servers; lost answers."""

from __future__ import annotations

import contextlib
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.rules.errors import Busy, CommitInDoubt, StoreError, StoreFull, StoreUnreachable
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.testing import assert_sound
from tests.interruption import before_statement
from tests.postgres_server import Server, running_postgres

from .aftermath import assert_conserved, finish, processor
from .proxy import Proxy
from .scenes import CONFIG, SCENES, Scene, State, chosen, mixed, reported
from .states import everything

pytestmark = pytest.mark.crash

BY_NAME = {scene.name: scene for scene in SCENES}
#: Scenes of one transaction: after an error, no row has changed.
WHOLE = ["plan", "plan in rotation", "plan with a weigher", "report", "settle", "release", "execute", "plan by hand",
         "settle by hand", "discard", "reap", "sweep", "force head", "change ring", "enqueue bulk", "enqueue keyed",
         "enqueue high", "plan urgent", "settle urgent"]  # fmt: skip


class Injected:
    """A probe that counts points, and raises the driver's error at one of them."""

    def __init__(self, uri: str) -> None:
        self.sqlite = uri.startswith("sqlite")
        self.passed: list[str] = []
        self.fail_at: int | None = None

    def __call__(self, name: str) -> None:
        self.passed.append(name)
        if len(self.passed) - 1 == self.fail_at:
            if self.sqlite:
                raise sqlite3.OperationalError("database or disk is full")
            raise psycopg.errors.DiskFull("could not extend file: No space left on device")


@pytest.fixture
def rings(store_uri: str) -> Iterator[Callable[[Scene], tuple[MessageQueue, State]]]:
    """Return a function that creates a new ring in one store."""
    upgrade(parse(store_uri))
    count = 0
    with MessageQueue(store_uri) as first:

        def begin(scene: Scene) -> tuple[MessageQueue, State]:
            nonlocal count
            count += 1
            first.store.probe = None
            first.admin.create_ring(f"r{count}", scene.config)
            queue, state = MessageQueue(first.store, f"r{count}"), State()
            # Expired rows are deleted in a transaction of its own, whose errors do not fail the call before it.
            queue.session._forgot_at = math.inf
            scene.prepare(queue, state)
            return queue, state

        yield begin


def ring_of(first: MessageQueue, scene: Scene) -> tuple[MessageQueue, State]:
    name = f"points-{scene.name}"
    first.admin.create_ring(name, scene.config)
    queue, state = MessageQueue(first.store, name), State()
    scene.prepare(queue, state)
    return queue, state


def points_of(rings: Callable[[Scene], tuple[MessageQueue, State]], scene: Scene) -> list[str]:
    queue, state = rings(scene)
    probe = Injected(queue.store.address.uri)
    queue.store.probe = probe
    scene.act(queue, state)
    queue.store.probe = None
    return probe.passed


@pytest.mark.parametrize("name", WHOLE)
def test_error_at_each_statement_changes_nothing(
    rings: Callable[[Scene], tuple[MessageQueue, State]], name: str
) -> None:
    """The error is clear, no row has changed, and a retry succeeds."""
    scene = BY_NAME[name]
    points = points_of(rings, scene)
    # A statement that commits itself has no other point.
    last = len(points) - 1 - points[::-1].index("commit") if "commit" in points else 0
    if name in ("plan with a weigher", "execute"):
        # The lease on the ring is taken and dropped in separate transactions.
        last = [index for index, point in enumerate(points) if point == "commit"][-2]
    for number in range(last + 1) if name in ("plan", "settle") else chosen(points[: last + 1]):
        if points[number] == "committed":
            continue
        queue, state = rings(scene)
        before = everything(queue)
        probe = Injected(queue.store.address.uri)
        probe.fail_at = number
        queue.store.probe = probe
        with pytest.raises(StoreFull, match="full"):
            scene.act(queue, state)
        queue.store.probe = None
        where = f"failed at {number}, {points[number]}, of {points}"
        assert everything(queue) == before, where
        assert queue.check() == [], where
        scene.act(queue, state)
        assert_sound(queue)
        finish(queue)
        assert_sound(queue)
        assert_conserved(queue, sent=[*state.sent, *scene.sends])


@pytest.mark.parametrize("name", ["service", "service batches", "service and cut"])
def test_error_at_each_statement_of_a_slice_keeps_earlier_slices(
    rings: Callable[[Scene], tuple[MessageQueue, State]], name: str
) -> None:
    """Committed results stay, others are retried, and the check passes at once."""
    scene = BY_NAME[name]
    points = points_of(rings, scene)
    for number in chosen(points[:-1]):
        if points[number] == "committed":
            continue
        queue, state = rings(scene)
        probe = Injected(queue.store.address.uri)
        probe.fail_at = number
        queue.store.probe = probe
        with pytest.raises(StoreError, match="full"):
            scene.act(queue, state)
        queue.store.probe = None
        where = f"failed at {number}, {points[number]}, of {points[: number + 3]}"
        assert queue.check() == [], where
        with queue.store.loose() as unit:
            # The service still released its lease, so no other operation waits for it.
            assert unit.rows("lock_ring", ring=queue.session.ring_id)[0][4] is None, where
        finish(queue)
        assert_sound(queue)
        assert_conserved(queue, sent=state.sent)


@pytest.mark.parametrize("name", ["settle", "release", "service"])
def test_error_in_the_deletion_of_expired_rows_fails_no_call(
    rings: Callable[[Scene], tuple[MessageQueue, State]], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The call has committed by then, so its result stands; the log names the error."""
    scene = BY_NAME[name]

    def begin(chosen_scene: Scene) -> tuple[MessageQueue, State]:
        queue, state = rings(chosen_scene)
        queue.session._forgot_at = -math.inf
        return queue, state

    points = points_of(begin, scene)
    first = len(points) - 1 - points[::-1].index("begin")
    assert points[first:-1].count("commit") == 1
    for number in range(first + 1, len(points) - 1):
        queue, state = begin(scene)
        probe = Injected(queue.store.address.uri)
        probe.fail_at = number
        queue.store.probe = probe
        scene.act(queue, state)
        queue.store.probe = None
        assert "could not delete expired rows" in caplog.text, f"failed at {number}, {points[number]}"
        caplog.clear()
        assert_sound(queue)
        finish(queue)
        assert_conserved(queue, sent=[*state.sent, *scene.sends])


# PostgreSQL: the server disconnects.


@pytest.fixture
def own_server() -> Iterator[Server]:
    with running_postgres("embedded", volatile=True) as server:
        yield server


@contextlib.contextmanager
def at_commit(queue: MessageQueue, after: str, action: Callable[[], object]) -> Iterator[None]:
    """Run an action right before the commit of the transaction that executes `after`."""
    armed = False

    def probe(name: str) -> None:
        nonlocal armed
        armed = armed or name == after
        if armed and name == "commit":
            armed = False
            action()

    queue.store.probe = probe
    try:
        yield
    finally:
        queue.store.probe = None


def start_ring(uri: str, prepare: Callable[[MessageQueue, State], object]) -> tuple[MessageQueue, State]:
    upgrade(parse(uri))
    with MessageQueue(uri) as first:
        first.admin.create_ring("r", CONFIG)
    queue, state = MessageQueue(uri, "r"), State()
    prepare(queue, state)
    return queue, state


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("how", ["restart", "kill"])
def test_plan_and_settle_survive_a_server_restart(own_server: Server, how: str) -> None:
    uri = own_server.create_database()
    for statement, prepare, act in [
        ("insert_claim", mixed, lambda q, s: q.blocks.plan()),
        ("save_book", reported, lambda q, s: q.blocks.settle(s.handle)),
    ]:  # fmt: skip
        own_server.drop_database(uri)
        uri = own_server.create_database()
        queue, state = start_ring(uri, prepare)
        before = everything(queue)

        def go_away() -> None:
            own_server.kill() if how == "kill" else own_server.stop()
            own_server.start()

        before_statement(queue, statement, go_away)
        with pytest.raises(StoreUnreachable):
            act(queue, state)
        queue.store.probe = None
        assert everything(queue) == before
        act(queue, state)
        finish(queue)
        assert_sound(queue)
        assert_conserved(queue, sent=state.sent)
        queue.close()


@pytest.mark.postgres
def test_terminated_connection_raises_and_a_retry_succeeds(pg_uri: str) -> None:
    """After `pg_terminate_backend` during plan or settle, a named error is raised and a retry succeeds."""
    upgrade(parse(pg_uri))
    with psycopg.connect(pg_uri, autocommit=True) as killer, MessageQueue(pg_uri) as first:
        for scene in (BY_NAME["plan"], BY_NAME["settle"]):
            points = points_of(lambda chosen_scene: ring_of(first, chosen_scene), scene)
            for number in sorted({points.index(name) for name in points}):
                ring = f"{scene.name}{number}"
                first.admin.create_ring(ring, scene.config)
                queue, state = MessageQueue(pg_uri, ring), State()
                scene.prepare(queue, state)
                before, passed = everything(queue), []

                def probe(name: str, queue: MessageQueue = queue, passed: list[str] = passed, n: int = number) -> None:
                    passed.append(name)
                    if len(passed) - 1 == n:
                        killer.execute(
                            "SELECT pg_terminate_backend(%s, 5000)", (queue.store.lent().connection.info.backend_pid,)
                        )

                queue.store.probe = probe
                try:
                    scene.act(queue, state)
                    finished = True
                except CommitInDoubt:
                    # A dead connection leaves the result of a commit unknown.
                    assert passed[-1] == "commit"
                    finished = False
                except StoreUnreachable:
                    finished = False
                queue.store.probe = None
                assert len(passed) > number
                if not finished:
                    assert everything(queue) == before, passed
                else:
                    # The answer arrived before the connection was terminated; the next call finds it closed.
                    with contextlib.suppress(StoreUnreachable):
                        queue.admin.rings()
                scene.repeat(queue, state)
                finish(queue)
                assert_sound(queue)
                assert_conserved(queue, sent=state.sent)
                queue.close()


@pytest.mark.postgres
def test_queue_survives_repeatedly_terminated_connections(pg_uri: str) -> None:
    """With two terminations a second, each error has a name, and no message is lost."""
    upgrade(parse(pg_uri))
    over, sent, errors = threading.Event(), [], []

    def terminate() -> None:
        with psycopg.connect(pg_uri, autocommit=True) as killer:
            while not over.wait(0.2):
                killer.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1"
                )

    thread = threading.Thread(target=terminate)
    with MessageQueue(pg_uri) as queue:
        thread.start()
        began, number = time.monotonic(), 0
        while time.monotonic() - began < 6:
            number += 1
            payload = f"message {number}".encode()
            while len(sent) < number:
                try:
                    queue.enqueue_message("a", payload, key=f"key {number}")
                    sent.append(payload)
                except (StoreUnreachable, CommitInDoubt) as error:
                    errors.append(error)
            try:
                if number % 20 == 0:
                    queue.service_queues(processor)
                elif number % 7 == 0:
                    block = queue.blocks.plan(key=f"block {number}")
                    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
                    queue.blocks.settle(block)
            except (StoreUnreachable, CommitInDoubt) as error:
                errors.append(error)
        over.set()
        thread.join()
        # The last connection may be terminated after its last answer; the next call finds it closed.
        with contextlib.suppress(StoreUnreachable):
            queue.admin.rings()
        finish(queue)
        finish(queue)
        assert_sound(queue)
        assert errors
        assert_conserved(queue, sent=sent)


@pytest.mark.postgres
@pytest.mark.parametrize("single", [True, False], ids=["single", "bulk"])
def test_lost_answer_of_a_commit_raises_commit_in_doubt(pg_uri: str, single: bool) -> None:
    """The result is unknown; a retry with the same key is accepted once."""
    upgrade(parse(pg_uri))
    with Proxy(pg_uri) as proxy, MessageQueue(proxy.uri) as queue:
        for cut in (proxy.cut_after, proxy.cut_before):
            for number in range(2):
                key = f"{cut.__name__} {number}"
                payload = key.encode()
                with pytest.raises(CommitInDoubt, match="result is unknown"), at_commit(queue, "claim_key", cut):
                    queue.enqueue_message("a", payload, key=key)
                again = queue.enqueue_message("a", payload, key=key)
                assert again.count + again.repeated == 1
                assert again.repeated == (1 if cut == proxy.cut_after else 0)
        assert queue.footprint("a").count == 4
        # A plain message is one statement that commits itself.
        proxy.cut_after(b"plain message")
        with pytest.raises(CommitInDoubt):
            if single:
                queue.enqueue_message("b", b"plain message")
            else:
                queue.enqueue_messages("b", [b"plain message", b"and another"])
        assert queue.footprint("b").count == (1 if single else 2)
        assert_sound(queue)


@pytest.mark.postgres
def test_plan_and_settle_can_be_repeated_after_lost_answers(pg_uri: str) -> None:
    with Proxy(pg_uri) as proxy:
        queue, state = start_ring(proxy.uri, mixed)
        with pytest.raises(CommitInDoubt), at_commit(queue, "insert_block", proxy.cut_after):
            queue.blocks.plan(key="run 1")
        block = queue.blocks.plan(key="run 1")
        assert block.messages > 0
        assert len(queue.blocks.list("planned")) == 1
        queue.blocks.report(block, [batch.answer() for batch in block.batches()])
        with pytest.raises(CommitInDoubt), at_commit(queue, "end_block", proxy.cut_after):
            queue.blocks.settle(block)
        assert queue.blocks.settle(block).processed > 0
        assert_sound(queue)
        queue.close()


@pytest.mark.postgres
def test_lost_answer_of_a_read_raises_store_unreachable(pg_uri: str) -> None:
    """A read commits nothing, so its result is never in doubt."""
    with Proxy(pg_uri) as proxy:
        queue, _ = start_ring(proxy.uri, mixed)
        with pytest.raises(StoreUnreachable), at_commit(queue, "begin", proxy.cut_after):
            queue.footprint("a")
        assert queue.footprint("a").count > 0
        queue.close()


@pytest.mark.parametrize("lost", ["the lease's commit", "its release"])
def test_unreleased_lease_blocks_only_other_queues(store_uri: str, lost: str) -> None:
    """The queue that lost the store can start again at once; others wait until the lease expires."""
    upgrade(parse(store_uri))
    with MessageQueue(store_uri, busy_timeout=0.1) as queue, MessageQueue(store_uri, busy_timeout=0.1) as other:
        queue.enqueue_message("a", b"one")

        def lose(statement: str) -> None:
            if lost == "the lease's commit" and statement == "committed":
                raise CommitInDoubt()
            if lost == "its release" and statement in ("save_state", "change_lease"):
                raise StoreUnreachable("the store is gone")

        queue.store.probe = lose
        with pytest.raises((CommitInDoubt, StoreUnreachable)):
            queue.service_queues(processor)
        queue.store.probe = None
        with pytest.raises(Busy):
            other.service_queues(processor)
        assert queue.service_queues(processor).processed == 1
        assert other.service_queues(processor).processed == 0
        assert_sound(queue)
