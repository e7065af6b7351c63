"""Skipped queues, for each reason: beyond the first few, they keep their places, and are not loaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from random import Random

import pytest

from airflow_mq import Block, Costs, LinearWeigher, MessageQueue, Weight
from airflow_mq.engine.queue.inspect.reasons import CASES
from airflow_mq.engine.rules.book import SKIPS
from airflow_mq.engine.rules.fairness import Fairness
from airflow_mq.engine.store.working_set import LoadOptions, books
from airflow_mq.engine.store.working_set import ring as ring_loader
from tests.store.queue.conftest import Maker, serve

UNIT = LinearWeigher(Weight(1, 0), Weight(0, 0))
#: More than a walk visits, and than one slice of the ring.
CROWD = [f"crowd-{number:03}" for number in range(300)]
OTHERS = ["x", "y", "z"]


@pytest.fixture
def ring(make_queue: Maker) -> MessageQueue:
    return make_queue(order="deficit", service_weight=Weight(16, 1 << 20), weigher=UNIT, rounds_per_block=16)


def finish(queue: MessageQueue, block: Block) -> None:
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)


def give_back(queue: MessageQueue, block: Block) -> None:
    queue.blocks.release(block)


def send(queue: MessageQueue, origins: list[str], each: int = 1) -> None:
    queue.enqueue_messages((origin, b"x") for _ in range(each) for origin in origins)


def enter(queue: MessageQueue) -> None:
    """Let all new queues enter the ring."""
    queue.blocks.release(queue.blocks.plan(limit=Weight(1 << 20, 1 << 30)))


def pause(queue: MessageQueue, origins: list[str]) -> None:
    for origin in origins:
        queue.admin.pause(origin, "test")


def exhaust(queue: MessageQueue, origins: list[str]) -> None:
    """Give each origin a budget, and let none of them cover a message for long."""
    for origin in origins:
        queue.admin.set_origin(origin, rate="1ms/day")
    with queue.store.writing() as unit:
        unit.connection.execute(  # type: ignore[attr-defined]
            f"UPDATE {queue.store.prefix}bucket SET wake_at = {unit.now() + 10**9}"
        )


def tickets(queue: MessageQueue) -> dict[str, int]:
    with queue.session.snapshot() as (_, working_set):
        return {origin: ticket for ticket, origin, _ in working_set.reading.line()}


def hold(queue: MessageQueue, origins: list[str], pattern: str) -> Block:
    """Take all messages of these origins in flight."""
    block = queue.blocks.plan(limit=Weight(1 << 20, 1 << 30), origins=[pattern], lease=3_600)
    assert sorted(block.origins) == sorted(origins)
    return block


@contextmanager
def visiting_all() -> Iterator[None]:
    """Let each walk visit all skipped queues."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ring_loader, "VISITED", 1 << 30)
        yield


@pytest.fixture
def delayed(make_queue: Maker) -> MessageQueue:
    """Return a queue whose released messages back off."""
    return make_queue("delayed", order="deficit", service_weight=Weight(16, 1 << 20), weigher=UNIT, backoff=3_600.0)


def skipping(ring: MessageQueue, delayed: MessageQueue, obstacle: str) -> MessageQueue:
    """Return a queue in which all of the crowd are skipped."""
    queue = delayed if obstacle == "backoff" else ring
    send(queue, CROWD)
    if obstacle == "in flight":
        hold(queue, CROWD, "crowd-*")
    else:
        enter(queue)
    if obstacle == "paused":
        pause(queue, CROWD)
    if obstacle == "budget":
        exhaust(queue, CROWD)
    return queue


@pytest.mark.parametrize("obstacle", SKIPS)
def test_block_moves_only_a_few_skipped_queues(ring: MessageQueue, delayed: MessageQueue, obstacle: str) -> None:
    queue = skipping(ring, delayed, obstacle)
    send(queue, OTHERS, each=4)
    before = tickets(queue)
    block = queue.blocks.plan()
    assert (block.messages, sorted(block.origins)) == (12, OTHERS)
    after = tickets(queue)
    # A queue whose budget is used up has no turn any more.
    moved = [origin for origin in CROWD if after.get(origin) != before[origin]]
    assert len(moved) == ring_loader.VISITED
    (page,) = queue.inspect.ledger(limit=1)
    assert list(page.skipped) == [obstacle]
    visited = {entry.origin: entry.reason for entry in page.entries if entry.origin not in OTHERS}
    assert visited == dict.fromkeys(moved, obstacle)
    assert sorted([*visited, *page.skipped[obstacle]]) == CROWD


