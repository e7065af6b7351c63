"""External payloads, as processors of a block get them: whole, wherever they run."""

from __future__ import annotations

import errno
import os
import random
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from airflow_mq import Delivery, MessageQueue
from airflow_mq.engine.queue.values import Report
from airflow_mq.engine.rules.blob import Reference
from airflow_mq.engine.rules.errors import StoreUnreachable
from airflow_mq.engine.rules.message import message_ids
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.engine.store.blob_files import BlobFile
from airflow_mq.processors import Part, Processor, Processors
from airflow_mq.spark import exchange
from airflow_mq.spark.frames import Shares
from airflow_mq.spark.share import run_share
from airflow_mq.spark.store_side import StoreChannel, live_block, run_in_place, tasks_of, terms_of, with_payloads

LARGE, LOST = (random.Random(size).randbytes(size) for size in (300_000, 200_000))
SEEN: list[Any] = []
PROCESSORS = Processors([Processor("all", f"{__name__}:remember")])


def remember(payload: bytes, origin: str) -> None:
    SEEN.append((origin, payload))


def opened(message: Delivery) -> None:
    message.open_blob().read()


def run_over_a_folder(queue: MessageQueue, token: str, part: Part, tmp_path: Path) -> None:
    """Try the messages of a part as a job that does not reach the store."""
    folder = exchange.hand_over(queue, token, PROCESSORS, part, str(tmp_path / "exchange"))
    channel = exchange.FolderChannel(folder)
    for task in channel.tasks(PROCESSORS):
        with channel.open(task.share) as side:
            run_share(task.processor, side, channel.terms())
    exchange.take_back(queue, token, folder)


@pytest.fixture
def queue(tmp_path: Path) -> Any:
    uri = f"sqlite:///{tmp_path / 'store.db'}"
    upgrade(parse(uri))
    SEEN.clear()
    with MessageQueue(uri) as queue:
        queue.admin.change_ring(blob_path=str(tmp_path / "blobs"))
        for payload in (LARGE, LOST):
            queue.payloads.enqueue("acme", payload)
        queue.enqueue_message("acme", b"plain")
        os.unlink(next(blob.path for blob in queue.payloads.list() if blob.size == len(LOST)))  # type: ignore[arg-type]
        yield queue


def _fates(queue: MessageQueue) -> list[str]:
    return [event.fate.name for event in queue.inspect.events()]


def test_in_this_process(queue: MessageQueue) -> None:
    block = queue.blocks.plan()
    (part,) = PROCESSORS.parts({"acme": block.messages})
    run_in_place(queue, block.token, PROCESSORS, part)
    queue.blocks.settle(block)
    assert SEEN == [("acme", LARGE), ("acme", b"plain")]
    assert sorted(_fates(queue)) == ["PROCESSED", "PROCESSED", "UNSUPPORTED"] and queue.payloads.list() == []


def test_what_a_ring_calls_too_large_stays_a_reference(queue: MessageQueue) -> None:
    queue.admin.change_ring(whole_payloads=len(LARGE) - 1)
    block = queue.blocks.plan()
    (part,) = PROCESSORS.parts({"acme": block.messages})
    run_in_place(queue, block.token, PROCESSORS, part)
    reference = next(payload for _, payload in SEEN if isinstance(payload, Reference))
    with queue.payloads.open(reference) as file:
        assert file.read() == LARGE
    assert ("acme", LARGE) not in SEEN and ("acme", b"plain") in SEEN


def test_opening_what_a_ring_calls_too_large_names_the_way(queue: MessageQueue) -> None:
    queue.admin.change_ring(whole_payloads=len(LARGE) - 1)
    rules = Processors([Processor("all", f"{__name__}:opened")])
    block = queue.blocks.plan()
    (part,) = rules.parts({"acme": block.messages})
    run_in_place(queue, block.token, rules, part)
    queue.blocks.settle(block)
    (why,) = [event.why for event in queue.inspect.events(origin="acme") if event.name == "Returned"]
    assert why.startswith("ProcessorError: the payload exceeds the ring's whole_payloads: open it with `queue.")


