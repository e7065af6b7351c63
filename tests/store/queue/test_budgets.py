"""Budgets over time: which messages start, when queues wait and wake, and what ends pay back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from airflow_mq import Block, Done, LinearWeigher, MessageQueue, StackLimitReached, Weight, Yield, batch_processor
from airflow_mq.engine.queue.values import Report, moment
from airflow_mq.engine.rules.budget import GRAINS
from airflow_mq.engine.rules.errors import ConfigRefused, Refused
from airflow_mq.engine.rules.message import Address
from airflow_mq.words import when
from tests.proofs.model.clock import Clock, stopped_clock
from tests.store.queue.conftest import Maker, serve

ORDERS = ["rotation", "deficit", "shuffle", "paths"]
UNIT = LinearWeigher(Weight(1, 0), Weight(0, 0))
SEED = b"a seed"


@pytest.fixture
def clock() -> Iterator[Clock]:
    with stopped_clock() as clock:
        yield clock


@pytest.fixture(params=ORDERS)
def ring(request: pytest.FixtureRequest, make_queue: Maker, clock: Clock) -> MessageQueue:
    order = request.param
    return make_queue(
        order="deficit" if order == "paths" else order, paths=order == "paths", service_weight=Weight(100, 1 << 20),
        weigher=UNIT,
    )  # fmt: skip


def plan(queue: MessageQueue, **options: Any) -> Block:
    return queue.blocks.plan(**options, **({"seed": SEED} if queue.config.order == "shuffle" else {}))


def taken(block: Block) -> dict[str, int]:
    counts: dict[str, int] = {}
    for claim in block.claims:
        if claim.messages:
            counts[claim.whose] = counts.get(claim.whose, 0) + claim.messages
    return counts


def finish(queue: MessageQueue, block: Block, outcome: Any = None) -> dict[str, int]:
    queue.blocks.report(block, [batch.answer(*([] if outcome is None else [outcome])) for batch in block.batches()])
    queue.blocks.settle(block)
    return taken(block)


def run(queue: MessageQueue, **options: Any) -> dict[str, int]:
    return finish(queue, plan(queue, **options))


def balance(queue: MessageQueue, path: str = "acme") -> list[int]:
    """Return whole units of the balance of a bucket."""
    with queue.session.snapshot() as (_, working_set):
        book = working_set.book(path)
        (bucket,) = [bucket for bucket in working_set.buckets_of(book) if bucket.path == path]
        return [left // GRAINS for left in bucket.left]


def test_queue_waits_for_its_budget_and_wakes(ring: MessageQueue, clock: Clock) -> None:
    ring.admin.set_origin("acme", rate="10ms/second", burst=5)
    ring.enqueue_messages((name, b"x") for name in ["acme", "other"] * 20)

    assert run(ring) == {"acme": 5, "other": 20}
    assert run(ring) == {}
    (state,) = ring.inspect.ring().queues
    assert (state.origin, state.skipped) == ("acme", "budget")
    clock.advance(0.099)
    assert run(ring) == {}
    clock.advance(0.001)
    assert run(ring) == {"acme": 1}
    clock.advance(3_600)
    assert run(ring) == {"acme": 5}


def test_a_heavy_message_starts_when_the_bucket_is_full(ring: MessageQueue, clock: Clock) -> None:
    ring.admin.set_origin("acme", rate="10ms/second", burst=5)
    for weight in (1, 50, 1):
        ring.enqueue_message("acme", b"x", weight=Weight(weight, 0))

    assert run(ring) == {"acme": 1}
    clock.advance(0.09)
    assert run(ring) == {}
    clock.advance(0.01)
    assert run(ring) == {"acme": 1}
    assert balance(ring) == [-45, 0]
    clock.advance(4.599)
    assert run(ring) == {}
    clock.advance(0.001)
    assert run(ring) == {"acme": 1}


def test_each_part_is_limited(ring: MessageQueue, clock: Clock) -> None:
    ring.admin.set_origin("acme", rate="10ms/second", burst=50, rate_bytes="100B/s", burst_bytes=10)
    ring.enqueue_messages("acme", [b"x"] * 20, weight=Weight(1, 4))
    assert run(ring) == {"acme": 2}
    clock.advance(0.02)
    assert run(ring) == {"acme": 1}


def test_untried_messages_are_paid_back(ring: MessageQueue, clock: Clock) -> None:
    ring.admin.set_origin("acme", rate="10ms/second", burst=5)
    ring.enqueue_messages("acme", [b"x"] * 20)
    block = plan(ring, reports_begin=True)
    assert balance(ring) == [0, 0]
    ring.blocks.release(block)
    assert balance(ring) == [5, 0]
    assert run(ring) == {"acme": 5}


def test_overruns_are_charged(ring: MessageQueue, clock: Clock) -> None:
    ring.admin.set_origin("acme", rate="10ms/second", burst=5)
    ring.enqueue_messages("acme", [b"x"] * 6)
    block = plan(ring)
    assert finish(ring, block, Done(used=Weight(21, 0))) == {"acme": 5}
    assert balance(ring) == [-100, 0]
    clock.advance(10.099)
    assert run(ring) == {}
    clock.advance(0.001)
    assert run(ring) == {"acme": 1}


def test_attempts_that_yield_are_charged(ring: MessageQueue, clock: Clock) -> None:
    ring.admin.set_origin("acme", rate="10ms/second", burst=5)
    ring.enqueue_messages("acme", [b"x"] * 2)
    block = plan(ring)
    (batch,) = block.batches()
    ring.blocks.report(block, [Report(batch.origin, batch.page, batch.first, batch.first, Yield("no"))])
    ring.blocks.settle(block)
    # The second one was not tried.
    assert balance(ring) == [4, 0]


def test_settling_computes_the_wake_time_anew(ring: MessageQueue, clock: Clock) -> None:
    ring.admin.set_origin("acme", rate="10ms/second", burst=5, ordered=False)
    ring.enqueue_messages("acme", [b"x"] * 20)
    block = plan(ring, reports_begin=True)
    assert taken(plan(ring)) == {}
    assert [state.wakes_at for state in ring.inspect.queues()] == [when_it_wakes(clock, 0.1)]
    ring.blocks.release(block)
    assert [state.wakes_at for state in ring.inspect.queues()] == [None]
    assert run(ring) == {"acme": 5}


def when_it_wakes(clock: Clock, seconds: float) -> Any:
    return moment(clock.now + int(seconds * 1_000_000))


def test_nothing_passes_the_first_message_of_a_bucket(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue(order="deficit", paths=True, service_weight=Weight(100, 1 << 20), weigher=UNIT)
    queue.admin.set_origin("acme", rate="10ms/second", burst=10)
    queue.enqueue_message("acme/a", b"x", weight=Weight(8, 0))
    assert run(queue) == {"acme/a": 1}
    queue.enqueue_message("acme/a", b"x", weight=Weight(8, 0))
    assert run(queue) == {}
    # It would be covered, and waits for the message that was first.
    queue.enqueue_messages((f"acme/{name}", b"x") for name in "bcd")
    queue.enqueue_message("other", b"x")
    assert run(queue) == {"other": 1}
    clock.advance(0.6)
    assert run(queue) == {"acme/a": 1}
    clock.advance(0.3)
    assert run(queue) == {"acme/b": 1, "acme/c": 1, "acme/d": 1}


@pytest.mark.parametrize("order", ["rotation", "deficit"])
@pytest.mark.parametrize("kept, first, then", [(0, [3, 2], [2, 0]), (0.5, [2, 3], [1, 1]), (0.25, [3, 2], [1, 1])])
def test_high_messages_count(
    make_queue: Maker, clock: Clock, order: str, kept: float, first: list[int], then: list[int]
) -> None:
    queue = make_queue(order=order, high=True, service_weight=Weight(100, 1 << 20), weigher=UNIT, kept_for_regular=kept)
    queue.admin.set_origin("acme", rate="10ms/second", burst=5)
    queue.enqueue_messages("acme", [b"x"] * 9)
    queue.enqueue_messages("acme", [b"x"] * 3, priority="high")
    block = plan(queue)
    assert list(_levels(block).values()) == first
    finish(queue, block)
    clock.advance(0.2)
    queue.enqueue_messages("acme", [b"x"] * 3, priority="high")
    assert list(_levels(plan(queue)).values()) == then


def _levels(block: Block) -> dict[str, int]:
    """Return the time that a block planned for high and for regular messages."""
    return {
        level: sum(claim.planned.time for claim in block.claims if claim.priority == level)
        for level in ("high", "regular")
    }


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "seconds, burst, high, regular",
    [(0.25, 5, 1, 1), (2, 30, 7, 2), (0.1, 5, 1, 3)],
)  # fmt: skip
def test_neither_level_starves_the_other(
    make_queue: Maker, clock: Clock, order: str, seconds: float, burst: int, high: int, regular: int
) -> None:
    in_groups = order == "paths"
    queue = make_queue(
        order="deficit" if in_groups else order, paths=in_groups, service_weight=Weight(100, 1 << 20), weigher=UNIT
    )
    queue.admin.set_origin("acme", rate="10ms/second", burst=burst)
    queue.enqueue_messages("acme/b" if in_groups else "acme", [b"x"] * 400, weight=Weight(regular, 0))
    queue.enqueue_messages("acme/a" if in_groups else "acme", [b"x"] * 400, weight=Weight(high, 0), priority="high")
    used: Counter[str] = Counter()
    for _ in range(24):
        block = plan(queue)
        used.update(_levels(block))
        finish(queue, block)
        clock.advance(seconds)
    total = sum(used.values())
    assert total >= 23 * seconds * 10 - high - regular
    # What a share of whole messages leaves over goes to regular ones.
    assert used["regular"] >= total / 2 - high and used["high"] >= total / 3 - regular, used


@pytest.mark.parametrize("halted", ["paused", "budget", "budget of this block"])
def test_high_messages_owe_nothing_to_groups_that_wait_for_something_else(
    make_queue: Maker, clock: Clock, halted: str
) -> None:
    queue = make_queue(order="deficit", paths=True, service_weight=Weight(10, 1 << 20), weigher=UNIT)
    queue.enqueue_messages((name, b"x") for name in ["acme/a", "acme/b", "acme/c"] * 40)
    if halted == "paused":
        queue.admin.pause("acme")
    else:
        queue.admin.set_origin("acme", rate=f"{1 if halted == 'budget' else 1000}ms/second", burst=1)
    queue.enqueue_messages("birch/a", [b"x"] * 200, priority="high")
    for number in range(6):
        if number == 3:
            queue.enqueue_messages("birch/b", [b"x"] * 200)
        block = plan(queue)
        used = _levels(block)
        finish(queue, block)
        clock.advance(0.1)
        if number >= 3:
            assert used == {"high": 5, "regular": 5}


@pytest.mark.parametrize("size", [0, 10])
def test_high_messages_owe_only_what_regular_ones_wait_for(make_queue: Maker, clock: Clock, size: int) -> None:
    queue = make_queue(order="rotation", service_weight=Weight(100, 1 << 20), weigher=UNIT)
    # Time is scarce, and bytes are not.
    queue.admin.set_origin("acme", rate="10ms/second", burst=10, rate_bytes="100000B/second", burst_bytes=10_000)
    queue.enqueue_messages("acme", [b"x"] * 400, weight=Weight(1, 1_000), priority="high")
    queue.enqueue_messages("acme", [b"x"] * 400, weight=Weight(1, size))
    used: Counter[str] = Counter()
    for _ in range(40):
        block = plan(queue)
        used.update(_levels(block))
        finish(queue, block)
        clock.advance(1)
    assert used == {"high": 200, "regular": 200}


def test_high_messages_take_all_of_a_budget_that_no_regular_ones_wait_for(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue(service_weight=Weight(10, 1 << 20), weigher=UNIT)
    queue.admin.set_origin("acme", rate="10ms/second", burst=8)
    queue.enqueue_messages("acme", [b"x"] * 60, priority="high")
    queue.enqueue_messages("other", [b"x"] * 2)
    block = plan(queue)
    assert _levels(block) == {"high": 8, "regular": 2}
    finish(queue, block)
    clock.advance(1)
    queue.enqueue_messages("acme", [b"x"] * 60)
    queue.enqueue_messages("acme", [b"x"] * 60, priority="high")
    # Nothing is owed.
    assert _levels(plan(queue)) == {"high": 4, "regular": 4}


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("order", ["rotation", "deficit"])
def test_regular_messages_are_paid_while_no_high_ones_wait(
    make_queue: Maker, clock: Clock, order: str, others: bool
) -> None:
    queue = make_queue(order=order, high=True, service_weight=Weight(1_000, 1 << 20), weigher=UNIT)
    queue.admin.set_origin("acme", rate="10ms/second", burst=10)
    queue.enqueue_messages("acme", [b"x"] * 400)
    queue.enqueue_message("acme", b"x", weight=Weight(100, 0), priority="high")
    block = plan(queue)
    assert _levels(block) == {"high": 100, "regular": 0}
    finish(queue, block)
    for _ in range(30):
        clock.advance(1)
        if others:
            queue.enqueue_message("birch", b"x", priority="high")
        run(queue)
    queue.enqueue_messages("acme", [b"x"] * 40, priority="high")
    clock.advance(1)
    # They have got more than the half of what the high message took.
    assert _levels(plan(queue)) == {"high": 5, "regular": 5}


@pytest.mark.parametrize("metering", [False, True])
def test_a_service_in_place_shares_budgets_among_levels(ring: MessageQueue, clock: Clock, metering: bool) -> None:
    def process(delivery: Any) -> None:
        if metering:
            delivery.meter.consume(Weight(1, 0))

    process.meters_itself = metering  # type: ignore[attr-defined]
    ring.admin.set_origin("acme", rate="10ms/second", burst=5)
    ring.enqueue_messages("acme", [b"regular"] * 40)
    ring.enqueue_messages("acme", [b"high"] * 40, priority="high")
    met: Counter[bytes] = Counter()
    for _ in range(12):
        met.update(payload for _, payload in serve(ring, process, **_seed(ring)))
        clock.advance(0.1)
    assert met.total() == 16 and met[b"regular"] >= 7 and met[b"high"] >= 7


def test_paths_share_one_bucket_for_all_below(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue(order="deficit", paths=True, service_weight=Weight(100, 1 << 20), weigher=UNIT)
    queue.admin.set_origin("acme", rate="10ms/second", burst=6)
    queue.admin.set_origin("acme/a", rate="1ms/second", burst=2)
    queue.enqueue_messages((name, b"x") for name in ["acme/a", "acme/b", "acme/c/d", "beta"] * 10)
    found = run(queue)
    assert found["acme/a"] == 2 and sum(found.values()) - found["beta"] == 6
    assert found["beta"] == 10
    assert {state.origin: state.skipped for state in queue.inspect.ring().queues} == {
        "acme/a": "budget", "acme/b": "budget", "acme/c/d": "budget"
    }  # fmt: skip
    clock.advance(0.4)
    assert sum(run(queue).values()) == 4


@pytest.mark.parametrize("budgeted", ["acme", "acme/b"])
def test_plans_read_no_queue_below_an_exhausted_path(make_queue: Maker, clock: Clock, budgeted: str) -> None:
    queue = make_queue(order="deficit", paths=True, service_weight=Weight(100, 1 << 20), weigher=UNIT)
    queue.admin.set_origin(budgeted, rate="10ms/second", burst=6)
    queue.enqueue_messages((name, b"x") for name in ["acme/b/c", "acme/b/d", "acme0", "acm", "/acme/x", "beta"] * 200)
    run(queue)
    for _ in range(2):
        assert run(queue).keys() == {"acme0", "acm", "/acme/x", "beta"}
        (page,) = queue.inspect.ledger(limit=1)
        assert page.halted == {"budget": [budgeted]} and not page.skipped
        assert {entry.origin for entry in page.entries} == {"acme0", "acm", "/acme/x", "beta"}
    with queue.session.snapshot() as (_, working_set):
        names = [origin for _, origin, _ in working_set.reading.line(["acme"])]
        assert sorted(names) == ["/acme/x", "acm", "acme0", "beta"]
        assert len(working_set.reading.line()) == 6
    report = queue.inspect.fairness()
    assert report.broken(most_wait=0) == [] and report.origin("acme/b/d").waiting == 0
    clock.advance(0.6)
    assert run(queue).keys() == {"acme/b/c", "acme/b/d", "acme0", "acm", "/acme/x", "beta"}


def test_in_rings_without_paths_a_budget_is_of_one_origin(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue(order="deficit", service_weight=Weight(100, 1 << 20), weigher=UNIT)
    queue.admin.set_origin("acme", rate="10ms/second", burst=6)
    queue.enqueue_messages((name, b"x") for name in ["acme", "acme/b"] * 10)
    assert run(queue) == {"acme": 6, "acme/b": 10}


@pytest.mark.parametrize("metering", [False, True])
def test_service_in_place_keeps_to_budgets(ring: MessageQueue, clock: Clock, metering: bool) -> None:
    def process(delivery: Any) -> Any:
        if metering:
            delivery.meter.consume(Weight(1, 0))
        return None

    process.meters_itself = metering  # type: ignore[attr-defined]
    ring.admin.set_origin("acme", rate="10ms/second", burst=5)
    ring.enqueue_messages((name, b"x") for name in ["acme", "other"] * 20)
    assert len([origin for origin, _ in serve(ring, process, **_seed(ring)) if origin == "acme"]) == 5
    assert serve(ring, **_seed(ring)) == []
    clock.advance(0.2)
    assert serve(ring, **_seed(ring)) == [("acme", b"x")] * 2


def _seed(queue: MessageQueue) -> dict[str, bytes]:
    return {"seed": SEED} if queue.config.order == "shuffle" else {}


def test_views_keep_to_budgets(ring: MessageQueue, clock: Clock) -> None:
    ring.admin.set_origin("acme", rate="10ms/second", burst=2, ordered=False)
    ring.enqueue_messages("acme", [b"x"] * 5)
    for view in (ring.leases.view(), ring.leases.view("acme")):
        tokens = list(view)
        assert len(tokens) == 2
        for token in tokens:
            token.complete()
        assert view.try_next() is None
        clock.advance(0.2)
        tokens = [view.try_next()]
        assert tokens != [None] and balance(ring) == [1, 0]
        tokens[0].give_back()  # type: ignore[union-attr]
        # To give it back is an attempt.
        assert balance(ring) == [1, 0]
        clock.advance(0.2)


def test_execution_by_hand_ignores_the_balance_and_is_charged(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue(order="deficit", service_weight=Weight(10, 1 << 20), weigher=UNIT)
    queue.admin.set_origin("acme", rate="10ms/second", burst=5)
    queue.enqueue_messages("acme", [b"x", b"y"], weight=Weight(50, 0))
    run(queue)
    first, second = [aside.address for aside in queue.set_aside.list()]
    with pytest.raises(Refused):
        queue.execute_overweight(first, lambda delivery: StackLimitReached(), Weight(100, 100), for_everything=True)
    assert balance(queue) == [5, 0]
    queue.execute_overweight(first, lambda delivery: None, Weight(100, 100))
    assert balance(queue) == [-45, 0]
    block = queue.blocks.plan_overweight(second, Weight(100, 100))
    assert balance(queue) == [-95, 0]
    finish(queue, block)
    assert balance(queue) == [-95, 0]


def test_a_waiting_queue_earns_nothing_and_keeps_debt(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue(order="deficit", service_weight=Weight(100, 1 << 20), weigher=UNIT, rounds_per_block=10)
    queue.admin.set_origin("acme", rate="10ms/second", burst=5)
    queue.enqueue_messages((name, b"x") for name in ["acme", "other"] * 400)
    first = plan(queue)
    entry = next(e for e in queue.inspect.ledger(block=first.id)[0].entries if e.origin == "acme")
    assert entry.reason == "budget" and entry.deficit == 0
    finish(queue, first)
    for _ in range(3):
        # It has no turn, so it earns nothing.
        assert [entry.origin for entry in queue.inspect.ledger(block=plan(queue).id)[0].entries] == ["other"]
        queue.blocks.release(queue.blocks.list("planned")[0])
    clock.advance(1)
    finish(queue, plan(queue), Done(used=Weight(500, 0)))
    with queue.session.snapshot() as (_, working_set):
        assert working_set.book("acme").deficit < 0


def test_exhaustion_is_one_event(ring: MessageQueue, clock: Clock) -> None:
    ring.admin.set_origin("acme", rate="10ms/second", burst=5)
    ring.enqueue_messages("acme", [b"x"] * 20)
    for _ in range(4):
        run(ring)
        clock.advance(0.1)
    events = [event for event in ring.inspect.events() if event.name == "BudgetExhausted"]
    assert [(event.origin, event.page, event.index) for event in events] == [("acme", 0, 5)]
    assert events[0].detail == "the budget of 'acme' is used up"
    clock.advance(0.5)
    run(ring)
    assert len([event for event in ring.inspect.events() if event.name == "BudgetExhausted"]) == 2


@pytest.mark.parametrize("in_batches", [False, True])
def test_a_service_that_is_interrupted_pays_for_what_it_tried(
    ring: MessageQueue, clock: Clock, in_batches: bool
) -> None:
    ring.admin.set_origin("acme", rate="1ms/hour", burst=50)
    ring.enqueue_messages("acme", [b"x"] * 40)
    calls: list[int] = []

    def process(_: Any) -> None:
        calls.append(1)
        if in_batches or len(calls) == 4:
            raise KeyboardInterrupt

    function = batch_processor(process) if in_batches else process
    with pytest.raises(KeyboardInterrupt):
        ring.service_queues(function)
    (state,) = ring.inspect.budgets("acme")
    assert ring.footprint("acme").count == (40 if in_batches else 37) and state.left == (50 if in_batches else 47)
    assert len(serve(ring)) == 40 - (0 if in_batches else 3)


def test_a_slice_that_is_committed_pays_for_what_was_tried(ring: MessageQueue, clock: Clock) -> None:
    """Nothing else is lost if the process dies then."""
    ring.admin.set_origin("acme", rate="1ms/hour", burst=50)
    ring.enqueue_messages("acme", [b"x"] * 40)
    seen: list[int] = []

    def process(_: Any) -> None:
        with MessageQueue(ring.store.address, ring.ring) as reader:
            seen.append(next(state.left or 0 for state in reader.inspect.budgets("acme")))

    ring.service_queues(process, slice_messages=10, slice_seconds=3_600.0)
    assert seen == [50] * 10 + [40] * 10 + [30] * 10 + [20] * 10
    (state,) = ring.inspect.budgets("acme")
    assert state.left == 10


def test_explain_names_the_time(ring: MessageQueue, clock: Clock) -> None:
    ring.admin.set_origin("acme", rate="10ms/second", burst=5)
    ring.enqueue_messages("acme", [b"x"] * 20)
    run(ring)
    assert run(ring) == {}
    found = ring.inspect.explain("acme", **({"seed": SEED} if ring.config.order == "shuffle" else {}))
    assert found.reason == "budget"
    assert found.sentence == (
        f"the budget of acme is used up (0ms of 5ms); acme waits until {when(moment(clock.now + 100_000))}."
    )
    assert found.remedies == ["nothing but time, or a larger rate or burst: airflow-mq queue set acme … --ring test"]


def test_explain_names_the_budget_that_messages_before_use_up(ring: MessageQueue, clock: Clock) -> None:
    ring.admin.set_origin("acme", rate="10ms/hour", burst=5)
    ring.enqueue_messages("acme", [b"x"] * 20)
    for index, reason in ((4, "next"), (5, "budget"), (19, "budget")):
        seed = SEED if ring.config.order == "shuffle" else None
        found = ring.inspect.explain_message(Address("acme", 0, index), seed=seed)
        assert found.reason == reason
    assert found.sentence == (
        "No block has ever serviced this ring. acme:0:19 waits for time to pass: the budget of acme is used up by "
        "messages before it."
    )
    assert found.remedies[-1].startswith("nothing but time, or a larger rate or burst: airflow-mq queue set acme")


def test_explain_names_the_budget_of_a_group_that_other_queues_use_up(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue(order="deficit", paths=True, service_weight=Weight(100, 1 << 20), weigher=UNIT)
    queue.admin.set_origin("acme", rate="10ms/hour", burst=6)
    queue.enqueue_messages((name, b"x") for name in ["acme/a", "acme/b"] * 20)
    for name in ("acme/a", "acme/b"):
        found = queue.inspect.explain_message(Address(name, 0, 19))
        assert found.reason == "budget"
        assert found.sentence.endswith("waits for time to pass: the budget of acme is used up by messages before it.")


def test_a_larger_rate_wakes_at_once(ring: MessageQueue, clock: Clock) -> None:
    ring.admin.set_origin("acme", rate="10ms/day", burst=5)
    ring.enqueue_messages("acme", [b"x"] * 20)
    assert run(ring) == {"acme": 5} and run(ring) == {}
    ring.admin.set_origin("acme", rate="10ms/second")
    clock.advance(0.1)
    assert run(ring) == {"acme": 1} and run(ring) == {}
    ring.admin.set_origin("acme", unset=["rate", "burst"])
    assert run(ring) == {"acme": 14}


def test_a_changed_setting_wins_over_a_balance_that_was_read_before(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue(order="deficit", service_weight=Weight(100, 1 << 20), weigher=UNIT)
    queue.admin.set_origin("acme", rate="10ms/day", burst=5)
    queue.enqueue_messages((name, b"x") for name in ["acme", "zeta"] * 20)

    other = make_queue()

    def change(delivery: Any) -> None:
        if delivery.payload == b"last":
            changes = Thread(target=other.admin.set_origin, args=["acme"], kwargs={"rate": "10ms/second"})
            changes.start()
            changes.join()

    queue.enqueue_message("zeta", b"last")
    assert len(serve(queue, change)) == 26
    clock.advance(0.1)
    assert run(queue) == {"acme": 1}


def test_clock_that_is_set_back_gives_nothing(ring: MessageQueue, clock: Clock) -> None:
    ring.admin.set_origin("acme", rate="10ms/second", burst=5)
    ring.enqueue_messages("acme", [b"x"] * 20)
    assert run(ring) == {"acme": 5}
    clock.advance(-100)
    assert run(ring) == {}
    clock.advance(100)
    assert run(ring) == {}
    clock.advance(0.3)
    assert run(ring) == {"acme": 3}


def test_pulse_reports_no_queue_that_waits_for_its_budget(ring: MessageQueue, clock: Clock) -> None:
    ring.admin.set_origin("acme", rate="10ms/second", burst=5)
    ring.enqueue_messages("acme", [b"x"] * 20)
    assert ring.inspect.pulse().ready == ("acme",)
    run(ring)
    run(ring)
    assert not ring.inspect.pulse()
    clock.advance(0.1)
    assert ring.inspect.pulse().ready == ("acme",)


@pytest.mark.parametrize("paths", [False, True])
def test_budget_does_not_count_as_unfair(make_queue: Maker, clock: Clock, paths: bool) -> None:
    ring = make_queue(order="deficit", paths=paths, service_weight=Weight(100, 1 << 20), weigher=UNIT)
    ring.admin.set_origin("acme", rate="10ms/second", burst=5)
    ring.enqueue_messages((name, b"x") for name in ["acme", "other"] * 1_000)
    for _ in range(12):
        run(ring)
        clock.advance(0.1)
    report = ring.inspect.fairness()
    assert report.origin("acme").longest_wait == 0 and report.origin("acme").waiting == 0
    assert report.broken(most_wait=0) == []


def test_burst_needs_a_rate(queue: MessageQueue) -> None:
    with pytest.raises(ConfigRefused, match="burst needs a rate"):
        queue.admin.set_origin("acme", burst="30m")
    queue.admin.set_origin("acme", rate="2h/day", burst="30m")
    with pytest.raises(ConfigRefused, match="burst needs a rate"):
        queue.admin.set_origin("acme", unset=["rate"])


@pytest.mark.parametrize("is_exhausted", [False, True])
def test_a_forecast_lets_budgets_refill(ring: MessageQueue, clock: Clock, is_exhausted: bool) -> None:
    ring.admin.set_origin("acme", rate="10ms/second", burst=5)
    ring.enqueue_messages("acme", [b"x"] * 17)
    if is_exhausted:
        run(ring)
        run(ring)
    seed = SEED if ring.config.order == "shuffle" else None
    foreseen = ring.inspect.forecast(20, every=0.3, seed=seed)
    really = []
    while ring.footprint("acme").count:
        really.append(run(ring).get("acme", 0))
        clock.advance(0.3)
    assert [block.messages for block in foreseen] == really
    assert ring.inspect.forecast(20, every=0, seed=seed) == []
