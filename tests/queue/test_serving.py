"""Servicing in this process: what processors are handed, may do, and answer."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from airflow_mq import (
    Address,
    BadFormat,
    Batch,
    Corrupt,
    Delivery,
    Done,
    Footprint,
    MessageQueue,
    Outcome,
    Overweight,
    StackLimitReached,
    Unsupported,
    Weight,
    Yield,
    batch_processor,
)
from airflow_mq.core.errors import Busy, RecursiveDisallowed
from airflow_mq.store import sqlite
from tests.model.clock import Clock
from tests.queue.conftest import Maker, serve, told


@pytest.mark.parametrize("answer", [None, True, Done()])
def test_done(queue: MessageQueue, answer: Any) -> None:
    queue.enqueue_message("acme", b"a")
    result = queue.service_queues(lambda delivery: answer)
    assert (result.processed, result.weight) == (1, Weight(1, 1))
    (event,) = queue.inspect.events()
    assert (event.name, event.success, event.weight) == ("Processed", True, Weight(1, 1))


@pytest.mark.parametrize("answer", [False, Done(success=False)])
def test_done_without_success(queue: MessageQueue, answer: Any) -> None:
    queue.enqueue_message("acme", b"a")
    queue.service_queues(lambda delivery: answer)
    assert [event.success for event in queue.inspect.events()] == [False]
    assert queue.footprints() == []


@pytest.mark.parametrize("answer", [BadFormat(), Corrupt(), Unsupported(), StackLimitReached()])
def test_wrong_for_good(queue: MessageQueue, answer: Outcome) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    assert len(serve(queue, lambda delivery: answer)) == 2
    assert [event.error for event in queue.inspect.events()] == [type(answer).__name__] * 2
    assert queue.footprints() == []


def test_not_now_stops_the_queue_and_no_other(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    queue.enqueue_message("globex", b"c")
    seen = serve(queue, lambda delivery: Yield() if delivery.origin == "acme" else None)
    assert set(seen) == {("acme", b"a"), ("globex", b"c")}
    assert serve(queue) == [("acme", b"a"), ("acme", b"b")]


def test_overweight_for_good_is_set_aside(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    seen = serve(queue, lambda delivery: Overweight(Weight(600_001, 0)) if delivery.payload == b"a" else None)
    assert seen == [("acme", b"a"), ("acme", b"b")]
    assert told(queue) == [("OverweightEnqueued", "acme", 0, 0), ("Processed", "acme", 0, 1)]
    (aside,) = queue.set_aside.list()
    assert (aside.address, aside.weight, aside.limit, aside.reason) == (
        Address("acme", 0, 0), Weight(600_001, 0), Weight(600_000, 1 << 30), "overweight"
    )  # fmt: skip


def test_overweight_for_now_waits(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")
    # A ring of one is tried twice.
    assert serve(queue, lambda delivery: Overweight(Weight(600_000, 0))) == [("acme", b"a")] * 2
    assert serve(queue) == [("acme", b"a")]


def test_never_more_than_the_limit(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"x"] * 10, weight=Weight(3, 1))
    result = queue.service_queues(lambda delivery: None, limit=Weight(10, 100))
    assert (result.processed, result.weight) == (3, Weight(9, 3))


def test_what_is_raised_means_not_now(queue: MessageQueue, caplog: pytest.LogCaptureFixture) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])

    def fail(delivery: Delivery) -> None:
        raise LookupError("no such customer")

    assert serve(queue, fail)[0] == ("acme", b"a")
    assert "the processor failed on acme:0:0" in caplog.text
    assert [one.attempts > 0 for one in queue.inspect.peek("acme")] == [True, False]
    assert serve(queue) == [("acme", b"a"), ("acme", b"b")]


def test_an_answer_that_is_none_means_not_now(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")
    assert serve(queue, lambda delivery: "fine") == [("acme", b"a")] * 2
    assert queue.footprint("acme").count == 1


def test_stopped_in_the_middle_what_was_done_is_kept(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b", b"c"])

    def stop(delivery: Delivery) -> None:
        if delivery.payload == b"c":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve(queue, stop)
    assert [one.payload for one in queue.inspect.peek("acme")] == [b"c"]
    assert serve(queue) == [("acme", b"c")]


def test_a_service_commits_before_a_message_that_takes_long(queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"quick", b"quick"])
    queue.enqueue_message("a", b"slow", weight=Weight(5_000, 1))
    left: list[list[bytes]] = []

    def process(delivery: Delivery) -> None:
        if delivery.payload == b"slow":
            with MessageQueue(queue.store.address.uri, queue.ring) as other:
                left.append([one.payload for one in other.inspect.peek("a")])

    queue.service_queues(process, slice_seconds=4.9)

    assert left == [[b"slow"]]


# What a processor may do.


def test_what_it_enqueues_is_serviced_in_the_same_call(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")

    def more(delivery: Delivery) -> None:
        if delivery.payload == b"a":
            queue.enqueue_message("acme", b"b")
            queue.enqueue_messages([("globex", b"c")])
            delivery.enqueue("acme", b"d")

    assert serve(queue, more) == [("acme", b"a"), ("acme", b"b"), ("acme", b"d"), ("globex", b"c")]


@pytest.mark.parametrize(
    "answer", [Yield(), BadFormat(), Overweight(Weight(1, 600_000)), Overweight(Weight(1 << 40, 0))]
)
def test_what_it_enqueued_is_undone_unless_it_is_done(queue: MessageQueue, answer: Outcome) -> None:
    queue.enqueue_message("acme", b"a")

    def more(delivery: Delivery) -> Outcome:
        queue.enqueue_message("globex", b"b")
        return answer

    serve(queue, more)
    assert queue.footprint("globex").count == 0


def test_what_it_enqueued_is_undone_when_it_raises(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")

    def more(delivery: Delivery) -> None:
        delivery.enqueue("globex", b"b")
        raise RuntimeError

    serve(queue, more)
    assert queue.footprints() == [("acme", Footprint(1, 1, 1, 1))]


def test_nothing_of_it_is_there_before_the_outcome_is(make_queue: Maker) -> None:
    queue, other = make_queue(order="rotation"), make_queue()
    queue.enqueue_messages("acme", [b"a", b"b"])
    seen: list[tuple[int, int]] = []

    def more(delivery: Delivery) -> None:
        delivery.enqueue("globex", b"c")
        seen.append((other.footprint("acme").count, other.footprint("globex").count))

    queue.admin.pause("globex")
    queue.service_queues(more, slice_messages=1, slice_seconds=600)
    # Each slice commits a message together with what it sent.
    assert seen == [(2, 0), (1, 1)]
    assert (queue.footprint("acme").count, queue.footprint("globex").count) == (0, 2)


def test_it_may_do_nothing_else(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")
    calls = [
        lambda: queue.blocks.plan(),
        lambda: queue.execute_overweight(Address("acme", 0, 0), lambda delivery: True),
        lambda: queue.set_aside.discard(Address("acme", 0, 0), "why"),
        lambda: queue.reap_page("acme", 0),
        lambda: queue.admin.pause("acme"),
        lambda: queue.admin.resume("acme"),
        lambda: queue.sweep_queue("acme"),
        lambda: queue.admin.force_set_head("acme"),
        lambda: queue.admin.set_origin("acme", share=2),
        lambda: queue.admin.change_ring(max_stale=3),
        lambda: queue.admin.create_ring("another"),
        lambda: queue.admin.housekeep(),
    ]
    refused: list[int] = []

    def meddle(delivery: Delivery) -> None:
        assert queue.service_queues(lambda inner: True).weight == Weight(0, 0)
        for number, call in enumerate(calls):
            try:
                call()
            except RecursiveDisallowed:
                refused.append(number)

    assert len(serve(queue, meddle)) == 1
    assert refused == list(range(len(calls)))
    assert queue.admin.rings() == ["default", "test"]


def test_it_may_look(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")
    found: list[Any] = []
    serve(queue, lambda delivery: found.append((queue.footprint("acme").count, queue.inspect.peek("acme")[0].payload)))
    assert found == [(1, b"a")]


# Slices, batches, and the lease.


def test_results_are_committed_slice_by_slice(make_queue: Maker) -> None:
    queue, other = make_queue(order="rotation"), make_queue()
    queue.enqueue_messages("acme", [b"%d" % number for number in range(10)])
    left: list[int] = []
    result = queue.service_queues(
        lambda delivery: left.append(other.footprint("acme").count), slice_messages=4, slice_seconds=600
    )
    assert result.processed == 10
    assert left == [10, 10, 10, 10, 6, 6, 6, 6, 2, 2]


def test_progress_is_told_after_each_commit(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"x"] * 10)
    told: list[int] = []
    queue.service_queues(
        lambda delivery: None, slice_messages=4, slice_seconds=600,
        progress=lambda so_far: told.append(so_far.processed),
    )  # fmt: skip
    assert told == [4, 8, 10]


def test_senders_go_on_while_a_message_is_processed(make_queue: Maker) -> None:
    queue, sender = make_queue(order="rotation"), make_queue()
    queue.enqueue_message("acme", b"a")
    thread_sent: list[int] = []

    def slow(delivery: Delivery) -> None:
        if delivery.payload == b"a":
            thread = threading.Thread(target=lambda: thread_sent.append(sender.enqueue_message("acme", b"b").count))
            thread.start()
            thread.join(10)

    serve(queue, slow)
    assert thread_sent == [1]
    assert queue.footprint("acme").count in (0, 1)


def test_whoever_waits_to_write_gets_in_beside_a_service_that_never_rests(
    make_queue: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, sender = make_queue(), make_queue()
    queue.enqueue_messages("acme", [b"x"] * 30)
    committed: list[int] = []
    sent: list[int] = []

    def rest(seconds: float) -> None:
        # Longer than SQLite lets those who wait sleep between two tries; and nobody keeps the file from them.
        assert seconds > 0.1
        with sender.store.writing(wait=False):
            sent.append(len(committed))

    monkeypatch.setattr(sqlite, "KEPT", 1e-9)
    monkeypatch.setattr(sqlite.time, "sleep", rest)
    serve(queue, slice_messages=1, progress=lambda _: committed.append(1))

    # It rests after each commit; on PostgreSQL senders never wait for it.
    is_sqlite = queue.store.address.driver == "sqlite"
    assert len(committed) >= 30 and sent == (list(range(len(committed))) if is_sqlite else [])
    # What is not kept from others for long needs no rest.
    monkeypatch.setattr(sqlite, "KEPT", 1e9)
    queue.enqueue_message("acme", b"x")
    serve(queue)
    assert len(sent) == (len(committed) if is_sqlite else 0)


def test_a_second_service_waits_and_is_refused_by_name(make_queue: Maker) -> None:
    queue, other = make_queue(order="rotation", who="first"), make_queue(who="second")
    queue.enqueue_message("acme", b"a")
    errors: list[str] = []

    def slow(delivery: Delivery) -> None:
        def try_it() -> None:
            other.session.busy_timeout = 0.1
            for call in (
                lambda: other.service_queues(lambda inner: True),
                lambda: other.blocks.plan(),
                lambda: other.reap_page("acme", 0),
                lambda: other.execute_overweight(Address("acme", 0, 0), lambda inner: True),
            ):
                try:
                    call()
                except Busy as error:
                    errors.append(str(error))

        thread = threading.Thread(target=try_it)
        thread.start()
        thread.join(30)

    assert serve(queue, slow) == [("acme", b"a")]
    assert len(errors) == 4
    assert all("serviced by tester" in error or "by first" in error for error in errors)


def test_batches(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b", b"c"])
    queue.enqueue_message("globex", b"d")
    seen: list[tuple[str, list[bytes]]] = []

    def process(batch: Batch) -> None:
        seen.append((batch.origin, list(batch.payloads)))

    result = queue.service_queues(batch_processor(process))
    assert result.processed == 4
    assert seen == [("acme", [b"a", b"b", b"c"]), ("globex", [b"d"])]


def test_batches_with_an_answer_each(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b", b"c", b"d"])
    answers: list[Any] = [Done(enqueue=[("globex", b"e")]), BadFormat(), False, None]
    queue.service_queues(batch_processor(lambda batch: answers if batch.origin == "acme" else None))
    assert [(event.name, event.payload if hasattr(event, "payload") else event.index) for event in queue.inspect.events()] == [
        ("Processed", 0), ("ProcessingFailed", 1), ("Processed", 2), ("Processed", 3), ("Processed", 0)
    ]  # fmt: skip
    assert queue.footprints() == []


def test_a_batch_that_stops_in_the_middle(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b", b"c"])
    queue.service_queues(batch_processor(lambda batch: [Yield() if one == b"b" else None for one in batch.payloads]))
    assert [one.payload for one in queue.inspect.peek("acme")] == [b"b"]


def test_a_batch_that_raises_or_answers_too_few_goes_back(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    queue.service_queues(batch_processor(lambda batch: [1 / 0]))
    queue.service_queues(batch_processor(lambda batch: []))
    assert [one.payload for one in queue.inspect.peek("acme")] == [b"a", b"b"]
    assert len(serve(queue)) == 2


def test_attempts_and_backoff_in_place(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue(order="rotation", max_attempts=2, backoff=10.0)
    queue.enqueue_messages("acme", [b"a", b"b"])
    assert serve(queue, lambda delivery: Yield()) == [("acme", b"a")]
    assert serve(queue) == []
    clock.advance(10)
    assert serve(queue, lambda delivery: Yield() if delivery.payload == b"a" else None)
    assert [(one.address.index, one.reason) for one in queue.set_aside.list()] == [(0, "attempts")]
    clock.advance(20)
    assert queue.footprint("acme").count == 1 or serve(queue)
    assert ("AttemptsExhausted", "acme", 0, 0) in told(queue)


def test_every_order_serves_everything(make_queue: Maker) -> None:
    for order in ("deficit", "rotation", "shuffle"):
        queue = make_queue(order, order=order)
        pairs = [(f"o{number % 5}", b"%d" % number) for number in range(100)]
        queue.enqueue_messages(pairs)
        seen = serve(queue)
        for name in {origin for origin, _ in pairs}:
            assert [pair for pair in seen if pair[0] == name] == [pair for pair in pairs if pair[0] == name]


# Listeners.


def test_listeners_are_told_once_per_call_in_order(make_queue: Maker) -> None:
    calls: list[tuple[str, Footprint]] = []
    queue = make_queue(order="rotation", listeners=[lambda *call: calls.append(call)])
    queue.enqueue_messages("acme", [b"a", b"b"])
    queue.enqueue_message("globex", b"c")
    queue.service_queues(lambda delivery: None)
    assert calls == [
        ("acme", Footprint(1, 1, 2, 2)), ("globex", Footprint(1, 1, 1, 1)),
        ("acme", Footprint(0, 0, 0, 0)), ("globex", Footprint(0, 0, 0, 0)),
    ]  # fmt: skip


def test_listeners_are_told_of_blocks_when_they_settle(make_queue: Maker) -> None:
    calls: list[tuple[str, Footprint]] = []
    queue = make_queue(order="rotation", listeners=[lambda *call: calls.append(call)])
    queue.enqueue_messages("acme", [b"a", b"b"])
    block = queue.blocks.plan()
    assert len(calls) == 1
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)
    assert calls[1:] == [("acme", Footprint(0, 0, 0, 0))]


def test_listeners_hear_what_others_sent_before(make_queue: Maker) -> None:
    calls: list[tuple[str, Footprint]] = []
    silent = make_queue(order="rotation")
    silent.enqueue_messages("acme", [b"a", b"b"])
    listening = make_queue(listeners=[lambda *call: calls.append(call)])
    listening.enqueue_message("globex", b"c")
    assert calls == [("acme", Footprint(1, 1, 2, 2)), ("globex", Footprint(1, 1, 1, 1))]
