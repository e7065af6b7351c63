"""How far ahead of the walk a service in place reads: no further than its limit reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from airflow_mq import MessageQueue, Weight, batch_processor
from airflow_mq.engine.queue.values import Batch
from airflow_mq.engine.rules.orders import LOOK_PAST
from airflow_mq.engine.rules.weight import Meter
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.engine.store.inbox import Inbox
from airflow_mq.engine.store.rows import InboxRow, PlainRow
from airflow_mq.engine.store.working_set.inboxes import InboxLoader
from airflow_mq.engine.store.working_set.read_ahead import MOST_ROWS, ReadAhead
from airflow_mq.engine.store.working_set.ring import MEET_AT_ONCE, SLICE_IDS
from airflow_mq.engine.store.working_set.source import Source

ORIGINS, EACH, LIMIT = 20, 50, 10


@pytest.fixture
def queue(store_uri: str) -> Iterator[MessageQueue]:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        yield queue


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of messages of each look and fetch."""
    counts: list[int] = []

    def counted(read: Callable[..., list[PlainRow]]) -> Callable[..., list[PlainRow]]:
        def reads(*args: Any, **options: Any) -> list[PlainRow]:
            rows = read(*args, **options)
            counts.append(sum(row[3] for row in rows))
            return rows

        return reads

    for name in ("after", "heaps", "delayed_heaps"):
        monkeypatch.setattr(Inbox, name, counted(getattr(Inbox, name)))
    return counts


def names(seen: list[str]) -> Any:
    @batch_processor
    def process(batch: Batch) -> None:
        seen.extend(f"{batch.origin} {payload.decode()}" for payload in batch.payloads)

    return process


def test_a_small_limit_reads_a_small_part(queue: MessageQueue, fetched: list[int]) -> None:
    for number in range(EACH):
        queue.enqueue_messages((f"origin-{at}", b"%d" % number) for at in range(ORIGINS))
    # The first service also enters the new queues into the ring.
    assert queue.service_queues(names([]), limit=Weight(LIMIT, 1 << 30)).processed == LIMIT
    fetched.clear()
    seen: list[str] = []
    assert queue.service_queues(names(seen), limit=Weight(LIMIT, 1 << 30)).processed == len(seen) == LIMIT
    assert sum(fetched) < ORIGINS * EACH // 4


def test_packed_rows_are_read_at_most_twice_as_far_as_messages_are_taken(
    queue: MessageQueue, fetched: list[int]
) -> None:
    queue.admin.change_ring(service_weight=Weight(1_000, 1 << 40))

    def send(calls: int) -> None:
        for _ in range(calls):
            queue.enqueue_messages((f"origin-{at % 10}", b"x" * 128) for at in range(100))

    send(100)
    total = 0
    for _ in range(6):
        send(10)
        fetched.clear()
        assert queue.service_queues(names([])).processed == 1_000
        total += sum(fetched)
    assert total < 2 * 6 * 1_000


def test_a_look_meets_as_many_new_queues_as_it_returns(queue: MessageQueue) -> None:
    queue.enqueue_messages((f"new-{at}", b"x") for at in range(5_000))
    with queue.session.hold.transaction() as (_, working_set):
        names, ended = working_set.loader.ring.look_on(64, (), high=False)
        assert len(names) == len(working_set.books) == 64 and not ended


