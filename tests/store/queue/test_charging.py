"""Charges: each attempt that counts is charged once, with the settlement."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from time import sleep
from typing import Any

import pytest

from airflow_mq import (
    BadFormat,
    Block,
    Done,
    LinearWeigher,
    Message,
    MessageQueue,
    Overweight,
    Report,
    Weight,
    Yield,
)
from airflow_mq.engine.queue.attempts import BatchProcessor
from airflow_mq.engine.queue.blocks import settling
from airflow_mq.engine.rules import service
from airflow_mq.engine.rules.charging import Charge
from airflow_mq.engine.rules.config import BLOCK_PARTS
from airflow_mq.engine.rules.outcome import BEGUN
from airflow_mq.engine.rules.tree import units_of
from airflow_mq.engine.store.charges import ChargeRow
from airflow_mq.engine.store.codec import pack_charges
from tests.holding import drop_lease, take_lease
from tests.store.queue.conftest import Maker, serve

TEN = LinearWeigher(Weight(10, 0), Weight(0, 1000))


def rows(queue: MessageQueue) -> list[ChargeRow]:
    with queue.store.reading() as unit:
        return unit.charges.after(queue.session.ring_id, 0, 1_000)


def charged(queue: MessageQueue) -> dict[tuple[str, str], Charge]:
    """Return the sums of all charges, without measured times."""
    found: dict[tuple[str, str], Charge] = {}
    for row in rows(queue):
        for key, charge in row.charges.items():
            found[key] = found.get(key, Charge()).plus(charge._replace(measured=0))
    return found


def report(queue: MessageQueue, block: Block, outcomes: Sequence[Any]) -> None:
    """Report one outcome or mark for each message of a block of one page; None for no report."""
    (run,) = block.claims[0].runs
    reports = [
        Report("acme", run.page, item, item, outcome)
        for item, outcome in enumerate(outcomes, run.first)
        if outcome is not None
    ]
    queue.blocks.report(block, reports)


def test_a_block_is_charged_in_one_row_by_queue_and_processor(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", weigher=TEN)
    queue.enqueue_messages("acme", [b"a", b"bc"])
    queue.enqueue_message("birch", b"def", priority="high")
    block = queue.blocks.plan(processor_of={"acme": "mail", "birch": "orders"}.__getitem__)
    assert [claim.processor for claim in queue.blocks.get(block.token).claims] == ["orders", "mail"]
    assert rows(queue) == []
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)
    (row,) = rows(queue)
    high, whole, one = "\x01birch", Weight(20, 3), Weight(10, 3)
    assert row.block == block.id
    assert row.charges == {
        (high, "orders"): Charge(one, one, 0, 1, 3, 1), ("acme", "mail"): Charge(whole, whole, 0, 2, 3, 2),
    }  # fmt: skip
    assert block.planned == Weight(30, 6)


def test_each_attempt_that_counts_is_charged_and_untried_messages_are_not(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", weigher=TEN, ordered=False, max_attempts=3)
    queue.enqueue_messages("acme", [b"x"] * 7)
    block = queue.blocks.plan(reports_begin=True)
    outcomes = [Done(), Done(False), BadFormat(), Yield("later"), BEGUN, None, Overweight(Weight(12, 1))]
    report(queue, block, outcomes)
    queue.blocks.release(block)
    # The fifth began without an outcome; the sixth was never begun; the last one only asked for more weight.
    assert charged(queue) == {("acme", ""): Charge(Weight(70, 7), Weight(50, 5), 0, 3, 3, 5)}


def test_the_result_of_a_block_and_of_a_service_in_place_counts_attempts_that_fail(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", weigher=TEN, ordered=False, service_weight=Weight(1000, 1000))
    queue.enqueue_messages("acme", [b"1"] * 4)
    outcomes: list[Any] = [Yield("busy"), BadFormat(), Done(used=Weight(25, 1)), Overweight(Weight(2000, 1))]
    block = queue.blocks.plan()
    report(queue, block, outcomes)
    assert queue.blocks.settle(block).weight == Weight(10 + 10 + 25, 3) == charged(queue)["acme", ""].charged
    queue.enqueue_message("birch", b"1")
    queue.admin.pause("acme")
    assert queue.service_queues(lambda delivery: Yield("busy")).weight == Weight(10, 1)
    block = queue.blocks.plan()
    assert queue.blocks.settle(block).weight == Weight(10, 1)


def test_messages_behind_one_that_returned_are_refunded(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", weigher=TEN, max_attempts=1)
    queue.enqueue_messages("acme", [b"x"] * 4)
    block = queue.blocks.plan()
    report(queue, block, [Done(), None, None, None])
    queue.blocks.settle(block)
    assert charged(queue) == {("acme", ""): Charge(Weight(40, 4), Weight(20, 2), 0, 1, 1, 2, 1)}


def test_a_dead_block_is_charged(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", weigher=TEN, max_attempts=2)
    queue.enqueue_messages("acme", [b"x", b"y"])
    for _ in range(2):
        queue.blocks.plan(lease=0)
        assert queue.admin.housekeep() == 1
    assert charged(queue) == {("acme", ""): Charge(Weight(40, 4), Weight(20, 2), 0, 0, 0, 2, 1)}


@pytest.mark.parametrize(("trusted", "least"), [((), 10), (("mail",), 4)])
def test_reported_use_lowers_the_charge_of_trusted_processors_only(
    make_queue: Maker, trusted: tuple[str, ...], least: int
) -> None:
    queue = make_queue(order="rotation", weigher=TEN, trusted=trusted)
    assert queue.config.trusted == trusted
    queue.enqueue_messages("acme", [b"x"] * 3)
    block = queue.blocks.plan(processor_of=lambda origin: "mail")
    report(queue, block, [Done(used=Weight(4, 1)), Done(used=Weight(15, 1)), Done()])
    queue.blocks.settle(block)
    assert charged(queue)["acme", "mail"].charged == Weight(least + 15 + 10, 3)


def test_a_lower_declaration_does_not_lower_the_charge_and_a_higher_one_counts(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", weigher=TEN, trusted=["mail"])
    declared = [Message(b"x", weight=Weight(1, 0)), Message(b"x", weight=Weight(12, 9)), Message(b"x")]
    for processor in ("mail", "mail", ""):
        queue.enqueue_messages("acme", declared)
        block = queue.blocks.plan(processor_of=lambda origin, name=processor: name)  # type: ignore[misc]
        # One of them without a whole run.
        report(queue, block, [Done()] * 3 if processor else [Done(), Done(False), Done()])
        queue.blocks.settle(block)
    queue.enqueue_messages("acme", declared)
    serve(queue)
    each = Charge(Weight(23, 10), Weight(32, 11), 0, 3, 3, 3)
    assert charged(queue) == {("acme", "mail"): each.plus(each), ("acme", ""): each.plus(each)}


@pytest.mark.parametrize("paths", [False, True])
@pytest.mark.parametrize("answer", ["whole", "one by one", "failed", "in place", "in place, failed"])
def test_a_sender_gains_no_turns_by_declaring_too_little(make_queue: Maker, paths: bool, answer: str) -> None:
    queue = make_queue(order="deficit", paths=paths, service_weight=Weight(100, 1 << 20), weigher=TEN)
    queue.enqueue_messages("honest", [b"x"] * 300)
    queue.enqueue_messages("sly", [b"x"] * 3_000, weight=Weight(1, 1))
    counts = {"honest": 0, "sly": 0}
    for _ in range(30):
        if "in place" in answer:
            outcome = Done() if answer == "in place" else BadFormat()
            for origin, _ in serve(queue, lambda _, outcome=outcome: outcome, limit=Weight(100, 1 << 20)):
                counts[origin] += 1
            continue
        block = queue.blocks.plan()
        for claim in block.claims:
            counts[claim.whose] += claim.messages
        for batch in block.batches():
            if answer == "whole":
                queue.blocks.report(block, [batch.answer()])
            else:
                outcome = Done() if answer == "one by one" else BadFormat()
                queue.blocks.report(block, batch.answers([outcome] * len(batch.payloads)))
        queue.blocks.settle(block)
    # The first blocks carry what it declared.
    assert counts["sly"] <= counts["honest"] + 100


@pytest.mark.parametrize("in_place", [False, True])
def test_a_failed_attempt_of_a_message_declared_too_light_is_a_debt(make_queue: Maker, in_place: bool) -> None:
    queue = make_queue(order="deficit", service_weight=Weight(100, 1 << 20), weigher=TEN)
    queue.enqueue_messages("acme", [b"x"] * 5, weight=Weight(1, 1))
    if in_place:
        queue.service_queues(lambda _: Yield("later"))
    else:
        block = queue.blocks.plan()
        report(queue, block, [Yield("later")] * 5)
        queue.blocks.settle(block)
    with queue.session.snapshot() as (_, working_set):
        assert working_set.book("acme").deficit < 0


def test_a_debt_of_the_first_message_of_a_group_is_its_own(make_queue: Maker) -> None:
    queue = make_queue(order="deficit", paths=True, service_weight=Weight(100, 1 << 20), weigher=TEN)
    queue.enqueue_message("sly/a", b"x", weight=Weight(1, 1))
    queue.service_queues(lambda _: None)
    with queue.session.snapshot() as (_, working_set):
        working_set.loader.load_groups()
        assert working_set.groups["sly/"].deficit <= -units_of(BLOCK_PARTS // 10, 1)


@pytest.mark.parametrize("unfit", [2, 20])
@pytest.mark.parametrize("interrupted", [False, True])
def test_a_further_look_and_an_interrupted_service_charge_debts(
    make_queue: Maker, unfit: int, interrupted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "IN_VAIN", 4)
    weigher = LinearWeigher(Weight(100, 0), Weight(0, 0))
    queue = make_queue(order="deficit", service_weight=Weight(1_000, 1 << 20), weigher=weigher, max_block_queues=1)
    queue.enqueue_messages([(f"heavy{number}", b"x") for number in range(unfit)], weight=Weight(900, 0))
    queue.enqueue_messages("light", [b"x"] * 5, weight=Weight(1, 1))
    tried: list[int] = []

    def process(_: Any) -> None:
        tried.append(1)
        if interrupted and len(tried) == 5:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        queue.service_queues(process, Weight(500, 1 << 20))
    assert len(tried) == 5
    with queue.session.snapshot() as (_, working_set):
        assert working_set.book("light").deficit < 0


def test_decisions_are_not_charged(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", weigher=TEN, max_message_size=1)
    queue.enqueue_messages("acme", [b"x", b"too long", b"y"])
    queue.blocks.settle(queue.blocks.plan())
    serve(queue)
    (charge,) = charged(queue).values()
    assert (charge.set_aside, charge.attempts, charge.planned) == (1, 3, Weight(40, 4))


def test_calls_in_place_are_charged(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", weigher=TEN)
    sent = [b"done", b"false", b"bad", b"over", b"yield", b"behind"]
    queue.enqueue_messages("acme", sent)
    answers = {b"false": False, b"bad": BadFormat(), b"over": Overweight(Weight(1 << 40, 1)), b"yield": Yield()}
    tried = [payload for _, payload in serve(queue, lambda delivery: answers.get(delivery.payload))]
    size = sum(map(len, tried))
    assert tried == [*sent[:4], *[b"yield"] * (len(tried) - 4)]
    # The visit paid for the message that is set aside, and no attempt of it counts.
    paid, less = Weight(10 * len(tried), size), Weight(10 * (len(tried) - 1), size - 4)
    first = Charge(paid, less, 0, 3, len(b"donefalsebad"), len(tried) - 1, 1)
    assert charged(queue) == {("acme", ""): first}
    assert [row.block for row in rows(queue)] == [None]
    served: list[int] = []
    processor = BatchProcessor(lambda batch: served.append(len(batch)))
    queue.service_queues(processor)
    more = Weight(20, len(b"yieldbehind"))
    assert served == [2] and charged(queue) == {("acme", ""): first.plus(Charge(more, more, 0, 2, more.size, 2))}


def test_what_a_batch_yields_behind_a_stop_is_refunded(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", weigher=TEN)
    queue.enqueue_messages("acme", [b"x"] * 3)
    queue.service_queues(BatchProcessor(lambda batch: [Yield(), Yield(), Done()] if len(batch) == 3 else None))
    both = Weight(20, 2)
    assert charged(queue) == {
        ("acme", ""): Charge(Weight(30, 3), both, 0, 1, 1, 2).plus(Charge(both, both, 0, 2, 2, 2))
    }


def test_a_processor_that_meters_itself_is_charged_its_prediction_at_least(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", weigher=TEN)
    queue.enqueue_messages("acme", [b"3", b"30", b"y"])

    yielded = 0

    def process(delivery: Any) -> Any:
        nonlocal yielded
        if delivery.payload == b"y":
            assert delivery.meter.consume(Weight(7, 0))
            yielded += 1
            return Yield()
        assert delivery.meter.consume(Weight(int(delivery.payload), 5))
        return None

    process.meters_itself = True  # type: ignore[attr-defined]
    queue.service_queues(process)
    used, least = Weight(33 + 7 * yielded, 10), Weight(10 + 30 + 10 * yielded, 5 + 5 + yielded)
    assert charged(queue) == {("acme", ""): Charge(used, least, 0, 2, 3, 2 + yielded)}


def test_executions_by_hand_views_and_inline_executions_are_charged(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", weigher=TEN, max_attempts=1)
    queue.enqueue_messages("acme", [b"x", b"y"])
    serve(queue, lambda delivery: Yield())
    serve(queue, lambda delivery: Yield())
    before, ten = charged(queue)["acme", ""], Weight(10, 1)
    assert before == Charge(Weight(20, 2), Weight(20, 2), 0, 0, 0, 2, 2)
    first, second = [aside.address for aside in queue.set_aside.list()]
    queue.execute_overweight(first, lambda delivery: None)
    by_hand = Charge(ten, ten, 0, 1, 1, 1)
    assert charged(queue)["acme", ""] == before.plus(by_hand)
    for outcome in (Yield(), Done(used=Weight(25, 0))):
        block = queue.blocks.plan_overweight(second, Weight(60_000, 1 << 20))
        report(queue, block, [outcome])
        queue.blocks.settle(block)
    reported = Charge(Weight(20, 2), Weight(25, 1), 0, 1, 1, 1)
    assert charged(queue)["acme", ""] == before.plus(by_hand).plus(reported)
    queue.enqueue_message("view", b"x")
    token = queue.leases.next()
    assert token is not None
    token.give_back()
    again = queue.leases.next()
    assert again is None and charged(queue)["view", ""] == Charge(ten, ten, 0, 0, 0, 1, 1)


@pytest.mark.parametrize("part", [2, 100])
def test_a_recorded_end_is_charged_once_when_it_is_applied(
    make_queue: Maker, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(settling, "PART", part)
    queue, token = make_queue(order="rotation", weigher=TEN, heap_size=64), b"t" * 16
    for origin in ("acme", "birch"):
        queue.enqueue_messages(origin, [b"x" * 20] * 5)
    block = queue.blocks.plan(processor_of=lambda origin: f"of {origin}")
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    take_lease(queue.session, token)
    queue.blocks.settle(block)
    queue.inspect.peek("acme")
    assert rows(queue) == []
    drop_lease(queue.session, token)
    queue.session.settler.apply_ends()
    found = rows(queue)
    weight = Weight(50, 100)
    assert (len(found) == 1) == (part == 100) and {row.block for row in found} == {block.id}
    assert charged(queue) == {
        (origin, f"of {origin}"): Charge(weight, weight, 0, 5, 100, 5) for origin in ("acme", "birch")
    }
    queue.session.settler.apply_ends()
    assert rows(queue) == found


def test_measured_time_is_recorded_and_charged_only_where_the_ring_chooses(make_queue: Maker) -> None:
    for ring, charges_time in (("plain", False), ("timed", True)):
        queue = make_queue(ring, order="rotation", weigher=TEN, charges_time=charges_time)
        one_by_one = lambda delivery: sleep(0.03)  # noqa: E731
        metering = lambda delivery: sleep(0.03)  # noqa: E731
        metering.meters_itself = True  # type: ignore[attr-defined]
        for processor in (one_by_one, metering, BatchProcessor(lambda batch: sleep(0.06))):
            queue.enqueue_messages("acme", [b"x", b"y"])
            queue.service_queues(processor)
            charge = rows(queue)[-1].charges["acme", ""]
            assert 60_000 <= charge.measured < 2_000_000
            assert charge.charged == Weight(charge.measured // 1_000 if charges_time else 20, 2)
        assert {row.server for row in rows(queue)} == {"tester"}


def test_a_charge_names_the_server_of_its_block(make_queue: Maker) -> None:
    queue = make_queue(order="rotation")
    queue.enqueue_messages("acme", [b"x"])
    queue.blocks.settle(queue.blocks.plan(server="DAG 'orders' of Airflow 'west', task 'plan'"))
    assert [row.server for row in rows(queue)] == ["DAG 'orders' of Airflow 'west', task 'plan'"]


def test_check_compares_charges_with_events_blocks_and_the_ledger(make_queue: Maker) -> None:
    queue = make_queue(order="deficit", max_attempts=2)
    for origin in ("acme", "birch"):
        queue.enqueue_messages(origin, [b"x", b"y"])
    queue.blocks.settle(queue.blocks.plan())
    serve(queue)
    (of_block, in_place), prefix = rows(queue), queue.store.prefix
    changes = {
        "attempts": lambda charge: charge._replace(attempts=charge.attempts + 1),
        "messages": lambda charge: charge._replace(messages=charge.messages + 1),
        "set-aside": lambda charge: charge._replace(set_aside=1),
        "planned": lambda charge: charge._replace(planned=Weight(1, 3)),
    }
    place = "%s" if queue.store.address.driver != "sqlite" else "?"
    for row in (of_block, in_place):
        for what, change in changes.items():
            damaged = {key: change(charge) for key, charge in row.charges.items()}
            for charges in (damaged, row.charges):
                with queue.store.writing() as unit:
                    unit.connection.execute(
                        f"UPDATE {prefix}charge SET data = {place} WHERE id = {row.id}", (pack_charges(charges),)
                    )
                found = [str(violation) for violation in queue.check()]
                # The planned weight in place is on no page of the ledger alone.
                expected = charges is damaged and not (row is in_place and what == "planned")
                assert bool(found) == expected and all(what in one for one in found), (what, found)


def timed(queue: MessageQueue) -> dict[tuple[str, str], int]:
    """Return the measured time of all charges."""
    found: dict[tuple[str, str], int] = {}
    for row in rows(queue):
        for key, charge in row.charges.items():
            found[key] = found.get(key, 0) + charge.measured
    return found


def test_the_time_of_a_batch_is_divided_by_planned_weight(make_queue: Maker) -> None:
    for ring, charges_time in (("plain", False), ("timed", True)):
        queue = make_queue(ring, order="rotation", weigher=TEN, charges_time=charges_time)
        queue.enqueue_messages("acme", [Message(b"x", weight=Weight(30, 2))] * 2)
        queue.enqueue_messages("birch", [b"x"] * 4)
        queue.enqueue_messages("cedar", [b"x"] * 2)
        block = queue.blocks.plan()
        batch = 7
        queue.blocks.report(
            block,
            [
                Report("acme", 0, 0, 1, took=(batch, 4_000)),
                Report("birch", 0, 0, 2, took=(batch, 9_000)),
                Report("birch", 0, 3, 3, Yield(), took=(batch, 200_001)),
                # A batch of its own, after an attempt whose messages another attempt had finished.
                Report("cedar", 0, 0, 1, took=(8, 50_000)),
                Report("cedar", 0, 0, 1, took=(9, 70_000)),
            ],
        )
        # A report that is repeated counts once.
        queue.blocks.report(block, [Report("acme", 0, 0, 1, took=(batch, 4_000))])
        queue.blocks.settle(block)
        assert timed(queue) == {("acme", ""): 120_000, ("birch", ""): 80_001, ("cedar", ""): 50_000}
        charges = charged(queue)
        times = {key[0]: charge.charged.time for key, charge in charges.items()}
        expected = {"acme": 120, "birch": 80, "cedar": 50} if charges_time else {"acme": 60, "birch": 40, "cedar": 20}
        assert times == expected
        assert queue.check() == []


@pytest.mark.parametrize("charges_time", [False, True])
def test_the_time_of_an_execution_by_hand_is_charged(make_queue: Maker, charges_time: bool) -> None:
    queue = make_queue(order="rotation", weigher=TEN, max_attempts=1, charges_time=charges_time)
    queue.enqueue_message("acme", b"x")
    block = queue.blocks.plan()
    report(queue, block, [Yield()])
    queue.blocks.settle(block)
    (aside,) = queue.set_aside.list()
    where = "acme", aside.address.page, aside.address.index, aside.address.index
    for outcome in (Yield(), Done()):
        block = queue.blocks.plan_overweight(aside.address, Weight(60_000, 1 << 20))
        queue.blocks.report(block, [Report(*where, outcome, took=(7, 90_000))])
        queue.blocks.settle(block)
    (last,) = rows(queue)[-1].charges.values()
    assert (last.measured, last.charged.time) == (90_000, 90 if charges_time else 10)
    assert timed(queue) == {("acme", ""): 90_000}
    assert queue.check() == []


@pytest.mark.parametrize("part", [1, 2, 100])
def test_the_time_of_a_recorded_end_is_charged_once_in_parts(
    make_queue: Maker, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(settling, "PART", part)
    queue, token = make_queue(order="rotation", weigher=TEN, heap_size=64, charges_time=True), b"t" * 16
    for origin in ("acme", "birch"):
        queue.enqueue_messages(origin, [b"x" * 20] * 5)
    block = queue.blocks.plan()
    runs = [(claim.origin, run) for claim in block.claims for run in claim.runs]
    queue.blocks.report(
        block, [Report(name, run.page, run.first, run.first + run.count - 1, took=(3, 100_007)) for name, run in runs]
    )
    take_lease(queue.session, token)
    queue.blocks.settle(block)
    assert rows(queue) == []
    drop_lease(queue.session, token)
    queue.session.settler.apply_ends()
    assert timed(queue) == {("acme", ""): 50_003, ("birch", ""): 50_004}
    # Planned were 50 ms each, which is what they took: no part is charged more.
    assert {key: charge.charged.time for key, charge in charged(queue).items()} == {("acme", ""): 50, ("birch", ""): 50}
    assert queue.check() == []
