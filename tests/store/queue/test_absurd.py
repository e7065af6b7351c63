"""Absurd reports and blocks that cannot be settled: neither stops a ring."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_mq import Batch, Done, MessageQueue, Report, RingConfig, Weight, batch_processor
from airflow_mq.cli import doctor
from airflow_mq.engine.queue.blocks.settling import Settling
from airflow_mq.engine.queue.holding import Hold
from airflow_mq.engine.rules.config import BLOCK_PARTS
from airflow_mq.engine.rules.errors import TooManyOrigins
from airflow_mq.engine.rules.tree import MOST_DEBT
from airflow_mq.engine.store import parse, upgrade
from tests.proofs.model.clock import Clock

LIMIT = Weight(1_000, 1 << 20)
#: Nanoseconds in place of milliseconds, and the largest weight of all.
ABSURD = [Weight(10**13, 0), Weight(2**64 - 1, 2**64 - 1)]


@pytest.fixture(params=[False, True], ids=["flat", "paths"])
def queue(request: pytest.FixtureRequest, store_uri: str) -> Iterator[MessageQueue]:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as admin:
        admin.admin.create_ring("small", RingConfig(service_weight=LIMIT, paths=request.param))
    with MessageQueue(store_uri, "small") as queue:
        yield queue


@pytest.mark.parametrize("used", ABSURD)
@pytest.mark.parametrize("end", ["settle", "release", "dead"])
def test_absurd_use_stops_no_ring(
    queue: MessageQueue, used: Weight, end: str, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for origin in ("a/x", "b/x"):
        queue.enqueue_messages(origin, [b"first", b"second"])
    block = queue.blocks.plan(limit=LIMIT)
    queue.blocks.report(block, [Report("a/x", 0, 0, 0, Done(used=used))])
    if end == "dead":
        clock.advance(queue.config.lease + 1)
        assert queue.blocks.plan(limit=LIMIT).messages == 3
    else:
        result = getattr(queue.blocks, end)(block)
        assert (result.processed, result.weight[0] >= used[0]) == (1, True)
    assert "the processor of 'a/x' reported a use of" in caplog.text
    assert deficits(queue)["a/x"] >= -MOST_DEBT
    assert queue.check() == []
    queue.admin.housekeep()


def test_a_queue_pays_for_absurd_use_with_few_blocks(store_uri: str) -> None:
    """While another queue always has messages, the debt costs the turns of a bounded number of blocks."""
    upgrade(parse(store_uri))
    limit = Weight(10, 1 << 20)
    with MessageQueue(store_uri) as queue:
        queue.admin.change_ring(service_weight=limit)
        queue.enqueue_messages("a", [b"x"] * 3)
        queue.enqueue_messages("b", [b"x"] * 400)
        block = queue.blocks.plan(limit=limit)
        queue.blocks.report(block, [Report("a", 0, 0, 0, Done(used=ABSURD[0]))])
        queue.blocks.settle(block)
        blocks = 0
        while queue.footprint("a").count:
            blocks += 1
            queue.service_queues(lambda delivery: None, limit)
            assert blocks < 3 * MOST_DEBT // BLOCK_PARTS
        assert queue.footprint("b").count


def test_a_block_that_cannot_be_settled_is_isolated(
    queue: MessageQueue, clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans, services, views and housekeeping go on; `doctor` shows the block; a later version settles it."""
    queue.enqueue_messages("a/x", [b"first", b"second"])
    broken = queue.blocks.plan(limit=LIMIT, key="broken")
    clock.advance(queue.config.lease + 1)
    settle = Settling.parts

    def fail(self: Settling) -> Iterator[None]:
        if any(claim.origin == "a/x" for claim in self.claims):
            raise KeyError("a part of a payload")
        return settle(self)

    monkeypatch.setattr(Settling, "parts", fail)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            queue.enqueue_message("b/x", b"other")
            block = queue.blocks.plan(limit=LIMIT)
            assert block.origins == ["b/x"]
            queue.blocks.settle(block)
    assert caplog.text.count("cannot be settled: KeyError; its messages stay in flight") == 1
    assert "payload" not in caplog.text
    assert queue.service_queues(lambda delivery: None, LIMIT).processed == 2
    assert queue.blocks.release_dead(wait=False) == 0
    assert queue.admin.housekeep() == 0
    assert queue.check() == []
    (found,) = [one for one in doctor._blocks(queue) if "cannot be settled" in one.what]
    assert found.level == doctor.WRONG
    assert "block 1 (2 messages) cannot be settled: KeyError" in found.what
    monkeypatch.undo()
    assert queue.admin.housekeep() == 1
    assert queue.footprint("a/x").count == 2
    assert queue.blocks.get(broken.token).problem == ""


