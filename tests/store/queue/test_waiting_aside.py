"""Backoff of relaxed queues: a message that returned waits aside, and the others of its queue go on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_mq import (
    Address,
    Block,
    Delivery,
    Done,
    MessageQueue,
    Outcome,
    Report,
    Weight,
    Yield,
    batch_processor,
)
from airflow_mq.engine.queue.blocks import settling
from airflow_mq.engine.rules.errors import Busy
from airflow_mq.engine.rules.message import message_id
from airflow_mq.testing.conformance import observe
from tests.proofs.model.clock import Clock
from tests.store.queue.conftest import Maker, serve
from tests.store.test_plain_path import calls

BACKOFF = 60.0
ENOUGH = Weight(100, 1 << 20)
Answers = dict[bytes, Outcome]


def relaxed(make_queue: Maker, **settings: object) -> MessageQueue:
    return make_queue(**{"order": "rotation", "ordered": False, "backoff": BACKOFF, **settings})


def report(queue: MessageQueue, block: Block, answers: Answers) -> None:
    """Report an outcome for each message that has one."""
    queue.blocks.report(
        block,
        [
            Report(batch.origin, batch.page, at, at, answers[payload], batch.priority)
            for batch in block.batches()
            for at, payload in enumerate(batch.payloads, start=batch.first)
            if payload in answers
        ],
    )


def run_block(queue: MessageQueue, answers: Answers, limit: Weight = ENOUGH) -> Any:
    block = queue.blocks.plan(limit=limit)
    report(queue, block, answers)
    return queue.blocks.settle(block)


def waiting(queue: MessageQueue, origin: str = "acme") -> list[bytes]:
    return [one.payload for one in queue.inspect.peek(origin)]


def delayed(queue: MessageQueue) -> int:
    return queue.inspect.backlog().delayed


def yields_for(*payloads: bytes) -> Any:
    return lambda delivery: Yield("later") if delivery.payload in payloads else None


# Ways to go back.


def test_the_others_of_a_relaxed_queue_go_on_at_once(make_queue: Maker, clock: Clock) -> None:
    queue = relaxed(make_queue)
    queue.enqueue_messages("acme", [b"a", b"b", b"c"])
    settled = run_block(queue, {b"a": Yield("later"), b"b": Done()}, Weight(2, 10))
    assert (settled.processed, settled.returned) == (1, 1)
    assert (waiting(queue), queue.footprint("acme").count, delayed(queue)) == ([b"c"], 1, 1)
    assert run_block(queue, {b"c": Done()}).processed == 1
    clock.advance(BACKOFF - 1)
    assert serve(queue) == []
    clock.advance(1)
    assert serve(queue) == [("acme", b"a")]


def test_an_ordered_queue_waits_as_a_whole(make_queue: Maker, clock: Clock) -> None:
    queue = relaxed(make_queue, ordered=True)
    queue.enqueue_messages("acme", [b"a", b"b"])
    run_block(queue, {b"a": Yield("later")})
    assert (waiting(queue), serve(queue)) == ([b"a", b"b"], [])
    clock.advance(BACKOFF)
    assert serve(queue) == [("acme", b"a"), ("acme", b"b")]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_backoff_in_place_begins_when_the_attempt_ends(make_queue: Maker, clock: Clock, ordered: bool) -> None:
    queue = relaxed(make_queue, ordered=ordered)
    queue.enqueue_message("acme", b"a")

    def fail_slowly(delivery: Delivery) -> Outcome:
        clock.advance(2 * BACKOFF)
        return Yield("later")

    assert serve(queue, fail_slowly) == [("acme", b"a")]
    clock.advance(BACKOFF - 1)
    assert serve(queue) == []
    clock.advance(1)
    assert serve(queue) == [("acme", b"a")]


def test_a_queue_that_became_ordered_meanwhile_keeps_its_order(make_queue: Maker, clock: Clock) -> None:
    queue = relaxed(make_queue)
    queue.enqueue_messages("acme", [b"a", b"b"])
    block = queue.blocks.plan(limit=ENOUGH)
    queue.admin.set_origin("acme", ordered=True)
    report(queue, block, {b"b": Yield("later")})
    queue.blocks.settle(block)
    assert serve(queue) == []
    clock.advance(BACKOFF)
    assert serve(queue) == [("acme", b"a"), ("acme", b"b")]


@pytest.mark.parametrize("how", ["release", "lost lease"])
def test_messages_of_a_block_without_outcomes_wait_aside(make_queue: Maker, clock: Clock, how: str) -> None:
    queue = relaxed(make_queue, heap_size=40)
    queue.enqueue_messages("acme", [b"message %d" % number for number in range(5)])
    block = queue.blocks.plan(limit=Weight(3, 1 << 10))
    if how == "release":
        queue.blocks.release(block)
    else:
        clock.advance(queue.session.config.lease)
        assert queue.blocks.release_dead() == 1
    assert (waiting(queue), delayed(queue)) == ([b"message 3", b"message 4"], 3)
    assert serve(queue) == [("acme", b"message 3"), ("acme", b"message 4")]
    clock.advance(BACKOFF)
    assert serve(queue) == [("acme", b"message %d" % number) for number in range(3)]


def test_a_leased_message_that_is_given_back_waits_aside(make_queue: Maker, clock: Clock) -> None:
    queue = relaxed(make_queue)
    queue.enqueue_messages("acme", [b"a", b"b"])
    view = queue.leases.view("acme")
    token = view.try_next()
    assert token is not None and token.fetch() == b"a"
    token.give_back()
    assert [token.fetch() for token in view] == [b"b"]
    clock.advance(BACKOFF)
    again = view.try_next()
    assert again is not None and (again.fetch(), again.address == token.address) == (b"a", False)
    again.complete()


@pytest.mark.parametrize("order", ["rotation", "deficit", "shuffle"])
def test_service_in_place(make_queue: Maker, clock: Clock, order: str) -> None:
    queue = relaxed(make_queue, order=order, heap_size=40)
    payloads = [b"message %d" % number for number in range(6)]
    queue.enqueue_messages("acme", payloads)
    seen: list[bytes] = []
    for _ in range(4):
        seen += [payload for _, payload in serve(queue, yields_for(payloads[1], payloads[5]))]
    assert seen == payloads, "each was tried once, whether others wait aside or not"
    assert (queue.footprint("acme").count, queue.footprint("acme").pages, delayed(queue)) == (0, 0, 2)
    clock.advance(BACKOFF)
    assert serve(queue) == [("acme", payloads[1]), ("acme", payloads[5])]


@pytest.mark.parametrize("metering", [False, True])
def test_the_cursor_of_a_page_moves_past_messages_that_wait_aside(
    make_queue: Maker, clock: Clock, metering: bool
) -> None:
    queue = relaxed(make_queue, rounds_per_block=1)
    queue.enqueue_messages("1", [b"a", b"b", b"c"])
    processor = yields_for(b"a", b"b", b"c")
    processor.meters_itself = metering
    queue.service_queues(processor, slice_messages=1)
    assert waiting(queue, "1") == [b"c"], "a call visits a queue twice"
    assert observe(queue)["books"]["1"]["pages"]["0"]["first_index"] == 2  # type: ignore[index]


@pytest.mark.parametrize("metering", [False, True])
def test_the_last_message_of_a_page_waits_aside(make_queue: Maker, clock: Clock, metering: bool) -> None:
    queue = relaxed(make_queue, heap_size=40)
    queue.enqueue_messages("acme", [b"x" * 30, b"y" * 30])

    def processor(delivery: Delivery) -> Outcome | None:
        return Yield() if delivery.payload[:1] == b"x" else None

    processor.meters_itself = metering  # type: ignore[attr-defined]
    queue.service_queues(processor)
    queue.service_queues(processor)
    assert queue.check() == []
    assert (queue.footprint("acme").count, delayed(queue)) == (0, 1)


def test_each_answer_of_a_batch_counts(make_queue: Maker, clock: Clock) -> None:
    queue = relaxed(make_queue)
    queue.enqueue_messages("acme", [b"a", b"b", b"c", b"d"])
    queue.service_queues(batch_processor(lambda batch: [Yield(), Done(), Yield(), Done()]), ENOUGH)
    assert (waiting(queue), delayed(queue)) == ([], 2)
    clock.advance(BACKOFF)
    assert [one.attempts for one in queue.inspect.peek("acme")] == [1, 1]


def test_a_message_sent_and_tried_in_one_slice_waits_aside(make_queue: Maker, clock: Clock) -> None:
    queue = relaxed(make_queue, heap_size=40)

    def processor(delivery: Delivery) -> Outcome | None:
        if delivery.payload == b"parent":
            delivery.enqueue("acme", b"child")
            return None
        return Yield("later")

    queue.enqueue_message("acme", b"parent")
    queue.service_queues(processor)
    assert (queue.footprint("acme").count, delayed(queue)) == (0, 1)
    clock.advance(BACKOFF)
    assert serve(queue) == [("acme", b"child")]


# What is kept.


def test_a_message_that_waited_aside_keeps_what_is_known_of_it(make_queue: Maker, clock: Clock) -> None:
    queue = relaxed(make_queue, max_attempts=3)
    queue.enqueue_message("acme", b"a", headers={"trace": "1"}, weight=Weight(7, 1), key="once", expires=10_000)
    queue.enqueue_message("acme", b"plain")
    before = queue.inspect.peek("acme")[0].sent_at
    for attempt in (1, 2):
        run_block(queue, {b"plain": Done()})
        assert queue.enqueue_message("acme", b"a", key="once").repeated == 1
        clock.advance(BACKOFF * 2 ** (attempt - 1))
        (found,) = queue.inspect.peek("acme")
        assert (found.attempts, dict(found.headers), found.weight) == (attempt, {"trace": "1"}, Weight(7, 1))
        assert (found.sent_at, found.payload) == (before, b"a")
    run_block(queue, {})
    (aside,) = queue.set_aside.list()
    assert (aside.reason, aside.id, delayed(queue)) == ("attempts", message_id(b"a"), 0)


def test_a_message_that_expires_meanwhile_is_dropped(make_queue: Maker, clock: Clock) -> None:
    queue = relaxed(make_queue)
    queue.enqueue_message("acme", b"a", expires=BACKOFF / 2)
    run_block(queue, {})
    clock.advance(BACKOFF)
    assert run_block(queue, {}).expired == 1


def test_high_messages_stay_high(make_queue: Maker, clock: Clock) -> None:
    queue = relaxed(make_queue)
    queue.enqueue_message("acme", b"high", priority="high")
    queue.enqueue_message("acme", b"regular")
    assert serve(queue, yields_for(b"high")) == [("acme", b"high"), ("acme", b"regular")]
    queue.enqueue_message("acme", b"late")
    clock.advance(BACKOFF)
    assert serve(queue) == [("acme", b"high"), ("acme", b"late")]


def test_external_payload(make_queue: Maker, clock: Clock) -> None:
    queue = relaxed(make_queue)
    payload = b"long " * 40_000
    with queue.payloads.put(payload) as held:
        queue.enqueue_message("acme", held.reference)
    run_block(queue, {})
    assert queue.check() == []
    queue.admin.housekeep()
    clock.advance(BACKOFF)
    seen: list[bytes] = []
    queue.service_queues(lambda delivery: seen.append(delivery.open_blob().read()))
    assert seen == [payload]
    assert queue.check() == []


def test_block_that_is_settled_in_parts(make_queue: Maker, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "PART", 3)
    queue = relaxed(make_queue, heap_size=64)
    payloads = [b"message %d" % number for number in range(20)]
    queue.enqueue_messages("acme", payloads)
    odd = payloads[1::2]
    settled = run_block(queue, {payload: Done() for payload in payloads if payload not in odd})
    assert (settled.processed, settled.returned, delayed(queue)) == (10, 10, 10)
    clock.advance(BACKOFF)
    assert serve(queue) == [("acme", payload) for payload in odd]


def test_requeued_after_its_attempts(make_queue: Maker, clock: Clock) -> None:
    queue = relaxed(make_queue, max_attempts=2)
    queue.enqueue_message("acme", b"a")
    for _ in range(2):
        run_block(queue, {})
        clock.advance(BACKOFF)
    (aside,) = queue.set_aside.list()
    assert len(queue.set_aside.requeue(aside.address, forget_attempts=True).moved) == 1
    run_block(queue, {b"a": Done()})
    history = queue.inspect.history(message_id(b"a"))
    assert [step.what for step in history.steps if step.what != "planned"] == [
        "enqueued", "returned", "set aside", "requeued", "processed",
    ]  # fmt: skip
    assert (history.state, len(history.addresses)) == ("gone", 3)


# What readers show.


def test_readers_show_that_it_waits_aside(make_queue: Maker, clock: Clock) -> None:
    queue = relaxed(make_queue)
    queue.enqueue_messages("acme", [b"a", b"b"])
    run_block(queue, {b"a": Yield("not now"), b"b": Done()})
    first, due = Address("acme", 0, 0), clock.now + int(BACKOFF * 1_000_000)
    (event,) = queue.inspect.events(name="Returned")
    assert (event.why, event.last_error, event.wait) == ("not now", "not now", (BACKOFF, (0, 1)))

    found = queue.inspect.explain_message(first)
    assert (found.reason, found.block, found.last_error) == ("backoff", None, "not now")
    assert "waits aside until" in found.sentence
    assert queue.inspect.explain("acme").reason == "not due"
    assert list(queue.inspect.forecast(3)) == []
    assert queue.inspect.dry_run().messages == 0
    for asked in (first, message_id(b"a")):
        history = queue.inspect.history(asked)
        assert (history.state, history.id, history.addresses) == ("waiting", message_id(b"a"), [first])
        assert history.due is not None and int(history.due.timestamp() * 1_000_000) == due
        assert [step.what for step in history.steps] == ["enqueued", "planned", "returned"]

    clock.advance(BACKOFF)
    queue.enqueue_message("acme", b"c")
    assert queue.inspect.dry_run(limit=Weight(10, 10)).messages == 2
    queue.blocks.plan(limit=Weight(0, 1))
    second = next(one.address for one in queue.inspect.peek("acme") if one.payload == b"a")
    for asked in (first, second, message_id(b"a")):
        history = queue.inspect.history(asked)
        assert (history.state, history.addresses, history.due) == ("waiting", [first, second], None)
    serve(queue)
    for asked in (first, second, message_id(b"a")):
        history = queue.inspect.history(asked)
        assert (history.state, history.addresses) == ("gone", [first, second])
        assert [step.what for step in history.steps] == ["enqueued", "planned", "returned", "processed"]


def test_history_of_messages_with_the_same_bytes(make_queue: Maker, clock: Clock) -> None:
    queue = relaxed(make_queue)
    queue.enqueue_messages("acme", [b"ping", b"ping"])
    block = queue.blocks.plan(limit=ENOUGH)
    queue.blocks.report(block, [Report("acme", 0, 1, 1, Done())])
    queue.blocks.settle(block)
    assert queue.inspect.history(Address("acme", 0, 0)).state == "waiting"
    assert queue.inspect.history(Address("acme", 0, 1)).state == "gone"
    clock.advance(BACKOFF)
    serve(queue)
    assert len(queue.inspect.history(Address("acme", 0, 0)).addresses) == 2
    assert len(queue.inspect.history(Address("acme", 0, 1)).addresses) == 1


def test_a_swept_queue_does_not_concern_what_waits_aside(make_queue: Maker, clock: Clock) -> None:
    queue = relaxed(make_queue)
    queue.enqueue_messages("acme", [b"a", b"b"])
    run_block(queue, {}, Weight(1, 1))
    assert queue.sweep_queue("acme") == 1
    history = queue.inspect.history(Address("acme", 0, 0))
    assert (history.state, [step.what for step in history.steps]) == ("waiting", ["enqueued", "planned", "returned"])
    clock.advance(BACKOFF)
    assert serve(queue) == [("acme", b"a")]


def test_recorded_end(make_queue: Maker, clock: Clock) -> None:
    queue, other = relaxed(make_queue, service_weight=ENOUGH), relaxed(make_queue)
    queue.enqueue_messages("acme", [b"a", b"b"])
    block = queue.blocks.plan()
    queue.enqueue_message("globex", b"c")
    states: list[tuple[Any, ...]] = []

    def processor(delivery: Delivery) -> None:
        report(other, block, {b"b": Done()})
        settled = other.blocks.settle(block)
        found = other.inspect.explain_message(Address("acme", 0, 0))
        history = other.inspect.history(Address("acme", 0, 0))
        states.append((settled.returned, waiting(other), delayed(other), found.reason, history.state, other.check()))

    with ThreadPoolExecutor(1) as thread:
        queue.service_queues(lambda delivery: thread.submit(processor, delivery).result())
    assert states == [(1, [], 1, "backoff", "waiting", [])]
    assert (waiting(queue), delayed(queue)) == ([], 1)
    clock.advance(BACKOFF)
    assert serve(queue) == [("acme", b"a")]


# The end of a backoff.


@pytest.mark.parametrize("ordered", [True, False])
def test_resume_ends_a_backoff(make_queue: Maker, clock: Clock, ordered: bool) -> None:
    queue = relaxed(make_queue, ordered=ordered)
    queue.enqueue_messages("acme", [b"a", b"b"])
    queue.enqueue_messages("acme", [b"later"], not_before=3 * BACKOFF)
    queue.enqueue_message("globex", b"g")
    run_block(queue, {b"a": Yield("later"), b"b": Yield("later"), b"g": Yield("later")})
    assert (serve(queue), queue.admin.resume("nobody")) == ([], False)
    assert (queue.admin.resume("acme"), queue.admin.resume("acme")) == (True, False)
    assert serve(queue, yields_for(b"b"))[:2] == [("acme", b"a"), ("acme", b"b")]
    # Its attempts stay counted, and the message that the sender delayed is not due.
    clock.advance(BACKOFF)
    assert serve(queue) == [("globex", b"g")]
    clock.advance(BACKOFF)
    assert serve(queue) == [("acme", b"b")]
    assert (queue.admin.resume("acme"), delayed(queue)) == (False, 1)


def test_resume_ends_a_pause_and_a_backoff_of_both_priorities(make_queue: Maker) -> None:
    for ordered in (True, False):
        queue = relaxed(make_queue, ordered=ordered, ring=f"ring-{ordered}", high=True)
        queue.enqueue_message("acme", b"a")
        queue.enqueue_message("acme", b"A", priority="high")
        run_block(queue, {b"a": Yield("later"), b"A": Yield("later")})
        queue.admin.pause("acme")
        assert serve(queue) == []
        assert (queue.admin.resume("acme"), queue.admin.paused(), queue.admin.resume("acme")) == (True, [], False)
        assert serve(queue) == [("acme", b"A"), ("acme", b"a")]


def test_resume_of_a_recorded_end(make_queue: Maker) -> None:
    """A block ended while the ring was held: its end is applied first, and its backoff ends as well."""
    queue, other = relaxed(make_queue, service_weight=ENOUGH), relaxed(make_queue)
    queue.enqueue_messages("acme", [b"a", b"b"])
    block = queue.blocks.plan()
    queue.enqueue_message("globex", b"c")
    other.session.busy_timeout = 0.1
    held: list[object] = []

    def processor(delivery: Delivery) -> None:
        report(other, block, {b"b": Done()})
        other.blocks.settle(block)
        other.admin.pause("acme")
        with pytest.raises(Busy):
            other.admin.resume("acme")
        held.append([one.origin for one in other.admin.paused()])

    with ThreadPoolExecutor(1) as thread:
        queue.service_queues(lambda delivery: thread.submit(processor, delivery).result())
    assert held == [["acme"]]
    assert other.admin.resume("acme") is True
    assert (other.admin.paused(), serve(queue)) == ([], [("acme", b"a")])


# Cost.


def test_a_message_that_waits_aside_takes_few_calls(make_queue: Maker) -> None:
    """A release writes each message once more. It calls no function for that twice where once is enough."""
    found = []
    for backoff in (0.0, BACKOFF):
        for count in (100, 1_100):
            queue = make_queue(f"r{int(backoff)}-{count}", order="rotation", ordered=False, backoff=backoff)
            queue.enqueue_messages("acme", [b"message %d" % number for number in range(count)])
            block = queue.blocks.plan(limit=Weight(2_000, 1 << 20))
            assert block.messages == count
            found.append(calls(lambda queue=queue, block=block: queue.blocks.release(block)))
    plain, aside = (found[1] - found[0]) / 1_000, (found[3] - found[2]) / 1_000
    assert aside - plain < 24, (plain, aside)
