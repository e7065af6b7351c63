"""Fairness from the ledger: shares, waits, Jain's index, and current waits."""

from __future__ import annotations

from random import Random

import pytest

from airflow_mq import Costs, Done, LinearWeigher, Message, MessageQueue, Weight, Yield
from airflow_mq.engine.queue.inspect import fairness as reports
from airflow_mq.engine.queue.inspect.waiting import Waiting
from airflow_mq.engine.rules.errors import InvalidInput
from airflow_mq.engine.rules.fairness import Asks, Fairness, Promise, together
from airflow_mq.engine.rules.orders import parts_of
from airflow_mq.engine.rules.page import WAITING
from airflow_mq.engine.rules.priority import HIGH, REGULAR, book_name, origin_of, priority_of
from airflow_mq.engine.store import codec
from tests.proofs.crash.states import everything
from tests.store.queue.conftest import Maker
from tests.unit.rules.plain_fairness import judge, rounds_of
from tests.unit.rules.test_judge import same

UNIT = LinearWeigher(Weight(1, 0), Weight(0, 0))


def ring(make_queue: Maker, order: str, **settings: object) -> MessageQueue:
    return make_queue(order, **{"order": order, "service_weight": Weight(16, 1 << 20), "weigher": UNIT,
                                "rounds_per_block": 16, **settings})  # fmt: skip


def run(queue: MessageQueue, blocks: int) -> None:
    for _ in range(blocks):
        block = queue.blocks.plan()
        queue.blocks.report(block, [batch.answer() for batch in block.batches()])
        queue.blocks.settle(block)


@pytest.mark.parametrize("order", ["rotation", "deficit", "shuffle"])
def test_fairness_of_an_empty_ledger_is_zero(make_queue: Maker, order: str) -> None:
    queue = ring(make_queue, order)
    fairness = queue.inspect.fairness()
    assert (fairness.blocks, fairness.origins, fairness.jain, fairness.longest_wait, fairness.most_error) == (
        0,
        [],
        None,
        0,
        0.0,
    )
    queue.enqueue_message("acme", b"x")
    assert queue.inspect.fairness().origin("acme").waiting == 0
    with pytest.raises(InvalidInput, match="at least 1"):
        queue.inspect.fairness(0)


def test_received_shares_match_configured_shares(make_queue: Maker) -> None:
    queue = ring(make_queue, "deficit")
    queue.admin.set_origin("acme", share=3)
    for origin in ("acme", "globex"):
        queue.enqueue_messages(origin, [b"x"] * 300)
    run(queue, 10)
    before = everything(queue)
    fairness = queue.inspect.fairness()
    assert everything(queue) == before
    assert fairness.blocks == 10 and fairness.longest_wait == 0 and fairness.jain == pytest.approx(1.0)
    acme, globex = fairness.origins
    assert (acme.share, globex.share) == (3, 1)
    assert acme.received == acme.promised == 0.75 and globex.received == globex.promised == 0.25
    assert acme.granted == pytest.approx(7.5)
    assert queue.inspect.fairness(3).blocks == 3


def test_rotation_makes_a_quiet_origin_wait(make_queue: Maker) -> None:
    """Fairness reports a quiet origin even if no ledger page mentions it."""
    for order, wait in (("rotation", 2), ("deficit", 0)):
        # Each queue that a plan reads costs 1, so a full block reads one more queue and no other.
        queue = ring(make_queue, order, costs=Costs(service_queue_base=Weight(1, 0)))
        for number in range(3):
            queue.enqueue_messages(f"loud-{number}", [b"x"] * 100)
        queue.enqueue_message("quiet", b"x")
        run(queue, 2)
        mentioned = any(entry.origin == "quiet" for page in queue.inspect.ledger() for entry in page.entries)
        assert mentioned is (order == "deficit")
        fairness = queue.inspect.fairness()
        assert fairness.origin("quiet").waiting == wait
        assert fairness.broken(most_wait=1) == ["quiet waited 2 blocks, and still waits, more than 1"] * bool(wait)
        queue.admin.pause("quiet")
        assert queue.inspect.fairness().origin("quiet").longest_wait == 0


