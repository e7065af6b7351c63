"""How much waits, since when, and what it will cost: the figures of those who watch a ring."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_mq import LinearWeigher, Message, MessageQueue, Weight
from airflow_mq.queue.inspect.top import Watcher
from airflow_mq.store import parse, upgrade


@pytest.fixture
def queue(store_uri: str) -> Iterator[MessageQueue]:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        yield queue


def test_nothing_waits(queue: MessageQueue) -> None:
    found = queue.inspect.backlog(deepest=5)

    assert (found.messages, found.size, found.queues, found.age, found.blocks) == (0, 0, 0, None, None)
    assert list(found.deepest) == [] == queue.inspect.oldest()


def test_a_backlog_is_added_up_whether_it_is_in_pages_or_not(queue: MessageQueue) -> None:
    queue.admin.change_ring(
        weigher=LinearWeigher(Weight(2, 10), Weight(500, 1000)), service_weight=Weight(100, 1 << 30)
    )
    queue.enqueue_messages("a", [b"xxxx"] * 30)
    queue.enqueue_message("b", b"yy", priority="high")
    held = queue.blocks.plan(limit=Weight(20, 1 << 20))
    queue.enqueue_messages("a", [b"xxxx"] * 10)
    queue.enqueue_message("c", b"zzz", not_before=3600)

    found = queue.inspect.backlog(deepest=2)

    assert (found.messages, found.size, found.queues) == (41, 162, 2)
    assert found.weight == Weight(2 * 41 + 162 // 2, 10 * 41 + 162)
    assert found.blocks == pytest.approx(1.63)
    assert (found.delayed, found.set_aside) == (1, 0)
    assert [(one.name, one.messages, one.size) for one in found.deepest] == [("a", 40, 160), ("b (high)", 1, 2)]
    assert found.age is not None and all(one.age is not None and one.age <= found.age for one in found.deepest)
    assert queue.footprint("a").count == 40

    for batch in held.batches():
        queue.blocks.report(held, [batch.answer()])
    queue.blocks.settle(held)
    assert queue.inspect.backlog().messages == sum(one.count for _, one in queue.footprints()) == 41 - held.messages


def test_what_is_set_aside_counts_by_itself(queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"x", Message(b"heavy", weight=Weight(10**12, 0)), b"y"])
    queue.service_queues(lambda delivery: None)

    found = queue.inspect.backlog(deepest=1)

    assert (found.messages, found.size, found.queues, found.set_aside, found.age) == (0, 0, 0, 1, None)
    queue.enqueue_message("a", b"another")
    assert (queue.inspect.backlog().messages, queue.inspect.backlog().size) == (1, 7)


def test_what_was_swept_waits_for_a_person_too(queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"xx", Message(b"heavy", weight=Weight(10**12, 0)), b"y"])
    queue.service_queues(lambda delivery: None)
    queue.enqueue_messages("a", [b"zzz"] * 7)
    queue.enqueue_message("b", b"zzz")
    assert queue.sweep_queue("a") == 8

    found, look, seen = queue.inspect.backlog(5), Watcher(queue.session).look(), queue.inspect.queues()

    assert (found.messages, found.size, found.queues, found.set_aside) == (1, 3, 1, 8)
    assert [(one.name, one.messages) for one in found.deepest] == [("b", 1)]
    assert look.totals is not None and (look.totals.ready, look.totals.waiting, look.totals.set_aside) == (1, 1, 8)
    assert [(one.origin, one.ready, one.set_aside) for one in seen] == [("a", 0, 8), ("b", 1, 0)]
    assert queue.set_aside.count() == len(queue.set_aside.list("a", limit=100)) == 8 and queue.set_aside.count(3) == 3
    assert [one.origin for one in queue.inspect.ring().queues] == ["b"] == [one.origin for one in look.turns]


def test_the_oldest_come_first(queue: MessageQueue) -> None:
    for origin in ("first", "second", "third"):
        queue.enqueue_message(origin, b"x")
    queue.enqueue_messages("third", [b"x"] * 5)

    found = queue.inspect.oldest(2)

    assert [one.origin for one in found] == ["first", "second"]
    ages = [one.age or 0.0 for one in found]
    assert ages == sorted(ages, reverse=True)
    with pytest.raises(ValueError, match="at least 1"):
        queue.inspect.oldest(0)


def test_rings_do_not_see_each_other(queue: MessageQueue) -> None:
    queue.admin.create_ring("other")
    queue.enqueue_message("a", b"x")

    with MessageQueue(queue.store, "other") as other:
        assert other.inspect.backlog().messages == 0
