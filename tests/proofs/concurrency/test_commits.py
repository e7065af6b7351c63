"""Commits of slices: what a service processed between two of them is repeated, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_mq import Batch, Delivery, Done, LinearWeigher, MessageQueue, RingConfig, Weight, batch_processor
from airflow_mq.engine.queue import service
from airflow_mq.engine.rules.errors import StoreError
from airflow_mq.engine.store import parse, upgrade

pytestmark = pytest.mark.concurrency

SLICE, ORIGINS, EACH = 6, 5, 12
COUNT = ORIGINS * EACH


@pytest.fixture
def queue(store_uri: str) -> Iterator[MessageQueue]:
    """Yield a ring whose messages have pages of four."""
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as first:
        first.admin.create_ring("small", RingConfig(heap_size=64))
    with MessageQueue(store_uri, "small") as queue:
        for number in range(EACH):
            for origin in range(ORIGINS):
                queue.enqueue_message(f"o{origin}", b"%02d" % number + bytes(10))
        yield queue


def processed(queue: MessageQueue) -> int:
    return sum(1 for _ in queue.inspect.events(name="Processed"))


def assert_done(queue: MessageQueue, count: int = COUNT) -> None:
    assert queue.check() == []
    ids = [(event.origin, event.id) for event in queue.inspect.events(name="Processed")]
    assert len(ids) == len(set(ids)) == count
    assert len(queue) == 0


@pytest.mark.parametrize("mode", ["callable", "batch"])
def test_each_message_is_processed_once_and_in_order(queue: MessageQueue, mode: str) -> None:
    seen: dict[str, list[bytes]] = {}

    def one(delivery: Delivery) -> None:
        seen.setdefault(delivery.origin, []).append(delivery.payload[:2])

    def many(batch: Batch) -> None:
        seen.setdefault(batch.origin, []).extend(payload[:2] for payload in batch.payloads)

    done = queue.service_queues(one if mode == "callable" else batch_processor(many), slice_messages=SLICE)
    assert done.processed == COUNT
    assert seen == {f"o{origin}": [b"%02d" % number for number in range(EACH)] for origin in range(ORIGINS)}
    assert_done(queue)


def test_a_slice_is_committed_before_the_next_message(queue: MessageQueue) -> None:
    seen: list[tuple[int, int]] = []
    with MessageQueue(queue.store.address, "small") as other:

        def processor(delivery: Delivery) -> None:
            seen.append((len(seen) - len(seen) % SLICE, processed(other)))

        queue.service_queues(processor, slice_messages=SLICE)
    assert [stored for _, stored in seen] == [due for due, _ in seen]
    assert_done(queue)


def test_messages_that_are_sent_between_slices_are_processed_once(queue: MessageQueue) -> None:
    tried: list[bytes] = []
    with MessageQueue(queue.store.address, "small") as sender:

        def processor(delivery: Delivery) -> None:
            tried.append(delivery.payload)

        def progress(done: object) -> None:
            if len(tried) <= COUNT:
                sender.enqueue_message("o1", b"late %d" % len(tried))

        queue.service_queues(processor, slice_messages=SLICE, progress=progress)
        while queue.service_queues(processor).processed:
            pass
    late = sum(payload.startswith(b"late") for payload in tried)
    assert late > 3
    assert len(tried) == COUNT + late
    assert_done(queue, COUNT + late)


@pytest.mark.parametrize("statement", ["lock_ring", "delete_range", "save_state", "commit"])
def test_a_failed_commit_repeats_one_slice(queue: MessageQueue, statement: str) -> None:
    tried: list[bytes] = []
    failures = [StoreError("the disk is full")]

    def fail(name: str) -> None:
        if name == statement and len(tried) == 3 * SLICE and failures:
            raise failures.pop()

    queue.store.probe = fail
    with pytest.raises(StoreError, match="the disk is full"):
        queue.service_queues(lambda delivery: tried.append(delivery.payload), slice_messages=SLICE)
    queue.store.probe = None
    assert queue.check() == []
    assert processed(queue) == 2 * SLICE
    assert len(tried) == 3 * SLICE
    assert queue.service_queues(lambda delivery: None).processed == COUNT - 2 * SLICE
    assert_done(queue)


def test_an_error_before_the_commit_rolls_back(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
        broken.setattr(service.Service, "_count", fail)
        queue.service_queues(lambda delivery: None, slice_messages=SLICE)
    assert processed(queue) == 0
    assert queue.service_queues(lambda delivery: None).processed == COUNT
    assert_done(queue)


def test_an_interrupted_processor_keeps_what_is_done(queue: MessageQueue) -> None:
    tried = 0

    def processor(delivery: Delivery) -> None:
        nonlocal tried
        tried += 1
        if tried == 2 * SLICE + 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        queue.service_queues(processor, slice_messages=SLICE)
    assert processed(queue) == 2 * SLICE + 1
    assert queue.check() == []


def test_a_slice_is_committed_with_the_messages_that_it_sent(queue: MessageQueue) -> None:
    """The next slice may have to process what it sent."""

    def processor(delivery: Delivery) -> Done:
        return Done(enqueue=[(delivery.origin, b"sent")])

    limit = Weight(COUNT, 1 << 30)
    assert queue.service_queues(processor, limit, slice_messages=SLICE).processed == COUNT
    assert queue.check() == []
    assert len(queue) == COUNT


def test_progress_is_reported_after_each_commit(queue: MessageQueue) -> None:
    reported: list[tuple[int, int]] = []

    def progress(done: Any) -> None:
        reported.append((done.processed, processed(queue)))

    queue.service_queues(lambda delivery: None, slice_messages=SLICE, progress=progress)
    assert len(reported) >= COUNT // SLICE
    assert all(claimed == stored for claimed, stored in reported)


@pytest.mark.parametrize("mode", ["callable", "batch"])
def test_a_slice_is_committed_before_a_long_message(queue: MessageQueue, mode: str) -> None:
    """Each message is expected to take longer than a slice may."""
    queue.admin.change_ring(weigher=LinearWeigher(Weight(1_000, 1), Weight(0, 0)))
    begun, uncommitted = 0, set[int]()

    def note(count: int) -> None:
        nonlocal begun
        uncommitted.add(begun - processed(queue))
        begun += count

    def one(delivery: Delivery) -> None:
        note(1)

    def many(batch: Batch) -> None:
        note(len(batch.payloads))

    processor = one if mode == "callable" else batch_processor(many)
    assert queue.service_queues(processor, Weight(1 << 40, 1 << 40), slice_messages=COUNT).processed == COUNT
    assert uncommitted == {0}
    assert_done(queue)
