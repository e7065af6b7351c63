"""SIGKILL during uploads, references and deletions of payloads: needed ones stay, no other is left."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import airflow_mq.engine.store.blobs as kept
from airflow_mq import BadFormat, Done, MessageQueue, Overweight, Weight, Yield
from airflow_mq.engine.queue.values import Delivery
from airflow_mq.engine.rules.message import message_id
from airflow_mq.spark.items import messages_of
from airflow_mq.testing import assert_sound

from .children import end_child, run_child, start_child
from .scenes import CONFIG, Scene, State, chosen
from .test_kill import Place, acting, place  # noqa: F401 - a fixture

pytestmark = pytest.mark.crash

#: Seven chunks with the small chunk size of these tests.
LARGE, OTHER = b"large, " * 9_000, b"other: " * 2_000


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "CHUNK", 10_000)
    monkeypatch.setattr(kept, "TOGETHER", 2)


def send(queue: MessageQueue, state: State) -> None:
    """Enqueue three external payloads, one of them repeated, and a plain message."""
    queue.payloads.enqueue("a", LARGE)
    with queue.payloads.put(OTHER) as blob:
        queue.enqueue_messages([("a", blob.reference), ("a", b"plain"), ("b", blob.reference)])
    queue.payloads.enqueue("b", iter([LARGE]))


def answer(delivery: Delivery) -> Any:
    """Forward one payload, fail one, and set one aside."""
    if delivery.origin == "a" and delivery.id == message_id(LARGE):
        return Done(enqueue=[("c", delivery.payload)])
    if delivery.origin == "b" and delivery.id == message_id(LARGE):
        return Overweight(Weight(5_000_000, 0))
    return BadFormat() if delivery.origin == "b" else None


def planned(queue: MessageQueue, state: State) -> None:
    send(queue, state)
    block = queue.blocks.plan()
    state.handle = block.token
    for batch in block.batches():
        answers = [answer(delivery) for delivery in messages_of([batch])]
        queue.blocks.report(block, batch.answers([outcome or Done() for outcome in answers]))


def served(queue: MessageQueue, state: State) -> None:
    send(queue, state)
    queue.service_queues(answer)
    state.handle = [aside.address for aside in queue.set_aside.list()]


def abandon_uploads(queue: MessageQueue, state: State) -> None:
    """Leave two unfinished uploads and an unsent one."""
    send(queue, state)
    for _ in range(2):
        upload = kept.Upload(queue.store, 60, queue.config.blob_path)
        upload.write(LARGE)
        if upload._file and upload._file._stream:
            upload._file._stream.close()
    queue.payloads.put(b"never sent" * 3_000)
    expire_holds(queue)


SCENES = [
    Scene("upload and send", lambda q, s: q.payloads.enqueue("a", iter([LARGE]))),
    Scene("send stored payload", lambda q, s: q.payloads.enqueue("a", LARGE), send),
    Scene("upload stored payload", lambda q, s: q.payloads.enqueue("a", iter([LARGE])), send),
    Scene("send many", send),
    Scene("service", lambda q, s: q.service_queues(answer, slice_messages=2), send),
    Scene("plan", lambda q, s: q.blocks.plan(), send),
    Scene("settle", lambda q, s: q.blocks.settle(s.handle), planned, lambda q, s: q.blocks.settle(s.handle)),
    Scene("discard", lambda q, s: q.set_aside.discard(s.handle, "not wanted"), served),
    Scene("execute", lambda q, s: q.execute_overweight(s.handle[0], lambda d: None), served),
    Scene("housekeep", lambda q, s: q.admin.housekeep(), abandon_uploads),
]  # fmt: skip
WIDE = CONFIG.changed(heap_size=200, service_weight=Weight(1_000, 1 << 30))


def expire_holds(queue: MessageQueue) -> None:
    """Let all time-limited holds expire."""
    prefix = queue.store.prefix
    with queue.store.writing() as unit:
        for table in ("upload", "blob_use"):
            unit.connection.execute(f"UPDATE {prefix}{table} SET until = 1 WHERE until IS NOT NULL")


def count_stored(queue: MessageQueue) -> dict[str, int]:
    prefix = queue.store.prefix
    with queue.store.reading() as unit:
        count = {
            table: unit.connection.execute(f"SELECT count(*) FROM {prefix}{table}").fetchone()[0]
            for table in ("blob", "blob_use", "upload", "chunk")
        }
    folder = queue.config.blob_path
    count["files"] = len(os.listdir(folder)) if folder and os.path.isdir(folder) else 0
    return {name: number for name, number in count.items() if number}


def read_and_drop(delivery: Delivery) -> None:
    if delivery.blob:
        with delivery.open_blob() as file:
            assert message_id(file.read()) == delivery.id


def recover(queue: MessageQueue) -> None:
    """Check that each needed payload is stored, and that none is left after the last message."""
    assert_sound(queue)
    expire_holds(queue)
    queue.admin.housekeep()
    assert_sound(queue)
    for block in queue.blocks.list("planned"):
        queue.blocks.release(block)
    while queue.service_queues(read_and_drop).processed:
        pass
    for aside in queue.set_aside.list(limit=1_000):
        queue.execute_overweight(aside.address, read_and_drop)
    assert not [event for event in queue.inspect.events(name="ProcessingFailed") if event.fate.name == "UNSUPPORTED"]
    assert [entry for entry in queue.footprints(limit=1_000) if entry[1].count] == []
    expire_holds(queue)
    queue.admin.housekeep()
    assert count_stored(queue) == {}
    assert_sound(queue)


#: `make soak` kills the others on PostgreSQL, too.
ON_BOTH = ("upload and send", "send many", "service")
MARKED = [scene if scene.name in ON_BOTH else pytest.param(scene, marks=pytest.mark.sqlite_first) for scene in SCENES]

#: Scenes that differ if payloads are files; they are the same with each database.
FILES = ("upload and send", "upload stored payload", "housekeep")


@pytest.mark.parametrize("scene", MARKED, ids=lambda scene: scene.name.replace(" ", "-"))
def test_payloads_survive_a_kill_at_each_point(place: Place, scene: Scene, tmp_path: Path) -> None:  # noqa: F811
    _kill_everywhere(place, scene, tmp_path, "database")


@pytest.mark.parametrize("name", FILES)
def test_payload_files_survive_a_kill_at_each_point(sqlite_uri: str, name: str, tmp_path: Path) -> None:
    _kill_everywhere(Place(sqlite_uri), next(scene for scene in SCENES if scene.name == name), tmp_path, "files")


def _kill_everywhere(place: Place, scene: Scene, tmp_path: Path, kind: str) -> None:  # noqa: F811
    config = WIDE.changed(blob_path=str(tmp_path / "blobs") if kind == "files" else None)
    scene = Scene(scene.name, scene.act, scene.prepare, scene.repeat, config=config)
    ring, state = place.begin(scene)
    points = run_child(acting(place, scene, ring, state)).points
    assert points[-1] == "returned"
    with place.open(ring) as queue:
        recover(queue)
    for number in chosen(points, everywhere=place.store is None):
        ring, state = place.begin(scene)
        assert run_child(acting(place, scene, ring, state), kill_at=number).killed
        try:
            with place.open(ring) as queue:
                assert_sound(queue)
                scene.repeat(queue, state)
                recover(queue)
        except BaseException as error:
            error.add_note(f"killed at point {number}, {points[number]}") if hasattr(error, "add_note") else None
            raise


MESSAGES, PAYLOADS = 10_000, [number.to_bytes(2, "big") * 6_000 for number in range(100)]


@pytest.mark.sqlite_first
@pytest.mark.slow
def test_payloads_survive_repeated_kills(place: Place, seed: int = 4) -> None:  # noqa: F811
    """Senders and processors are killed repeatedly while 10,000 messages refer to 100 payloads."""
    rng = random.Random(seed)
    config = WIDE.changed(heap_size=2_048, ordered=False, max_attempts=4)
    ring, _ = place.begin(Scene("many", lambda queue, state: None, config=config))

    def send(turn: int) -> None:
        turn_rng = random.Random(f"{seed} {turn}")
        with MessageQueue(place.uri, ring, busy_timeout=20) as queue:
            for _ in range(40):
                numbers = turn_rng.sample(range(100), 20)
                held = [queue.payloads.put(PAYLOADS[number]) for number in numbers[:3]]
                known = [blob.reference for blob in held for _ in range(7)]
                turn_rng.shuffle(known)
                queue.enqueue_messages([(f"o{turn_rng.randrange(9)}", message) for message in known])
                for blob in held:
                    blob.release()

    def serve(turn: int) -> None:
        turn_rng = random.Random(f"{seed} {turn} served")

        def process(delivery: Delivery) -> Any:
            if turn_rng.random() < 0.1:
                read_and_drop(delivery)
            return Yield() if turn_rng.random() < 0.05 else BadFormat() if turn_rng.random() < 0.05 else None

        with MessageQueue(place.uri, ring, busy_timeout=20) as queue:
            while True:
                queue.service_queues(process, Weight(200, 1 << 40), slice_messages=30)
                for aside in queue.set_aside.list(limit=5):
                    queue.set_aside.discard(aside.address, "tried too often")

    turn = 0
    while _sent(place, ring) < MESSAGES:
        turn += 1
        children = [start_child(lambda turn=turn: send(turn)), start_child(lambda turn=turn: serve(turn))]  # type: ignore[misc]
        for child in rng.sample(children, 2):
            time.sleep(rng.random() * 0.5)
            end_child(child, kill=True)
        with place.open(ring) as queue:
            assert_sound(queue)
    with place.open(ring) as queue:
        recover(queue)
        print(f"\n{_sent(place, ring):,} messages, {turn} turns with two killed in each")


def _sent(place: Place, ring: str) -> int:  # noqa: F811
    with place.open(ring) as queue:
        final = Counter(event.name for event in queue.inspect.events())
        gone = final["Processed"] + final["ProcessingFailed"] + final["Discarded"]
        return gone + sum(footprint.count for _, footprint in queue.footprints(limit=100))
