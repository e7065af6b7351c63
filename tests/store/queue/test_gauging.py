"""Backlog figures: messages, sizes, ages and estimated blocks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_mq import LinearWeigher, Message, MessageQueue, Weight
from airflow_mq.engine.store import parse, upgrade


@pytest.fixture
def queue(store_uri: str) -> Iterator[MessageQueue]:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        yield queue


def test_backlog_of_an_empty_ring_is_zero(queue: MessageQueue) -> None:
    backlog = queue.inspect.backlog(deepest=5)

    assert (backlog.messages, backlog.size, backlog.queues, backlog.age, backlog.blocks) == (0, 0, 0, None, 0)
    assert list(backlog.deepest) == [] == queue.inspect.backlog(oldest=10).oldest
    queue.admin.change_ring(service_weight=None)
    assert queue.inspect.backlog().blocks is None


def test_backlog_includes_pages_and_inbox(queue: MessageQueue) -> None:
    queue.admin.change_ring(
        weigher=LinearWeigher(Weight(2, 10), Weight(500, 1000)), service_weight=Weight(100, 1 << 30)
    )
    queue.enqueue_messages("a", [b"xxxx"] * 30)
    queue.enqueue_message("b", b"yy", priority="high")
    held = queue.blocks.plan(limit=Weight(20, 1 << 20))
    queue.enqueue_messages("a", [b"xxxx"] * 10)
    queue.enqueue_message("c", b"zzz", not_before=3600)

    backlog = queue.inspect.backlog(deepest=2)

    assert (backlog.messages, backlog.size, backlog.queues) == (41, 162, 2)
    assert backlog.weight == Weight(2 * 41 + 162 // 2, 10 * 41 + 162)
    assert backlog.blocks == pytest.approx(1.63)
    assert (backlog.delayed, backlog.set_aside) == (1, 0)
    assert [(entry.name, entry.messages, entry.size) for entry in backlog.deepest] == [
        ("a", 40, 160),
        ("b (high)", 1, 2),
    ]
    assert backlog.age is not None and all(
        entry.age is not None and entry.age <= backlog.age for entry in backlog.deepest
    )
    assert queue.footprint("a").count == 40

    for batch in held.batches():
        queue.blocks.report(held, [batch.answer()])
    queue.blocks.settle(held)
    assert (
        queue.inspect.backlog().messages
        == sum(footprint.count for _, footprint in queue.footprints())
        == 41 - held.messages
    )


def test_backlog_counts_set_aside_messages_separately(queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"x", Message(b"heavy", weight=Weight(10**12, 0)), b"y"])
    queue.service_queues(lambda delivery: None)

    backlog = queue.inspect.backlog(deepest=1)

    assert (backlog.messages, backlog.size, backlog.queues, backlog.set_aside, backlog.age) == (0, 0, 0, 1, None)
    queue.enqueue_message("a", b"another")
    assert (queue.inspect.backlog().messages, queue.inspect.backlog().size) == (1, 7)


def test_backlog_counts_swept_messages_as_set_aside(queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"xx", Message(b"heavy", weight=Weight(10**12, 0)), b"y"])
    queue.service_queues(lambda delivery: None)
    queue.enqueue_messages("a", [b"zzz"] * 7)
    queue.enqueue_message("b", b"zzz")
    assert queue.sweep_queue("a") == 8

    backlog, seen = queue.inspect.backlog(5), queue.inspect.queues()

    assert (backlog.messages, backlog.size, backlog.queues, backlog.set_aside) == (1, 3, 1, 8)
    assert [(entry.name, entry.messages) for entry in backlog.deepest] == [("b", 1)]
    assert [(summary.origin, summary.ready, summary.set_aside) for summary in seen] == [("a", 0, 8), ("b", 1, 0)]
    assert queue.set_aside.count() == len(queue.set_aside.list("a", limit=100)) == 8 and queue.set_aside.count(3) == 3
    assert [summary.origin for summary in queue.inspect.ring().queues] == ["b"]


def test_oldest_lists_the_oldest_origins_first(queue: MessageQueue) -> None:
    for origin in ("first", "second", "third"):
        queue.enqueue_message(origin, b"x")
    queue.enqueue_messages("third", [b"x"] * 5)

    backlog = queue.inspect.backlog(oldest=2).oldest

    assert [entry.origin for entry in backlog] == ["first", "second"]
    ages = [entry.age or 0.0 for entry in backlog]
    assert ages == sorted(ages, reverse=True)
    with pytest.raises(ValueError, match="a number of queues"):
        queue.inspect.backlog(oldest=-1)
    assert list(queue.inspect.backlog(oldest=0).oldest) == []


def test_backlog_is_separate_per_ring(queue: MessageQueue) -> None:
    queue.admin.create_ring("other")
    queue.enqueue_message("a", b"x")

    with MessageQueue(queue.store, "other") as other:
        assert other.inspect.backlog().messages == 0
