"""Newcomers: origins that send for the first time, many of them at once."""

from __future__ import annotations

import random
import threading
import tracemalloc
from typing import Any

import pytest

from airflow_mq import Delivery, MessageQueue, Weight
from airflow_mq.engine.queue import walk
from airflow_mq.engine.queue.inspect import forecast as foreseeing
from airflow_mq.engine.queue.values import Serviced
from airflow_mq.engine.rules.errors import Busy
from airflow_mq.engine.store.working_set import ring as ring_loader
from airflow_mq.engine.store.working_set.source import Source
from tests.holding import drop_lease, take_lease
from tests.proofs.model.clock import Clock
from tests.store.queue.conftest import Maker

#: Settings of rings: an order, and perhaps paths or a limit on queues.
KINDS: dict[str, dict[str, Any]] = {
    "rotation": {"order": "rotation"},
    "deficit": {"order": "deficit"},
    "few": {"order": "deficit", "max_block_queues": 3},
    "shuffle": {"order": "shuffle"},
    "paths": {"order": "deficit", "paths": True},
}


def run_random_steps(queue: MessageQueue, rng: random.Random, at_once: list[int]) -> list[Any]:
    """Send, plan, service and decide at random; return the turns, and the ring order after each step."""
    record: list[Any] = []
    high = queue.config.order != "shuffle" and not queue.config.paths
    for step in range(10):
        for _ in range(rng.randrange(1, 4)):
            origins = [f"g{rng.randrange(3)}/o{rng.randrange(40):02}" for _ in range(rng.randrange(1, 25))]
            priority = "high" if high and step > 5 and rng.randrange(4) == 0 else "regular"
            queue.enqueue_messages([(origin, b"%d" % step) for origin in origins], priority=priority)
        limit = Weight(rng.choice([1, 5, 20, 1_000]), 1 << 20)
        act = rng.randrange(5)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ring_loader, "MEET_AT_ONCE", at_once[step % len(at_once)])
            patch.setattr(ring_loader, "SLICE_IDS", 5 * at_once[step % len(at_once)])
            patch.setattr(ring_loader, "MOST_KNOWN", at_once[step % len(at_once)])
            if act < 3:
                block = queue.blocks.plan(limit=limit, seed=b"seed" if queue.config.order == "shuffle" else None)
                record.append([(claim.origin, claim.messages) for claim in block.claims])
                if act < 2:
                    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
                    queue.blocks.settle(block)
                else:
                    queue.blocks.release(block)
            elif act == 3:
                before = len(record)
                queue.service_queues(lambda delivery: record.append(str(delivery.address)), limit=limit, seed=b"seed")
                record.append(before)
            else:
                record.append(queue.admin.force_set_head(rng.choice(queue.inspect.ring_order() or ["none"])))
            record.append(queue.inspect.ring_order(1_000))
    return record


@pytest.mark.slow
@pytest.mark.sqlite_first
@pytest.mark.parametrize("kind", KINDS)
def test_newcomers_met_in_parts_get_the_same_turns(kind: str, make_queue: Maker, clock: Clock) -> None:
    for seed in range(2):
        whole = run_random_steps(make_queue(f"whole{seed}", **KINDS[kind]), random.Random(seed), [10**9])
        parts = run_random_steps(make_queue(f"parts{seed}", **KINDS[kind]), random.Random(seed), [1, 2, 3, 7])
        assert whole == parts