def test_late_origin_has_no_earlier_wait(make_queue: Maker) -> None:
    queue = ring(make_queue, "rotation")
    queue.enqueue_messages("loud", [b"x"] * 500)
    run(queue, 3)
    queue.enqueue_message("due", b"x", not_before=0)
    queue.enqueue_message("later", b"x", not_before=3600)
    queue.enqueue_message("quiet", b"x")
    assert [origin_fairness.origin for origin_fairness in queue.inspect.fairness().origins] == ["loud"]
    assert queue.inspect.fairness().longest_wait == 0


def test_grants_are_relative_to_each_calls_limit(make_queue: Maker) -> None:
    queue = ring(make_queue, "rotation", service_weight=None)
    queue.enqueue_messages("acme", [b"x"] * 20)
    queue.service_queues(lambda delivery: None, Weight(5, 100))
    queue.service_queues(lambda delivery: None, Weight(10, 100))
    assert queue.inspect.fairness().origin("acme").granted == pytest.approx(1.5)


@pytest.mark.parametrize("order", ["rotation", "deficit", "shuffle"])
@pytest.mark.parametrize("origins", [1, 2, 3])
def test_ledger_reason_of_an_emptied_queue_is_emptied(make_queue: Maker, order: str, origins: int) -> None:
    """This includes the last queue of a ring, which the walk visits a second time."""
    queue = ring(make_queue, order)
    for number in range(origins):
        queue.enqueue_messages(f"o{number}", [b"x"] * 3)
    block = queue.blocks.plan()
    assert [entry.reason for page in queue.inspect.ledger() for entry in page.entries] == ["emptied"] * origins
    queue.blocks.release(block)
    queue.service_queues(lambda delivery: None)
    assert {entry.reason for entry in queue.inspect.ledger(limit=1)[0].entries} == {"emptied"}


def test_high_queues_are_compared_with_high_queues(make_queue: Maker) -> None:
    """High messages leave only the reserve to regular ones; fairness does not count that as an error."""
    queue = ring(make_queue, "deficit")
    for origin in ("acme", "globex"):
        queue.enqueue_messages(origin, [b"x"] * 200, priority="high")
        queue.enqueue_messages(origin, [b"x"] * 200)
    queue.enqueue_messages("initech", [b"x"] * 200)
    run(queue, 12)
    fairness = queue.inspect.fairness()
    assert [origin_fairness.name for origin_fairness in fairness.origins] == [
        "acme (high)", "acme", "globex (high)", "globex", "initech",
    ]  # fmt: skip
    assert fairness.origin("acme", "high").promised == 0.5 and fairness.origin("acme").promised == pytest.approx(1 / 3)
    assert fairness.longest_wait == 0 and fairness.jain is not None and fairness.jain > 0.99
    queue.enqueue_messages("hooli", [b"x"] * 3, priority="high")
    queue.admin.pause("acme")
    run(queue, 1)
    assert queue.inspect.fairness().origin("hooli", "high").granted == pytest.approx(3 / 16)


def test_path_shares_are_compared_at_each_level(make_queue: Maker) -> None:
    """An origin split into many queues is promised and gets as much as an undivided one."""
    queue = ring(make_queue, "deficit", paths=True, service_weight=Weight(32, 1 << 20), rounds_per_block=32)
    queue.enqueue_messages("one", [b"x"] * 400)
    for number in range(4):
        queue.enqueue_messages(f"many/{number}", [b"x"] * 100)
    run(queue, 8)
    fairness = queue.inspect.fairness()
    assert [round(origin_fairness.promised or 0, 2) for origin_fairness in fairness.origins] == [0.12] * 4 + [0.5]
    assert fairness.broken(most_wait=0, most_error=0.05, least_jain=0.99) == []
    queue.admin.pause("many", below=True)
    run(queue, 2)
    assert queue.inspect.fairness().origin("many/0").waiting == 0


