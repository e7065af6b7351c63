"""External payloads: one stored copy for as long as a message refers to it."""

from __future__ import annotations

import io
import os
import random
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest
from upath import UPath

from airflow_mq import BadFormat, Done, Message, MessageQueue, Overweight, RingConfig, Weight, Yield, batch_processor
from airflow_mq.engine.queue import session
from airflow_mq.engine.queue.values import Enqueued, Serviced
from airflow_mq.engine.rules.blob import MAGIC, REFERENCE_BYTES, Reference
from airflow_mq.engine.rules.errors import (
    BlobMissing,
    CommitInDoubt,
    ConfigRefused,
    EmptyMessage,
    InvalidInput,
    StoreCorrupt,
    StoreUnreachable,
    UploadGivenUp,
)
from airflow_mq.engine.rules.message import message_id
from airflow_mq.engine.store import blobs, parse, upgrade
from airflow_mq.engine.store.blob_files import BlobFile, by_fsspec
from airflow_mq.engine.store.blobs import CHUNK, SWEPT, TOGETHER, Upload
from airflow_mq.engine.store.payloads import Payloads
from tests.conftest import STORES
from tests.holding import drop_lease, take_lease
from tests.postgres_server import Servers
from tests.proofs.model.clock import Clock
from tests.store.queue.conftest import Maker, logged_events
from tests.templates import Templates

LARGE = bytes(range(256)) * 1_000  # 256,000 bytes: more than a page, less than a chunk
HUGE = random.Random(1).randbytes(CHUNK * (TOGETHER + 1) + 5)


def digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=32).digest()


@pytest.fixture(
    params=[*(pytest.param(name, marks=pytest.mark.postgres) if name != "sqlite" else name for name in STORES), "files"]
)
def store_uri(request: pytest.FixtureRequest, templates: Templates) -> Iterator[str]:
    """Yield each database in turn, and one whose payloads are stored in files."""
    if not request.param.startswith("postgres"):
        yield request.getfixturevalue("sqlite_uri")
        return
    servers: Servers = request.getfixturevalue("postgres_servers")
    server = servers[request.param.removeprefix("postgres-")]
    with server.database(templates.postgres(server)) as uri:
        yield uri


@pytest.fixture
def queue(request: pytest.FixtureRequest, make_queue: Maker, tmp_path: Path) -> MessageQueue:
    """Return a ring that stores payloads in the database or in a folder."""
    return make_queue(order="rotation", blob_path=str(tmp_path / "blobs") if "[files" in request.node.name else None)


def stored(queue: MessageQueue) -> Counter[str]:
    """Count the stored rows and files of external payloads."""
    counts: Counter[str] = Counter()
    prefix = queue.store.prefix
    with queue.store.reading() as unit:
        for table in ("blob", "blob_use", "upload", "chunk"):
            count = unit.connection.execute(f"SELECT count(*) FROM {prefix}{table}").fetchone()[0]
            if count:
                counts[table] = count
    folder = queue.config.blob_path
    files = os.listdir(folder) if folder and os.path.isdir(folder) else []
    if files:
        counts["files"] = len(files)
    return counts


def read(queue: MessageQueue, source: Any) -> bytes:
    with queue.payloads.open(source) as file:
        return file.read()


def test_payload_is_stored_once_and_deleted_with_its_last_message(queue: MessageQueue) -> None:
    assert queue.payloads.enqueue("acme", LARGE) == Enqueued(1, len(LARGE))
    queue.payloads.enqueue("birch", io.BytesIO(LARGE), headers={"trace": "1"})
    queue.payloads.enqueue("birch", iter([LARGE[:7], LARGE[7:]]))
    (blob,) = queue.payloads.list()
    assert (blob.hash, blob.size, blob.references, blob.held_until) == (digest(LARGE), len(LARGE), 3, None)
    assert read(queue, blob) == LARGE and queue.check() == []

    seen = []

    def process(delivery: Any) -> None:
        assert delivery.id == delivery.blob.hash == digest(LARGE) and delivery.blob.size == len(LARGE)
        with delivery.open_blob() as file:
            assert file.read() == LARGE
        seen.append(delivery.origin)

    queue.service_queues(process, Weight(1, 1 << 40))
    assert seen == ["acme"] and queue.payloads.list()[0].references == 2 and queue.check() == []
    queue.service_queues(process)
    assert seen == ["acme", "birch", "birch"]
    assert queue.payloads.list() == [] and stored(queue) == {}
    assert {event.id for event in queue.inspect.events()} == {digest(LARGE)}


def test_page_holds_the_reference_and_weigher_sees_the_payload(queue: MessageQueue) -> None:
    queue.payloads.enqueue("acme", HUGE)
    footprint = queue.footprint("acme")
    assert (footprint.count, footprint.size) == (1, REFERENCE_BYTES)
    assert queue.service_queues(lambda delivery: None).weight == Weight(1, len(HUGE))


def test_payload_too_large_for_a_block_is_set_aside(make_queue: Maker) -> None:
    queue = make_queue(service_weight=Weight(100, 10_000), heap_size=20_000, max_attempts=None)
    queue.payloads.enqueue("acme", LARGE)
    queue.enqueue_message("acme", b"light")
    queue.service_queues(lambda delivery: None)
    (aside,) = queue.set_aside.list()
    assert (aside.size, aside.weight, aside.id) == (len(LARGE), Weight(1, len(LARGE)), digest(LARGE))
    assert queue.payloads.list()[0].references == 1 and queue.check() == []
    queue.set_aside.discard(aside.address, "not wanted")
    assert stored(queue) == {}


