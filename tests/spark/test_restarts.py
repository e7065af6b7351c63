"""Streams whose driver is killed between the sink and Spark's commit log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from airflow_mq import MessageQueue
from airflow_mq.errors import InvalidInput
from airflow_mq.spark.source import BlockStream, Options, batch_number
from tests.conftest import SOAK
from tests.spark.conftest import ROOT
from tests.spark.streaming import RINGS, is_empty

MakeRing = Callable[..., MessageQueue]
#: Restarts that must hit the moment (`make soak` needs one more), and starts that may miss it.
RESTARTS, STARTS = 3 if SOAK else 2, 15


class Driver:
    """A driver of two streams, in processes of its own."""

    def __init__(self, uri: str, folder: Path, *words: str) -> None:
        self.folder = folder
        (folder / "jvm").unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.spark.streaming", uri, str(folder), *words]
        self.process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})

    def kill(self) -> None:
        """End the JVM and its Python at once."""
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int((self.folder / "jvm").read_text()), signal.SIGKILL)
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start(tmp_path: Path, make_ring: MakeRing) -> Iterator[Callable[..., Driver]]:
    started: list[Driver] = []

    def start(*words: str) -> Driver:
        started.append(Driver(f"sqlite:///{tmp_path / 'store.db'}", tmp_path, *words))
        return started[-1]

    yield start
    for driver in started:
        driver.kill()


def numbers(folder: Path) -> set[int]:
    """Return the numbers of the batches that a log, or a sink, holds."""
    return {int(path.name) for path in folder.glob("*") if path.name.isdigit()}


@pytest.mark.spark
@pytest.mark.slow
def test_a_driver_killed_between_the_sink_and_the_commit_log_loses_no_message(
    make_ring: MakeRing, tmp_path: Path, start: Callable[..., Driver]
) -> None:
    queues = {ring: make_ring(ring=ring) for ring in RINGS}
    uri, sent, hits = queues["each"].store.address.uri, set[str](), 0
    sinks = {"each": tmp_path / "each", "files": tmp_path / "files" / "_spark_metadata"}
    for number in range(STARTS):
        if hits == RESTARTS:
            break
        # They wait for the restarted streams, beside those of the batch that was not committed.
        texts = [f"{number} {at}" for at in range(20)]
        sent.update(texts)
        for queue in queues.values():
            queue.enqueue_messages("a", [text.encode() for text in texts])
        before, driver = numbers(sinks["files"]), start()
        look = time.monotonic()
        while not numbers(sinks["files"]) - before:
            if time.monotonic() > look:
                assert driver.process.poll() is None
                if is_empty(uri, "files"):
                    break
                look = time.monotonic() + 1
            time.sleep(0.0005)
        driver.kill()
        # Beside the file sink's commit, Spark may have been quicker than this test.
        hits += all(numbers(sinks[ring]) - numbers(tmp_path / f"checkpoint-{ring}" / "commits") for ring in RINGS)
        for queue in queues.values():
            # Until the leases end.
            while queue.blocks.release_dead() or queue.blocks.list("planned"):
                time.sleep(0.1)
        assert not lost(tmp_path, queues, sent)

    assert hits == RESTARTS
    driver = start("drain")
    driver.process.wait()
    assert not lost(tmp_path, queues, sent)
    assert all(is_empty(uri, ring) for ring in RINGS)


def lost(folder: Path, queues: Mapping[str, MessageQueue], sent: Iterable[str]) -> dict[str, list[str]]:
    """Return the messages that neither wait nor are in the sink, by the stream."""
    import pyarrow.parquet as pq

    waiting = {
        ring: {one.payload.decode() for one in queue.inspect.peek("a", limit=1000)} for ring, queue in queues.items()
    }
    # What the log does not name, a killed job has left.
    logs = [path.read_text().splitlines()[1:] for path in (folder / "files" / "_spark_metadata").glob("[0-9]*")]
    tables = [pq.read_table(url2pathname(urlsplit(json.loads(line)["path"]).path)) for log in logs for line in log]
    written = {
        "each": {text for path in (folder / "each").glob("[0-9]*") for text in path.read_text().splitlines()},
        "files": {bytes(row).decode() for table in tables for row in table.column("payload").to_pylist()},
    }
    missing = {ring: sorted(set(sent) - waiting[ring] - written[ring]) for ring in queues}
    return {ring: texts for ring, texts in missing.items() if texts}


@pytest.fixture
def stream(make_ring: MakeRing, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], BlockStream]]:
    """Return the reader of a stream, in this process; each call is a restart."""
    queue = make_ring()
    monkeypatch.setenv("AIRFLOW_MQ_STORE", queue.store.address.uri)
    opened: list[BlockStream] = []

    def make() -> BlockStream:
        opened.append(BlockStream(Options({"ring": queue.ring}), ["payload"]))
        return opened[-1]

    yield make
    for reader in opened:
        reader.stop()


def payloads(reader: BlockStream, start: dict[str, object], end: dict[str, object]) -> list[bytes]:
    """Return what a micro-batch has."""
    batches = [batch for share in reader.partitions(start, end) for batch in reader.read(share)]  # type: ignore[arg-type]
    return [payload for batch in batches for payload in batch.column("payload").to_pylist()]


def test_a_batch_whose_block_has_ended_is_empty_and_settles_nothing(
    make_ring: MakeRing, stream: Callable[[], BlockStream]
) -> None:
    queue, first = make_ring(), stream()
    queue.enqueue_messages("a", [b"1", b"2"])
    initial = first.initialOffset()
    planned = first.latestOffset(initial)
    assert payloads(first, initial, planned) == [b"1", b"2"]
    first.stop()
    # Another process released it after its lease, and the first one of these waits again.
    queue.blocks.release(queue.blocks.list("planned")[0])
    queue.enqueue_messages("a", [b"3"])

    restarted = stream()
    assert payloads(restarted, initial, planned) == []
    restarted.commit(planned)
    assert queue.footprint("a").count == 3
    following = restarted.latestOffset(planned)
    # Spark commits it once more, and the next block stays kept.
    restarted.commit(planned)
    assert restarted._keeper is not None
    assert batch_number(following) == batch_number(planned) + 1
    assert payloads(restarted, planned, following) == [b"1", b"2", b"3"]
    assert restarted.latestOffset(following) == following
    assert queue.footprint("a").count == 0


def test_a_stream_that_ends_before_it_reads_costs_no_attempt(
    make_ring: MakeRing, stream: Callable[[], BlockStream]
) -> None:
    queue = make_ring()
    queue.enqueue_messages("a", [b"1"])
    for attempts in (0, 1):
        reader = stream()
        initial = reader.initialOffset()
        planned = reader.latestOffset(initial)
        if attempts:
            assert payloads(reader, initial, planned) == [b"1"]
        reader.stop()
        queue.blocks.release(queue.blocks.list("planned")[0])
        assert [message.attempts for message in queue.inspect.peek("a")] == [attempts]


def test_an_idle_stream_waits_between_two_looks(
    make_ring: MakeRing, stream: Callable[[], BlockStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, reader, waits = make_ring(), stream(), list[float]()
    monkeypatch.setattr("airflow_mq.spark.source.time", SimpleNamespace(sleep=waits.append))
    initial = reader.initialOffset()
    assert reader.latestOffset(initial) == initial
    queue.enqueue_message("a", b"1")
    assert reader.latestOffset(initial) != initial
    assert waits == [0.2]


def test_a_restart_within_the_lease_repeats_the_batch(make_ring: MakeRing, stream: Callable[[], BlockStream]) -> None:
    queue, first = make_ring(), stream()
    queue.enqueue_messages("a", [b"1", b"2"])
    initial = first.initialOffset()
    planned = first.latestOffset(initial)
    first.stop()
    queue.enqueue_messages("b", [b"3"])

    # Spark had not logged the offset: the same number finds the same block.
    assert stream().latestOffset(initial) == planned
    restarted = stream()
    assert payloads(restarted, initial, planned) == [b"1", b"2"]
    restarted.commit(planned)
    assert (queue.footprint("a").count, queue.footprint("b").count) == (0, 1)


def test_an_offset_of_another_format_is_refused(make_ring: MakeRing, stream: Callable[[], BlockStream]) -> None:
    make_ring()
    reader = stream()
    with pytest.raises(InvalidInput, match="another checkpointLocation"):
        reader.latestOffset({"epoch": 7})