def test_an_outage_is_no_problem_of_a_block(queue: MessageQueue, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_mq.errors import StoreFull

    queue.enqueue_message("a/x", b"first")
    queue.blocks.plan(limit=LIMIT)
    clock.advance(queue.config.lease + 1)

    def fail(*given: Any, **options: Any) -> Any:
        raise StoreFull()

    monkeypatch.setattr(Hold, "lock", fail)
    with pytest.raises(StoreFull):
        queue.blocks.plan(limit=LIMIT)
    monkeypatch.undo()
    assert queue.blocks.list("planned")[0].problem == ""


def deficits(queue: MessageQueue) -> dict[str, int]:
    with queue.session.snapshot() as (_, working_set):
        return {origin: working_set.book(origin).deficit for origin in ("a/x", "b/x")}


def report_uses(queue: MessageQueue, uses: list[Weight]) -> None:
    """Let a block of `a` report these uses of its messages."""
    queue.enqueue_messages("a", [b"x"] * len(uses))
    block = queue.blocks.plan(limit=Weight(100_000, 1 << 20))
    assert block.messages == len(uses)
    queue.blocks.report(
        block,
        [
            Report("a", batch.page, item, item, Done(used=used))
            for batch in block.batches()
            for item, used in zip(range(batch.first, batch.first + len(batch)), uses)
        ],
    )
    queue.blocks.settle(block)


@pytest.mark.parametrize("used", [*ABSURD, Weight(900_000, 1)])
@pytest.mark.parametrize("known", [0, 40])
def test_one_absurd_use_does_not_decide_the_learned_weights(store_uri: str, used: Weight, known: int) -> None:
    """Whether it comes among the first reports or after many: later messages are predicted as before."""
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        queue.admin.change_ring(service_weight=Weight(100_000, 1 << 20))
        if known:
            report_uses(queue, [Weight(10, 1)] * known)
            report_uses(queue, [used])
        else:
            report_uses(queue, [Weight(10, 1)] * 40 + [used])
        (fit,) = queue.inspect.fits()
        assert fit.count == 41
        assert 10 <= fit.weigher.weigh(1)[0] <= 20
        assert fit.weigher.weigh(1)[1] <= 2


def test_predictions_follow_a_use_that_has_changed_for_good(store_uri: str) -> None:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        queue.admin.change_ring(service_weight=Weight(100_000, 1 << 20))
        report_uses(queue, [Weight(2, 1)] * 40)
        for _ in range(12):
            report_uses(queue, [Weight(20_000, 1)] * 40)
        (fit,) = queue.inspect.fits()
        assert fit.weigher.weigh(1)[0] > 5_000


def test_declared_weights_far_above_the_ring_stop_no_ring(queue: MessageQueue) -> None:
    queue.admin.change_ring(set_aside_above="block")
    queue.enqueue_messages("a/x", [b"first", b"second"], weight=Weight(2**62, 1))
    queue.enqueue_message("b/x", b"other")
    for _ in range(6):
        queue.blocks.settle(queue.blocks.plan(limit=Weight(2**62 + 5, 1 << 30)))
    assert queue.service_queues(lambda delivery: None, Weight(2**63, 1 << 30)).processed > 0
    assert queue.check() == []


def test_origins_of_the_last_characters_count_as_others(queue: MessageQueue) -> None:
    queue.admin.change_ring(max_origins=2)
    last = [f"\U0010ffff{number}" for number in range(3)]
    queue.enqueue_messages((origin, b"x") for origin in last[:2])
    with pytest.raises(TooManyOrigins):
        queue.enqueue_message(last[2], b"x")
    queue.enqueue_message(last[0], b"heavy", weight=Weight(10**9, 1))
    queue.service_queues(lambda delivery: None)
    assert [one.address.origin for one in queue.set_aside.list()] == [last[0]]
    assert [origin for origin, _ in queue.footprints(prefix="\U0010ffff")] == [last[0]]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_message_that_fails_a_batch_costs_its_neighbours_one_attempt(queue: MessageQueue, *, ordered: bool) -> None:
    queue.admin.change_ring(max_attempts=3, ordered=ordered)
    queue.enqueue_messages("a/x", [b"poison" if number == 4 else b"%d" % number for number in range(10)])

    @batch_processor
    def process(batch: Batch) -> None:
        if b"poison" in batch.payloads:
            raise ValueError("poison")

    for _ in range(10):
        queue.service_queues(process)
    assert [one.address.index for one in queue.set_aside.list()] == [4]
    assert queue.footprint("a/x").count == 1
