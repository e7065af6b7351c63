"""Fairness as the ledger tells it: shares, waits, Jain's index, and what waits now."""

from __future__ import annotations

from random import Random

import pytest

from airflow_mq import Costs, Done, LinearWeigher, Message, MessageQueue, Weight, Yield
from airflow_mq.core.errors import InvalidInput
from airflow_mq.core.fairness import Fairness, Promise, judge, rounds_of, together
from airflow_mq.core.orders import parts_of
from airflow_mq.core.priority import HIGH, REGULAR, book_name, origin_of, priority_of
from airflow_mq.queue.inspect.waiting import Waiting
from airflow_mq.store import codec
from tests.core.test_clock import same
from tests.crash.states import everything
from tests.queue.conftest import Maker

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
def test_an_empty_ledger(make_queue: Maker, order: str) -> None:
    queue = ring(make_queue, order)
    told = queue.inspect.fairness()
    assert (told.blocks, told.origins, told.jain, told.longest_wait, told.most_error) == (0, [], None, 0, 0.0)
    queue.enqueue_message("acme", b"x")
    assert queue.inspect.fairness().origin("acme").waiting == 0
    with pytest.raises(InvalidInput, match="at least 1"):
        queue.inspect.fairness(0)


def test_shares_are_as_they_are_set(make_queue: Maker) -> None:
    queue = ring(make_queue, "deficit")
    queue.admin.set_origin("acme", share=3)
    for origin in ("acme", "globex"):
        queue.enqueue_messages(origin, [b"x"] * 300)
    run(queue, 10)
    before = everything(queue)
    told = queue.inspect.fairness()
    assert everything(queue) == before
    assert told.blocks == 10 and told.longest_wait == 0 and told.jain == pytest.approx(1.0)
    acme, globex = told.origins
    assert (acme.share, globex.share) == (3, 1)
    assert acme.received == acme.promised == 0.75 and globex.received == globex.promised == 0.25
    assert acme.granted == pytest.approx(7.5)
    assert queue.inspect.fairness(3).blocks == 3


def test_the_rotation_lets_a_quiet_one_wait(make_queue: Maker) -> None:
    """Loud ones drain whole blocks; a quiet one that no block came to has no line, and is told all the same."""
    for order, wait in (("rotation", 2), ("deficit", 0)):
        # A look at a queue costs something, so that a full block looks at one more, and at no other.
        queue = ring(make_queue, order, costs=Costs(service_queue_base=Weight(1, 0)))
        for number in range(3):
            queue.enqueue_messages(f"loud-{number}", [b"x"] * 100)
        queue.enqueue_message("quiet", b"x")
        run(queue, 2)
        mentioned = any(entry.origin == "quiet" for page in queue.inspect.ledger() for entry in page.entries)
        assert mentioned is (order == "deficit")
        told = queue.inspect.fairness()
        assert told.origin("quiet").waiting == wait
        assert told.broken(most_wait=1) == ["quiet waited 2 blocks, and still waits, more than 1"] * bool(wait)
        queue.admin.pause("quiet")
        assert queue.inspect.fairness().origin("quiet").longest_wait == 0


def test_who_arrives_late_has_not_waited_before(make_queue: Maker) -> None:
    queue = ring(make_queue, "rotation")
    queue.enqueue_messages("loud", [b"x"] * 500)
    run(queue, 3)
    queue.enqueue_message("due", b"x", not_before=0)
    queue.enqueue_message("later", b"x", not_before=3600)
    queue.enqueue_message("quiet", b"x")
    assert [one.origin for one in queue.inspect.fairness().origins] == ["loud"]
    assert queue.inspect.fairness().longest_wait == 0


def test_a_ring_without_a_limit_of_its_own(make_queue: Maker) -> None:
    queue = ring(make_queue, "rotation", service_weight=None)
    queue.enqueue_messages("acme", [b"x"] * 20)
    queue.service_queues(lambda delivery: None, Weight(5, 100))
    queue.service_queues(lambda delivery: None, Weight(10, 100))
    assert queue.inspect.fairness().origin("acme").granted == pytest.approx(1.5)


