"""Blocks: plan, report, settle, and events in between."""

from __future__ import annotations

import itertools
from datetime import datetime, timezone
from time import sleep
from typing import Any

import pytest

from airflow_mq import (
    Address,
    BadFormat,
    Block,
    Corrupt,
    Done,
    MessageQueue,
    Outcome,
    Overweight,
    Report,
    Unsupported,
    Weight,
    Yield,
)
from airflow_mq.engine.queue.blocks import settling
from airflow_mq.engine.rules.errors import (
    Busy,
    InFlight,
    InvalidInput,
    Queued,
    TokenRefused,
    UnknownBlock,
)
from airflow_mq.engine.rules.message import message_id
from airflow_mq.engine.store.working_set.source import Source
from tests.proofs.model.clock import Clock
from tests.store.queue.conftest import Maker, logged_events, serve
from tests.waiting import eventually


def payloads(block: Block, origin: str | None = None) -> list[bytes]:
    batches = block.batches(None if origin is None else [origin])
    return [payload for batch in batches for payload in batch.payloads]


def answer(queue: MessageQueue, block: Block, outcome: Outcome | None = None) -> None:
    queue.blocks.report(block, [batch.answer(*[outcome] if outcome else []) for batch in block.batches()])


def states(queue: MessageQueue, origin: str = "acme") -> list[tuple[bytes, str]]:
    return [(message.payload, message.state) for message in queue.inspect.peek(origin)]


