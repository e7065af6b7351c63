"""Reach of a walk: a message that fits is found behind any number of queues whose messages do not."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from airflow_mq import Block, Delivery, MessageQueue, Serviced, Weight, Yield
from airflow_mq.engine.queue import blocks
from airflow_mq.engine.queue.service import Service
from airflow_mq.engine.queue.session import RingSession
from airflow_mq.engine.rules import orders, service
from airflow_mq.engine.store.working_set.ring import RingLoader
from tests.holding import drop_lease, take_lease
from tests.store.queue.conftest import Maker, serve

RING, BLOCK = Weight(600_000, 1 << 30), Weight(1_000, 1 << 30)
STUCK, HEAVY, LIGHT = Weight(2_000, 1), Weight(600, 1), Weight(1, 1)


def run_block(queue: MessageQueue, limit: Weight = BLOCK, **plan: Any) -> list[str]:
    """Complete a block and return the origins of its messages."""
    block = queue.blocks.plan(limit=limit, **plan)
    settle(queue, block)
    return block.origins


def settle(queue: MessageQueue, block: Block) -> None:
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)


def fill(queue: MessageQueue, count: int, weight: Weight, messages: int = 1) -> None:
    for at in range(count):
        queue.enqueue_messages(f"heavy-{at}", [b"x"] * messages, weight=weight)


#: Orders, and rings whose blocks take messages of a few queues only.
KINDS: dict[str, dict[str, Any]] = {
    "deficit": {"order": "deficit"},
    "paths": {"order": "deficit", "paths": True},
    "rotation": {"order": "rotation"},
    "shuffle": {"order": "shuffle"},
    "few of deficit": {"order": "deficit", "max_block_queues": 3},
    "few of paths": {"order": "deficit", "paths": True, "max_block_queues": 3},
    "few of rotation": {"order": "rotation", "max_block_queues": 3},
    "few of shuffle": {"order": "shuffle", "max_block_queues": 3},
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the settings of a ring; a walk visits 50 queues in vain."""
    monkeypatch.setattr("airflow_mq.engine.rules.service.IN_VAIN", 50)
    settings = KINDS[request.param]
    return settings if "max_block_queues" in settings else {**settings, "max_block_queues": 100}


@pytest.mark.slow
@pytest.mark.sqlite_first
@pytest.mark.parametrize("high", [False, True], ids=["regular", "high"])
@pytest.mark.parametrize("how", ["plan", "weigher", "service"])
def test_each_block_takes_a_message_behind_queues_it_cannot_serve(
    make_queue: Maker, kind: dict[str, Any], how: str, high: bool
) -> None:
    queue = make_queue(service_weight=RING, **kind)
    priority = {"priority": "high"} if high else {}
    queue.enqueue_messages([(f"g{at % 7}/stuck-{at}", b"x") for at in range(200)], weight=STUCK, **priority)
    for at in range(3):
        queue.enqueue_message(f"light-{at}", b"x", weight=LIGHT, **priority)
        if how == "service":
            assert serve(queue, limit=BLOCK) == [(f"light-{at}", b"x")]
        elif how == "weigher":
            weigher = lambda origin, payloads: [STUCK if "stuck" in origin else LIGHT for _ in payloads]  # noqa: E731
            assert run_block(queue, weigher=weigher) == [f"light-{at}"]
        else:
            assert run_block(queue) == [f"light-{at}"]


