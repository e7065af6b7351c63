"""Batches: the same messages, however many origins, pages and inbox rows are read at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.engine.queue import batches
from airflow_mq.engine.queue.values import Batch
from airflow_mq.engine.rules.outcome import Yield


def fill(queue: MessageQueue) -> None:
    """Send rows of many sizes: in one page and over several, with headers, of high priority, and one by one."""
    for origin in ("a", "b", "c"):
        queue.enqueue_messages(origin, [b"%03d" % number * (1 + number % 7) for number in range(300)])
        queue.enqueue_messages(origin, [b"large" * 500] * 60, headers={"k": origin})
        queue.enqueue_message(origin, b"single")
        queue.enqueue_messages(origin, [b"alike"] * 40)
    queue.enqueue_messages("b", [b"first %d" % number for number in range(9)], priority="high")
    for number in range(20):
        queue.enqueue_message("singles", b"%d" % number)


def facts(found_in: Iterable[Batch]) -> list[Any]:
    found = []
    for batch in found_in:
        payloads = [bytes(payload) for payload in batch.payloads]
        place = batch.origin, batch.page, batch.first, batch.priority
        found.append((place, payloads, batch.ids, list(batch.headers), list(batch.attempts), batch.sent_at))
    return found


def test_waiting_messages_are_the_same(make_queue: Any) -> None:
    queue = make_queue()
    fill(queue)
    seen = itertools.count()
    queue.service_queues(
        lambda payload, origin: Yield("later") if next(seen) % 5 == 0 else None, Weight(10**12, 20_000)
    )
    queue.blocks.plan(limit=Weight(10**12, 40_000))
    origins = ["singles", "c", "b", "a", "unknown"]
    for limit in (1, 7, 1000):
        each = [batch for origin in origins for batch in queue.inspect.waiting(origin, limit=limit)]
        assert facts(queue.inspect.waiting(*origins, limit=limit)) == facts(each)


def test_messages_that_are_read_in_many_parts_are_the_same(make_queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = make_queue(ordered=False, max_attempts=5)
    fill(queue)
    held = queue.payloads.put(b"external" * 9000)
    queue.enqueue_messages("d", [held.reference] * 2 + [b"beside"] * 9)
    # Holes in the pages: claims have several ranges of one page.
    seen = itertools.count()
    queue.service_queues(lambda _: Yield("later") if next(seen) % 9 < 3 else None, Weight(10**12, 30_000))
    block = queue.blocks.plan()
    found = []
    for size in (1, 3000, batches.AT_ONCE):
        monkeypatch.setattr(batches, "AT_ONCE", size)
        found.append(facts(queue.blocks.batches(block.claims)))
    assert found[0] == found[1] == found[2]
    assert sum(len(own[1]) for own in found[0]) == block.messages