def test_block_is_planned_reported_and_settled(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    queue.enqueue_message("globex", b"c")
    block = queue.blocks.plan()
    assert (block.messages, block.origins, block.planned) == (3, ["acme", "globex"], Weight(3, 3))
    assert states(queue) == [(b"a", "in flight"), (b"b", "in flight")]
    assert queue.footprint("acme").count == 2
    answer(queue, block)
    assert states(queue) == [(b"a", "reported"), (b"b", "reported")]
    assert queue.footprint("acme").count == 0
    done = queue.blocks.settle(block)
    assert (done.processed, done.weight) == (3, Weight(3, 3))
    assert [(name, origin) for name, origin, *_ in logged_events(queue)] == [
        ("Processed", "acme"), ("Processed", "acme"), ("Processed", "globex")
    ]  # fmt: skip
    assert {event.block for event in queue.inspect.events()} == {block.id}
    assert queue.footprints() == []


def test_settling_reads_no_payloads_of_messages_whose_ids_were_reported(
    queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    queue.enqueue_message("globex", b"c")
    block = queue.blocks.plan()
    answer(queue, block)
    monkeypatch.setattr(Source, "heaps", lambda _, wanted: pytest.fail("payloads were read") if wanted else [])
    assert queue.blocks.settle(block).processed == 3
    events = [event.id for event in queue.inspect.events()]
    assert events == [message_id(payload) for payload in (b"a", b"b", b"c")]


def test_settling_reads_the_payloads_of_messages_whose_ids_were_not_reported(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b", b"c"])
    block = queue.blocks.plan()
    run = block.claims[0].runs[0]
    queue.blocks.report(block, [Report("acme", run.page, 0, 1)])
    queue.blocks.report(block, [Report("acme", run.page, 2, 2, ids=message_id(b"c"))])
    assert queue.blocks.settle(block).processed == 3
    assert [event.id for event in queue.inspect.events()] == [message_id(payload) for payload in (b"a", b"b", b"c")]


@pytest.mark.parametrize(
    "report",
    [
        Report("acme", 0, 0, 1, ids=b"x" * 32),
        Report("acme", 0, 0, 0, ids=b"x" * 33),
        Report("acme", 0, 0, 0, ids="x" * 32),  # type: ignore[arg-type]
        Report("acme", 0, 0, 0, Yield(), ids=b"x" * 32),
    ],
)
def test_report_with_invalid_ids_is_refused(queue: MessageQueue, report: Report) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    block = queue.blocks.plan()
    with pytest.raises(InvalidInput, match=r"invalid ids in the report on messages 0 to \d: expected 32 bytes each"):
        queue.blocks.report(block, [report])
    assert queue.blocks.settle(block).returned == 2


def test_batches_filters_by_origin(queue: MessageQueue) -> None:
    queue.enqueue_messages([("acme", b"a"), ("globex", b"b")])
    block = queue.blocks.plan()
    assert (payloads(block, "acme"), payloads(block, "globex"), payloads(block)) == ([b"a"], [b"b"], [b"a", b"b"])
    queue.blocks.release(block)


def test_plan_stays_within_its_limit(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"x" * 10] * 10)
    block = queue.blocks.plan(limit=Weight(100, 35))
    assert (block.messages, block.planned) == (3, Weight(3, 30))
    queue.blocks.release(block)


def test_plan_with_a_repeated_key_returns_the_same_block(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    block = queue.blocks.plan(key="run-1")
    again = queue.blocks.plan(key="run-1")
    assert (again.id, again.token, payloads(again)) == (block.id, block.token, [b"a", b"b"])
    queue.blocks.settle(block)
    other = queue.blocks.plan(key="run-1")
    assert other.id != block.id
    queue.blocks.release(other)


def test_empty_block_settles(queue: MessageQueue) -> None:
    block = queue.blocks.plan()
    assert (block.messages, payloads(block)) == (0, [])
    assert queue.blocks.settle(block).processed == 0


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (Done(), "Processed"),
        (Done(success=False), "Processed"),
        (BadFormat(), "ProcessingFailed"),
        (Corrupt(), "ProcessingFailed"),
        (Unsupported(), "ProcessingFailed"),
        (Yield("later"), "Returned"),
        (Overweight(Weight(5, 5)), "Returned"),
        (Overweight(Weight(600_001, 0)), "SetAside"),
    ],
)
def test_each_outcome_is_recorded_as_its_event(queue: MessageQueue, outcome: Outcome, name: str) -> None:
    queue.enqueue_message("acme", b"a")
    block = queue.blocks.plan()
    answer(queue, block, outcome)
    queue.blocks.settle(block)
    assert logged_events(queue) == [(name, "acme", 0, 0)]
    remaining = {"Returned": [(b"a", "waiting")], "SetAside": [(b"a", "set aside")]}.get(name, [])
    assert [(message.payload, message.state) for message in queue.inspect.peek("acme", page=0)] == remaining


@pytest.mark.parametrize("order", ["rotation", "deficit"])
@pytest.mark.parametrize("part", [1, 4])
def test_a_block_settled_in_parts_has_the_same_result(
    make_queue: Maker, monkeypatch: pytest.MonkeyPatch, order: str, part: int
) -> None:
    """Settle the same block on two rings: at once, and in parts of a few messages, some within a claim."""
    found = []
    for name, most in (("whole", settling.PART), ("parts", part)):
        monkeypatch.setattr(settling, "PART", most)
        queue = make_queue(order=order, heap_size=64, ring=name)
        for origin in ("acme", "globex", "initech"):
            queue.enqueue_messages(origin, [b"%s %d" % (origin.encode(), number) for number in range(20)])
        queue.admin.set_origin("globex", ordered=False)
        block = queue.blocks.plan()
        sending = Done(enqueue=[("acme", b"sent"), ("other", b"sent")])
        outcomes: list[Outcome] = [Done(), sending, BadFormat(), Yield("later"), Done()]
        if order == "deficit":
            outcomes[4] = Done(used=Weight(90, 9))
        queue.blocks.report(
            block,
            [
                Report(batch.origin, batch.page, item, item, outcomes[(batch.page + item) % 5])
                for batch in block.batches()
                for item in range(batch.first, batch.first + len(batch))
                if batch.origin != "initech" or batch.page % 3
            ],
        )
        served = queue.blocks.settle(block)
        rest = [states(queue, origin) for origin in ("acme", "globex", "initech", "other")]
        told = queue.inspect.events(limit=500)
        assert {event.block for event in told} == {block.id}
        events = [(event.name, event.address, event.id, event.detail) for event in told]
        found.append((served, rest, sorted(events, key=repr), queue.blocks.plan().claims))
    assert found[0] == found[1]
    assert found[0][0].processed > 10 and found[0][0].failed and found[0][0].returned


def test_reported_weight_is_used_by_the_next_plan(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")
    block = queue.blocks.plan()
    answer(queue, block, Overweight(Weight(70, 7)))
    queue.blocks.settle(block)
    again = queue.blocks.plan()
    assert again.planned == Weight(70, 7)
    queue.blocks.release(again)


def test_messages_behind_a_yield_are_requeued(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b", b"c", b"d"])
    block = queue.blocks.plan()
    queue.blocks.report(block, [Report("acme", 0, 0, 0), Report("acme", 0, 1, 1, Yield())])
    done = queue.blocks.settle(block)
    assert (done.processed, done.returned) == (1, 3)
    assert states(queue) == [(b"b", "waiting"), (b"c", "waiting"), (b"d", "waiting")]
    assert [message.attempts for message in queue.inspect.peek("acme")] == [1, 0, 0]
    assert [payload for _, payload in serve(queue)] == [b"b", b"c", b"d"]


def test_later_message_keeps_its_reported_outcome(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b", b"c"])
    block = queue.blocks.plan()
    queue.blocks.report(block, [Report("acme", 0, 1, 1)])
    queue.blocks.settle(block)
    assert states(queue) == [(b"a", "waiting"), (b"c", "waiting")]
    assert [payload for _, payload in serve(queue)] == [b"a", b"c"]
    assert [(name, index) for name, _, _, index in logged_events(queue) if name == "Processed"] == [
        ("Processed", 1), ("Processed", 0), ("Processed", 2)
    ]  # fmt: skip


def test_first_report_of_a_message_counts(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")
    block = queue.blocks.plan()
    answer(queue, block, BadFormat())
    answer(queue, block, Done())
    queue.blocks.settle(block)
    assert logged_events(queue) == [("ProcessingFailed", "acme", 0, 0)]


def test_settling_twice_settles_once(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")
    block = queue.blocks.plan()
    answer(queue, block)
    first = queue.blocks.settle(block)
    assert queue.blocks.settle(block) == first
    assert len(logged_events(queue)) == 1


def test_calls_on_a_released_block_are_rejected(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")
    block = queue.blocks.plan()
    queue.blocks.release(block)
    for call in (
        lambda: answer(queue, block),
        lambda: queue.blocks.renew(block),
        lambda: queue.blocks.settle(block),
    ):
        with pytest.raises(TokenRefused):
            call()
    assert states(queue) == [(b"a", "waiting")]


def test_release_settles_reported_results(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    block = queue.blocks.plan()
    queue.blocks.report(block, [Report("acme", 0, 0, 0)])
    done = queue.blocks.release(block)
    assert (done.processed, done.returned) == (1, 1)
    assert states(queue) == [(b"b", "waiting")]


@pytest.mark.parametrize("token", ["", "nothing", "00" * 16])
def test_unknown_tokens_are_rejected(queue: MessageQueue, token: str) -> None:
    for call in (queue.blocks.settle, queue.blocks.release, queue.blocks.renew, queue.blocks.get):
        with pytest.raises(UnknownBlock):
            call(token)
    with pytest.raises(UnknownBlock):
        queue.blocks.report(token, [Report("acme", 0, 0, 0)])


def test_token_of_another_ring_is_rejected(make_queue: Maker) -> None:
    owner, other = make_queue("one"), make_queue("other")
    owner.enqueue_message("acme", b"a")
    block = owner.blocks.plan()
    for call in (other.blocks.settle, other.blocks.release, other.blocks.renew, other.blocks.get):
        with pytest.raises(UnknownBlock):
            call(block.token)
    owner.blocks.release(block)


def test_report_on_unclaimed_messages_changes_nothing(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    queue.enqueue_message("globex", b"c")
    block = queue.blocks.plan(limit=Weight(1, 100))
    queue.blocks.report(
        block,
        [Report("acme", 0, 1, 1), Report("globex", 0, 0, 0), Report("nobody", 3, 0, 9), Report("acme", 0, 0, 0)],
    )
    assert queue.blocks.settle(block).processed == 1
    assert [payload for _, payload in serve(queue)] in ([b"b", b"c"], [b"c", b"b"])


def test_report_beyond_the_claim_is_ignored(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    block = queue.blocks.plan(limit=Weight(1, 100))
    queue.blocks.report(block, [Report("acme", 0, 0, 1)])
    assert queue.footprint("acme").count == 1
    assert states(queue) == [(b"a", "reported"), (b"b", "waiting")]
    queue.blocks.settle(block)
    assert states(queue) == [(b"b", "waiting")]


# Leases.


def test_block_is_released_after_its_deadline(queue: MessageQueue, clock: Clock) -> None:
    queue.enqueue_message("acme", b"a")
    block = queue.blocks.plan(lease=10)
    # Renewing extends the lease; without renewal it expires.
    clock.advance(9)
    queue.blocks.renew(block, 10)
    clock.advance(9.999)
    assert queue.blocks.release_dead() == 0
    clock.advance(0.001)
    assert queue.blocks.release_dead() == 1
    with pytest.raises(TokenRefused):
        queue.blocks.renew(block, 10)
    with pytest.raises(TokenRefused):
        answer(queue, block)
    assert serve(queue) == [("acme", b"a")]


@pytest.mark.parametrize("keep", [3600, 0], ids=["remembered", "forgotten"])
def test_late_settle_wins_against_a_concurrent_release(make_queue: Maker, keep: int) -> None:
    """A plan that finds an expired block continues if the block settles before its release."""
    queue, other = make_queue(order="rotation", keep_ledger=keep), make_queue()
    queue.enqueue_messages([("acme", b"a"), ("globex", b"b")])
    dead = queue.blocks.plan(limit=Weight(1, 10), lease=60)
    answer(queue, dead)
    with queue.store.writing() as unit:
        unit.run("close_block", ring=queue.session.ring_id, token=bytes.fromhex(dead.token), now=unit.now())
    seen: list[str] = []

    def settle(statement: str) -> None:
        if statement == "begin" and "dead_blocks" in seen:
            other.store.probe = None
            queue.blocks.settle(dead)
            queue.admin.housekeep()
        seen.append(statement)

    other.store.probe = settle
    block = other.blocks.plan()
    assert payloads(block) == [b"b"]
    assert [(name, origin) for name, origin, *_ in logged_events(queue)] == [("Processed", "acme")]
    other.blocks.release(block)


def test_next_plan_releases_expired_blocks(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")
    queue.blocks.plan(key="dead", lease=0.01)

    def planned() -> Block | None:
        block = queue.blocks.plan()
        if block.messages:
            return block
        queue.blocks.release(block)
        return None

    block = eventually(planned)
    assert payloads(block) == [b"a"]
    assert [other.state for other in queue.blocks.list() if other.key == "dead"] == ["released"]
    queue.blocks.release(block)


def test_a_late_call_names_the_lease_that_ran_out(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")
    block = queue.blocks.plan(lease=0.01)
    queue.blocks.release(eventually(lambda: queue.blocks.plan() if queue.admin.housekeep() else None))
    why = f"block {block.id} was released: its lease ran out at {block.deadline:%H:%M:%S} UTC"
    with pytest.raises(TokenRefused, match=f"{why}; it is too late to renew it"):
        queue.blocks.renew(block)
    with pytest.raises(TokenRefused, match=f"{why}; it cannot be settled any more"):
        queue.blocks.settle(block)


def test_a_late_call_names_no_lease_for_a_block_that_a_person_released(queue: MessageQueue) -> None:
    block = queue.blocks.plan()
    queue.blocks.release(block)
    with pytest.raises(TokenRefused, match=f"block {block.id} was released; it is too late to renew it"):
        queue.blocks.renew(block)


def test_renew_extends_the_deadline(queue: MessageQueue) -> None:
    block = queue.blocks.plan(lease=10)
    later = queue.blocks.renew(block, 100)
    assert (later - block.deadline).total_seconds() > 80
    assert queue.blocks.get(block.token).deadline == later
    queue.blocks.release(block)


def test_a_renewal_extends_by_the_seconds_of_the_block_and_never_moves_its_deadline_back(queue: MessageQueue) -> None:
    block = queue.blocks.plan(lease=14_400)
    # The ring's lease is shorter, and so is that of a worker with a lease of its own.
    assert queue.config.lease < 14_000
    for lease in (None, 60, 0):
        deadline = queue.blocks.get(block.token).deadline
        assert queue.blocks.renew(block, lease) >= deadline
        assert queue.blocks.get(block.token).deadline >= deadline
    assert queue.blocks.renew(block) > block.deadline
    assert queue.blocks.get(block.token).lease == 14_400
    queue.blocks.release(block)


def test_blocks_are_listed_by_state(queue: MessageQueue) -> None:
    settled, released, planned = (queue.blocks.plan(key=key) for key in ("1", "2", "3"))
    queue.blocks.settle(settled)
    queue.blocks.release(released)
    assert [(block.key, block.state) for block in queue.blocks.list()] == [
        ("3", "planned"),
        ("2", "released"),
        ("1", "settled"),
    ]
    assert [block.key for block in queue.blocks.list("settled")] == ["1"]
    queue.blocks.release(planned)


# In flight.


def test_ordered_queue_in_flight_is_skipped(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    block = queue.blocks.plan(limit=Weight(1, 10))
    queue.enqueue_message("globex", b"c")
    other = queue.blocks.plan()
    assert payloads(other) == [b"c"]
    assert serve(queue) == []
    queue.blocks.release(block)
    queue.blocks.release(other)


def test_rest_of_an_unordered_queue_can_be_claimed(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", ordered=False)
    queue.enqueue_messages("acme", [b"a", b"b", b"c", b"d"])
    first = queue.blocks.plan(limit=Weight(2, 10))
    other = queue.blocks.plan(limit=Weight(1, 10))
    assert (payloads(first), payloads(other)) == ([b"a", b"b"], [b"c"])
    answer(queue, other)
    queue.blocks.settle(other)
    assert states(queue) == [(b"a", "in flight"), (b"b", "in flight"), (b"d", "waiting")]
    queue.blocks.report(first, [Report("acme", 0, 1, 1)])
    queue.blocks.settle(first)
    assert states(queue) == [(b"a", "waiting"), (b"d", "waiting")]
    assert [payload for _, payload in serve(queue)] == [b"a", b"d"]


def test_outcomes_of_an_unordered_queue_are_independent(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", ordered=False)
    queue.enqueue_messages("acme", [b"a", b"b", b"c"])
    block = queue.blocks.plan()
    queue.blocks.report(
        block, [Report("acme", 0, 0, 0, Yield()), Report("acme", 0, 1, 1), Report("acme", 0, 2, 2, Yield())]
    )
    done = queue.blocks.settle(block)
    assert (done.processed, done.returned) == (1, 2)
    assert states(queue) == [(b"a", "waiting"), (b"c", "waiting")]


def test_single_origin_can_be_unordered(queue: MessageQueue) -> None:
    queue.admin.set_origin("acme", ordered=False)
    queue.enqueue_messages("acme", [b"a", b"b"])
    queue.enqueue_messages("globex", [b"c", b"d"])
    queue.admin.force_set_head("acme")
    first = queue.blocks.plan(limit=Weight(1, 10))
    assert payloads(first) == [b"a"]
    other = queue.blocks.plan(limit=Weight(1, 10))
    third = queue.blocks.plan(limit=Weight(2, 10))
    assert sorted(payloads(other) + payloads(third)) == [b"b", b"c"]
    for block in (first, other, third):
        queue.blocks.release(block)


def test_messages_in_flight_reject_other_operations(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    block = queue.blocks.plan(limit=Weight(1, 10))
    with pytest.raises(InFlight):
        queue.sweep_queue("acme")
    for index in (0, 1):
        with pytest.raises(Queued):
            queue.execute_overweight(Address("acme", 0, index), lambda delivery: True)
        # The block claims the first message; the second is waiting.
        with pytest.raises(InFlight if index == 0 else Queued):
            queue.set_aside.discard(Address("acme", 0, index), "not wanted")
    answer(queue, block)
    assert queue.blocks.settle(block).processed == 1


def test_pause_takes_effect_after_the_block(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    block = queue.blocks.plan(limit=Weight(1, 10))
    queue.admin.pause("acme")
    answer(queue, block)
    assert queue.blocks.settle(block).processed == 1
    assert serve(queue) == []
    queue.admin.resume("acme")
    assert serve(queue) == [("acme", b"b")]


def test_requeued_messages_precede_later_ones(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    block = queue.blocks.plan()
    queue.enqueue_message("acme", b"c")
    queue.blocks.release(block)
    assert [payload for _, payload in serve(queue)] == [b"a", b"b", b"c"]


def test_service_works_while_a_block_is_in_flight(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")
    block = queue.blocks.plan()
    queue.enqueue_message("globex", b"b")
    assert serve(queue) == [("globex", b"b")]
    answer(queue, block)
    assert queue.blocks.settle(block).processed == 1


def test_done_enqueues_its_messages_at_settle(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    block = queue.blocks.plan()
    followers = (("acme", b"c"), ("globex", b"d"))
    queue.blocks.report(block, [Report("acme", 0, 0, 0, Done(enqueue=followers)), Report("acme", 0, 1, 1, Yield())])
    assert queue.footprint("globex").count == 0
    queue.blocks.settle(block)
    assert sorted(serve(queue)) == [("acme", b"b"), ("acme", b"c"), ("globex", b"d")]


# Weights.


def test_plan_uses_a_custom_weigher(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"3", b"4", b"5"])

    def weigh(origin: str, messages: Any) -> list[Weight]:
        assert origin == "acme"
        return [Weight(int(message), 0) for message in messages]

    block = queue.blocks.plan(limit=Weight(8, 8), weigher=weigh)
    assert (payloads(block), block.planned) == ([b"3", b"4"], Weight(7, 0))
    answer(queue, block)
    assert queue.blocks.settle(block).weight == Weight(7, 0)


def test_the_lease_of_a_block_begins_after_its_weigher_ran(queue: MessageQueue, clock: Clock) -> None:
    queue.enqueue_message("acme", b"a")

    def weigh(origin: str, messages: Any) -> list[Weight]:
        clock.advance(100)
        return [Weight(1, 1) for _ in messages]

    block = queue.blocks.plan(lease=10, weigher=weigh)
    assert queue.blocks.release_dead() == 0
    answer(queue, block)
    assert queue.blocks.settle(block).processed == 1


def test_failing_weigher_leaves_the_ring_free(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")
    for wrong in (lambda origin, messages: 1 / 0, lambda origin, messages: [], lambda origin, messages: ["heavy"]):
        with pytest.raises((ArithmeticError, ValueError)):
            queue.blocks.plan(weigher=wrong)
    assert serve(queue) == [("acme", b"a")]


def test_reported_use_is_fitted(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"x" * length for length in range(1, 31)])
    block = queue.blocks.plan()
    reports = [
        Report("acme", batch.page, index, index, Done(used=Weight(10 + 2 * len(payload), len(payload))))
        for batch in block.batches()
        for index, payload in enumerate(batch.payloads, start=batch.first)
    ]
    queue.blocks.report(block, reports)
    total = sum(10 + 2 * length for length in range(1, 31))
    assert queue.blocks.settle(block).weight == Weight(total, sum(range(1, 31)))
    (fit,) = queue.inspect.fits()
    assert (fit.origin, fit.count, fit.weigher.base, fit.weigher.per_byte) == ("acme", 30, (10, 0), (2000, 1000))
    assert (fit.drift, fit.processor) == (total / 30, "")
    assert next(event.weight for event in queue.inspect.events()) == Weight(12, 1)


def test_reported_use_is_fitted_per_processor(queue: MessageQueue) -> None:
    for origin, time in (("acme", 3), ("birch", 5)):
        queue.enqueue_message(origin, b"x")
        block = queue.blocks.plan(processor_of={"acme": "mail", "birch": "orders"}.__getitem__)
        answer(queue, block, Done(used=Weight(time, 1)))
        queue.blocks.settle(block)
    assert [(fit.processor, fit.origin, fit.weigher.base.time) for fit in queue.inspect.fits()] == [
        ("mail", "acme", 3), ("orders", "birch", 5),
    ]  # fmt: skip
    assert [fit.origin for fit in queue.inspect.fits("orders")] == ["birch"]


# Attempts and backoff.


def test_message_is_set_aside_after_too_many_attempts(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", max_attempts=2)
    queue.enqueue_messages("acme", [b"a", b"b"])
    for _ in range(2):
        block = queue.blocks.plan()
        answer(queue, block, Yield())
        queue.blocks.settle(block)
    assert [(name, index) for name, _, _, index in logged_events(queue)][:2] == [("Returned", 0), ("Returned", 1)]
    assert ("AttemptsExhausted", "acme", 0, 0) in logged_events(queue)
    (aside, *_) = queue.set_aside.list()
    assert (aside.address, aside.reason, aside.size) == (Address("acme", 0, 0), "attempts", 1)
    seen: list[bytes] = []
    queue.execute_overweight(aside.address, lambda delivery: seen.append(delivery.payload))
    assert seen == [b"a"]


def test_released_block_counts_as_an_attempt(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", max_attempts=1)
    queue.enqueue_messages("acme", [b"a", b"b"])
    queue.blocks.release(queue.blocks.plan(limit=Weight(1, 10)))
    assert [(aside.address.index, aside.reason) for aside in queue.set_aside.list()] == [(0, "attempts")]
    assert serve(queue) == [("acme", b"b")]


def test_queue_in_backoff_is_skipped(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue(order="rotation", backoff=1.0)
    queue.enqueue_messages("acme", [b"a", b"b"])
    queue.blocks.release(queue.blocks.plan())
    assert serve(queue) == []
    queue.enqueue_message("globex", b"c")
    assert serve(queue) == [("globex", b"c")]
    clock.advance(1.0)
    assert serve(queue) == [("acme", b"a"), ("acme", b"b")]


# Executing set-aside messages in a block.


def set_message_aside(queue: MessageQueue) -> Address:
    queue.enqueue_message("acme", b"heavy", weight=Weight(700_000, 1))
    serve(queue)
    (aside,) = queue.set_aside.list()
    return aside.address


def test_set_aside_message_is_executed_in_a_block(queue: MessageQueue) -> None:
    address = set_message_aside(queue)
    block = queue.blocks.plan_overweight(address, Weight(800_000, 10), key="by hand")
    assert queue.blocks.plan_overweight(address, Weight(800_000, 10), key="by hand").id == block.id
    assert payloads(block) == [b"heavy"]
    queue.enqueue_message("acme", b"light")
    assert serve(queue) == [("acme", b"light")]
    for call in (
        lambda: queue.blocks.plan_overweight(address, Weight(800_000, 10)),
        lambda: queue.execute_overweight(address, lambda delivery: True),
        lambda: queue.set_aside.discard(address, "not wanted"),
        lambda: queue.reap_page("acme", address.page),
    ):
        with pytest.raises(Busy):
            call()
    answer(queue, block)
    done = queue.blocks.settle(block)
    assert (done.processed, done.weight) == (1, Weight(700_000, 1))
    assert [name for name, *_ in logged_events(queue)] == ["SetAside", "Processed", "Processed", "Executed"]
    assert queue.set_aside.list() == []


def test_message_without_outcome_stays_set_aside(queue: MessageQueue) -> None:
    address = set_message_aside(queue)
    block = queue.blocks.plan_overweight(address, Weight(800_000, 10))
    assert queue.blocks.settle(block).returned == 1
    assert [aside.address for aside in queue.set_aside.list()] == [address]


@pytest.mark.parametrize("outcome", [Overweight(Weight(900_000, 0)), Yield()])
def test_unsuccessful_execution_settles_its_block(queue: MessageQueue, outcome: Outcome) -> None:
    address = set_message_aside(queue)
    block = queue.blocks.plan_overweight(address, Weight(800_000, 10))
    answer(queue, block, outcome)
    assert queue.blocks.settle(block).returned == 1
    assert queue.blocks.get(block.token).state == "settled"
    assert [aside.address for aside in queue.set_aside.list()] == [address]


def test_ring_without_service_weight_requires_a_limit(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", service_weight=None)
    queue.enqueue_messages("acme", [b"a", b"bb"])
    with pytest.raises(InvalidInput):
        queue.blocks.plan()
    with pytest.raises(InvalidInput):
        queue.service_queues(lambda delivery: True)
    block = queue.blocks.plan(limit=Weight(10, 1))
    assert payloads(block) == [b"a"]
    answer(queue, block)
    done = queue.blocks.settle(block)
    assert (done.processed, done.set_aside) == (1, 1)


def test_backoff_outlasts_a_block_settled_in_parts(make_queue: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "PART", 3)
    queue = make_queue(backoff=3600.0, heap_size=64)
    queue.admin.set_origin("acme", ordered=False)
    queue.enqueue_messages("acme", [b"message %d" % number for number in range(20)])
    block = queue.blocks.plan()
    outcomes = itertools.chain([Yield("later")], itertools.repeat(Done()))
    queue.blocks.report(
        block,
        [
            Report(batch.origin, batch.page, item, item, next(outcomes))
            for batch in block.batches()
            for item in range(batch.first, batch.first + len(batch))
        ],
    )
    served = queue.blocks.settle(block)
    assert (served.processed, served.returned) == (19, 1)
    assert not queue.blocks.plan().claims


def test_a_live_block_is_found_by_its_key(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"1", b"2"])
    block = queue.blocks.plan("mine")
    found = queue.blocks.live("mine")
    assert found is not None and (found.token, found.claims) == (block.token, block.claims)
    assert [list(batch.payloads) for batch in found.batches()] == [[b"1", b"2"]]
    assert queue.blocks.live("other") is None
    queue.blocks.settle(block)
    assert queue.blocks.live("mine") is None


def test_a_repeated_execution_by_hand_does_not_get_a_block_past_its_deadline(make_queue: Maker) -> None:
    queue = make_queue(service_weight=Weight(10, 1 << 20))
    queue.enqueue_message("acme", b"x", weight=Weight(100, 1))
    queue.blocks.settle(queue.blocks.plan())
    (aside,) = queue.set_aside.list()
    first = queue.blocks.plan_overweight(aside.address, Weight(1_000, 1 << 20), key="by hand", lease=0.01)
    sleep(0.05)
    again = queue.blocks.plan_overweight(aside.address, Weight(1_000, 1 << 20), key="by hand")
    assert again.token != first.token
    assert again.state_at(datetime.now(timezone.utc)) == "planned"
    queue.blocks.report(again, [batch.answer() for batch in again.batches()])
    assert queue.blocks.settle(again).processed == 1