@pytest.mark.parametrize("order", ["rotation", "deficit", "shuffle"])
@pytest.mark.parametrize("origins", [1, 2, 3])
def test_a_queue_that_was_emptied_was_not_stopped(make_queue: Maker, order: str, origins: int) -> None:
    """Nor is the last one of a ring, to which a walk comes once more."""
    queue = ring(make_queue, order)
    for number in range(origins):
        queue.enqueue_messages(f"o{number}", [b"x"] * 3)
    block = queue.blocks.plan()
    assert [entry.reason for page in queue.inspect.ledger() for entry in page.entries] == ["emptied"] * origins
    queue.blocks.release(block)
    queue.service_queues(lambda delivery: None)
    assert {entry.reason for entry in queue.inspect.ledger(limit=1)[0].entries} == {"emptied"}


def test_high_is_judged_among_high(make_queue: Maker) -> None:
    """A flood of high messages leaves regular ones what is kept, and that is no broken promise of anybody's."""
    queue = ring(make_queue, "deficit")
    for origin in ("acme", "globex"):
        queue.enqueue_messages(origin, [b"x"] * 200, priority="high")
        queue.enqueue_messages(origin, [b"x"] * 200)
    queue.enqueue_messages("initech", [b"x"] * 200)
    run(queue, 12)
    told = queue.inspect.fairness()
    assert [one.name for one in told.origins] == [
        "acme (high)", "acme", "globex (high)", "globex", "initech",
    ]  # fmt: skip
    assert told.origin("acme", "high").promised == 0.5 and told.origin("acme").promised == pytest.approx(1 / 3)
    assert told.longest_wait == 0 and told.jain is not None and told.jain > 0.99
    queue.enqueue_messages("hooli", [b"x"] * 3, priority="high")
    queue.admin.pause("acme")
    run(queue, 1)
    assert queue.inspect.fairness().origin("hooli", "high").granted == pytest.approx(3 / 16)


def test_paths_are_judged_at_each_level(make_queue: Maker) -> None:
    """Who splits into many queues is promised no more than who has one, and gets what is promised."""
    queue = ring(make_queue, "deficit", paths=True, service_weight=Weight(32, 1 << 20), rounds_per_block=32)
    queue.enqueue_messages("one", [b"x"] * 400)
    for number in range(4):
        queue.enqueue_messages(f"many/{number}", [b"x"] * 100)
    run(queue, 8)
    told = queue.inspect.fairness()
    assert [round(one.promised or 0, 2) for one in told.origins] == [0.12] * 4 + [0.5]
    assert told.broken(most_wait=0, most_error=0.05, least_jain=0.99) == []
    queue.admin.pause("many", below=True)
    run(queue, 2)
    assert queue.inspect.fairness().origin("many/0").waiting == 0


def plainly(queue: MessageQueue) -> Fairness:
    """The same figures, looked up queue by queue, and reckoned from block to block."""
    with queue.session.snapshot() as (unit, shelf):
        rows = unit.rows("ledger", ring=queue.session.ring_id, before=1 << 62, first=0, limit=100)[::-1]
        pages = [codec.unpack_ledger(bytes(data)) for _, _, data, _ in rows]
        parts = parts_of(Weight(16, 1 << 20))
        waiting = Waiting(shelf, parts, [row[-1] for row in rows])
        asks = waiting.of_some([*shelf.high, *shelf.ring])
        told = {}
        for level in (REGULAR, HIGH):
            own = [[entry for entry in page if entry.priority == level] for page in pages]
            ready = {origin_of(name): its.since for name, its in asks.items() if priority_of(name) == level}
            names = {entry.origin for page in own for entry in page} | ready.keys()
            promises = {name: Promise(shelf.book(name).standing.share) for name in names}
            left = {origin: waiting.left(book_name(origin, level)) for origin in ready}
            told[level] = judge(rounds_of(own, parts, ready), promises, left=left)
        return together(told)


@pytest.mark.one_postgres
@pytest.mark.parametrize("seed", (0, 2, 3))
@pytest.mark.parametrize("order", ["deficit", "rotation"])
def test_all_at_once_is_as_one_by_one(make_queue: Maker, order: str, seed: int) -> None:
    """Whatever lies in pages or not, is claimed, paused, due, declared, set aside, or half done."""
    random, queue = Random(seed), ring(make_queue, order, heap_size=120)
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
        told = queue.inspect.fairness()
        same(told, plainly(queue))
    assert told.blocks == 12 and told.origins


def test_how_much_is_asked_grows_with_the_ring_alone(make_queue: Maker) -> None:
    """The same few statements, however many queues wait, and whether they lie in pages or not."""
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
