"""Glances against what is exact: footprints, the ring, events, and what lies in pages."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from airflow_mq import Message, MessageQueue, RingConfig, Weight
from airflow_mq.queue.inspect import summaries as glancing
from airflow_mq.store import parse, upgrade


@pytest.fixture
def busy(store_uri: str) -> Iterator[MessageQueue]:
    """A ring in which everything goes on at once."""
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


def test_a_glance_tells_what_footprints_tell(busy: MessageQueue) -> None:
    seen: dict[str, tuple[int, int]] = {}
    for one in busy.inspect.queues(limit=1_000):
        count, size = seen.get(one.origin, (0, 0))
        seen[one.origin] = (count + one.messages, size + one.size)
        assert not one.more and one.ready + one.in_flight + one.set_aside == one.messages
        assert one.oldest is not None or one.messages == one.set_aside
    assert seen == {origin: (its.count, its.size) for origin, its in busy.footprints(limit=1_000) if its.count}
    assert sum(one.set_aside for one in busy.inspect.queues(limit=1_000)) == busy.set_aside.count() > 0
    assert busy.inspect.ring().in_flight == busy.blocks.list("planned")[0].messages


def test_a_glance_is_the_ring_from_its_head_on(busy: MessageQueue) -> None:
    order = [("high", origin) for origin in busy.inspect.ring_order(100, "high")]
    order += [("regular", origin) for origin in busy.inspect.ring_order(100)]
    assert [(one.priority, one.origin) for one in busy.inspect.ring(100).queues] == order
    assert [(one.priority, one.origin) for one in busy.inspect.ring(5).queues] == order[:5]
    assert busy.inspect.queues(among=[(origin, priority) for priority, origin in order[:3]]) == list(
        busy.inspect.ring(3).queues
    )


def test_a_survey_counts_everything_once(busy: MessageQueue) -> None:
    survey = busy.inspect.survey()
    glances = busy.inspect.queues(limit=1_000)
    assert survey.done and not survey.cut_short
    assert survey.messages == sum(one.messages for one in glances) == len(busy)
    assert survey.size == sum(one.size for one in glances)
    assert sorted(depth.messages for depth in survey.depths.values()) == sorted(one.messages for one in glances)


def test_a_survey_is_the_same_while_nothing_changes(busy: MessageQueue) -> None:
    before = busy.inspect.ring_version()
    assert busy.inspect.ring_version() == before
    busy.enqueue_message("o01", b"x")
    assert busy.inspect.ring_version() != before


def test_much_is_counted_up_to_a_bound_and_said_to_be_more(store_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade(parse(store_uri))
    monkeypatch.setattr(glancing, "MOST_MAILS", 10)
    with MessageQueue(store_uri) as queue:
        for _ in range(15):
            queue.enqueue_message("loud", b"x")
        queue.enqueue_message("quiet", b"x")
        loud, quiet = queue.inspect.queues()
        assert (loud.messages, loud.more) == (10, True) and (quiet.messages, quiet.more) == (1, False)
        assert queue.inspect.survey().messages == 16


def test_events_backwards_are_events(busy: MessageQueue) -> None:
    known = list(busy.inspect.events())[::-1]
    for limit in (7, 1_000_000):
        seen, before = [], None
        while True:
            found, before = busy.inspect.latest_events(before, limit)
            seen += found
            if before is None:
                break
        assert seen == known
    mine, _ = busy.inspect.latest_events(limit=10_000, origin="o05")
    assert mine == [event for event in known if event.origin == "o05"]
    heavy, _ = busy.inspect.latest_events(limit=10_000, name="OverweightEnqueued")
    assert heavy == [event for event in known if event.name == "OverweightEnqueued"] != []


def test_blocks_are_told_with_their_pages_of_the_ledger(busy: MessageQueue) -> None:
    blocks = busy.blocks.list(entries=True)
    assert [one.state for one in blocks] == ["planned", *["settled"] * 4]
    assert [one.id for one in busy.blocks.list(limit=2, before=blocks[2].id)] == [one.id for one in blocks[3:5]]
    for one in blocks:
        (page,) = busy.inspect.ledger(block=one.id)
        assert list(one.entries) == page.entries
        assert one.used is None or not one.used.exceeds(one.limit)
        assert not one.predicted.exceeds(one.limit)
    assert all(one.result["processed"] == one.messages for one in blocks[1:-1])


def test_pages_are_told_without_being_cut(busy: MessageQueue) -> None:
    pages = busy.inspect.pages("o05")
    assert [one.page for one in pages] == sorted(one.page for one in pages)
    assert sum(one.kept for one in pages) == len(busy.set_aside.list("o05"))
    assert [one.state for one in pages].count("head") <= 1


def test_shares_are_those_of_the_ledger(busy: MessageQueue) -> None:
    latest, found = busy.inspect.shares()
    assert latest == busy.blocks.list()[0].id == busy.inspect.latest_ledger_block()
    assert sum(one.messages for one in found.values()) == sum(one.messages for one in busy.blocks.list())


def test_few_are_looked_at_for_fairness_where_that_is_asked(busy: MessageQueue) -> None:
    everything = busy.inspect.fairness()
    assert busy.inspect.fairness(most=1_000) == everything
    assert {one.origin for one in busy.inspect.fairness(most=0).origins} <= {one.origin for one in everything.origins}


def test_many_news_are_told(store_uri: str) -> None:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        queue.enqueue_messages((f"q{number}", b"x") for number in range(30))
        assert queue.inspect.has_many_newcomers(20) and not queue.inspect.has_many_newcomers(40)
        queue.blocks.plan(limit=Weight(1 << 30, 1 << 30))
        assert not queue.inspect.has_many_newcomers(20)