def test_service_in_place_skips_and_returns(ring: MessageQueue) -> None:
    send(ring, CROWD)
    enter(ring)
    pause(ring, CROWD)
    send(ring, OTHERS)
    assert sorted(serve(ring)) == [(origin, b"x") for origin in OTHERS]
    assert serve(ring) == []
    for origin in CROWD:
        ring.admin.resume(origin)
    assert sorted(origin for _ in range(20) for origin, _ in serve(ring)) == CROWD


def test_new_paused_queues_enter_the_ring_where_they_stand(ring: MessageQueue) -> None:
    pause(ring, CROWD)
    send(ring, CROWD)
    send(ring, OTHERS)
    assert sorted(ring.blocks.plan().origins) == OTHERS
    assert len(tickets(ring).keys() & set(CROWD)) == len(CROWD)
    for origin in CROWD:
        ring.admin.resume(origin)
    found = [origin for _ in range(20) for origin in ring.blocks.plan().origins]
    assert sorted(found) == CROWD


def test_queues_that_are_not_ordered_are_not_skipped_while_in_flight(ring: MessageQueue) -> None:
    loose = CROWD[100:110]
    for origin in loose:
        ring.admin.set_origin(origin, ordered=False)
    send(ring, CROWD)
    hold(ring, CROWD, "crowd-*")
    send(ring, loose)
    assert sorted(ring.blocks.plan().origins) == loose
    ring.admin.change_ring(ordered=False)
    send(ring, CROWD[200:210])
    assert sorted(ring.blocks.plan().origins) == CROWD[200:210]


def test_only_the_origins_of_a_server_are_skipped(ring: MessageQueue) -> None:
    send(ring, [*CROWD, *OTHERS], each=2)
    enter(ring)
    pause(ring, CROWD)
    assert ring.blocks.plan(origins=["y", "crowd-1*"]).origins == ["y"]
    (page,) = ring.inspect.ledger(limit=1)
    named = {*page.skipped["paused"], *(entry.origin for entry in page.entries)}
    assert named == {"y", *(origin for origin in CROWD if origin.startswith("crowd-1"))}
    assert sorted(ring.blocks.plan().origins) == ["x", "z"]


def test_walk_that_pays_for_visits_charges_every_skipped_queue(make_queue: Maker) -> None:
    costs = Costs(service_queue_base=Weight(1, 0))
    queue = make_queue(order="deficit", service_weight=Weight(1_000, 1 << 20), weigher=UNIT, costs=costs)
    send(queue, CROWD)
    enter(queue)
    pause(queue, CROWD)
    block = queue.blocks.plan()
    (page,) = queue.inspect.ledger(limit=1)
    assert block.overhead == Weight(len(CROWD), 0) and not page.skipped
    assert sorted(entry.origin for entry in page.entries) == CROWD


def test_forecast_skips_as_the_plan_does(ring: MessageQueue) -> None:
    send(ring, [*CROWD, *OTHERS], each=3)
    enter(ring)
    pause(ring, CROWD)
    foreseen = ring.inspect.forecast(3)
    for block in foreseen:
        planned = ring.blocks.plan()
        assert planned.origins == block.origins
        finish(ring, planned)


def fairness_after_a_skip(queue: MessageQueue) -> Fairness:
    """Return the figures after queues stopped for lack of weight, were skipped for some blocks, and went on."""
    send(queue, [*CROWD, *OTHERS], each=20)
    enter(queue)
    for _ in range(3):
        finish(queue, queue.blocks.plan(limit=Weight(400, 1 << 20)))
    pause(queue, CROWD)
    for _ in range(5):
        finish(queue, queue.blocks.plan())
    for origin in CROWD[::2]:
        queue.admin.resume(origin)
    for _ in range(2):
        finish(queue, queue.blocks.plan(limit=Weight(400, 1 << 20)))
    return queue.inspect.fairness()


@pytest.mark.slow
def test_fairness_does_not_count_skipped_queues_as_wanting(make_queue: Maker) -> None:
    settings = {"order": "deficit", "service_weight": Weight(400, 1 << 20), "weigher": UNIT, "rounds_per_block": 400}
    fairness = fairness_after_a_skip(make_queue("kept", **settings))
    with visiting_all():
        visited = fairness_after_a_skip(make_queue("visited", **settings))
    assert fairness.longest_wait == visited.longest_wait <= 2
    for one, other in zip(fairness.origins, visited.origins, strict=True):
        assert (one.origin, one.longest_wait, one.waiting) == (other.origin, other.longest_wait, other.waiting)
        if one.origin in CROWD[1::2]:
            assert one.contended == other.contended <= 3


