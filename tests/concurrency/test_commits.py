"""Commits of large slices that run beside the next slice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_mq import Batch, Delivery, Done, LinearWeigher, MessageQueue, RingConfig, Weight, batch_processor
from airflow_mq.engine.queue import commits, service
from airflow_mq.engine.rules.errors import StoreError
from airflow_mq.engine.store import parse, upgrade

pytestmark = [pytest.mark.concurrency, pytest.mark.postgres]

SLICE, ORIGINS, EACH = 6, 5, 12
COUNT = ORIGINS * EACH


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[commits.Commit]:
    """Let small slices commit as large ones do; return the commits that a thread began."""
    monkeypatch.setattr(service, "LEAST_BESIDE", 1)
    found: list[Any] = []
    begin = commits.Commits.begin

    def noting(self: commits.Commits) -> commits.Commit:
        # Counted before the thread can come to the statement at which a test waits for it.
        found.append(None)
        found[-1] = begin(self)
        return found[-1]

    monkeypatch.setattr(commits.Commits, "begin", noting)
    return found


@pytest.fixture
def queue(pg_uri: str) -> Iterator[MessageQueue]:
    """Yield a ring whose messages have pages of four."""
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as first:
        first.admin.create_ring("small", RingConfig(heap_size=64))
    with MessageQueue(pg_uri, "small") as queue:
        for number in range(EACH):
            for origin in range(ORIGINS):
                queue.enqueue_message(f"o{origin}", b"%02d" % number + bytes(10))
        yield queue


def in_commit_thread() -> bool:
    return threading.current_thread().name.startswith("airflow_mq commit")


def processed(queue: MessageQueue) -> int:
    return sum(1 for _ in queue.inspect.events(name="Processed"))


def assert_done(queue: MessageQueue, count: int = COUNT) -> None:
    assert queue.check() == []
    ids = [(event.origin, event.id) for event in queue.inspect.events(name="Processed")]
    assert len(ids) == len(set(ids)) == count
    assert len(queue) == 0


@pytest.mark.parametrize("mode", ["callable", "batch"])
def test_each_message_is_processed_once_and_in_order(
    queue: MessageQueue, begun: list[commits.Commit], mode: str
) -> None:
    seen: dict[str, list[bytes]] = {}

    def one(delivery: Delivery) -> None:
        seen.setdefault(delivery.origin, []).append(delivery.payload[:2])

    def many(batch: Batch) -> None:
        seen.setdefault(batch.origin, []).extend(payload[:2] for payload in batch.payloads)

    done = queue.service_queues(one if mode == "callable" else batch_processor(many), slice_messages=SLICE)
    assert done.processed == COUNT
    assert len(begun) > 3
    assert seen == {f"o{origin}": [b"%02d" % number for number in range(EACH)] for origin in range(ORIGINS)}
    assert_done(queue)


def test_commit_does_not_wait_for_the_processor(queue: MessageQueue, begun: list[commits.Commit], pg_uri: str) -> None:
    """Other processes see the results of a slice while the first message of the next one is processed."""
    seen: list[int] = []

    def processor(delivery: Delivery) -> None:
        if begun and not seen:
            with MessageQueue(pg_uri, "small") as other:
                until = time.monotonic() + 30
                while not processed(other) and time.monotonic() < until:
                    time.sleep(0.01)
                seen.append(processed(other))

    queue.service_queues(processor, slice_messages=SLICE)
    assert seen == [SLICE]
    assert_done(queue)


def held_back(statement: str, until: Callable[[], bool], happened: list[bool]) -> Callable[[str], None]:
    """Return a probe that holds the thread back before a statement until something has happened, or cannot."""

    def probe(name: str) -> None:
        if name == statement and in_commit_thread():
            give_up = time.monotonic() + 1.0
            while not until() and time.monotonic() < give_up:
                time.sleep(0.001)
            happened.append(until())

    return probe


@pytest.mark.parametrize("statement", ["delete_range", "save_state", "commit"])
def test_next_slice_is_read_before_the_commit(
    queue: MessageQueue, begun: list[commits.Commit], statement: str, pg_uri: str
) -> None:
    """Reads of the next slice still show rows that the thread is about to delete; senders add more meanwhile."""
    tried: list[bytes] = []
    beside: list[bool] = []
    with MessageQueue(pg_uri, "small") as sender, ThreadPoolExecutor(1) as thread:
        thread.submit(len, sender).result()

        def processor(delivery: Delivery) -> None:
            tried.append(delivery.payload)
            if begun and len(tried) % SLICE == 1:
                # Not as a message of this processor.
                thread.submit(sender.enqueue_message, delivery.origin, b"late %d" % len(tried)).result()

        queue.store.probe = held_back(statement, lambda: len(tried) % SLICE >= 2, beside)
        done = queue.service_queues(processor, slice_messages=SLICE)
        queue.store.probe = None
        late = sum(payload.startswith(b"late") for payload in tried)
        done_later = queue.service_queues(processor, slice_messages=1_000).processed
        while queue.service_queues(lambda delivery: None).processed:
            done_later += 1
    assert len(begun) > 3
    assert any(beside)
    assert late + done_later > 0
    assert done.processed + done_later >= COUNT
    assert queue.check() == []
    assert len(queue) == 0
    addresses = [(event.origin, event.page, event.index) for event in queue.inspect.events(name="Processed")]
    assert len(addresses) == len(set(addresses))


@pytest.mark.parametrize("statement", ["lock_ring", "delete_range", "save_state", "commit"])
def test_failed_commit_repeats_two_slices_at_most(
    queue: MessageQueue, begun: list[commits.Commit], statement: str
) -> None:
    tried: list[bytes] = []

    def fail(name: str) -> None:
        if name == statement and in_commit_thread() and len(begun) == 3:
            raise StoreError("the disk is full")

    queue.store.probe = fail
    with pytest.raises(StoreError, match="the disk is full"):
        queue.service_queues(lambda delivery: tried.append(delivery.payload), slice_messages=SLICE)
    queue.store.probe = None
    assert queue.check() == []
    assert processed(queue) == 2 * SLICE
    assert 3 * SLICE <= len(tried) <= 4 * SLICE
    assert queue.service_queues(lambda delivery: None).processed == COUNT - 2 * SLICE
    assert_done(queue)


def test_error_before_the_commit_rolls_back(
    queue: MessageQueue, begun: list[commits.Commit], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread holds the ring and waits for what to write: it must not wait forever."""

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
        broken.setattr(service.Service, "_prepare", fail)
        queue.service_queues(lambda delivery: None, slice_messages=SLICE)
    assert len(begun) == 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("airflow_mq commit")]
    assert queue.service_queues(lambda delivery: None).processed == COUNT
    assert_done(queue)


