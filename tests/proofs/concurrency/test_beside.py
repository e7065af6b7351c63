"""Blocks that end while another process holds the ring, during a service or an execution."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from airflow_mq import Done, MessageQueue, RingConfig, Weight, Yield
from airflow_mq.engine.queue.values import Delivery, Report
from airflow_mq.engine.rules.events import Fate
from airflow_mq.engine.store import parse, upgrade

pytestmark = pytest.mark.concurrency


@pytest.fixture
def pair(store_uri: str) -> Iterator[tuple[MessageQueue, MessageQueue]]:
    """Yield two clients of one ring."""
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as first:
        first.admin.create_ring("small", RingConfig(heap_size=64, service_weight=Weight(1_000, 1 << 20)))
    with MessageQueue(store_uri, "small") as first, MessageQueue(store_uri, "small") as second:
        yield first, second


def during_message(queue: MessageQueue, action: Callable[[], object], position: int = 1) -> Callable[[Delivery], None]:
    """Return a processor that runs an action in another thread during its n-th message.

    A failure of the action ends the service: an exception of a processor would only requeue the message.
    """
    count = 0

    def processor(delivery: Delivery) -> None:
        nonlocal count
        count += 1
        if count == position:
            problems: list[BaseException] = []

            def run() -> None:
                try:
                    action()
                except BaseException as error:
                    problems.append(error)

            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
            if problems:
                raise KeyboardInterrupt from problems[0]

    return processor


def assert_all_processed(queue: MessageQueue, count: int) -> None:
    for _ in range(10):
        assert queue.check() == []
        queue.service_queues(lambda delivery: None)
    assert queue.check() == []
    ids = [event.id for event in queue.inspect.events(name="Processed")]
    assert len(ids) == len(set(ids)) == count
    assert all(footprint.count == 0 for _, footprint in queue.footprints())


@pytest.mark.parametrize("position", [1, 4, 7, 10, 12])
@pytest.mark.parametrize("target", ["held", "served", "later", "new"])
def test_block_settles_during_a_service(pair: tuple[MessageQueue, MessageQueue], position: int, target: str) -> None:
    """The service's changes to other queues in the same slice persist, for any target of the block."""
    queue, other = pair
    queue.enqueue_messages("held", [b"held %d" % n for n in range(6)])
    block = queue.blocks.plan(limit=Weight(4, 1 << 20))
    for origin in ("served", "and", "later"):
        queue.enqueue_messages(origin, [b"%s %d" % (origin.encode(), n) for n in range(4)])

    def settle() -> None:
        reports = []
        for batch in block.batches():
            for place in range(len(batch)):
                done = Done(enqueue=[(target, b"sent by %d %d" % (batch.page, place))])
                reports.append(Report(batch.origin, batch.page, batch.first + place, batch.first + place, done))
        other.blocks.report(block, reports)
        other.blocks.settle(block)

    queue.service_queues(during_message(queue, settle, position))
    assert queue.check() == []
    assert_all_processed(queue, 6 + 3 * 4 + 4)


@pytest.mark.parametrize("order", ["rotation", "deficit", "shuffle", "paths"])
@pytest.mark.parametrize("how", ["post", "send", "yield"])
def test_emptied_queue_rejoins_the_ring_during_a_service(store_uri: str, order: str, how: str) -> None:
    """The queue left the ring; messages from a processor add it again."""
    upgrade(parse(store_uri))
    settings = {"order": "deficit", "paths": True} if order == "paths" else {"order": order}
    with MessageQueue(store_uri) as first:
        first.admin.create_ring("small", RingConfig(heap_size=64, service_weight=Weight(1_000, 1 << 20), **settings))
    with MessageQueue(store_uri, "small") as queue, MessageQueue(store_uri, "small") as other:
        queue.enqueue_message("b", b"b1")
        block = other.blocks.plan(limit=Weight(100, 1 << 20))
        assert block.messages == 1
        for origin in ("a", "c"):
            queue.enqueue_messages(origin, [b"%s%d" % (origin.encode(), n) for n in range(4)])

        def settle() -> None:
            other.blocks.report(block, [batch.answer() for batch in block.batches()])
            other.blocks.settle(block)

        beside = during_message(queue, settle)

        def processor(delivery: Delivery) -> Done | Yield | None:
            beside(delivery)
            if how == "yield":
                return Yield("not now")
            if delivery.payload == b"a2" and how == "post":
                return Done(enqueue=[("b", b"child 1"), ("b", b"child 2")])
            if delivery.payload == b"a2" and how == "send":
                during_message(other, lambda: other.enqueue_messages("b", [b"child 1", b"child 2"]))(delivery)
            return None

        queue.service_queues(processor, slice_messages=1, slice_seconds=0, seed=b"2")
        assert queue.check() == []
        assert_all_processed(queue, 1 + 8 + (0 if how == "yield" else 2))


