"""Servicing in this process: deliveries, answers, nested calls, slices, batches and listeners."""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from contextlib import nullcontext
from types import SimpleNamespace
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
    Message,
    MessageQueue,
    Outcome,
    Overweight,
    StackLimitReached,
    Unsupported,
    Weight,
    Yield,
    batch_processor,
)
from airflow_mq.engine.rules.book import Book
from airflow_mq.engine.rules.errors import Busy, InvalidInput, RecursiveDisallowed
from airflow_mq.engine.rules.service import MOST_AHEAD
from airflow_mq.engine.rules.working_set import WorkingSet
from airflow_mq.engine.store import sqlite
from tests.holding import leave_dead
from tests.proofs.model.clock import Clock
from tests.store.queue.conftest import Maker, logged_events, serve


@pytest.mark.slow
@pytest.mark.sqlite_first
@pytest.mark.parametrize("size", [60_000, pytest.param(1_900, marks=pytest.mark.soak)])
def test_a_service_forgets_the_payloads_of_queues_that_returned(
    queue: MessageQueue, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr("airflow_mq.engine.queue.service.HELD", 2 << 20)
    count = (16 << 20) // size
    queue.enqueue_messages((f"o{number:05}", bytes(size)) for number in range(count))
    tries = 0

    def refuse(delivery: Delivery) -> Yield:
        nonlocal tries
        tries += 1
        assert len(delivery.payload) == size
        return Yield()

    # Beside a large heap, Python's collector of cycles comes late.
    gc.disable()
    tracemalloc.start()
    try:
        result = queue.service_queues(refuse)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()
    assert (tries, result.returned) == (count, count)
    # Two slices, what is read ahead, and what is known of each queue.
    assert peak < (10 << 20) + count * 3_150
    assert len(queue) == count


@pytest.mark.parametrize("answer", [None, True, Done()])
def test_done_answers_record_success(queue: MessageQueue, answer: Any) -> None:
    queue.enqueue_message("acme", b"a")
    result = queue.service_queues(lambda delivery: answer)
    assert (result.processed, result.weight) == (1, Weight(1, 1))
    (event,) = queue.inspect.events()
    assert (event.name, event.success, event.weight) == ("Processed", True, Weight(1, 1))


@pytest.mark.parametrize("answer", [False, Done(success=False)])
def test_done_without_success_records_no_success(queue: MessageQueue, answer: Any) -> None:
    queue.enqueue_message("acme", b"a")
    queue.service_queues(lambda delivery: answer)
    assert [event.success for event in queue.inspect.events()] == [False]
    assert queue.footprints() == []


@pytest.mark.parametrize("answer", [BadFormat(), Corrupt(), Unsupported(), StackLimitReached()])
def test_permanent_failures_remove_messages(queue: MessageQueue, answer: Outcome) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    assert len(serve(queue, lambda delivery: answer)) == 2
    assert [event.error for event in queue.inspect.events()] == [type(answer).__name__] * 2
    assert queue.footprints() == []


def test_yield_stops_only_its_queue(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    queue.enqueue_message("globex", b"c")
    seen = serve(queue, lambda delivery: Yield() if delivery.origin == "acme" else None)
    assert set(seen) == {("acme", b"a"), ("globex", b"c")}
    assert serve(queue) == [("acme", b"a"), ("acme", b"b")]


def test_message_heavier_than_the_ring_limit_is_set_aside(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    seen = serve(queue, lambda delivery: Overweight(Weight(600_001, 0)) if delivery.payload == b"a" else None)
    assert seen == [("acme", b"a"), ("acme", b"b")]
    assert logged_events(queue) == [("SetAside", "acme", 0, 0), ("Processed", "acme", 0, 1)]
    (aside,) = queue.set_aside.list()
    assert (aside.address, aside.weight, aside.limit, aside.reason) == (
        Address("acme", 0, 0), Weight(600_001, 0), Weight(600_000, 1 << 30), "overweight"
    )  # fmt: skip


def test_message_heavier_than_the_remaining_capacity_waits(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")
    # A ring with one queue is tried twice.
    assert serve(queue, lambda delivery: Overweight(Weight(600_000, 0))) == [("acme", b"a")] * 2
    assert serve(queue) == [("acme", b"a")]


def test_service_stays_within_its_limit(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"x"] * 10, weight=Weight(3, 1))
    result = queue.service_queues(lambda delivery: None, limit=Weight(10, 100))
    assert (result.processed, result.weight) == (3, Weight(9, 3))


def test_processor_exception_yields_the_message(queue: MessageQueue, caplog: pytest.LogCaptureFixture) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])

    def fail(delivery: Delivery) -> None:
        raise LookupError("no such customer")

    assert serve(queue, fail)[0] == ("acme", b"a")
    assert "the processor failed on acme:0:0" in caplog.text
    assert [message.attempts > 0 for message in queue.inspect.peek("acme")] == [True, False]
    assert serve(queue) == [("acme", b"a"), ("acme", b"b")]


def test_invalid_answer_yields_the_message(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")
    assert serve(queue, lambda delivery: "fine") == [("acme", b"a")] * 2
    assert queue.footprint("acme").count == 1


def test_interrupted_service_keeps_processed_results(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b", b"c"])

    def stop(delivery: Delivery) -> None:
        if delivery.payload == b"c":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve(queue, stop)
    assert [message.payload for message in queue.inspect.peek("acme")] == [b"c"]
    assert serve(queue) == [("acme", b"c")]


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_after_a_death_an_attempt_without_an_outcome_counts_only_if_the_service_died(
    queue: MessageQueue, error: type[BaseException] | None
) -> None:
    queue.enqueue_message("acme", b"a")
    leave_dead(queue.session)

    def process(delivery: Delivery) -> Outcome:
        if error:
            raise error
        return Overweight(Weight(600_000, 0))

    with pytest.raises(error) if error else nullcontext():
        queue.service_queues(process)
    assert [message.attempts for message in queue.inspect.peek("acme")] == [0]


def test_service_commits_before_a_slow_message(queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"quick", b"quick"])
    queue.enqueue_message("a", b"slow", weight=Weight(5_000, 1))
    remaining: list[list[bytes]] = []

    def process(delivery: Delivery) -> None:
        if delivery.payload == b"slow":
            with MessageQueue(queue.store.address.uri, queue.ring) as other:
                remaining.append([message.payload for message in other.inspect.peek("a")])

    queue.service_queues(process, slice_seconds=4.9)

    assert remaining == [[b"slow"]]


# Calls inside a processor.


def test_messages_of_a_processor_are_serviced_in_the_same_call(queue: MessageQueue) -> None:
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
def test_messages_of_a_processor_are_rolled_back_unless_done(queue: MessageQueue, answer: Outcome) -> None:
    queue.enqueue_message("acme", b"a")

    def more(delivery: Delivery) -> Outcome:
        queue.enqueue_message("globex", b"b")
        return answer

    serve(queue, more)
    assert queue.footprint("globex").count == 0


def test_messages_of_a_processor_are_rolled_back_when_it_raises(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")

    def more(delivery: Delivery) -> None:
        delivery.enqueue("globex", b"b")
        raise RuntimeError

    serve(queue, more)
    assert queue.footprints() == [("acme", Footprint(1, 1, 1, 1))]


def test_messages_of_a_processor_are_committed_with_its_outcome(make_queue: Maker) -> None:
    queue, other = make_queue(order="rotation"), make_queue()
    queue.enqueue_messages("acme", [b"a", b"b"])
    seen: list[tuple[int, int]] = []

    def more(delivery: Delivery) -> None:
        delivery.enqueue("globex", b"c")
        seen.append((other.footprint("acme").count, other.footprint("globex").count))

    queue.admin.pause("globex")
    queue.service_queues(more, slice_messages=1, slice_seconds=600)
    # Each slice commits a message together with the messages that its processor enqueued.
    assert seen == [(2, 0), (1, 1)]
    assert (queue.footprint("acme").count, queue.footprint("globex").count) == (0, 2)


def test_processor_cannot_call_other_operations(queue: MessageQueue) -> None:
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


def test_processor_can_inspect_the_queue(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")
    seen: list[Any] = []
    serve(queue, lambda delivery: seen.append((queue.footprint("acme").count, queue.inspect.peek("acme")[0].payload)))
    assert seen == [(1, b"a")]


# Slices, batches, and the lease.


def test_service_commits_each_slice(make_queue: Maker) -> None:
    queue, other = make_queue(order="rotation"), make_queue()
    queue.enqueue_messages("acme", [b"%d" % number for number in range(10)])
    remaining: list[int] = []
    result = queue.service_queues(
        lambda delivery: remaining.append(other.footprint("acme").count), slice_messages=4, slice_seconds=600
    )
    assert result.processed == 10
    assert remaining == [10, 10, 10, 10, 6, 6, 6, 6, 2, 2]


def test_progress_is_reported_after_each_commit(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"x"] * 10)
    processed_counts: list[int] = []
    queue.service_queues(
        lambda delivery: None, slice_messages=4, slice_seconds=600,
        progress=lambda so_far: processed_counts.append(so_far.processed),
    )  # fmt: skip
    assert processed_counts == [4, 8, 10]


def test_senders_enqueue_while_a_message_is_processed(make_queue: Maker) -> None:
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


def test_continuous_service_lets_other_writers_in(make_queue: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, sender = make_queue(), make_queue()
    queue.enqueue_messages("acme", [b"x"] * 30)
    committed: list[int] = []
    sent: list[int] = []

    def rest(seconds: float) -> None:
        # The rest is longer than SQLite's sleep between two attempts, and the file is unlocked.
        assert seconds > 0.1
        with sender.store.writing(wait=False):
            sent.append(len(committed))

    monkeypatch.setattr(sqlite, "KEPT", 1e-9)
    # Threads of other tests may sleep, too.
    monkeypatch.setattr(sqlite, "time", SimpleNamespace(sleep=rest, monotonic=time.monotonic))
    serve(queue, slice_messages=1, progress=lambda _: committed.append(1))

    # The service rests after each commit on SQLite; on PostgreSQL senders never wait for it.
    is_sqlite = queue.store.address.driver == "sqlite"
    assert len(committed) >= 30 and sent == (list(range(len(committed))) if is_sqlite else [])
    # A file that was locked only briefly needs no rest.
    monkeypatch.setattr(sqlite, "KEPT", 1e9)
    queue.enqueue_message("acme", b"x")
    serve(queue)
    assert len(sent) == (len(committed) if is_sqlite else 0)


def test_second_service_is_rejected_with_the_first_ones_name(make_queue: Maker) -> None:
    queue, other = make_queue(order="rotation", actor="first"), make_queue(actor="second")
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


def test_batch_processor_gets_one_batch_per_queue(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b", b"c"])
    queue.enqueue_message("globex", b"d")
    seen: list[tuple[str, list[bytes]]] = []

    def process(batch: Batch) -> None:
        seen.append((batch.origin, list(batch.payloads)))

    result = queue.service_queues(batch_processor(process))
    assert result.processed == 4
    assert seen == [("acme", [b"a", b"b", b"c"]), ("globex", [b"d"])]


def test_batch_processor_answers_each_message(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b", b"c", b"d"])
    answers: list[Any] = [Done(enqueue=[("globex", b"e")]), BadFormat(), False, None]
    queue.service_queues(batch_processor(lambda batch: answers if batch.origin == "acme" else None))
    assert [(event.name, event.payload if hasattr(event, "payload") else event.index) for event in queue.inspect.events()] == [
        ("Processed", 0), ("ProcessingFailed", 1), ("Processed", 2), ("Processed", 3), ("Processed", 0)
    ]  # fmt: skip
    assert queue.footprints() == []


@pytest.mark.parametrize("typed", [False, True])
def test_a_traced_batch_without_headers_is_processed_once(queue: MessageQueue, typed: bool) -> None:
    queue.enqueue_messages("acme", [b"1", b"2"])
    calls: list[int] = []

    def process(batch: Any) -> Any:
        calls.append(len(batch))
        return [Done()] * len(batch)

    traced = MessageQueue(queue.store, queue.ring, traces=True)
    if typed:
        result = traced.typed(int).service_batches(process, "acme", limit=Weight(1_000, 1 << 30))
    else:
        result = traced.service_queues(batch_processor(process), Weight(1_000, 1 << 30))
    assert (result.processed, calls) == (2, [2])


def test_yield_in_a_batch_requeues_its_message(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b", b"c"])
    queue.service_queues(
        batch_processor(lambda batch: [Yield() if payload == b"b" else None for payload in batch.payloads])
    )
    assert [message.payload for message in queue.inspect.peek("acme")] == [b"b"]


def test_failed_batch_is_requeued(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    queue.service_queues(batch_processor(lambda batch: [1 / 0]))
    queue.service_queues(batch_processor(lambda batch: []))
    assert [message.payload for message in queue.inspect.peek("acme")] == [b"a", b"b"]
    assert len(serve(queue)) == 2


def test_service_applies_attempts_and_backoff(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue(order="rotation", max_attempts=2, backoff=10.0)
    queue.enqueue_messages("acme", [b"a", b"b"])
    assert serve(queue, lambda delivery: Yield()) == [("acme", b"a")]
    assert serve(queue) == []
    clock.advance(10)
    assert serve(queue, lambda delivery: Yield() if delivery.payload == b"a" else None)
    assert [(aside.address.index, aside.reason) for aside in queue.set_aside.list()] == [(0, "attempts")]
    clock.advance(20)
    assert queue.footprint("acme").count == 1 or serve(queue)
    assert ("AttemptsExhausted", "acme", 0, 0) in logged_events(queue)


def test_each_order_services_all_messages(make_queue: Maker) -> None:
    for order in ("deficit", "rotation", "shuffle"):
        queue = make_queue(order, order=order)
        pairs = [(f"o{number % 5}", b"%d" % number) for number in range(100)]
        queue.enqueue_messages(pairs)
        seen = serve(queue)
        for name in {origin for origin, _ in pairs}:
            assert [pair for pair in seen if pair[0] == name] == [pair for pair in pairs if pair[0] == name]


# Listeners.


def test_listeners_are_called_once_per_call_in_order(make_queue: Maker) -> None:
    calls: list[tuple[str, Footprint]] = []
    queue = make_queue(order="rotation", listeners=[lambda *call: calls.append(call)])
    queue.enqueue_messages("acme", [b"a", b"b"])
    queue.enqueue_message("globex", b"c")
    queue.service_queues(lambda delivery: None)
    assert calls == [
        ("acme", Footprint(1, 1, 2, 2)), ("globex", Footprint(1, 1, 1, 1)),
        ("acme", Footprint(0, 0, 0, 0)), ("globex", Footprint(0, 0, 0, 0)),
    ]  # fmt: skip


def test_listeners_are_called_when_blocks_settle(make_queue: Maker) -> None:
    calls: list[tuple[str, Footprint]] = []
    queue = make_queue(order="rotation", listeners=[lambda *call: calls.append(call)])
    queue.enqueue_messages("acme", [b"a", b"b"])
    block = queue.blocks.plan()
    assert len(calls) == 1
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)
    assert calls[1:] == [("acme", Footprint(0, 0, 0, 0))]


def test_listeners_get_messages_sent_by_others_before(make_queue: Maker) -> None:
    calls: list[tuple[str, Footprint]] = []
    silent = make_queue(order="rotation")
    silent.enqueue_messages("acme", [b"a", b"b"])
    listening = make_queue(listeners=[lambda *call: calls.append(call)])
    listening.enqueue_message("globex", b"c")
    assert calls == [("acme", Footprint(1, 1, 2, 2)), ("globex", Footprint(1, 1, 1, 1))]


def test_a_send_below_a_service_of_another_ring_is_stored_once(make_queue: Maker) -> None:
    calls: list[str] = []
    queue = make_queue(order="rotation", listeners=[lambda origin, _: calls.append(origin)])
    other, seen = make_queue("other", order="rotation"), list[tuple[bytes, int]]()
    queue.enqueue_message("acme", b"a")
    other.enqueue_message("b", b"b")

    def send(delivery: Delivery) -> None:
        queue.enqueue_message("acme", b"c")

    def process(delivery: Delivery) -> None:
        seen.append((delivery.payload, other.service_queues(send).processed))

    for _ in range(2):
        queue.service_queues(process)
    assert seen == [(b"a", 1), (b"c", 0)] and set(calls) == {"acme"}


@pytest.mark.parametrize("paired", [False, True])
def test_listeners_hear_of_a_call_that_ends_with_a_used_key(make_queue: Maker, paired: bool) -> None:
    calls: list[tuple[str, int]] = []
    queue = make_queue(listeners=[lambda origin, footprint: calls.append((origin, footprint.count))])
    queue.enqueue_message("acme", b"once", key="k")
    messages = [b"new", Message(b"once", key="k")]
    if paired:
        queue.enqueue_messages([("acme", message) for message in messages])
    else:
        queue.enqueue_messages("acme", messages)
    assert calls == [("acme", 1), ("acme", 2)]


@pytest.mark.parametrize("options", [{"not_before": 60}, {"expires": 60}, {"weight": Weight(1, 1)}, {"key": "k"}])
def test_a_processor_is_refused_options_that_an_outcome_does_not_store(
    queue: MessageQueue, options: dict[str, Any]
) -> None:
    def process(delivery: Delivery) -> None:
        if delivery.origin == "acme":
            with pytest.raises(InvalidInput, match=f"cannot send with {next(iter(options))}: expected"):
                queue.enqueue_message("b", b"x", **options)
            queue.enqueue_message("c", b"y", headers={"a": "b"})

    queue.enqueue_message("acme", b"a")
    assert queue.service_queues(process).processed == 2
    assert queue.footprint("b").count == 0


def test_the_time_of_a_send_by_a_processor_does_not_grow_with_those_before(queue: MessageQueue) -> None:
    lists: set[int] = set()

    def process(delivery: Delivery) -> None:
        if delivery.origin == "acme":
            for _ in range(100):
                queue.enqueue_message("b", b"x")
                lists.add(id(delivery.sent))

    queue.enqueue_message("acme", b"a")
    assert queue.service_queues(process).processed == 101
    assert len(lists) == 1


def test_a_processor_that_sends_to_its_own_queue_ends_with_the_limit(
    make_queue: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message sends the next one. The queue never ends, so the look ahead has a bound: databases have one, too."""
    looks, pull_some = [], WorkingSet.pull_some

    def noted(working_set: WorkingSet, book: Book, count: int) -> bool:
        looks.append(count)
        return pull_some(working_set, book, count)

    monkeypatch.setattr(WorkingSet, "pull_some", noted)
    queue = make_queue(order="rotation")
    queue.enqueue_message("acme", b"0")
    with MessageQueue(queue.store.address, queue.session.ring) as other:

        def send_the_next(payload: bytes, origin: str) -> None:
            other.enqueue_message(origin, b"%d" % (int(payload) + 1))

        served = queue.service_queues(send_the_next, Weight(150, 1 << 20))

    assert served.processed == 150
    assert [message.payload for message in queue.inspect.peek("acme")] == [b"150"]
    assert len(looks) > 64 and max(looks) <= MOST_AHEAD


def test_a_service_counts_no_queue_that_it_skipped(queue: MessageQueue) -> None:
    for origin in ("a", "b", "c"):
        queue.enqueue_message(origin, b"x")
    queue.admin.pause("a")
    queue.admin.pause("b")
    result = queue.service_queues(lambda delivery: None)
    assert (result.processed, result.origins) == (1, 1)


def test_a_service_counts_a_queue_whose_failed_message_lets_it_wait(make_queue: Maker) -> None:
    queue = make_queue(backoff=60.0)
    queue.enqueue_messages("acme", [b"x", b"bad", b"x"])

    result = queue.service_queues(lambda delivery: Yield() if delivery.payload == b"bad" else None)

    assert (result.processed, result.returned, result.origins) == (1, 1, 1)


def test_a_service_counts_a_queue_that_used_up_its_budget(queue: MessageQueue) -> None:
    queue.admin.set_origin("acme", rate="1s/day", burst="2s")
    queue.enqueue_messages("acme", [Message(b"x", weight=Weight(900, 1))] * 3)

    result = queue.service_queues(lambda delivery: None)
    again = queue.service_queues(lambda delivery: None)

    assert (result.processed, result.origins, again.origins) == (2, 1, 0)
