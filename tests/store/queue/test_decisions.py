"""Messages that a walk decides about without a processor, many of them: expired, or too heavy."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.engine.rules import claims, orders
from airflow_mq.engine.rules.claims import Scales
from airflow_mq.engine.rules.page import Note, Page
from tests.store.queue.conftest import Maker

LIMIT = Weight(10_000, 1 << 20)
#: Heavier than each limit here.
HEAVY = Weight(1 << 40, 0)


def settle(queue: MessageQueue, **plan: Any) -> tuple[list[tuple[str, int]], Any]:
    """Plan a block, report its messages as done, and settle it; return what it claimed, and its result."""
    block = queue.blocks.plan(limit=LIMIT, **plan)
    claimed = [(claim.origin, claim.messages) for claim in block.claims]
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    return claimed, queue.blocks.settle(block)


@pytest.fixture
def weighed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of weights and of notes that were looked at."""
    counts: list[int] = []
    weights, notes_of = Scales.weights, Page.notes_of

    def weights_counted(self: Scales, origin: str, page: Page, start: int, stop: int) -> list[Weight]:
        found = weights(self, origin, page, start, stop)
        counts.append(len(found))
        return found

    def notes_counted(self: Page, first: int, stop: int) -> Iterator[tuple[int, Note]]:
        counts.append(min(len(self.notes), stop - first))
        return notes_of(self, first, stop)

    monkeypatch.setattr(Scales, "weights", weights_counted)
    monkeypatch.setattr(Page, "notes_of", notes_counted)
    return counts


@pytest.mark.parametrize("how", [{"expires": -1}, {"weight": HEAVY}], ids=["expired", "heavy"])
@pytest.mark.parametrize("mixed", [False, True], ids=["alone", "every other"])
def test_the_work_for_a_message_does_not_grow_with_its_page(
    make_queue: Maker, weighed: list[int], monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], mixed: bool
) -> None:
    monkeypatch.setattr(claims, "FIRST_STRETCH", 64)
    queue = make_queue(order="deficit", heap_size=1 << 16, set_aside_above="block")
    count = 3_000
    queue.enqueue_messages("evil", [b"x"] * (0 if mixed else count), **how)
    for _ in range(count // 100 if mixed else 0):
        for _ in range(50):
            queue.enqueue_message("evil", b"x", **how)
            queue.enqueue_message("evil", b"y", expires=3600)
    queue.enqueue_message("good", b"z")
    weighed.clear()
    claimed, done = settle(queue)
    decided = count // 2 if mixed else count
    assert (done.expired or done.set_aside, done.processed) == (decided, count - decided + 1)
    assert ("good", 1) in claimed
    # With a look at the whole page for each message, it would be some millions.
    assert sum(weighed) < count * 4 * 64


@pytest.mark.parametrize("order", ["rotation", "deficit"])
def test_a_walk_decides_about_a_bounded_number_of_messages(
    make_queue: Maker, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setattr(claims, "MOST_DECISIONS", 10)
    queue = make_queue(order=order)
    queue.enqueue_messages("evil", [b"x"] * 25, expires=-1)
    queue.enqueue_message("evil", b"alive")
    for origin in ("good", "well"):
        queue.enqueue_messages(origin, [b"x"], expires=-1)
        queue.enqueue_message(origin, b"y")
    queue.enqueue_message("best", b"z")
    claimed, done = settle(queue)
    # All queues share the decisions of a walk, and a queue that needs none is serviced.
    assert (dict(claimed), done.expired) == ({"evil": 0, "best": 1}, 10)
    claimed, done = settle(queue)
    # The walk goes on with the queues that had none.
    assert (dict(claimed), done.expired) == ({"good": 1, "well": 1, "evil": 0}, 10)
    assert settle(queue)[1].expired == 7
    assert queue.footprint("evil").count == 0
    queue.enqueue_messages("evil", [b"x"] * 25, expires=-1)
    dropped = [queue.service_queues(lambda delivery: None, LIMIT).expired for _ in range(4)]
    assert dropped == [10, 10, 5, 0]


@pytest.mark.parametrize("order", ["rotation", "deficit"])
def test_the_decisions_of_a_walk_do_not_grow_with_its_queues(
    make_queue: Maker, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setattr(claims, "MOST_DECISIONS", 10)
    queue = make_queue(order=order)
    for at in range(5):
        queue.enqueue_messages(f"evil-{at}", [b"x"] * 12, expires=-1)
    found = [settle(queue)[1].expired for _ in range(7)]
    assert found == [10] * 6 + [0]


def test_a_walk_that_decided_enough_visits_few_further_queues(
    make_queue: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "MOST_DECISIONS", 10)
    queue = make_queue(order="deficit")
    for at in range(200):
        queue.enqueue_messages(f"evil-{at}", [b"x"], expires=-1)
    assert settle(queue)[1].expired == 10
    (page,) = queue.inspect.ledger()
    assert len(page.entries) <= 10 + orders.LOOK_PAST


def test_a_view_drops_all_that_expired(make_queue: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "MOST_DECISIONS", 10)
    queue = make_queue()
    queue.enqueue_messages("evil", [b"x"] * 25, expires=-1)
    assert queue.leases.next() is None
    assert queue.footprint("evil").count == 0
    queue.enqueue_messages("evil", [b"x"] * 25, expires=-1)
    queue.enqueue_message("evil", b"alive")
    queue.enqueue_message("good", b"y")
    # The message of the other queue is there at once.
    token = queue.leases.next()
    assert token is not None and token.fetch() == b"y"
    token.complete()
    token = queue.leases.view("evil").try_next()
    assert token is not None and token.fetch() == b"alive"
    token.complete()
    assert queue.leases.next() is None
    assert queue.footprint("evil").count == queue.footprint("good").count == 0
    names = [event.name for event in queue.inspect.events()]
    assert (names.count("Expired"), names.count("Processed")) == (50, 2)


def fill(queue: MessageQueue, rng: random.Random) -> None:
    """Send messages of random lengths, weights and times of expiry."""
    for _ in range(60):
        origin = f"o{rng.randrange(3)}"
        options: dict[str, Any] = {}
        if rng.random() < 0.2:
            options["expires"] = rng.choice([-1, 3600])
        if rng.random() < 0.2:
            options["weight"] = rng.choice([Weight(3, 1), Weight(40, 0), HEAVY])
        length = rng.choice([1, 1, 1, 9])
        queue.enqueue_messages(origin, [bytes(length)] * rng.randrange(1, 12), **options)


@pytest.mark.parametrize("order", ["rotation", "deficit"])
def test_stretches_of_any_length_take_the_same_messages(
    make_queue: Maker, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    for seed in range(4):
        records: list[Any] = []
        for first in (1, 3, 64, 1 << 20):
            monkeypatch.setattr(claims, "FIRST_STRETCH", first)
            queue = make_queue(f"ring-{seed}-{first}", order=order, set_aside_above="block")
            fill(queue, random.Random(seed))
            record: list[Any] = []
            for limit in (Weight(30, 200), Weight(100, 1 << 20), Weight(1_000, 1 << 20)):
                block = queue.blocks.plan(limit=limit)
                record.append((block.planned, [(claim.origin, claim.runs, claim.planned) for claim in block.claims]))
                queue.blocks.report(block, [batch.answer() for batch in block.batches()])
                record.append(queue.blocks.settle(block))
                record.append(queue.service_queues(lambda delivery: None, limit))
            records.append(record)
        assert all(record == records[-1] for record in records)