def asked_by_queue(waiting: Waiting) -> dict[str, Asks]:
    """Read the first waiting message of each ready queue, one by one: one that no block holds."""
    working_set, found = waiting.working_set, {}
    held = [row for row in working_set.unit.blocks.in_flight(working_set.ring_id) if not row.by_hand]
    for name in (*working_set.high, *working_set.ring):
        book, taken = (
            working_set.book(name),
            {place for row in held if row.origin == name for place in row.claim.places()},
        )
        while working_set.pull(book):
            pass
        pages = [page for index in range(book.begin, book.end) if (page := working_set.page(name, index)) is not None]
        firsts = [
            page.place_of(item)[0]
            for page in pages
            for item, mark in enumerate(page.marks)
            if mark == WAITING and (page.index, item) not in taken
        ]
        if firsts and not book.skipped:
            found[name] = Asks(waiting._since(firsts[0]))
    return found


def fairness_by_queue(queue: MessageQueue) -> Fairness:
    """Compute the same figures queue by queue and block by block."""
    with queue.session.snapshot() as (unit, working_set):
        rows = unit.ledger.latest(queue.session.ring_id, 100)[::-1]
        pages = [codec.unpack_ledger(bytes(data))[0] for _, _, data, _ in rows]
        parts = parts_of(Weight(16, 1 << 20))
        waiting = Waiting(working_set, parts, [row[-1] for row in rows])
        asks = asked_by_queue(waiting)
        judged = {}
        for level in (REGULAR, HIGH):
            own = [[entry for entry in page if entry.priority == level] for page in pages]
            ready = {
                origin_of(name): waiting_queue.since
                for name, waiting_queue in asks.items()
                if priority_of(name) == level
            }
            names = {entry.origin for page in own for entry in page} | ready.keys()
            promises = {name: Promise(working_set.book(name).settings.share) for name in names}
            left = {origin: waiting.left(book_name(origin, level)) for origin in ready}
            judged[level] = judge(rounds_of(own, parts, ready), promises, left=left)
        return together(judged)


@pytest.mark.parametrize("seed", (0, 2, 3))
@pytest.mark.parametrize(("order", "ordered"), [("deficit", True), ("deficit", False), ("rotation", True)])
def test_fairness_equals_fairness_computed_queue_by_queue(
    make_queue: Maker, order: str, ordered: bool, seed: int
) -> None:
    """Random traffic covers pages, claims, pauses, due times, weights and partial reports."""
    random, queue = Random(seed), ring(make_queue, order, heap_size=120, ordered=ordered)
    origins = [f"o{number}" for number in range(9)]
    queue.admin.set_origin("o1", share=3)
    for _ in range(12):
        for origin in random.sample(origins, 4):
            payloads = [b"x" * random.randint(1, 40) for _ in range(random.randint(1, 6))]
            weight = Weight(random.randint(1, 20), 1) if random.random() < 0.3 else None
            due = random.choice((None, None, 0, 0, 3600))
            priority = random.choice(("regular", "regular", "high"))
            queue.enqueue_messages(
                origin, [Message(payload, weight=weight) for payload in payloads], not_before=due, priority=priority
            )
        block = queue.blocks.plan()
        batches = list(block.batches())
        answers = [batch.answer(random.choice((Done(), Done(), Yield()))) for batch in batches if random.random() < 0.9]
        if random.random() < 0.2:
            queue.admin.pause(random.choice(origins))
        if random.random() < 0.9:
            queue.blocks.report(block, answers)
            queue.blocks.settle(block)
        fairness = queue.inspect.fairness()
        same(fairness, fairness_by_queue(queue))
    assert fairness.blocks == 12 and fairness.origins