def test_what_is_too_large_for_a_codec_is_kept_with_the_reason(
    queue: MessageQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.admin.change_ring(whole_payloads=len(LARGE) - 1)
    rules = Processors([Processor("all", "builtins:print", codec="builtins:str")])
    block = queue.blocks.plan()
    (part,) = rules.parts({"acme": block.messages})
    run_in_place(queue, block.token, rules, part)
    assert queue.blocks.settle(block).set_aside == 0
    reason = "the payload of 300,000 bytes is missing, above whole_payloads, or in a batch in place"
    assert f"'acme:0:0' does not decode, and is kept: External: {reason}" in caplog.text
    (why,) = [event.why for event in queue.inspect.events(origin="acme") if event.name == "Returned"]
    assert f"External: {reason}" in why


def test_a_reader_of_waiting_messages_gets_payloads(
    queue: MessageQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow_mq.spark.source import Options, Share, WaitingReader

    monkeypatch.setenv("AIRFLOW_MQ_STORE", queue.store.address.uri)
    reader = WaitingReader(Options({}), ["payload"])
    tables = [table for share in reader.partitions() for table in reader.read(share)]  # type: ignore[arg-type]
    assert isinstance(reader.partitions()[0], Share)
    assert [payload for table in tables for payload in table.column("payload").to_pylist()] == [LARGE, b"plain"]
    assert "left out the message 'acme:0:1': it was serviced meanwhile, or its payload is missing" in caplog.text
    assert _fates(queue) == [] and queue.footprint("acme").count == 3


def test_a_reader_of_waiting_messages_opens_no_payload_that_it_does_not_return(
    queue: MessageQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow_mq.spark import store_side
    from airflow_mq.spark.source import Options, WaitingReader

    monkeypatch.setenv("AIRFLOW_MQ_STORE", queue.store.address.uri)
    monkeypatch.delattr(store_side, "_payload")
    reader = WaitingReader(Options({}), ["origin", "id"])
    tables = [table for share in reader.partitions() for table in reader.read(share)]  # type: ignore[arg-type]
    # The id of a message is the hash of its payload, wherever that is.
    ids = [id_ for table in tables for id_ in table.column("id").to_pylist()]
    assert ids == message_ids([LARGE, LOST, b"plain"]) and not caplog.text


@pytest.fixture
def unmounted(queue: MessageQueue, tmp_path: Path) -> MessageQueue:
    """Return a queue whose folder of payloads is not mounted, with other origins and pages behind the payload."""
    assert queue.service_queues(lambda _: None).processed == 3
    queue.enqueue_message("acme", b"before")
    queue.payloads.enqueue("acme", LARGE)
    queue.enqueue_messages([("acme", b"%020000d" % at) for at in range(5)])
    queue.enqueue_messages([(origin, b"small") for origin in ("birch", "cedar", "dogwood")])
    (tmp_path / "blobs").rename(tmp_path / "away")
    return queue


@pytest.mark.parametrize("way", ["here", "folder"])
@pytest.mark.parametrize("ordered", [True, False])
def test_a_folder_that_is_not_mounted_stops_its_own_queue_alone(
    unmounted: MessageQueue, tmp_path: Path, way: str, ordered: bool
) -> None:
    queue = unmounted
    queue.admin.change_ring(ordered=ordered)
    for _ in range(2):
        block = queue.blocks.plan(reports_begin=True)
        (part,) = PROCESSORS.parts({claim.whose: claim.messages for claim in block.claims})
        if way == "here":
            run_in_place(queue, block.token, PROCESSORS, part)
        else:
            run_over_a_folder(queue, block.token, part, tmp_path)
        settled: Any = queue.blocks.settle(block)
        assert settled.failed == 0 and settled.returned > 0
    expected = [b"before", LARGE, *(b"%020000d" % at for at in range(5))]
    others = [(origin, b"small") for origin in ("birch", "cedar", "dogwood")]
    readable = expected[:1] if ordered else [payload for payload in expected if payload != LARGE]
    assert sorted(SEEN) == sorted([*(("acme", payload) for payload in readable), *others])
    # No other message loses an attempt.
    attempts = [attempt for batch in queue.inspect.waiting("acme", limit=9) for attempt in batch.attempts]
    assert attempts == ([3, 1, 1, 1, 1, 1] if ordered else [3])
    assert [event.why for event in queue.inspect.events(name="Returned")] == ["StoreUnreachable"] * 2
    (tmp_path / "away").rename(tmp_path / "blobs")
    block = queue.blocks.plan()
    (part,) = PROCESSORS.parts({"acme": block.messages})
    run_in_place(queue, block.token, PROCESSORS, part)
    queue.blocks.settle(block)
    found = [payload for origin, payload in SEEN if origin == "acme"]
    assert len(queue) == 0 and (found if ordered else sorted(found)) == (expected if ordered else sorted(expected))


def test_a_reader_of_waiting_messages_leaves_out_none_that_is_not_mounted(
    unmounted: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_mq.spark.source import Options, WaitingReader

    monkeypatch.setenv("AIRFLOW_MQ_STORE", unmounted.store.address.uri)
    reader = WaitingReader(Options({}), ["payload"])
    with pytest.raises(StoreUnreachable, match="message 'acme:1:1' cannot be read: StoreUnreachable"):
        [table for share in reader.partitions() for table in reader.read(share)]  # type: ignore[arg-type]


def test_a_reader_of_waiting_messages_names_a_damaged_payload(
    queue: MessageQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow_mq.spark.source import Options, WaitingReader

    (path,) = [blob.path for blob in queue.payloads.list() if blob.size == len(LARGE)]
    Path(str(path)).write_bytes(bytes(len(LARGE)))
    monkeypatch.setenv("AIRFLOW_MQ_STORE", queue.store.address.uri)
    reader = WaitingReader(Options({}), ["payload"])
    with pytest.raises(StoreUnreachable, match="message 'acme:0:0' cannot be read: StoreCorrupt"):
        [table for share in reader.partitions() for table in reader.read(share)]  # type: ignore[arg-type]
    assert "acme:0:0 is kept: " in caplog.text


@pytest.mark.parametrize("ordered", [True, False])
def test_a_stream_settles_no_message_whose_folder_is_not_mounted(
    unmounted: MessageQueue, monkeypatch: pytest.MonkeyPatch, ordered: bool
) -> None:
    from airflow_mq.spark.source import BlockStream, Options

    unmounted.admin.change_ring(ordered=ordered)
    monkeypatch.setenv("AIRFLOW_MQ_STORE", unmounted.store.address.uri)
    stream = BlockStream(Options({}), ["payload"])
    end = stream.latestOffset(stream.initialOffset())
    shares = stream.partitions(stream.initialOffset(), end)
    found = [table for share in shares for table in stream.read(share)]  # type: ignore[arg-type]
    payloads = sorted(payload for table in found for payload in table.column("payload").to_pylist())
    stream.commit(end)
    stream.stop()
    others = [] if ordered else [b"%020000d" % at for at in range(5)]
    assert payloads == [*others, b"before", b"small", b"small", b"small"]
    assert len(unmounted) == 10 - len(payloads)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_data_frame_settles_no_message_whose_folder_was_not_mounted(
    unmounted: MessageQueue, tmp_path: Path, ordered: bool
) -> None:
    """Also if the folder is back when its messages are reported as done."""
    queue = unmounted
    queue.admin.change_ring(ordered=ordered)
    block = queue.blocks.plan(reports_begin=True)
    processors = Processors([Processor("all", "builtins:print", shape="dataframe")])
    (part,) = processors.parts({claim.whose: claim.messages for claim in block.claims})
    terms = terms_of(queue, block)
    tasks = tasks_of(live_block(queue, block.token), terms, processors, part, 1)
    channel = StoreChannel(queue.store.address.uri, queue.ring, block.token)
    shares = Shares(channel, [task.share for task in tasks], terms)
    shares.begin()
    numbers = [pa.RecordBatch.from_arrays([pa.array(range(len(tasks)))], ["id"])]
    payloads = [payload for table in shares.messages(numbers) for payload in table.column("payload").to_pylist()]
    (tmp_path / "away").rename(tmp_path / "blobs")
    list(shares.report_done(numbers))
    settled: Any = queue.blocks.settle(block)
    assert settled.processed == len(payloads) and len(queue) == 10 - len(payloads)
    assert LARGE not in payloads and len(payloads) == (4 if ordered else 9)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_folder_that_does_not_answer_is_tried_once(
    unmounted: MessageQueue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ordered: bool
) -> None:
    """Each try may take as long as the timeouts of a store."""
    queue, tried, reported = unmounted, list[object](), list[Report]()
    (tmp_path / "away").rename(tmp_path / "blobs")
    for number in range(4):
        queue.payloads.enqueue("acme", LARGE + bytes([number]))
    (tmp_path / "blobs").rename(tmp_path / "away")

    def opened(queue: MessageQueue, payload: object) -> bytes:
        if isinstance(payload, Reference):
            tried.append(payload)
            raise StoreUnreachable("no answer")
        return cast("bytes", payload)

    monkeypatch.setattr("airflow_mq.spark.store_side._payload", opened)
    batches = list(queue.inspect.waiting("acme", limit=20))
    found = list(with_payloads(queue, batches, reported.extend, ["acme"] if ordered else []))
    assert len(tried) == 1
    assert sum(len(batch.payloads) for batch in found) == (1 if ordered else 6)
    assert sum(report.last - report.first + 1 for report in reported) == (1 if ordered else 5)


def test_a_database_that_does_not_answer_fails_the_share(
    unmounted: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> None:
        raise StoreUnreachable("no answer")

    monkeypatch.setattr("airflow_mq.spark.store_side._payload", unreachable)
    batches = list(unmounted.inspect.waiting("acme", limit=9))
    with pytest.raises(StoreUnreachable, match="no answer"):
        list(with_payloads(unmounted, batches, unreachable))


@pytest.mark.parametrize("damage", ["changed", "cut", "unreadable"])
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("way", ["here", "folder"])
def test_a_damaged_payload_stops_its_own_queue_alone(
    queue: MessageQueue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: str, ordered: bool, way: str
) -> None:
    queue.admin.change_ring(ordered=ordered, max_attempts=2)
    assert queue.service_queues(lambda _: None).processed == 3
    large = [LARGE + bytes([number]) for number in (1, 2)]
    for payload in large:
        queue.payloads.enqueue("acme", payload)
    queue.enqueue_message("birch", b"small")
    path = next(blob.path for blob in queue.payloads.list() if blob.hash == message_ids(large[:1])[0])
    opened = BlobFile.open
    if damage == "unreadable":

        def failing(file: BlobFile) -> Any:
            stream = opened(file)
            if file.path == path:
                stream.read = partial(_fail, OSError(errno.EIO, "an error of the disk"))  # type: ignore[method-assign]
            return stream

        monkeypatch.setattr(BlobFile, "open", failing)
    else:
        with open(str(path), "r+b") as file:
            file.write(b"else") if damage == "changed" else file.truncate(1_000)
    for number in range(3):
        block = queue.blocks.plan(reports_begin=True)
        (part,) = PROCESSORS.parts({claim.whose: claim.messages for claim in block.claims} or {"acme": 1})
        if way == "here":
            run_in_place(queue, block.token, PROCESSORS, part)
        else:
            run_over_a_folder(queue, block.token, part, tmp_path / str(number))
        queue.blocks.settle(block)
    # If its disk fails, other payloads of a relaxed queue are not read either, because each try may take long.
    lost = large if damage == "unreadable" and not ordered else large[:1]
    assert sorted(SEEN) == sorted(
        [("birch", b"small"), *(("acme", payload) for payload in large if payload not in lost)]
    )
    assert {(kept.id, kept.reason) for kept in queue.set_aside.list()} == {
        (id_, "attempts") for id_ in message_ids(lost)
    }
    why = "StoreUnreachable" if damage == "unreadable" else "StoreCorrupt"
    assert [event.why for event in queue.inspect.events(name="Returned")] == [why] * len(lost)


def _fail(error: Exception, *_: object) -> None:
    raise error


@pytest.mark.parametrize("is_whole", [True, False])
def test_over_a_folder(queue: MessageQueue, tmp_path: Path, is_whole: bool) -> None:
    reference = next(Reference.of(blob.hash, blob.size) for blob in queue.payloads.list() if blob.size == len(LARGE))
    if not is_whole:
        queue.admin.change_ring(whole_payloads=len(LARGE) - 1)
        # The bytes of a reference as a plain message.
        queue.enqueue_message("acme", bytes(reference))
    block = queue.blocks.plan()
    (part,) = PROCESSORS.parts({"acme": block.messages})
    run_over_a_folder(queue, block.token, part, tmp_path)
    queue.blocks.settle(block)
    events = [(event.fate.name, event.id) for event in queue.inspect.events()]
    if is_whole:
        assert SEEN == [("acme", LARGE), ("acme", b"plain")]
        assert sorted(_fates(queue)) == ["PROCESSED", "PROCESSED", "UNSUPPORTED"] and queue.payloads.list() == []
    else:
        plain = [b"plain", bytes(reference)]
        assert [payload for _, payload in SEEN] == [reference, *plain]
        assert [isinstance(payload, Reference) for _, payload in SEEN] == [True, False, False]
        expected = [("PROCESSED", id_) for id_ in (reference.hash, *message_ids(plain))]
        assert sorted(event for event in events if event[0] == "PROCESSED") == sorted(expected)