@pytest.mark.parametrize("seed", range(6))
def test_no_queue_is_lost_whatever_ends_its_obstacle(
    make_queue: Maker, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Random pauses, blocks in flight and services, on slices of a few queues: at last all messages are processed."""
    for module, name, value in (
        (ring_loader, "VISITED", seed % 3), (ring_loader, "MOST_SKIPPED", 5), (books, "RING_SLICE", 3),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    dice = Random(seed)
    queue = make_queue(
        order="deficit", service_weight=Weight(12, 1 << 20), weigher=UNIT, rounds_per_block=6, high=seed % 2 == 0,
        ordered=seed != 3,
    )  # fmt: skip
    origins, live, sent = [f"o{number:02}" for number in range(30)], [], 0
    for _ in range(60):
        roll = dice.random()
        some = dice.sample(origins, 5)
        if roll < 0.3:
            send(queue, some)
            sent += len(some)
        elif roll < 0.5:
            pause(queue, some)
        elif roll < 0.6:
            for origin in some:
                queue.admin.resume(origin)
        elif roll < 0.85 and len(live) < 6:
            live.append(queue.blocks.plan(origins=["o0*", "o2*"] if dice.random() < 0.3 else None))
        elif live:
            block = live.pop(dice.randrange(len(live)))
            end = finish if dice.random() < 0.8 else give_back
            end(queue, block)
        else:
            serve(queue)
        assert queue.check() == []
    for block in live:
        queue.blocks.release(block)
    for origin in origins:
        queue.admin.resume(origin)
    for _ in range(60):
        serve(queue)
    assert sum(footprint.count for _, footprint in queue.footprints()) == 0
    assert sum(1 for event in queue.inspect.events() if event.name == "Processed") == sent


@pytest.mark.parametrize(("ordered", "any_order"), [(True, False), (False, False), (False, True)])
def test_both_judges_name_the_same_reason(make_queue: Maker, ordered: bool, any_order: bool) -> None:
    """A loader judges loaded books, and a statement those that are not loaded."""
    queue = make_queue(ordered=ordered, service_weight=Weight(1_000, 1 << 20), weigher=UNIT)
    cases = list(product(("paused", ""), ("claimed", ""), ("waits", ""), ("exhausted", ""), (None, True, False)))
    names = {f"q{number:02}": case for number, case in enumerate(cases)}
    queue.enqueue_messages([(name, b"x") for name in names])
    queue.blocks.release(queue.blocks.plan())
    assert queue.blocks.plan(origins=[name for name, case in names.items() if case[1]])
    with queue.store.reading() as unit:
        now = unit.now()
    for name, (paused, _, waits, exhausted, own) in names.items():
        queue.admin.set_origin(name, ordered=own, rate="1ms/day")
        if paused:
            queue.admin.pause(name)
        if exhausted:
            with queue.store.writing() as unit:
                unit.connection.execute(  # type: ignore[attr-defined]
                    f"UPDATE {queue.store.prefix}bucket SET wake_at = {now + 10**9} WHERE path = '{name}'"
                )
        if waits:
            with queue.store.writing() as unit:
                unit.connection.execute(  # type: ignore[attr-defined]
                    f"UPDATE {queue.store.prefix}book SET wake_at = {now + 10**9} WHERE origin = '{name}'"
                )
    with queue.store.reading() as unit:
        working_set = queue.session.stored_working_set(unit)
        working_set.loader.books.options = LoadOptions(skip_in_flight=any_order)
        stored = working_set.reading
        found = stored.serviceable(0, 100, 100, now, ordered=ordered, any_order=any_order)
        working_set.loader.load_books(names)
        books = {name: working_set.book(name) for name in names}
        by_row = {name: book.skipped for name, book in books.items()}
        assert all(book.is_ready for book in books.values())
    by_statement = {name: obstacle for obstacle, skipped in found.skipped.items() for name in skipped}
    by_statement |= {name: "" for _, name in found.turns}
    assert by_row == by_statement
    assert set(by_row.values()) == {*SKIPS, ""} and SKIPS.keys() <= CASES.keys()