def test_a_look_beyond_rows_of_known_queues_does_not_step_from_queue_to_queue(
    queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send() -> None:
        queue.enqueue_messages((f"known-{at}", b"x") for at in range(100))

    send()
    queue.blocks.release(queue.blocks.plan())
    for _ in range(3 * LOOK_PAST * SLICE_IDS // MEET_AT_ONCE // 100):
        send()
    monkeypatch.setattr(Source, "news_by_origin", lambda *_: pytest.fail("stepped over all queues"))
    with queue.session.hold.transaction() as (_, working_set):
        working_set.loader.ring.look_on(LOOK_PAST, (), high=False)


def test_pages_processed_in_part_lose_nothing(queue: MessageQueue) -> None:
    for at in range(ORIGINS):
        queue.enqueue_messages((f"origin-{at}", b"%d" % number) for number in range(EACH))
    seen: list[str] = []
    while queue.service_queues(names(seen), limit=Weight(LIMIT - 3, 1 << 30)).processed:
        pass
    assert len(seen) == len(set(seen)) == ORIGINS * EACH
    for at in range(ORIGINS):
        own = [name for name in seen if name.startswith(f"origin-{at} ")]
        assert own == [f"origin-{at} {number}" for number in range(EACH)]


def test_the_end_of_a_block_over_many_queues_does_not_look_at_each_one(
    queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    names_of_origins = [f"origin-{at}" for at in range(400)]
    for number in range(4):
        queue.enqueue_messages((name, b"%d" % number) for name in names_of_origins)
    queue.blocks.release(queue.blocks.plan(limit=Weight(10_000, 1 << 30)))
    calls = looks_of(monkeypatch)
    assert queue.blocks.plan(limit=Weight(1_200, 1 << 30)).messages == 1_200
    assert sum(calls) <= 800 and len(calls) <= 30, calls


def test_a_forecast_over_many_queues_does_not_look_at_each_one(
    queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.enqueue_messages((f"origin-{at}", b"message") for at in range(300))
    calls = looks_of(monkeypatch)
    assert [block.messages for block in queue.inspect.forecast(3, limit=Weight(100, 1 << 30))] == [100] * 3
    assert len(calls) <= 40, calls


@pytest.mark.slow
def test_a_look_over_many_queues_reads_a_bounded_number_of_rows(queue: MessageQueue, fetched: list[int]) -> None:
    # More books than the reach that an operation near its limit has, each with more rows than it can take.
    many, each = 1_200, 40
    for number in range(each):
        queue.enqueue_messages((f"origin-{at:04}", b"%d" % number) for at in range(many))
    queue.blocks.release(queue.blocks.plan(limit=Weight(1, 1 << 30)))
    fetched.clear()
    sums: list[int] = []
    fill = InboxLoader._fill

    def summed(self: InboxLoader, hungry: list[str], look: int) -> None:
        sums.append(len(hungry) * look)
        fill(self, hungry, look)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InboxLoader, "_fill", summed)
        assert queue.service_queues(batch_processor(lambda batch: None)).processed == many * each
    assert max(sums) <= MOST_ROWS
    assert sum(fetched) < 3 * many * each


def looks_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of queues of each look."""
    calls: list[int] = []
    after = Inbox.after

    def counted(self: Inbox, ring: int, requests: Sequence[tuple[str, int]], *args: Any) -> Any:
        calls.append(len(requests))
        return after(self, ring, requests, *args)

    monkeypatch.setattr(Inbox, "after", counted)
    return calls


def test_queues_with_as_many_messages_need_no_more_looks(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(1_000):
        queue.enqueue_messages((f"origin-{at:02}", b"message") for at in range(ORIGINS))
    calls = looks_of(monkeypatch)
    # No commit in between, however slow the machine is.
    assert queue.service_queues(batch_processor(lambda batch: None), slice_seconds=60).processed == ORIGINS * 1_000
    # The first queue takes a few, then each one finds the ends of several queues.
    assert len(calls) <= 5, calls


def test_visits_that_need_several_fetches_share_them(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, heaps = [], Inbox.heaps

    def counted(self: Inbox, ring: int, wanted: Any, **options: Any) -> Any:
        calls.append(len(wanted))
        return heaps(self, ring, wanted, **options)

    # A page of one message, and two rows, of each queue. The first visit fetches both of its rows, and one of each
    # other queue.
    queue.enqueue_messages((f"origin-{at}", b"first") for at in range(ORIGINS))
    queue.blocks.release(queue.blocks.plan())
    for at in range(ORIGINS):
        queue.enqueue_messages(f"origin-{at}", [bytes(1_000)] * 120)
    monkeypatch.setattr(Inbox, "heaps", counted)
    done = queue.service_queues(batch_processor(lambda batch: None), limit=Weight(1 << 40, 1 << 40))
    assert done.processed == ORIGINS * 121
    assert len(calls) <= 3, calls


def test_looks_that_bring_little_do_not_grow(queue: MessageQueue) -> None:
    session = queue.session
    with session.snapshot() as (_, working_set):
        ahead = ReadAhead(working_set)
        ahead.note([InboxRow("a", number, 1, 1, False, b"", b"") for number in range(8)], asked=8)
        assert ahead.rows() == 16
        # A larger look takes longer, and shares its statement with fewer other queues.
        ahead.note([InboxRow("a", number, 1, 1, False, b"", b"") for number in range(3)], asked=16)
        assert ahead.rows() == 16


def test_a_meter_bounds_what_is_read_ahead(queue: MessageQueue) -> None:
    with queue.session.snapshot() as (_, working_set):
        ahead = ReadAhead(working_set)
        working_set.meter = Meter(Weight(100, 1 << 30))
        assert ahead.messages == 100
        # Rows of ten messages each.
        ahead.note([InboxRow("a", number, 10, 10, False, b"", b"") for number in range(8)], asked=8)
        assert ahead.rows() == 11
        working_set.meter.charge(Weight(90, 0))
        assert (ahead.messages, ahead.rows()) == (10, 8)