def test_interrupted_processor_keeps_the_commit_under_way(queue: MessageQueue, begun: list[commits.Commit]) -> None:
    tried = 0

    def processor(delivery: Delivery) -> None:
        nonlocal tried
        tried += 1
        if tried == 2 * SLICE + 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        queue.service_queues(processor, slice_messages=SLICE)
    assert len(begun) == 2
    assert processed(queue) == 2 * SLICE + 1
    assert queue.check() == []


def test_slice_that_sent_messages_is_committed_first(queue: MessageQueue, begun: list[commits.Commit]) -> None:
    """The next slice may have to process what it sent."""

    def processor(delivery: Delivery) -> Done:
        return Done(enqueue=[(delivery.origin, b"sent")])

    limit = Weight(COUNT, 1 << 30)
    assert queue.service_queues(processor, limit, slice_messages=SLICE).processed == COUNT
    assert begun == []
    assert queue.check() == []
    assert len(queue) == COUNT


def test_progress_is_reported_after_each_commit(queue: MessageQueue, begun: list[commits.Commit]) -> None:
    reported: list[tuple[int, int]] = []

    def progress(done: Any) -> None:
        reported.append((done.processed, processed(queue)))

    queue.service_queues(lambda delivery: None, slice_messages=SLICE, progress=progress)
    assert len(reported) >= COUNT // SLICE
    assert all(claimed <= stored for claimed, stored in reported)


def test_small_slice_is_committed_before_the_next_message(queue: MessageQueue, pg_uri: str) -> None:
    seen: list[tuple[int, int]] = []
    with MessageQueue(pg_uri, "small") as other:

        def processor(delivery: Delivery) -> None:
            seen.append((len(seen), processed(other)))

        queue.service_queues(processor, slice_messages=1)
    assert seen == [(number, number) for number in range(COUNT)]


@pytest.mark.parametrize("mode", ["callable", "batch"])
def test_slice_is_committed_before_a_long_message(queue: MessageQueue, begun: list[commits.Commit], mode: str) -> None:
    """Each message is expected to take longer than a slice may."""
    queue.admin.change_ring(weigher=LinearWeigher(Weight(1_000, 1), Weight(0, 0)))

    def one(delivery: Delivery) -> None:
        return None

    def many(batch: Batch) -> None:
        return None

    processor = one if mode == "callable" else batch_processor(many)
    assert queue.service_queues(processor, Weight(1 << 40, 1 << 40), slice_messages=1).processed == COUNT
    assert begun == []
    assert_done(queue)