@pytest.mark.slow
def test_a_quiet_queue_behind_many_heavy_ones_waits_a_few_blocks(make_queue: Maker) -> None:
    queue = make_queue(order="deficit", service_weight=BLOCK)
    fill(queue, 200, HEAVY, 3)
    for _ in range(5):
        run_block(queue)
    queue.enqueue_message("quiet", b"x", weight=LIGHT)
    waited = 0
    while "quiet" not in run_block(queue):
        waited += 1
        assert waited < 6
    # The turns of the heavy queues are not changed.
    done = [origin for _ in range(150) for origin in run_block(queue)]
    assert len(set(done)) == 150


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["deficit", "paths", "rotation"])
def test_no_transaction_looks_at_the_whole_ring(make_queue: Maker, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    queue = make_queue(**{**KINDS[kind], "max_block_queues": 50}, service_weight=RING)
    queue.enqueue_messages([(f"heavy-{at}", b"x") for at in range(1_500)], weight=STUCK)
    assert run_block(queue) == []
    loaded: list[int] = []
    walk = blocks.plan.Planner.walk

    def counted(self: Any, working_set: Any, unit: Any) -> None:
        walk(self, working_set, unit)
        loaded.append(len(working_set.books))

    monkeypatch.setattr(blocks.plan.Planner, "walk", counted)
    assert run_block(queue) == []
    assert len(loaded) > 2 and max(loaded) <= 50 + service.IN_VAIN + 3 * 128


def test_a_forecast_reaches_as_far_as_a_plan(make_queue: Maker) -> None:
    queue = make_queue(order="deficit", service_weight=RING)
    fill(queue, 200, STUCK)
    queue.enqueue_message("light", b"x", weight=LIGHT)
    run_block(queue, Weight(0, 1 << 30))
    (block,) = queue.inspect.forecast(1, limit=BLOCK)
    assert [claim.origin for claim in block.claims] == run_block(queue) == ["light"]


def bounded_progress(queue: MessageQueue, rng: Random) -> None:
    """Run blocks of random limits over a large ring; each takes a message if any fits, and light ones come soon."""
    count = 160
    weights = {f"o{at}": Weight(rng.choice([600, 900, 2_000, 5_000]), 1) for at in range(count)}
    for origin, weight in weights.items():
        queue.enqueue_messages(origin, [b"x"] * 2, weight=weight)
    for at in range(8):
        limit = Weight(rng.choice([700, 1_000, 3_000]), 1 << 30)
        light = f"light-{at}"
        queue.enqueue_message(light, b"x", weight=LIGHT)
        waited = 0
        while True:
            block = queue.blocks.plan(limit=limit)
            settle(queue, block)
            if light in block.origins:
                break
            assert block.origins, "a block took nothing, though a message fits"
            # Blocks without a rest for it do not count.
            waited += not block.planned.plus(LIGHT).exceeds(limit)
            assert waited <= count // orders.LOOK_PAST + 2, "a message that fits waited for more than a round of looks"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_progress_is_bounded_in_a_ring_of_many_queues(make_queue: Maker, seed: int) -> None:
    bounded_progress(make_queue(order="deficit", service_weight=RING), Random(seed))


@pytest.mark.parametrize("bug", ["no look", "no memory"])
def test_a_planted_bug_breaks_the_bound(make_queue: Maker, monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    look_on = RingLoader.look_on

    def planted(self: RingLoader, most: int, known: Any, *, high: bool) -> tuple[list[str], bool]:
        if bug == "no look":
            return [], True
        # Each look begins at the same place, and nothing is left to look at.
        self.look_anew()
        names, _ = look_on(self, 8, known, high=high)
        return names[-8:-7], True

    monkeypatch.setattr(RingLoader, "look_on", planted)
    with pytest.raises(AssertionError, match="fits"):
        bounded_progress(make_queue(order="deficit", service_weight=RING), Random(0))


# A service in place.


@pytest.mark.parametrize("kind", ["deficit", "paths", "rotation", "shuffle"])
def test_a_call_services_all_queues_and_tries_each_message_once(make_queue: Maker, kind: str) -> None:
    queue = make_queue(**{**KINDS[kind], "max_block_queues": 7}, service_weight=RING)
    names = [f"g{at % 3}/o{at:02}" for at in range(40)]
    queue.enqueue_messages([(name, b"x") for name in names for _ in range(2)])
    told: list[Serviced] = []
    seen = Counter[str]()

    def process(delivery: Delivery) -> Yield | None:
        seen[delivery.origin] += 1
        return Yield() if int(delivery.origin[-2:]) % 2 else None

    done = queue.service_queues(process, progress=lambda now: told.append(replace(now)))
    if kind == "rotation":
        # A rotation comes round to a queue once more, if others gave messages meanwhile.
        assert all(count <= 2 for count in seen.values()) and set(seen) == set(names)
    else:
        assert seen == {name: 1 if int(name[-2:]) % 2 else 2 for name in names}
        assert (done.returned, done.origins) == (20, 40)
    assert done.processed == 40
    assert told[-1] == done
    assert queue.service_queues(lambda delivery: None).processed == 40
    assert queue.service_queues(lambda delivery: None).origins == 0


def test_parts_of_a_call_share_its_limit(make_queue: Maker) -> None:
    queue = make_queue(order="deficit", max_block_queues=7, service_weight=RING)
    queue.enqueue_messages([(f"o{at:02}", b"x") for at in range(40)], weight=Weight(100, 1))
    # The limit of the last part is that of the call: what fits none is not set aside.
    queue.enqueue_message("heavy", b"x", weight=Weight(900, 1))
    done = queue.service_queues(lambda delivery: None, limit=BLOCK)
    assert (done.processed, done.set_aside) == (10, 0)
    assert done.weight == Weight(1_000, 10)


@pytest.mark.parametrize("most", [2, 100])
def test_a_call_moves_the_head_of_a_rotation_once(make_queue: Maker, most: int) -> None:
    """A part of a call that moved it as well would pass over queues that it cannot pay for, again and again."""
    queue = make_queue(order="rotation", max_block_queues=most, service_weight=RING)
    queue.enqueue_messages([(origin, b"x") for origin in "abcdef" * 3], weight=Weight(100, 1))
    served: Counter[str] = Counter()
    for _ in range(24):
        now: list[str] = []
        queue.service_queues(lambda delivery, now=now: now.append(delivery.origin), limit=Weight(500, 1 << 20))
        queue.enqueue_messages([(origin, b"x") for origin in now], weight=Weight(100, 1))
        served.update(now)
    assert served == dict.fromkeys("abcdef", 20)


@pytest.mark.slow
@pytest.mark.sqlite_first
@pytest.mark.parametrize("priority", ["regular", "high"])
@pytest.mark.parametrize(("most", "cost"), [(2, 100), (4, 33), (5, 70), (4, 1_000)])
@pytest.mark.parametrize("way", ["service", "block"])
@pytest.mark.parametrize("paths", [False, True])
def test_busy_queues_share_alike_however_few_a_block_reaches(
    make_queue: Maker, way: str, most: int, cost: int, priority: str, paths: bool
) -> None:
    queue = make_queue(order="deficit", max_block_queues=most, service_weight=BLOCK, paths=paths)
    refill = {"weight": Weight(cost, 1), "priority": priority}
    queue.enqueue_messages([(origin, b"x") for origin in "abcdef" * 30], **refill)
    served: Counter[str] = Counter()
    for _ in range(30):
        now = run_and_name(queue, way)
        assert len(set(now)) <= most or way == "service"
        queue.enqueue_messages([(origin, b"x") for origin in now], **refill)
        served.update(now)
    each = served.total() / 6
    assert served.total() >= 30 * (1_000 // cost) * 0.95
    # A block's worth of messages, since not all queues have come to their last turn.
    assert all(abs(count - each) <= 1_000 // cost for count in served.values()), served


def test_a_block_gives_owed_turns_to_as_many_queues_as_it_may(make_queue: Maker) -> None:
    queue = make_queue(order="deficit", paths=True, max_block_queues=2, service_weight=RING)
    queue.enqueue_messages([(origin, b"x") for origin in "abcdef" * 4], weight=HEAVY)
    assert run_block(queue) == ["a"]
    wide = Weight(5_000, 1 << 30)
    served = [set(run_block(queue, wide)) for _ in range(3)]
    assert all(len(some) <= 2 for some in served) and len(set().union(*served)) >= 5, served


@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize("way", ["service", "block"])
@pytest.mark.parametrize("order", ["deficit", "rotation"])
def test_both_levels_are_serviced_however_few_queues_a_block_reaches(
    make_queue: Maker, order: str, way: str, most: int
) -> None:
    """A block carries one of these messages. The parts of a call divide the shares of the levels once."""
    queue = make_queue(order=order, max_block_queues=most, service_weight=BLOCK)
    for priority in ("high", "regular"):
        queue.enqueue_messages(
            [(f"{priority}-{at}", b"x") for at in (1, 2) for _ in range(24)], weight=Weight(600, 1), priority=priority
        )
    served = Counter[str]()
    for _ in range(24):
        served.update(run_and_name(queue, way))
    assert len(served) == 4 and min(served.values()) >= 2, served


@pytest.mark.parametrize("heavy", ["a", "abcd"])
@pytest.mark.parametrize("way", ["service", "block"])
def test_a_rotation_beside_high_messages_passes_over_no_head(make_queue: Maker, way: str, heavy: str) -> None:
    """High messages use up every other block. A head that could not be paid would lose its turn again and again."""
    queue = make_queue(order="rotation", service_weight=BLOCK)
    weights = {origin: Weight(1_000 if origin in heavy else 400, 1) for origin in "abcd"}
    queue.enqueue_messages("high", [b"x"] * 30, weight=Weight(1_000, 1), priority="high")
    for origin in "abcd":
        queue.enqueue_messages(origin, [b"x"] * 30, weight=weights[origin])
    served = Counter[str]()
    for _ in range(24):
        served.update(set(run_and_name(queue, way)))
    assert served["high"] >= 8
    assert min(served[origin] for origin in "abcd") >= 2, served


@pytest.mark.parametrize("way", ["service", "block"])
def test_high_queues_that_a_block_reaches_later_may_leave_the_ring(make_queue: Maker, way: str) -> None:
    """After regular's turn, high queues get what is left: also those that the first part of the block did not reach."""
    queue = make_queue(order="deficit", max_block_queues=5, service_weight=BLOCK)
    queue.enqueue_messages([(origin, b"x") for origin in "abcdef"], weight=Weight(200, 1), priority="high")
    queue.enqueue_message("regular", b"x", weight=LIGHT)
    assert run_and_name(queue, way) == ["a", "b", "regular", "c", "d"]


@pytest.mark.parametrize("priority", ["regular", "high"])
@pytest.mark.parametrize("way", ["service", "block"])
def test_a_queue_whose_turn_is_longer_than_a_block_starves_no_other(make_queue: Maker, way: str, priority: str) -> None:
    """The limit of a call may be a small part of the ring's, by which the credit of a round is measured."""
    queue = make_queue(order="deficit", service_weight=RING)
    queue.enqueue_messages([(origin, b"x") for origin in "abc" * 60], weight=Weight(330, 1), priority=priority)
    # A second level bounds the first part of a block.
    queue.enqueue_messages([("other", b"x")] * 60, weight=Weight(330, 1), priority="regular")
    served: Counter[str] = Counter()
    for _ in range(24):
        served.update(run_and_name(queue, way))
    assert max(served[origin] for origin in "abc") - min(served[origin] for origin in "abc") <= 12, served


def run_and_name(queue: MessageQueue, way: str) -> list[str]:
    """Run a block, or a call in place; return the origin of each message that it took."""
    if way == "service":
        now: list[str] = []
        queue.service_queues(lambda delivery: now.append(delivery.origin), limit=BLOCK)
        return now
    block = queue.blocks.plan(limit=BLOCK)
    names = [batch.origin for batch in block.batches() for _ in batch.payloads]
    settle(queue, block)
    return names


def test_a_call_ends_when_another_process_takes_the_ring_between_two_parts(make_queue: Maker) -> None:
    queue, other = make_queue(order="deficit", max_block_queues=7, service_weight=RING, patience=0.05), make_queue()
    queue.enqueue_messages([(f"o{at:02}", b"x") for at in range(20)])
    parts: list[RingSession] = []

    def meet(session: RingSession) -> None:
        parts.append(session)
        if len(parts) == 2:
            take_lease(other.session, b"t" * 16)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("airflow_mq.engine.queue.service.meet_newcomers", meet)
        done = queue.service_queues(lambda delivery: None)
    assert len(parts) == 2 and (done.processed, done.origins) == (7, 7)
    drop_lease(other.session, b"t" * 16)
    assert queue.service_queues(lambda delivery: None).processed == 13


@pytest.mark.slow
@pytest.mark.sqlite_first
@pytest.mark.parametrize(
    ("kind", "serves"),
    [
        pytest.param("deficit", True, id="served deficit", marks=pytest.mark.soak),
        pytest.param("deficit", False, id="stuck deficit", marks=pytest.mark.soak),
        pytest.param("paths", True, id="served paths", marks=pytest.mark.soak),
        pytest.param("paths", False, id="stuck paths"),
        pytest.param("rotation", True, id="served rotation"),
        pytest.param("rotation", False, id="stuck rotation", marks=pytest.mark.soak),
    ],
)
def test_the_memory_of_a_call_does_not_grow_with_the_number_of_queues(
    make_queue: Maker, kind: str, monkeypatch: pytest.MonkeyPatch, serves: bool
) -> None:
    monkeypatch.setattr("airflow_mq.engine.rules.service.IN_VAIN", 50)
    monkeypatch.setattr("airflow_mq.engine.rules.orders.MOST_LOOKS", 100)
    monkeypatch.setattr("airflow_mq.engine.rules.deficit.MOST_LOOKS", 100)
    monkeypatch.setattr("airflow_mq.engine.rules.paths.MOST_LOOKS", 100)
    load = Service._load

    def collected(self: Service, *given: Any) -> None:
        gc.collect()
        load(self, *given)

    monkeypatch.setattr(Service, "_load", collected)
    peaks = []
    for count in (300, 1_200):
        queue = make_queue(f"{kind}-{count}", **{**KINDS[kind], "max_block_queues": 100}, service_weight=RING)
        weight = LIGHT if serves else STUCK
        queue.enqueue_messages([(f"g{at % 3}/o{at}", b"x") for at in range(count)], weight=weight)
        # All queues stand in the ring.
        with queue.session.hold.transaction() as (_, working_set):
            assert not working_set.loader.ring.meet_newcomers()
        gc.collect()
        tracemalloc.start()
        try:
            done = queue.service_queues(lambda delivery: None, limit=None if serves else BLOCK)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert done.processed == (count if serves else 0)
    # Rings with paths read the names of all ready queues.
    names = 600 * 900 if kind == "paths" else 0
    assert peaks[1] < 1.3 * peaks[0] + names, peaks


@pytest.mark.parametrize("kind", ["deficit", "paths", "rotation", "shuffle"])
def test_a_heavy_high_message_behind_queues_that_are_skipped_runs(make_queue: Maker, kind: str) -> None:
    """It takes more than the part of high messages, beside regular ones that would use all the rest."""
    queue = make_queue(**KINDS[kind], service_weight=BLOCK)
    names = [f"paused-{at}" for at in range(100)]
    queue.enqueue_messages([(name, b"x") for name in names], weight=LIGHT, priority="high")
    queue.enqueue_message("urgent", b"x", weight=Weight(900, 1), priority="high")
    for name in names:
        queue.admin.pause(name)
    queue.enqueue_messages("regular", [b"x"] * 200, weight=Weight(100, 1))
    assert "urgent" in run_block(queue)