def test_block_is_released_during_a_service(pair: tuple[MessageQueue, MessageQueue]) -> None:
    queue, other = pair
    queue.enqueue_messages("held", [b"held %d" % n for n in range(6)])
    block = queue.blocks.plan()
    for origin in ("a", "b"):
        queue.enqueue_messages(origin, [b"%s %d" % (origin.encode(), n) for n in range(6)])
    queue.service_queues(during_message(queue, lambda: other.blocks.release(block), 9))
    assert_all_processed(queue, 18)


@pytest.mark.parametrize("how", ["settle", "release"])
def test_block_ends_during_an_execution(pair: tuple[MessageQueue, MessageQueue], how: str) -> None:
    """Block and execution belong to one queue; each keeps the other's changes."""
    queue, other = pair
    queue.enqueue_message("a", b"heavy", weight=Weight(5_000, 0))
    queue.enqueue_messages("a", [b"light %d" % n for n in range(2)])
    queue.service_queues(lambda delivery: None, Weight(2, 1 << 20))
    queue.enqueue_messages("a", [b"light %d" % n for n in range(2, 9)])
    (aside,) = queue.set_aside.list()
    block = queue.blocks.plan()
    assert block.messages

    def end() -> None:
        other.blocks.report(block, [batch.answer() for batch in block.batches()])
        other.blocks.settle(block) if how == "settle" else other.blocks.release(block)

    inner = during_message(queue, end)

    def processor(delivery: Delivery) -> None:
        delivery.enqueue("sent", b"by hand")
        inner(delivery)

    queue.execute_overweight(aside.address, processor)
    assert queue.check() == []
    assert queue.set_aside.list() == []
    assert_all_processed(queue, 11)
    assert [event.fate for event in queue.inspect.events(name="SetAside")] == [Fate.SET_ASIDE]


def test_block_of_a_set_aside_message_ends_during_a_service(store_uri: str) -> None:
    """The service writes the book of the message: the end is recorded, and the service applies it."""
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as first:
        first.admin.create_ring("small", RingConfig(heap_size=64, service_weight=Weight(1_000, 1 << 20)))
    with MessageQueue(store_uri, "small") as queue, MessageQueue(store_uri, "small", busy_timeout=0.1) as other:
        queue.enqueue_messages("a", [b"heavy 1", b"heavy 2"], weight=Weight(5_000, 0))
        queue.enqueue_messages("a", [b"light %d" % n for n in range(4)])
        queue.service_queues(lambda delivery: None, Weight(1, 1 << 20))
        aside, late = queue.set_aside.list()
        other.blocks.plan_overweight(late.address, Weight(9_000, 1 << 20), lease=0.001)
        block = other.blocks.plan_overweight(aside.address, Weight(9_000, 1 << 20))
        other.blocks.report(block, [batch.answer() for batch in block.batches()])

        def settle() -> None:
            assert other.blocks.settle(block).processed == 1
            assert other.blocks.release_dead(wait=False) == 1

        queue.service_queues(during_message(queue, settle))
        assert queue.check() == []
        assert other.blocks.settle(block).processed == 1
        assert other.admin.housekeep() == 0
        queue.execute_overweight(late.address, lambda delivery: None)
        assert_all_processed(queue, 6)
