"""Bounded summaries compared with exact reads: footprints, ring order, events and pages."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from airflow_mq import Message, MessageQueue, RingConfig, Weight
from airflow_mq.engine.queue.blocks.block import VIEWED
from airflow_mq.engine.queue.blocks.plan import new_block
from airflow_mq.engine.queue.inspect import explain, queues
from airflow_mq.engine.rules.claims import Claim, ClaimRun
from airflow_mq.engine.rules.priority import book_name
from airflow_mq.engine.store import books, parse, upgrade
from tests.store.queue.conftest import Maker


@pytest.fixture
def busy(store_uri: str) -> Iterator[MessageQueue]:
    """Yield a ring with messages in every state."""
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as first:
        first.admin.create_ring("busy", RingConfig(service_weight=Weight(500, 2_000), high=True, heap_size=512))
    chance, queue = random.Random(7), MessageQueue(store_uri, "busy")
    queue.enqueue_messages("o05", [Message(b"heavy", weight=Weight(900, 1))] * 2)
    queue.blocks.settle(queue.blocks.plan())
    for round_ in range(4):
        for _ in range(20):
            origin, count = f"o{chance.randrange(12):02}", chance.randrange(1, 9)
            queue.enqueue_messages(
                origin, [b"x" * chance.randrange(1, 90) for _ in range(count)],
                priority=chance.choice(["regular", "regular", "high"]),
            )  # fmt: skip
        block = queue.blocks.plan()
        if round_ < 3:
            queue.blocks.report(block, [batch.answer() for batch in block.batches()])
            queue.blocks.settle(block)
    yield queue
    queue.close()


def test_queue_summaries_equal_footprints(busy: MessageQueue) -> None:
    seen: dict[str, tuple[int, int]] = {}
    for summary in busy.inspect.queues(limit=1_000):
        count, size = seen.get(summary.origin, (0, 0))
        seen[summary.origin] = (count + summary.messages, size + summary.size)
        assert not summary.more and summary.ready + summary.in_flight + summary.set_aside == summary.messages
        assert summary.oldest is not None or summary.messages == summary.set_aside
    assert seen == {
        origin: (footprint.count, footprint.size)
        for origin, footprint in busy.footprints(limit=1_000)
        if footprint.count
    }
    assert sum(summary.set_aside for summary in busy.inspect.queues(limit=1_000)) == busy.set_aside.count() > 0
    assert busy.inspect.ring().in_flight == busy.blocks.list("planned")[0].messages


def test_ring_summary_starts_at_the_head(busy: MessageQueue) -> None:
    order = [("high", origin) for origin in busy.inspect.ring_order(100, "high")]
    order += [("regular", origin) for origin in busy.inspect.ring_order(100)]
    assert [(summary.priority, summary.origin) for summary in busy.inspect.ring(100).queues] == order
    assert [(summary.priority, summary.origin) for summary in busy.inspect.ring(5).queues] == order[:5]
    assert busy.inspect.queues(among=[(origin, priority) for priority, origin in order[:3]]) == list(
        busy.inspect.ring(3).queues
    )


def test_a_count_of_all_queues_counts_each_message_once(busy: MessageQueue) -> None:
    depths = {depth.name: depth for depth in busy.inspect.depths()}
    summaries = {book_name(one.origin, one.priority): one for one in busy.inspect.queues(limit=1_000)}
    figures = ("messages", "size", "set_aside")
    assert depths.keys() == summaries.keys()
    for name, depth in depths.items():
        assert [getattr(depth, one) for one in figures] == [getattr(summaries[name], one) for one in figures]
    assert sum(depth.messages for depth in depths.values()) == len(busy)


def test_a_count_goes_on_behind_each_step(busy: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(busy.inspect.depths())
    for most_books, most_rows in ((1, 1), (2, 10_000), (2_000, 3)):
        monkeypatch.setattr(books, "_BOOKS", most_books)
        monkeypatch.setattr(books, "_ROWS", most_rows)
        assert list(busy.inspect.depths()) == whole


def test_ring_version_changes_only_with_the_ring(busy: MessageQueue) -> None:
    before = busy.inspect.ring_version()
    assert busy.inspect.ring_version() == before
    busy.enqueue_message("o01", b"x")
    assert busy.inspect.ring_version() != before


def test_summary_of_a_long_queue_is_bounded_and_marked(store_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade(parse(store_uri))
    monkeypatch.setattr(queues, "MOST_ROWS", 10)
    with MessageQueue(store_uri) as queue:
        for _ in range(15):
            queue.enqueue_message("loud", b"x")
        queue.enqueue_message("quiet", b"x")
        loud, quiet = queue.inspect.queues()
        assert (loud.messages, loud.more) == (10, True) and (quiet.messages, quiet.more) == (1, False)
        assert sum(depth.messages for depth in queue.inspect.depths()) == 16


@pytest.mark.slow
def test_latest_events_are_events_in_reverse(busy: MessageQueue) -> None:
    known = list(busy.inspect.events())[::-1]
    for limit in (7, 1_000_000):
        seen, before = [], None
        while True:
            events, before = busy.inspect.latest_events(before, limit)
            seen += events
            if before is None:
                break
        assert seen == known
    mine, _ = busy.inspect.latest_events(limit=10_000, origin="o05")
    assert mine == [event for event in known if event.origin == "o05"]
    heavy, _ = busy.inspect.latest_events(limit=10_000, name="SetAside")
    assert heavy == [event for event in known if event.name == "SetAside"] != []


def test_block_summaries_include_their_ledger_entries(busy: MessageQueue) -> None:
    blocks = busy.blocks.list(entries=True)
    assert [block.state for block in blocks] == ["planned", *["settled"] * 4]
    assert [block.id for block in busy.blocks.list(limit=2, before=blocks[2].id)] == [block.id for block in blocks[3:5]]
    for block in blocks:
        (page,) = busy.inspect.ledger(block=block.id)
        assert list(block.entries) == page.entries
        assert block.used is None or not block.used.exceeds(block.limit)
        assert not block.predicted.exceeds(block.limit)
    assert all(block.result["processed"] == block.messages for block in blocks[1:-1])


def test_page_summaries_are_complete(busy: MessageQueue) -> None:
    pages = busy.inspect.pages("o05")
    assert [page.page for page in pages] == sorted(page.page for page in pages)
    assert sum(page.kept for page in pages) == len(busy.set_aside.list("o05"))
    assert [page.state for page in pages].count("head") <= 1


def test_the_ledger_has_the_messages_of_the_blocks(busy: MessageQueue) -> None:
    entries = [entry for page in busy.inspect.ledger() for entry in page.entries]
    assert sum(entry.messages for entry in entries) == sum(block.messages for block in busy.blocks.list())


def test_fairness_reads_at_most_the_requested_origins(busy: MessageQueue) -> None:
    everything = busy.inspect.fairness()
    assert busy.inspect.fairness(most=1_000) == everything
    assert {entry.origin for entry in busy.inspect.fairness(most=0).origins} <= {
        entry.origin for entry in everything.origins
    }


def test_many_newcomers_of_paths_are_not_forecast(store_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade(parse(store_uri))
    monkeypatch.setattr(explain, "MOST_NEWCOMERS", 20)
    with MessageQueue(store_uri) as queue:
        queue.admin.change_ring(service_weight=Weight(1 << 30, 1 << 30))
        queue.enqueue_messages((f"q/{number}", b"x") for number in range(30))
        assert queue.inspect.explain("q/7").reason == "next"
        queue.admin.change_ring(paths=True)
        assert queue.inspect.explain("q/7").reason == "new"
        assert "No block has ever serviced this ring." in queue.inspect.explain("q/7").sentence
        queue.blocks.release(queue.blocks.plan())
        assert queue.inspect.explain("q/7").reason == "next"


def test_a_ring_without_a_limit_has_no_forecast(store_uri: str) -> None:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        queue.admin.change_ring(service_weight=None)
        queue.enqueue_message("acme", b"x")
        explanation = queue.inspect.explain("acme")
        assert (explanation.reason, explanation.block) == ("turn", None)
        assert "each block sets its own limit" in explanation.sentence and explanation.remedies
        assert queue.inspect.explain("acme", limit=Weight(10, 10)).reason == "next"


def test_a_page_of_queues_goes_on_behind_queues_of_which_only_lent_rows_are_left(store_uri: str) -> None:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        for origin in "abcd":
            queue.enqueue_message(origin, b"x")
            token = queue.leases.view(origin).try_next()
            assert token is not None
            queue.leases.transfer(token, "z")
        queue.enqueue_message("y", b"x")
        assert [[state.origin for state in queue.inspect.queues(limit=limit)] for limit in (1, 2, 3, 10)] == [
            ["y"], ["y", "z"], ["y", "z"], ["y", "z"],
        ]  # fmt: skip
        assert [state.origin for state in queue.inspect.queues(after="y", limit=1)] == ["z"]


@pytest.mark.parametrize(("ordered", "skipped"), [(True, "in flight"), (False, "")])
def test_a_relaxed_queue_is_not_skipped_for_messages_in_flight(make_queue: Maker, ordered: bool, skipped: str) -> None:
    queue = make_queue(ordered=ordered, service_weight=Weight(5, 1 << 20))
    queue.enqueue_messages("acme", [b"x"] * 20)
    assert queue.blocks.plan().messages == 5

    (state,) = queue.inspect.ring(10).queues
    assert (state.skipped, state.in_flight) == (skipped, 5)
    taken = queue.inspect.dry_run().queue("acme").messages
    assert (taken > 0) is (state.skipped == "")


def test_totals_count_every_leased_message(make_queue: Maker) -> None:
    queue, leased = make_queue(ordered=False), 1_001
    queue.enqueue_message("first", b"x")
    queue.blocks.plan(server="a DAG")
    queue.enqueue_messages("acme", [b"x"] * leased)
    # As a view leases them, in one transaction.
    details = {"order": VIEWED}
    with queue.session.hold.transaction(planning=True) as (unit, working_set):
        for index in range(leased):
            claim = Claim("acme", [ClaimRun(0, index, 1)], Weight(1, 1), ordered=False)
            new_block(queue.session, unit, None, None, working_set.now, [claim], claim.planned, details=details)

    backlog = queue.inspect.backlog()
    assert (backlog.messages, backlog.in_flight, backlog.waiting) == (leased + 1, leased + 1, 0)
    assert queue.inspect.ring().in_flight == leased + 1
    assert [server.name for server in queue.inspect.servicing().live] == ["a DAG"]