@pytest.mark.parametrize("data", [LARGE[:1], b"x" * CHUNK, b"x" * (CHUNK + 1), HUGE], ids=len)
def test_payload_of_any_size_is_read_back(queue: MessageQueue, data: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(data)
    progress: list[tuple[int, int | None]] = []
    queue.payloads.enqueue("acme", tmp_path / "file", progress=lambda done, total: progress.append((done, total)))
    assert progress[-1] == (len(data), len(data))
    assert read(queue, digest(data)) == data
    with queue.payloads.open(digest(data).hex()) as file:
        assert file.seek(-1, io.SEEK_END) == len(data) - 1
        assert file.read() == data[-1:] and file.read() == b""
        file.seek(len(data) // 2)
        assert file.read(10) == data[len(data) // 2 :][:10]


def test_payload_is_deleted_for_each_way_a_message_ends(queue: MessageQueue) -> None:
    queue.admin.change_ring(max_stale=0, max_attempts=1)
    payloads = {name: name.encode() * 30_000 for name in ("bad", "late", "tried", "declined", "discarded")}
    for name, payload in payloads.items():
        queue.payloads.enqueue(name, payload, expires=0 if name == "late" else None)
    answers = {"bad": BadFormat(), "tried": Yield(), "declined": Done(success=False)}
    queue.service_queues(lambda d: answers.get(d.origin, Overweight(Weight(1 << 60, 0))))
    assert sorted(aside.address.origin for aside in queue.set_aside.list()) == ["discarded", "tried"]
    assert {blob.hash for blob in queue.payloads.list()} == {digest(payloads["discarded"]), digest(payloads["tried"])}
    queue.set_aside.discard(
        next(o.address for o in queue.set_aside.list() if o.address.origin == "discarded"), "why not"
    )
    assert [blob.hash for blob in queue.payloads.list()] == [digest(payloads["tried"])]
    queue.execute_overweight(queue.set_aside.list()[0].address, lambda delivery: None)
    assert stored(queue) == {} and queue.check() == []


def test_reaping_a_page_deletes_its_payloads(queue: MessageQueue) -> None:
    queue.admin.change_ring(max_stale=0)
    held = [queue.payloads.put(b"%d" % number * 40_000) for number in range(4)]
    queue.enqueue_messages("acme", [blob.reference for blob in held])
    for blob in held:
        blob.release()
    queue.sweep_queue("acme")
    assert len(queue.payloads.list()) == 4 and queue.check() == []
    queue.enqueue_messages("acme", [b"x" * 60_000] * 3)
    queue.sweep_queue("acme")
    queue.reap_page("acme", 0, "old")
    assert queue.payloads.list() == [] and queue.check() == []


def test_set_aside_message_keeps_only_its_own_payload(queue: MessageQueue) -> None:
    held = [queue.payloads.put(b"%d" % number * 40_000) for number in range(5)]
    queue.enqueue_messages("acme", [blob.reference for blob in held])
    for blob in held:
        blob.release()
    heavy = held[2].hash
    queue.service_queues(lambda d: Overweight(Weight(1 << 60, 0)) if d.id == heavy else None)
    assert [blob.hash for blob in queue.payloads.list()] == [heavy] and queue.check() == []


def test_block_reads_payloads_from_batches(queue: MessageQueue) -> None:
    queue.payloads.enqueue("acme", LARGE)
    queue.payloads.enqueue("acme", HUGE, not_before=0)
    block = queue.blocks.plan()
    assert block.planned == Weight(2, len(LARGE) + len(HUGE))
    (batch,) = block.batches()
    assert [read(queue, payload) for payload in batch.payloads] == [LARGE, HUGE]
    queue.blocks.report(block, [batch.answer(Done(used=Weight(5, 5)))])
    queue.blocks.settle(block)
    assert stored(queue) == {}


def test_processor_forwards_a_payload_without_copying(queue: MessageQueue) -> None:
    queue.payloads.enqueue("in", LARGE)
    queue.service_queues(lambda d: queue.enqueue_message("out", d.payload) and None if d.origin == "in" else Yield())
    assert queue.payloads.list()[0].references == 1 and queue.check() == []
    block = queue.blocks.plan()
    (batch,) = block.batches()
    queue.blocks.report(block, [batch.answer(Done(enqueue=[("end", batch.payloads[0])]))])
    queue.blocks.settle(block)
    (peeked,) = queue.inspect.peek("end")
    assert read(queue, peeked) == LARGE and queue.payloads.list()[0].references == 1 and queue.check() == []


def test_processor_sends_a_payload_if_it_is_done(queue: MessageQueue) -> None:
    queue.enqueue_messages("in", [b"done", b"not now"])

    def process(delivery: Any) -> Any:
        if delivery.origin == "in":
            queue.payloads.enqueue("out", delivery.payload * 30_000)
        return Yield() if delivery.payload == b"not now" else None

    queue.service_queues(process, Weight(2, 1 << 40))
    assert [peeked.payload.hash for peeked in queue.inspect.peek("out")] == [digest(b"done" * 30_000)]  # type: ignore[attr-defined]
    assert {blob.hash: blob.references for blob in queue.payloads.list()} == {
        digest(b"done" * 30_000): 1, digest(b"not now" * 30_000): 0,
    }  # fmt: skip


def test_payloads_can_have_keys_and_be_enqueued_in_bulk(queue: MessageQueue) -> None:
    assert queue.payloads.enqueue("acme", LARGE, key="k") == Enqueued(1, len(LARGE))
    assert queue.payloads.enqueue("acme", LARGE, key="k") == Enqueued(0, 0, 1)
    with queue.payloads.put(HUGE) as blob:
        pairs = [
            ("acme", b"plain"),
            ("acme", Message(blob.reference, headers={"a": "b"})),
            ("birch", Message(b"small", key="j")),
        ]
        assert queue.enqueue_messages(pairs).count == 3
    assert {blob.size: blob.references for blob in queue.payloads.list()} == {len(LARGE): 1, len(HUGE): 1}
    tried = []
    queue.service_queues(lambda d: tried.append((d.origin, d.blob.size if d.blob else d.payload, dict(d.headers))))
    assert sorted(map(str, tried)) == sorted(map(str, [
        ("acme", len(LARGE), {}), ("acme", b"plain", {}), ("acme", len(HUGE), {"a": "b"}), ("birch", b"small", {}),
    ]))  # fmt: skip


def test_a_file_that_cannot_be_deleted_concerns_no_other_ring(
    make_queue: Maker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    kept = make_queue("kept", blob_path=str(tmp_path))
    other, remove, down = make_queue("other"), BlobFile.remove, [True]

    def removing(file: BlobFile) -> None:
        if down[0]:
            # Not an error of this package: each file system has its own.
            raise LookupError("no bucket")
        remove(file)

    monkeypatch.setattr(BlobFile, "remove", removing)
    for payload in (b"a" * 100_000, b"b" * 100_000):
        kept.payloads.enqueue("acme", payload)
    assert kept.service_queues(lambda delivery: None, Weight(1 << 30, 1 << 30)).processed == 2
    assert len(list(tmp_path.glob("*.blob"))) == 2
    # Sends and services of another ring go on, and so does housekeeping.
    assert other.payloads.enqueue("acme", b"c" * 100_000).count == 1
    assert other.service_queues(lambda delivery: None, Weight(1 << 30, 1 << 30)).processed == 1
    other.admin.housekeep()
    assert f"could not delete {tmp_path}" in caplog.text and "no bucket" not in caplog.text
    down[0] = False
    other.admin.housekeep()
    assert list(tmp_path.iterdir()) == []


def test_a_hold_of_a_processor_outlasts_its_call(queue: MessageQueue) -> None:
    queue.enqueue_message("in", b"1")
    found = []

    def process(delivery: Any) -> None:
        if delivery.origin == "in":
            with queue.payloads.put(LARGE) as blob:
                delivery.enqueue("out", blob.reference)
        else:
            found.append(read(queue, delivery.payload))

    queue.service_queues(process)
    assert found == [LARGE] and queue.check() == []


@pytest.mark.parametrize("end", ["settle", "recorded", "dead", "twice"])
def test_a_payload_that_a_block_sends_is_kept_until_the_block_ends(queue: MessageQueue, clock: Clock, end: str) -> None:
    queue.admin.change_ring(keep_uploads=1)
    queue.enqueue_message("in", b"1")
    block = queue.blocks.plan(lease=100)
    (batch,) = block.batches()
    queue.payloads.put(LARGE[1:])
    for _ in range(2 if end == "twice" else 1):
        queue.blocks.report(block, [batch.answer(Done(enqueue=[("out", queue.payloads.put(LARGE).reference)]))])
    clock.advance(10)
    assert queue.payloads.sweep() == 1
    token = b"held" * 4
    if end == "recorded":
        take_lease(queue.session, token)
    if end == "dead":
        clock.advance(100)
        assert queue.blocks.release_dead() == 1
    else:
        assert queue.blocks.settle(block).processed == 1
    assert queue.payloads.sweep() == 0 and queue.check() == []
    if end == "recorded":
        drop_lease(queue.session, token)
        queue.blocks.plan(origins=["none"])
    (peeked,) = queue.inspect.peek("out")
    assert read(queue, peeked) == LARGE
    assert [(blob.size, blob.references) for blob in queue.payloads.list()] == [(len(LARGE), 1)]
    assert queue.service_queues(lambda delivery: None).processed == 1
    assert stored(queue) == {} and queue.check() == []


def test_a_payload_that_the_outcome_of_a_token_sends_is_kept_until_it_is_applied(
    queue: MessageQueue, clock: Clock
) -> None:
    queue.admin.change_ring(keep_uploads=1)
    queue.enqueue_message("in", b"1")
    token = queue.leases.view("in").try_next()
    assert token is not None
    held = queue.payloads.put(LARGE)
    take_lease(queue.session, b"held" * 4)
    token.complete(Done(enqueue=[("out", held.reference)]))
    clock.advance(10)
    assert queue.payloads.sweep() == 0
    drop_lease(queue.session, b"held" * 4)
    queue.blocks.release_dead()
    assert [read(queue, peeked) for peeked in queue.inspect.peek("out")] == [LARGE] and queue.check() == []


def test_unsent_upload_expires(queue: MessageQueue, clock: Clock) -> None:
    kept = queue.payloads.put(LARGE)
    queue.admin.change_ring(keep_uploads=1)
    lost = queue.payloads.put(LARGE[1:])
    assert all(blob.references == 0 and blob.held_until for blob in queue.payloads.list())
    clock.advance(0.999)
    queue.admin.housekeep()
    assert len(queue.payloads.list()) == 2
    clock.advance(0.001)
    queue.admin.housekeep()
    assert [blob.reference for blob in queue.payloads.list()] == [kept.reference]
    with pytest.raises(BlobMissing, match="upload it again"):
        queue.enqueue_messages("acme", [lost.reference])
    assert queue.footprint("acme").count == 0
    kept.release()
    assert stored(queue) == {}


def test_an_open_sender_notices_a_folder(make_queue: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, other = make_queue("open"), make_queue("open")
    queue.admin.change_ring(blob_path=str(tmp_path / "new"))
    monkeypatch.setattr(session, "CONFIG_AGE", -1.0)
    with other.payloads.put(LARGE):
        (blob,) = queue.payloads.list()
        assert blob.path is not None and blob.path.startswith(str(tmp_path / "new"))


def test_failed_upload_leaves_nothing(queue: MessageQueue) -> None:
    def broken() -> Iterator[bytes]:
        yield HUGE
        raise OSError("the line went dead")

    with pytest.raises(OSError, match="went dead"):
        queue.payloads.enqueue("acme", broken())
    assert stored(queue) == {} and queue.footprint("acme").count == 0


def test_unfinished_upload_expires(queue: MessageQueue, clock: Clock) -> None:
    upload = Upload(queue.store, 0.1, queue.config.blob_path)
    upload.write(HUGE)
    assert stored(queue)["upload"] == 1
    clock.advance(0.1)
    queue.admin.housekeep()
    assert stored(queue) == {}
    with pytest.raises(UploadGivenUp, match="begin it again"):
        upload.finish()
    upload.drop()


def test_a_sweep_keeps_an_upload_that_is_completed_meanwhile(
    queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender that commits after its upload expired began to do so before."""
    upload, found = Upload(queue.store, 60.0, queue.config.blob_path), Payloads.past_uploads
    upload.write(HUGE)

    def read_before(payloads: Payloads, now: int, most: int) -> list[tuple[int, str, int]]:
        monkeypatch.setattr(Payloads, "past_uploads", found)
        uploads = found(payloads, now + 60_000_000, most)
        held.append(upload.finish())
        return uploads

    held: list[tuple[Reference, int]] = []
    monkeypatch.setattr(Payloads, "past_uploads", read_before)
    with MessageQueue(queue.store.address, queue.session.ring) as other:
        other.payloads.sweep()
    ((reference, _),) = held
    assert read(queue, reference) == HUGE and queue.check() == []


def test_a_folder_that_cannot_be_made_leaves_no_upload(make_queue: Maker, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    queue = make_queue(blob_path=str(tmp_path / "file" / "blobs"))
    with pytest.raises(StoreUnreachable):
        queue.payloads.enqueue("acme", HUGE)
    assert stored(queue) == {}


def test_an_upload_that_is_interrupted_as_its_file_begins_leaves_no_file(
    files_queue: MessageQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = BlobFile.begin

    def interrupted(file: BlobFile) -> None:
        begin(file)
        raise KeyboardInterrupt

    monkeypatch.setattr(BlobFile, "begin", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files_queue.payloads.enqueue("acme", HUGE)
    assert stored(files_queue) == {} and not [*(tmp_path / "blobs").iterdir()]


def test_a_lost_payload_in_the_root_of_a_file_system_is_certain() -> None:
    """Some file systems need no folder, such as HDFS."""
    files = fsspec.filesystem("memory")
    lost = BlobFile(f"memory:///{os.urandom(16).hex()}.blob", lambda address: (files, address.partition("://")[2]))
    assert lost.size() is None


def test_senders_that_replace_the_same_lost_payload_store_it_once(
    files_queue: MessageQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, is_there = files_queue, blobs.is_there
    queue.payloads.enqueue("acme", HUGE)
    next((tmp_path / "blobs").iterdir()).unlink()

    def meanwhile(*place: Any) -> bool:
        monkeypatch.setattr(blobs, "is_there", is_there)
        found = is_there(*place)
        with MessageQueue(queue.store.address, queue.session.ring) as other:
            other.payloads.enqueue("birch", iter([HUGE]))
        return found

    monkeypatch.setattr(blobs, "is_there", meanwhile)
    queue.payloads.enqueue("cedar", iter([HUGE]))
    assert len([*(tmp_path / "blobs").iterdir()]) == stored(queue)["upload"] == 1
    assert queue.service_queues(lambda delivery: delivery.open_blob().close()).processed == 3
    assert stored(queue) == {}


def test_a_commit_in_doubt_keeps_the_bytes_of_a_payload(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    finish = Upload.finish

    def in_doubt(upload: Upload) -> None:
        finish(upload)
        raise CommitInDoubt("injected")

    monkeypatch.setattr(Upload, "finish", in_doubt)
    with pytest.raises(CommitInDoubt):
        queue.payloads.enqueue("acme", HUGE)
    monkeypatch.setattr(Upload, "finish", finish)
    queue.payloads.enqueue("acme", HUGE)
    assert read(queue, queue.inspect.peek("acme")[0]) == HUGE


@pytest.mark.parametrize("left", [0, 100])
def test_a_payload_whose_bytes_are_gone_can_be_uploaded_again(queue: MessageQueue, tmp_path: Path, left: int) -> None:
    queue.payloads.enqueue("acme", HUGE)
    for file in (tmp_path / "blobs").glob("*.blob"):
        os.truncate(file, left) if left else file.unlink()
    with queue.store.writing() as unit:
        unit.connection.execute(f"DELETE FROM {queue.store.prefix}chunk")
    with pytest.raises((BlobMissing, StoreCorrupt)):
        read(queue, queue.inspect.peek("acme")[0])
    for source in (HUGE, iter([HUGE])):
        queue.payloads.enqueue("acme", source)
        assert read(queue, queue.inspect.peek("acme")[0]) == HUGE
    queue.admin.housekeep()
    assert queue.check() == [] and stored(queue)["blob"] == stored(queue)["upload"] == 1


def test_a_slow_upload_is_kept_while_pieces_come(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(blobs, "time", SimpleNamespace(monotonic=lambda: now[0]))
    renewals: list[int] = []
    touch = Upload._touch
    monkeypatch.setattr(Upload, "_touch", lambda upload, unit: renewals.append(upload.size) or touch(upload, unit))
    upload = Upload(queue.store, 60.0, queue.config.blob_path)
    for _ in range(4):
        upload.write(HUGE)
        now[0] += 30.0
    assert len(renewals) >= 4
    upload.drop()


def test_senders_of_the_same_payload_do_not_block_each_other(queue: MessageQueue) -> None:
    halfway, go_on = threading.Event(), threading.Event()

    def slowly() -> Iterator[bytes]:
        yield HUGE[: CHUNK * TOGETHER]
        halfway.set()
        assert go_on.wait(60)
        yield HUGE[CHUNK * TOGETHER :]

    slow = threading.Thread(target=queue.payloads.enqueue, args=("slow", slowly()))
    slow.start()
    assert halfway.wait(60)
    queue.payloads.enqueue("quick", iter([HUGE]))
    assert not go_on.is_set() and slow.is_alive() and queue.payloads.list()[0].references == 1
    go_on.set()
    slow.join()
    assert [(blob.size, blob.references) for blob in queue.payloads.list()] == [(len(HUGE), 2)]
    # The slow upload was dropped, so one copy is stored.
    assert stored(queue)["upload"] == 1 and queue.check() == []
    queue.service_queues(lambda delivery: None)
    assert stored(queue) == {}


def test_message_with_a_missing_payload_fails_as_unsupported(queue: MessageQueue) -> None:
    for origin, payload in (("acme", LARGE), ("acme", HUGE), ("birch", LARGE)):
        queue.payloads.enqueue(origin, payload)
    _lose(queue, digest(LARGE))
    assert len(queue.check()) >= 1

    def process(delivery: Any) -> None:
        delivery.open_blob().read()

    queue.service_queues(process)
    assert [(name, origin) for name, origin, _, _ in logged_events(queue)] == [
        ("ProcessingFailed", "acme"), ("Processed", "acme"), ("ProcessingFailed", "birch"),
    ]  # fmt: skip
    assert {event.id for event in queue.inspect.events(name="ProcessingFailed")} == {digest(LARGE)}
    assert queue.check() == []


@pytest.mark.parametrize("way", ["send", "open"])
@pytest.mark.parametrize("batches", [False, True])
def test_payload_that_another_store_lacks_deletes_no_message(
    queue: MessageQueue, tmp_path: Path, way: str, batches: bool
) -> None:
    """A processor that hands a reference to a queue of another store fails; its own payload is there."""
    other = f"sqlite:///{tmp_path / 'other.db'}"
    upgrade(parse(other))
    queue.payloads.enqueue("acme", LARGE)
    with MessageQueue(other) as there:

        def hand_over(payload: bytes) -> None:
            if way == "send":
                there.enqueue_message("acme", payload)
            else:
                there.payloads.open(payload).read()

        process: Any = batch_processor(lambda batch: hand_over(batch.payloads[0])) if batches else hand_over
        assert queue.service_queues(process).failed == 0
    reasons = {event.why for event in queue.inspect.events(name="Returned")}
    assert len(reasons) == 1 and reasons.pop().startswith("BlobMissing: missing external payload")
    assert [queue.payloads.open(peeked.payload).read() for peeked in queue.inspect.peek("acme")] == [LARGE]


def test_a_folder_that_is_not_mounted_deletes_no_message(make_queue: Maker, tmp_path: Path) -> None:
    """A lost file never comes back, but a missing folder may be mounted on another machine."""
    queue = make_queue(blob_path=str(tmp_path / "blobs"))
    queue.payloads.enqueue("acme", LARGE)
    (tmp_path / "blobs").rename(tmp_path / "away")
    assert queue.service_queues(lambda delivery: delivery.open_blob().read() and None).failed == 0
    assert {event.why for event in queue.inspect.events(name="Returned")} == {"StoreUnreachable"}
    with pytest.raises(StoreUnreachable, match="blobs, cannot be used: No such file or directory"):
        queue.payloads.open(digest(LARGE))
    (tmp_path / "away").rename(tmp_path / "blobs")
    assert queue.service_queues(lambda delivery: delivery.open_blob().read() and None).processed == 1
    assert queue.payloads.list() == []


@pytest.mark.parametrize("later", ["new", None])
@pytest.mark.parametrize("source", [lambda: LARGE, lambda: iter([LARGE])], ids=["known", "streamed"])
def test_a_payload_of_a_folder_that_is_gone_is_stored_again(
    make_queue: Maker, tmp_path: Path, later: str | None, source: Any
) -> None:
    queue = make_queue(blob_path=str(tmp_path / "old"))
    queue.payloads.enqueue("acme", LARGE)
    queue.admin.change_ring(blob_path=later and str(tmp_path / later))
    (tmp_path / "old").rename(tmp_path / "away")
    queue.payloads.enqueue("birch", source())
    assert [read(queue, queue.inspect.peek(name)[0]) for name in ("acme", "birch")] == [LARGE, LARGE]
    (tmp_path / "away").rename(tmp_path / "old")
    queue.admin.housekeep()
    assert list((tmp_path / "old").iterdir()) == [] and read(queue, digest(LARGE)) == LARGE


def test_a_sender_without_the_disk_keeps_the_copy_of_its_own_folder(make_queue: Maker, tmp_path: Path) -> None:
    queue = make_queue(blob_path=f"{tmp_path / 'blobs'}/")
    queue.payloads.enqueue("acme", LARGE)
    (stored,) = queue.payloads.list()
    (tmp_path / "blobs").rename(tmp_path / "away")
    queue.payloads.enqueue("acme", LARGE)
    (tmp_path / "away").rename(tmp_path / "blobs")
    assert [blob.path for blob in queue.payloads.list()] == [stored.path] and read(queue, digest(LARGE)) == LARGE


def test_two_rings_of_different_folders_each_read_what_they_send(make_queue: Maker, tmp_path: Path) -> None:
    first = make_queue("first", blob_path=str(tmp_path / "first"))
    second = make_queue("second", blob_path=str(tmp_path / "second"))
    first.payloads.enqueue("acme", LARGE)
    (tmp_path / "first").rename(tmp_path / "away")
    second.payloads.enqueue("acme", LARGE)
    assert second.service_queues(lambda delivery: delivery.open_blob().read() and None).processed == 1
    assert first.service_queues(lambda delivery: delivery.open_blob().read() and None).processed == 1
    (tmp_path / "away").rename(tmp_path / "first")


def test_a_file_of_a_folder_that_is_not_mounted_is_deleted_later(
    make_queue: Maker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = make_queue(blob_path=str(tmp_path / "blobs"))
    queue.payloads.enqueue("acme", LARGE)
    (tmp_path / "blobs").rename(tmp_path / "away")
    assert queue.service_queues(lambda delivery: None).processed == 1
    assert "(StoreUnreachable); a later sweep tries again" in caplog.text
    (tmp_path / "away").rename(tmp_path / "blobs")
    queue.admin.housekeep()
    assert list((tmp_path / "blobs").iterdir()) == []


def test_files_of_a_folder_that_is_gone_do_not_keep_files_of_others(
    make_queue: Maker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = make_queue(blob_path=str(tmp_path / "old"))
    for number in range(SWEPT + 1):
        queue.payloads.enqueue("acme", b"%d" % number)
    queue.admin.change_ring(blob_path=str(tmp_path / "new"))
    (tmp_path / "old").rename(tmp_path / "away")
    queue.service_queues(lambda delivery: None, Weight(1 << 30, 1 << 30))
    for number in range(20):
        queue.payloads.enqueue("acme", b"new %d" % number)
        queue.service_queues(lambda delivery: None)
    assert len(caplog.records) == 2 and f"could not delete {tmp_path / 'old'}" in caplog.text
    assert list((tmp_path / "new").iterdir()) == [] and stored(queue)["upload"] == SWEPT + 1
    caplog.clear()
    queue.admin.housekeep()
    assert len(caplog.records) == 1
    # A new folder ends this.
    (tmp_path / "old").mkdir()
    queue.admin.housekeep()
    assert len(caplog.records) == 1 and stored(queue) == {}


def test_a_file_that_cannot_be_deleted_does_not_keep_others_of_its_folder(
    files_queue: MessageQueue, tmp_path: Path
) -> None:
    queue = files_queue
    queue.payloads.enqueue("acme", LARGE)
    (kept,) = queue.payloads.list()
    Path(kept.path or "").unlink()
    Path(kept.path or "").mkdir()
    for number in range(10):
        queue.payloads.enqueue("acme", b"%d" % number)
    queue.service_queues(lambda delivery: None, Weight(1 << 30, 1 << 30))
    assert stored(queue)["upload"] == 11
    queue.admin.housekeep()
    assert stored(queue)["upload"] == stored(queue)["files"] == 1
    Path(kept.path or "").rmdir()
    queue.admin.housekeep()
    assert stored(queue) == {}


@pytest.mark.parametrize("batches", [False, True])
def test_a_payload_that_lacks_a_later_piece_fails_as_unsupported(
    make_queue: Maker, tmp_path: Path, batches: bool
) -> None:
    """It would be tried for ever; but what only another store lacks keeps its message."""
    queue, other = make_queue(), f"sqlite:///{tmp_path / 'other.db'}"
    upgrade(parse(other))
    queue.payloads.enqueue("acme", HUGE)
    with MessageQueue(other) as there:
        there.payloads.put(HUGE)
        for one in (there, queue):
            with one.store.writing() as unit:
                unit.connection.execute(f"DELETE FROM {one.store.prefix}chunk WHERE seq = 2")

            def read(payload: bytes, one: MessageQueue = one) -> None:
                with MessageQueue(one.store.address, one.session.ring) as reader:
                    reader.payloads.open(payload).read()

            process: Any = batch_processor(lambda batch: read(batch.payloads[0])) if batches else read
            assert queue.service_queues(process).failed == (one is queue)
    assert len(queue) == 0


def test_missing_payload_fails_only_its_message_of_a_batch(queue: MessageQueue) -> None:
    held = [queue.payloads.put(data) for data in (LARGE, HUGE)]
    queue.enqueue_messages("acme", [blob.reference for blob in held])
    for blob in held:
        blob.release()
    _lose(queue, digest(LARGE))
    process = batch_processor(lambda batch: [read(queue, payload) and None for payload in batch.payloads])
    queue.service_queues(process)
    queue.service_queues(process)
    assert [name for name, *_ in logged_events(queue) if name != "Returned"] == ["ProcessingFailed", "Processed"]


def _lose(queue: MessageQueue, hash_: bytes) -> None:
    """Delete the stored bytes of a payload."""
    prefix = queue.store.prefix
    with queue.store.writing() as unit:
        _, upload, path = unit.rows("blob", hash=hash_.hex())[0]
        if path:
            os.unlink(path)
        else:
            unit.connection.execute(f"DELETE FROM {prefix}chunk WHERE upload = {upload}")


def test_reading_a_modified_payload_raises_store_corrupt(queue: MessageQueue) -> None:
    queue.payloads.enqueue("acme", HUGE)
    (blob,) = queue.payloads.list()
    if blob.path:
        Path(blob.path).write_bytes(HUGE[:-1] + b"!" if HUGE[-1:] != b"!" else HUGE[:-1] + b"?")
    else:
        prefix = queue.store.prefix
        with queue.store.writing() as unit:
            upload = unit.rows("blob", hash=blob.hash.hex())[0][1]
            text = f"UPDATE {prefix}chunk SET data = (SELECT c.data FROM {prefix}chunk c WHERE c.seq = 1) WHERE seq = 0"
            unit.connection.execute(text)
            assert upload
    with queue.payloads.open(blob) as file, pytest.raises(StoreCorrupt, match="is not what was stored"):
        file.read()


def test_check_reports_violations_of_payload_tables(make_queue: Maker) -> None:
    queue = make_queue("lost", order="rotation")
    queue.payloads.enqueue("acme", LARGE)
    queue.payloads.enqueue("acme", HUGE)
    assert queue.check() == []
    prefix = queue.store.prefix

    def violated(statement: str) -> str:
        class Back(Exception):
            pass

        violations: list[Any] = []
        try:
            with queue.store.writing() as unit:
                unit.connection.execute(statement.replace("mq_", prefix))
                from airflow_mq.engine.queue.inspect.check.payloads import check_blobs

                violations = list(check_blobs(queue.session, unit, {}))
                raise Back
        except Back:
            return " ".join(map(str, violations))

    assert "bytes are stored" in violated("DELETE FROM mq_chunk WHERE seq = 1")
    assert "is not counted" in violated(f"UPDATE mq_blob_use SET until = 1 WHERE hash = '{digest(LARGE).hex()}'")
    assert "and no sweep would find it" in violated("DELETE FROM mq_blob_use")
    assert "is gone, but its reference is still counted" in violated("UPDATE mq_blob_use SET place = 7 - place")
    assert queue.check() == []


def test_bytes_that_look_like_a_reference_are_plain_bytes(queue: MessageQueue) -> None:
    blob = queue.payloads.put(LARGE)
    forged = bytes(blob.reference)
    assert forged.startswith(MAGIC) and len(forged) == REFERENCE_BYTES
    queue.enqueue_message("acme", forged)
    (peeked,) = queue.inspect.peek("acme")
    assert not isinstance(peeked.payload, Reference) and message_id(forged) != blob.hash
    seen: list[Any] = []
    queue.service_queues(lambda delivery: seen.append((delivery.blob, delivery.id)))
    assert seen == [(None, message_id(forged))]
    blob.release()


def test_plain_bytes_that_equal_a_hash_open_no_payload(queue: MessageQueue) -> None:
    blob = queue.payloads.put(LARGE)
    queue.enqueue_message("acme", blob.hash)
    seen = [read(queue, peeked) for peeked in queue.inspect.peek("acme")]
    queue.service_queues(lambda delivery: seen.append(read(queue, delivery)))
    assert seen == [blob.hash, blob.hash] and read(queue, blob) == read(queue, blob.hash) == LARGE
    blob.release()


def test_a_pipe_is_read_once(queue: MessageQueue) -> None:
    source, target = os.pipe()
    with open(target, "wb") as pipe:
        pipe.write(b"x" * 100)
    queue.payloads.enqueue("acme", Path(f"/dev/fd/{source}"))
    os.close(source)
    assert read(queue, queue.inspect.peek("acme")[0]) == b"x" * 100


def test_invalid_payloads_are_rejected(queue: MessageQueue, tmp_path: Path) -> None:
    with pytest.raises(EmptyMessage):
        queue.payloads.enqueue("acme", b"")
    with pytest.raises(EmptyMessage):
        queue.payloads.enqueue("acme", iter([b"", b""]))
    wrong: Any
    for wrong in ("orders.csv", None, 7):
        with pytest.raises(InvalidInput, match="expected bytes, a file, a path"):
            queue.payloads.enqueue("acme", wrong)
    with pytest.raises(InvalidInput, match="invalid chunk"):
        queue.payloads.enqueue("acme", iter(["text"]))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="64 hexadecimal digits"):
        queue.payloads.open("orders")
    with pytest.raises(BlobMissing):
        queue.payloads.open(b"\0" * 32)
    with pytest.raises(FileNotFoundError):
        queue.payloads.enqueue("acme", tmp_path / "none")
    assert stored(queue) == {}


@pytest.mark.parametrize("settings", [
    {"blob_path": "blobs"}, {"blob_path": "file://blobs"}, {"blob_path": "/a/../b"}, {"blob_path": 7}, {"blob_path": ""},
    {"keep_uploads": 0}, {"keep_uploads": -1}, {"keep_uploads": "1"},
])  # fmt: skip
def test_invalid_payload_settings_are_rejected(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigRefused, match=next(iter(settings))):
        RingConfig(**settings)


@pytest.mark.parametrize("address", ["file://{}/blobs", "memory://{}/blobs"])
def test_payload_files_are_stored_at_an_fsspec_address(make_queue: Maker, tmp_path: Path, address: str) -> None:
    queue = make_queue(blob_path=address.format(tmp_path))
    files = fsspec.filesystem(address.partition(":")[0])

    def file_count() -> int:
        return len(files.find(str(tmp_path / "blobs")))

    queue.payloads.enqueue("acme", HUGE)
    with pytest.raises(RuntimeError), queue.payloads.put(fails_after(LARGE)):
        pass
    (blob,) = queue.payloads.list()
    assert read(queue, blob) == HUGE and file_count() == 1
    queue.service_queues(lambda delivery: None, Weight(10**6, 10**9))
    queue.admin.housekeep()
    assert file_count() == 0 and stored(queue) == {} and queue.check() == []


@pytest.mark.parametrize("scheme", ["memory", "s3"])
def test_payloads_whose_bucket_is_missing_stay(
    make_queue: Maker, tmp_path: Path, scheme: str, request: pytest.FixtureRequest
) -> None:
    if scheme == "s3":
        files = request.getfixturevalue("s3").files(use_listings_cache=False)
    else:
        files = fsspec.filesystem("memory")
        files.makedirs("plain", exist_ok=True)
    folder = f"plain/{tmp_path.name}"
    queue = make_queue(blob_path=f"{scheme}://{folder}")
    queue.store.filesystem_of = lambda address: (files, address.partition("://")[2])

    def open_all(one: MessageQueue) -> Serviced:
        return one.service_queues(lambda delivery: delivery.open_blob().close())

    for origin in ("acme", "birch", "cedar"):
        queue.payloads.enqueue(origin, origin.encode() + LARGE)
    with MessageQueue(queue.store.address, queue.session.ring) as other:
        other.store.filesystem_of = lambda address: (files, f"away-{address.partition('://')[2]}")
        assert open_all(other).returned == 3
        other.service_queues(lambda delivery: None, origins=["cedar"])
        other.admin.housekeep()
    assert len(files.find(folder)) == 3, "nothing counts as deleted"
    queue.admin.housekeep()
    files.rm_file(files.find(folder)[0])
    # In a bucket that exists, it is certain that a file is missing.
    result = open_all(queue)
    assert (result.processed, result.failed) == (1, 1)
    queue.admin.housekeep()
    assert files.find(folder) == [] and stored(queue) == {}


@pytest.fixture
def files_queue(make_queue: Maker, tmp_path: Path) -> MessageQueue:
    """Return a queue that stores payloads as files."""
    return make_queue(blob_path=str(tmp_path / "blobs"))


def test_a_payload_that_is_deleted_during_a_check_is_not_reported(files_queue: MessageQueue) -> None:
    queue = files_queue
    queue.payloads.enqueue("acme", HUGE)
    (blob,) = queue.payloads.list()

    def delete(name: str) -> None:
        if name == "blobs":
            queue.store.probe = None
            with MessageQueue(queue.store.address, queue.session.ring) as other:
                other.service_queues(lambda delivery: None)
                other.admin.housekeep()

    queue.store.probe = delete
    assert queue.check() == [] and not Path(blob.path or "").exists()


def test_a_file_that_is_missing_is_reported(files_queue: MessageQueue) -> None:
    queue = files_queue
    queue.payloads.enqueue("acme", HUGE)
    (blob,) = queue.payloads.list()
    Path(blob.path or "").unlink()
    assert [violation.what for violation in queue.check()] == [f"its file {blob.path} is missing"]
    Path(blob.path or "").write_bytes(HUGE)


def _rename(queue: MessageQueue, path: str) -> None:
    """Store another file name for all payloads, as a program with write access to the tables could."""
    with queue.store.writing() as unit:
        unit.connection.execute(f"UPDATE {queue.store.prefix}upload SET path = '{path}'")


@pytest.mark.parametrize("name", [
    "{other}/notes.txt", "{blobs}/notes.txt", "{blobs}/../other/{name}", "{other}/{name}", "{blobs}/sub/{name}",
    "file://{other}/{name}", "memory://{blobs}/{name}", "http://localhost:1/{name}", "{blobs}/{name}.part",
])  # fmt: skip
def test_modified_path_reads_and_deletes_no_other_file(files_queue: MessageQueue, tmp_path: Path, name: str) -> None:
    queue = files_queue
    queue.payloads.enqueue("acme", HUGE)
    (blob,) = queue.payloads.list()
    own = Path(blob.path or "")
    for folder in ("other", "blobs/sub"):
        (tmp_path / folder).mkdir()
    path = name.format(other=tmp_path / "other", blobs=tmp_path / "blobs", name=own.name)
    there = [tmp_path / "other" / own.name, tmp_path / "blobs" / "sub" / own.name, tmp_path / "other" / "notes.txt",
             tmp_path / "blobs" / "notes.txt", Path(f"{own}.part")]  # fmt: skip
    for file in there:
        file.write_bytes(HUGE)
    _rename(queue, path)
    asked: list[str] = []
    queue.store.filesystem_of = lambda address: asked.append(address) or by_fsspec(address)  # type: ignore[func-returns-value]

    with pytest.raises(StoreCorrupt, match="expected 32 hexadecimal digits and '.blob' in one of the folders"):
        queue.payloads.open(blob)
    assert path in str(queue.check())
    queue.service_queues(lambda delivery: None)
    queue.admin.housekeep()

    assert asked == [] and all(file.read_bytes() == HUGE for file in there) and own.read_bytes() == HUGE
    assert path in str(queue.check()), "the check reports files that were not deleted"
    _rename(queue, str(own))
    queue.admin.housekeep()
    assert not own.exists() and queue.payloads.list() == [] and queue.check() == []


def test_files_in_earlier_folders_are_read_and_deleted(files_queue: MessageQueue, tmp_path: Path) -> None:
    queue = files_queue
    queue.payloads.enqueue("acme", HUGE)
    first = queue.admin.change_ring(blob_path=str(tmp_path / "later")).earlier_blob_paths
    queue.payloads.enqueue("acme", LARGE)
    assert queue.admin.change_ring(blob_path=None).earlier_blob_paths == (*first, str(tmp_path / "later"))
    assert {read(queue, blob) for blob in queue.payloads.list()} == {HUGE, LARGE}
    queue.service_queues(lambda delivery: None, Weight(10**6, 10**9))
    assert stored(queue) == {} and not list(tmp_path.rglob("*.blob"))


def test_environment_variable_restricts_folders(
    files_queue: MessageQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = files_queue
    queue.payloads.enqueue("acme", HUGE)
    (blob,) = queue.payloads.list()
    monkeypatch.setenv("AIRFLOW_MQ_BLOB_ROOTS", f"s3://bucket/blobs, {tmp_path / 'other'}/")
    with pytest.raises(StoreCorrupt, match="AIRFLOW_MQ_BLOB_ROOTS"):
        queue.payloads.open(blob)
    with pytest.raises(ConfigRefused, match="AIRFLOW_MQ_BLOB_ROOTS"):
        queue.payloads.enqueue("acme", LARGE)
    queue.admin.change_ring(blob_path=str(tmp_path / "other"))
    queue.payloads.enqueue("acme", LARGE)
    monkeypatch.setenv("AIRFLOW_MQ_BLOB_ROOTS", f"{tmp_path / 'other'},{tmp_path / 'blobs'}")
    assert {read(queue, blob) for blob in queue.payloads.list()} == {HUGE, LARGE}


def test_a_copy_of_a_store_deletes_no_file_of_the_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/how-to/upgrade.md promises: a copy names the files of the original."""
    upgrade(parse(f"sqlite:///{tmp_path}/queue.db"))
    with MessageQueue(f"sqlite:///{tmp_path}/queue.db") as queue:
        queue.admin.change_ring(blob_path=str(tmp_path / "blobs"))
        queue.payloads.enqueue("acme", HUGE)
        with closing(sqlite3.connect(tmp_path / "queue.db")) as file:
            file.execute(f"VACUUM INTO '{tmp_path}/copy.db'")
        with monkeypatch.context() as patch, MessageQueue(f"sqlite:///{tmp_path}/copy.db") as copy:
            patch.setenv("AIRFLOW_MQ_BLOB_ROOTS", "")
            assert ["nothing was read or removed" in violation.what for violation in copy.check()] == [True]
            assert copy.service_queues(lambda delivery: None, Weight(10**6, 10**9)).processed == 1
            copy.admin.housekeep()
        assert read(queue, queue.inspect.peek("acme")[0]) == HUGE


def fails_after(data: bytes) -> Iterator[bytes]:
    yield data
    raise RuntimeError("the sender fails")


@pytest.mark.parametrize("source", ["{}", "memory://{}"])
def test_upath_is_read_as_a_file(make_queue: Maker, tmp_path: Path, source: str) -> None:
    path = UPath(source.format(tmp_path / "orders"))
    path.write_bytes(HUGE)
    queue = make_queue()
    queue.payloads.enqueue("acme", path)
    assert read(queue, queue.inspect.peek("acme")[0]) == HUGE


def test_a_path_of_an_object_store_is_read_there_though_it_looks_like_a_local_one(
    make_queue: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cloud(os.PathLike[str]):
        """A path as older versions of universal_pathlib make them."""

        def __fspath__(self) -> str:
            return "memory://bucket/a.bin"

        __str__ = __fspath__

        def open(self, mode: str) -> io.BytesIO:
            return io.BytesIO(HUGE)

    monkeypatch.chdir(tmp_path)
    Path("memory:/bucket").mkdir(parents=True)
    Path("memory:/bucket/a.bin").write_bytes(b"another file")
    queue = make_queue()
    queue.payloads.enqueue("acme", Cloud())
    assert read(queue, queue.inspect.peek("acme")[0]) == HUGE


def test_connection_names_are_dropped_outside_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr("fsspec.core.url_to_fs", lambda address: (None, seen.append(address)))
    for address in ("s3://aws@bucket/a@b", "gs://bucket/a@b", "abfs://box@account/a"):
        by_fsspec(address)
    assert seen == ["s3://bucket/a@b", "gs://bucket/a@b", "abfs://box@account/a"]


def test_references_of_many_messages_are_counted(make_queue: Maker, seed: int = 7) -> None:
    chance = random.Random(seed)
    queue = make_queue(order="rotation", heap_size=4_096, max_attempts=3)
    payloads = [number.to_bytes(2, "big") * 5_000 for number in range(100)]
    held = [queue.payloads.put(payload) for payload in payloads]
    wanted = Counter(chance.randrange(100) for _ in range(10_000))
    sent = list(wanted.elements())
    chance.shuffle(sent)
    for start in range(0, len(sent), 500):
        queue.enqueue_messages([(f"o{number % 7}", held[number].reference) for number in sent[start : start + 500]])
    for blob in held:
        blob.release()
    assert sum(blob.references for blob in queue.payloads.list()) == 10_000

    gone: Counter[bytes] = Counter()

    def process(delivery: Any) -> Any:
        if chance.random() < 0.05:
            return Yield()
        if chance.random() < 0.02:
            with delivery.open_blob() as file:
                assert digest(file.read()) == delivery.id
        gone[delivery.id] += 1
        return BadFormat() if chance.random() < 0.1 else None

    while sum(gone.values()) < 10_000:
        queue.service_queues(process, Weight(chance.randrange(1, 4_000), 1 << 40), slice_messages=500)
        for aside in queue.set_aside.list(limit=20):
            gone[aside.id or b""] += 1
            queue.set_aside.discard(aside.address, "tried too often")
        stored = {digest(payload): wanted[number] for number, payload in enumerate(payloads)}
        references = {blob.hash: blob.references for blob in queue.payloads.list(limit=200)}
        assert references == {hash_: count - gone[hash_] for hash_, count in stored.items() if count > gone[hash_]}
    assert queue.payloads.list() == []