def test_a_look_by_origin_leaves_out_the_queues_of_the_walk(make_queue: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, sender, known, seen = make_queue(), make_queue(), [], []
    # Between the names of the first ones, before and behind them; and one of them.
    later = [(origin, b"later") for origin in ("a", "c", "e", "g", "d")]
    real = Source.news_by_origin

    def recorded(source: Source, names: list[str]) -> Any:
        known.append(names)
        return real(source, names)

    def process(delivery: Delivery) -> None:
        seen.append(delivery.origin)
        if len(seen) == 1:
            # A thread of its own: a processor would send with its outcome.
            thread = threading.Thread(target=sender.enqueue_messages, args=(later,))
            thread.start()
            thread.join()

    monkeypatch.setattr(ring_loader, "SLICE_IDS", 3)
    monkeypatch.setattr(Source, "news_by_origin", recorded)
    for origin in ("b", "d", "f") * 5:
        queue.enqueue_message(origin, b"first")
    queue.service_queues(process, limit=Weight(1_000, 1 << 20))
    assert known == [["b", "d", "f"]]
    assert {"a", "c", "e", "g"} < set(seen)
    queue.service_queues(process, limit=Weight(1_000, 1 << 20))
    assert sorted(seen) == sorted(["a", "c", "d", "e", "g", *"bdf" * 5])


def test_max_block_queues_limits_a_block_and_the_next_continues(make_queue: Maker) -> None:
    for order in ("rotation", "deficit", "shuffle"):
        queue = make_queue(order, order=order, max_block_queues=10)
        names = [f"o{number:02}" for number in range(25)]
        queue.enqueue_messages([(name, b"x") for name in names])
        blocks = [queue.blocks.plan(seed=b"s" if order == "shuffle" else None) for _ in range(4)]
        assert [block.messages for block in blocks] == [10, 10, 5, 0]
        taken = [claim.origin for block in blocks for claim in block.claims]
        assert sorted(taken) == names and (order == "shuffle" or taken == names)
        for block in blocks:
            queue.blocks.release(block)


def test_high_queues_leave_room_for_regular_ones(make_queue: Maker) -> None:
    queue = make_queue(max_block_queues=10)
    queue.enqueue_messages([(f"h{number:02}", b"x") for number in range(20)], priority="high")
    queue.enqueue_messages([(f"r{number:02}", b"x") for number in range(20)])
    blocks = [queue.blocks.plan() for _ in range(4)]
    taken = [[claim.whose[0] for claim in block.claims] for block in blocks]
    assert taken == [["h"] * 5 + ["r"] * 5] * 4
    for block in blocks:
        queue.blocks.release(block)


def test_plan_meets_only_the_newcomers_that_it_needs(make_queue: Maker) -> None:
    queue = make_queue(max_block_queues=100)
    queue.enqueue_messages((f"o{number:05}", b"x") for number in range(5_000))
    queue.blocks.release(queue.blocks.plan())
    tracemalloc.start()
    try:
        block = queue.blocks.plan()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [claim.origin for claim in block.claims] == [f"o{number:05}" for number in range(100, 200)]
    assert peak < 8 << 20
    queue.blocks.release(block)
    with queue.store.reading() as unit:
        count = f"SELECT count(*) FROM {queue.store.prefix}book"
        (met,) = unit.connection.execute(count).fetchone()  # type: ignore[attr-defined]
    assert 200 <= met <= 2 * ring_loader.MEET_AT_ONCE


@pytest.mark.parametrize("kind", ["shuffle", "paths"])
def test_newcomers_of_a_whole_ring_enter_in_bounded_transactions(
    kind: str, make_queue: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring_loader, "MEET_AT_ONCE", 10)
    monkeypatch.setattr(walk, "MEET_IN_ALL", 30)
    queue = make_queue(**KINDS[kind])
    names = [f"g/o{number:03}" for number in range(200)]
    queue.enqueue_messages([(name, b"x") for name in names])
    met: list[int] = []
    real = ring_loader.RingLoader.meet_newcomers

    def counted(loader: ring_loader.RingLoader) -> bool:
        more = real(loader, 30)
        met.append(len(loader.working_set.books))
        return more

    monkeypatch.setattr(ring_loader.RingLoader, "meet_newcomers", counted)
    block = queue.blocks.plan(seed=b"seed")
    assert block.messages == 200
    assert len(met) >= 6 and max(met) <= 40
    queue.blocks.release(block)
    assert sorted(queue.inspect.ring_order(1_000)) == names


def test_a_call_in_parts_keeps_its_result_if_another_process_takes_the_ring(
    make_queue: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "MEET_IN_ALL", 1)
    queue = make_queue(**KINDS["paths"], max_block_queues=1, patience=0.05)
    other, token = make_queue(), b"t" * 16
    queue.enqueue_messages([("g/a", b"x"), ("g/b", b"x")])

    def take_ring(result: Serviced) -> None:
        other.enqueue_messages([(f"g/new{number}", b"x") for number in range(3)])
        take_lease(other.session, token)

    assert queue.service_queues(lambda delivery: None, progress=take_ring).processed == 1
    drop_lease(other.session, token)
    assert queue.service_queues(lambda delivery: None).processed == 4


def test_concurrent_dry_runs_are_rejected(make_queue: Maker) -> None:
    queue = make_queue(patience=0.01)
    queue.enqueue_message("acme", b"x")
    with foreseeing._LOOKING_AHEAD, pytest.raises(Busy, match="one runs at a time"):
        queue.inspect.forecast(2)
    assert queue.inspect.dry_run().messages == 1
