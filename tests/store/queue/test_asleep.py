"""Queues that wait for their budgets: they have no turn, cost a plan nothing, and come back in time."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from threading import Thread

import pytest

from airflow_mq import Delivery, MessageQueue, Weight
from airflow_mq.engine.rules.errors import TokenRefused
from airflow_mq.engine.rules.priority import book_name
from airflow_mq.engine.store.rows import ASLEEP
from airflow_mq.engine.store.working_set import ring as ring_loader
from tests.proofs.model.clock import Clock
from tests.store.queue.conftest import Maker, serve
from tests.store.queue.test_budgets import UNIT, balance, finish, plan, run

WHOLE = Weight(100, 1 << 20)


def asleep(queue: MessageQueue) -> list[str]:
    """Return the stored books that wait for their budgets."""
    with queue.store.reading() as unit:
        rows = unit.connection.execute(  # type: ignore[attr-defined]
            f"SELECT origin FROM {queue.store.prefix}book WHERE ticket >= {ASLEEP} ORDER BY origin"
        ).fetchall()
    return [origin for (origin,) in rows]


def steps_of_a_plan(queue: MessageQueue) -> int:
    """Return how many hundreds of instructions SQLite runs for a plan of one message."""
    queue.enqueue_message("awake", b"x")
    counted = []
    with queue.store.writing() as unit:
        connection = unit.connection  # type: ignore[attr-defined]
    connection.set_progress_handler(lambda: counted.append(None), 100)
    try:
        block = plan(queue)
    finally:
        connection.set_progress_handler(None, 100)
    assert finish(queue, block) == {"awake": 1}
    return len(counted)


@pytest.mark.slow
def test_exhausted_queues_cost_a_plan_nothing(sqlite_uri: str, clock: Clock) -> None:
    make_queue, steps = Maker(sqlite_uri), []
    for count in (20, 2_000):
        queue = make_queue(f"ring-{count}", order="deficit", service_weight=Weight(10**6, 1 << 30), weigher=UNIT)
        origins = [f"acme-{number}" for number in range(count)]
        for origin in origins:
            queue.admin.set_origin(origin, rate="10ms/hour", burst=1)
        queue.enqueue_messages((origin, b"x") for origin in origins * 2)
        while run(queue):
            pass
        assert set(origins) <= set(asleep(queue))
        steps_of_a_plan(queue)
        steps.append(steps_of_a_plan(queue))
    assert steps[1] <= 1.1 * steps[0] + 1


def test_a_queue_that_woke_is_listed_once(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue(order="deficit", service_weight=WHOLE, weigher=UNIT)
    for origin in ("acme", "bolt", "cobalt"):
        queue.admin.set_origin(origin, rate="10ms/hour", burst=5)
        queue.enqueue_messages(origin, [b"x"] * 9)
    assert sum(run(queue).values()) == 15 and len(asleep(queue)) == 3
    clock.advance(86_400)
    for most in (2, 5):
        assert [state.origin for state in queue.inspect.ring(most).queues] == ["acme", "bolt", "cobalt"][:most]


@pytest.mark.parametrize("change", ["raised", "unset"])
def test_a_changed_budget_wakes_its_queue_at_once(make_queue: Maker, clock: Clock, change: str) -> None:
    queue = make_queue(order="deficit", service_weight=WHOLE, weigher=UNIT)
    queue.admin.set_origin("acme", rate="10ms/hour", burst=5)
    queue.enqueue_messages("acme", [b"x"] * 20)
    assert (run(queue), run(queue)) == ({"acme": 5}, {})
    assert asleep(queue) == ["acme"]
    if change == "unset":
        queue.admin.set_origin("acme", unset=["rate", "burst"])
        assert run(queue) == {"acme": 15}
    else:
        queue.admin.set_origin("acme", rate="10s/second", burst=5)
        clock.advance(0.001)
        assert run(queue) == {"acme": 5}
    assert queue.check() == []


def test_settings_that_change_while_the_ring_is_held_wake_the_queue(make_queue: Maker, clock: Clock) -> None:
    queue, other = (make_queue(order="deficit", service_weight=WHOLE, weigher=UNIT) for _ in range(2))
    queue.admin.set_origin("acme", rate="10ms/hour", burst=5)
    queue.enqueue_messages("acme", [b"x"] * 20)
    changes = Thread(target=other.admin.set_origin, args=["acme"], kwargs={"rate": "1h/second", "burst": 10})

    def change(delivery: Delivery) -> None:
        if not changes.ident:
            changes.start()
            changes.join()

    assert len(serve(queue, change)) == 5
    assert queue.check() == []
    clock.advance(0.001)
    assert run(queue) == {"acme": 10}


@pytest.mark.parametrize("first", ["high", "regular"])
def test_a_budget_that_is_paid_back_wakes_both_queues_of_an_origin(make_queue: Maker, clock: Clock, first: str) -> None:
    queue = make_queue(order="deficit", service_weight=WHOLE, weigher=UNIT)
    queue.admin.set_origin("acme", rate="10ms/hour", burst=5)
    queue.enqueue_messages("acme", [b"x"] * 10, priority=first)
    block = plan(queue)
    assert [claim.messages for claim in block.claims] == [5]
    queue.enqueue_messages("acme", [b"x"] * 10, priority="high" if first == "regular" else "regular")
    assert plan(queue).origins == []
    assert len(asleep(queue)) == 2
    queue.blocks.release(block)
    assert queue.check() == []
    # Its first message counts as tried.
    assert balance(queue)[0] == sum(claim.messages for claim in plan(queue).claims) == 4


@pytest.mark.parametrize("paths", [False, True])
def test_a_queue_that_wakes_in_a_busy_ring_gets_its_turn(make_queue: Maker, clock: Clock, paths: bool) -> None:
    queue = make_queue(
        order="deficit", service_weight=Weight(4, 1 << 20), weigher=UNIT, max_block_queues=4, paths=paths
    )
    queue.admin.set_origin("acme", rate="1ms/second", burst=1)
    queue.enqueue_messages("acme", [b"x"] * 3)
    assert run(queue) == {"acme": 1}
    others = [f"other-{number:02}" for number in range(20)]
    taken = 0
    for _ in range(40):
        queue.enqueue_messages((origin, b"x") for origin in others)
        clock.advance(1)
        taken += run(queue).get("acme", 0)
    assert taken == 2


def test_a_block_takes_messages_of_all_queues_that_wake(
    make_queue: Maker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring_loader, "MEET_IN_ALL", 3)
    queue = make_queue(order="deficit", service_weight=WHOLE, weigher=UNIT)
    origins = [f"acme-{number}" for number in range(20)]
    for origin in origins:
        queue.admin.set_origin(origin, rate="1ms/second", burst=1)
    for priority in ("regular", "high"):
        queue.enqueue_messages(((origin, b"x") for origin in origins), priority=priority)
    for priority in ("high", "regular"):
        block = plan(queue)
        assert {claim.origin for claim in block.claims} == {book_name(origin, priority) for origin in origins}
        assert finish(queue, block) == dict.fromkeys(origins, 1)
        assert run(queue) == {}
        clock.advance(1)


def test_fairness_does_not_count_a_queue_that_slept_as_wanting(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue(order="deficit", service_weight=Weight(4, 1 << 20), weigher=UNIT)
    queue.admin.set_origin("acme", rate="1ms/second", burst=1)
    queue.enqueue_messages((name, b"x") for name in ["acme", "other"] * 40)
    for _ in range(8):
        run(queue)
    clock.advance(0.5)
    run(queue)
    clock.advance(0.5)
    # Its budget covers a message now, and no block came since.
    assert queue.inspect.fairness().longest_wait <= 1
    run(queue)
    assert queue.inspect.fairness().longest_wait <= 1


@pytest.mark.parametrize("seed", range(8))
def test_no_queue_sleeps_for_good(make_queue: Maker, clock: Clock, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Random sends, blocks, ends, changes of budgets and clock jumps; at last all messages are processed."""
    monkeypatch.setattr(ring_loader, "MEET_IN_ALL", 2)
    dice = Random(seed)
    order = ("deficit", "deficit", "rotation", "deficit")[seed % 4]
    queue = make_queue(
        order=order, service_weight=Weight(12, 1 << 20), weigher=UNIT, high=seed % 2 == 0, paths=seed % 4 == 3
    )
    origins, live, sent = [f"o{number % 3}/{number}" for number in range(12)], [], 0
    for _ in range(80):
        roll, some = dice.random(), dice.sample(origins, 4)
        clock.advance(dice.choice([0, 0.01, 1, 60, 3_600, -3_600, -7]))
        if roll < 0.25:
            priority = "high" if seed % 2 == 0 and dice.random() < 0.4 else "regular"
            queue.enqueue_messages([(origin, b"x") for origin in some], priority=priority)
            sent += len(some)
        elif roll < 0.4:
            for origin in some:
                if dice.random() < 0.3:
                    queue.admin.set_origin(origin, unset=["rate", "burst"])
                else:
                    rate = dice.choice(["1ms/hour", "10ms/minute", "1ms/day"])
                    queue.admin.set_origin(origin, rate=rate, burst=dice.choice([1, 3]))
        elif roll < 0.7 and len(live) < 5:
            live.append(queue.blocks.plan(origins=["o0*"] if dice.random() < 0.3 else None))
        elif live and roll < 0.9:
            block = live.pop(dice.randrange(len(live)))
            # A later plan may have released it, because its lease ran out.
            with suppress(TokenRefused):
                if dice.random() < 0.7:
                    finish(queue, block)
                else:
                    queue.blocks.release(block)
        else:
            serve(queue)
        assert queue.check() == []
    for _ in range(60):
        clock.advance(4 * 86_400)
        queue.blocks.release_dead()
        serve(queue)
    assert sum(footprint.count for _, footprint in queue.footprints()) == 0
    assert sum(1 for event in queue.inspect.events() if event.name == "Processed") == sent


def test_a_high_queue_that_wakes_may_be_the_first_of_the_next_block(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue(order="deficit", service_weight=Weight(10, 1 << 20), weigher=UNIT, rounds_per_block=1)
    queue.admin.set_origin("acme", rate="1ms/second", burst=20)
    queue.enqueue_messages("acme", [b"x"] * 3, weight=Weight(9, 0), priority="high")
    queue.enqueue_messages("other", [b"x"] * 50)
    taken = [run(queue).get("acme", 0)]
    for _ in range(6):
        clock.advance(5)
        taken.append(run(queue).get("acme", 0))
        queue.enqueue_messages("other", [b"x"] * 10)
    assert sum(taken) == 3