def test_a_relaxed_queue_waits_while_some_of_its_messages_are_in_flight(make_queue: Maker) -> None:
    """Only messages that no block holds are demand; of an ordered queue, none is while a block holds some."""
    for ordered in (True, False):
        settings = {"service_weight": Weight(16, 1 << 20), "weigher": UNIT, "heap_size": 40}
        queue = make_queue(f"ring-{ordered}", order="deficit", rounds_per_block=16, ordered=ordered, **settings)
        queue.enqueue_messages("acme", [b"x"] * 30)
        block = queue.blocks.plan()
        assert block.messages == 16
        with queue.session.snapshot() as (_, working_set):
            waiting = Waiting(working_set, parts_of(Weight(16, 1 << 20)), [])
            asks, _ = waiting.of_all(100)
            one = parts_of(Weight(16, 1 << 20))(Weight(1, 0))
            assert asks.keys() == (set() if ordered else {"acme"})
            assert ordered or waiting.left("acme") == 14 * one
        # All that is left is in flight.
        other = queue.blocks.plan()
        with queue.session.snapshot() as (_, working_set):
            assert other.messages == (0 if ordered else 14)
            assert Waiting(working_set, parts_of(Weight(16, 1 << 20)), []).of_all(100) == ({}, True)
        queue.blocks.settle(block)
        queue.blocks.settle(other)


def test_fairness_statement_count_is_independent_of_the_backlog(make_queue: Maker) -> None:
    """The number of statements stays the same, in pages or in the inbox."""
    queue, counts = ring(make_queue, "deficit"), []
    for round_ in range(3):
        queue.enqueue_messages([(f"o{number}", b"x") for number in range(round_, 40, 2)])
        seen: list[str] = []
        queue.store.probe = seen.append
        queue.inspect.fairness()
        queue.store.probe = None
        counts.append(sorted(seen))
        run(queue, 1)
    assert counts[0] == counts[1] == counts[2]


def test_a_report_on_too_many_queues_is_partial(make_queue: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = ring(make_queue, "deficit")
    for origin in ("a", "b", "c"):
        queue.enqueue_messages(origin, [b"x"] * 16)
    run(queue, 1)
    queue.enqueue_messages([("new-1", b"x"), ("new-2", b"x")])
    monkeypatch.setattr(reports, "MOST_WAITING", 5)
    whole = queue.inspect.fairness()
    assert not whole.partial and queue.inspect.fairness(most=6) == whole
    for most in range(5):
        monkeypatch.setattr(reports, "MOST_WAITING", most)
        assert queue.inspect.fairness().partial
    assert queue.inspect.fairness(most=1).partial


def test_demand_of_all_queues_at_once_is_that_of_each(make_queue: Maker) -> None:
    """Queues with one row and with several, in a ring and new, their beginnings processed or not."""
    queue = ring(make_queue, "deficit")
    names = [f"o{number:03}" for number in range(180)]
    queue.enqueue_messages((name, b"x") for name in names)
    run(queue, 3)
    for name in names[::7]:
        for size in range(1, 4):
            queue.enqueue_message(name, bytes(size))
        queue.enqueue_messages(name, [b"one", b"call"])
    run(queue, 2)
    with queue.session.snapshot() as (_, working_set):
        waiting = Waiting(working_set, parts_of(Weight(16, 1 << 20)), [])
        asks, whole = waiting.of_all(1_000)
        assert whole and asks.keys() == {*asked_by_queue(waiting)}
        for name, asked in asks.items():
            left = waiting.left(name)
            assert asked.parts == left if asked.all else asked.parts < left
        assert sum(asked.all for asked in asks.values()) > 100
        some, whole = waiting.of_all(len(asks) - 1)
        assert not whole and len(some) == len(asks) - 1
        assert waiting.of_all(len(asks)) == (asks, True)
