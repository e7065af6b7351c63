"""Holds: which sends go to the delivery of a processor, and which calls are refused inside of it."""

from __future__ import annotations

import asyncio
import contextvars
import multiprocessing
import threading
from collections.abc import Callable
from typing import Any

import pytest

from airflow_mq import Delivery, Done, Message, MessageQueue, Weight, batch_processor
from airflow_mq.engine.queue.sending.inline import Inline
from airflow_mq.engine.queue.values import Serviced
from airflow_mq.engine.rules.errors import DeliverySealed, InvalidInput, RecursiveDisallowed
from airflow_mq.engine.store import parse, upgrade
from tests.store.queue.conftest import Maker, serve

LIMIT = Weight(10**9, 1 << 40)
#: Other queues: of another ring, and of another store.
OTHERS = ("ring", "store")


@pytest.fixture
def opened(make_queue: Maker, tmp_path: Any) -> Any:
    """Return a function that opens another queue."""
    queues: list[MessageQueue] = []

    def other(kind: str) -> MessageQueue:
        if kind == "ring":
            return make_queue("other", order="rotation")
        upgrade(parse(f"sqlite:///{tmp_path / 'other.db'}"))
        queues.append(MessageQueue(f"sqlite:///{tmp_path / 'other.db'}"))
        return queues[-1]

    yield other
    for queue in queues:
        assert queue.check() == []
        queue.close()


def waiting(queue: MessageQueue) -> list[bytes]:
    """Return all messages of the ring."""
    return [found.payload for origin, _ in queue.footprints() for found in queue.inspect.peek(origin, limit=100)]


# Which ring a send of a processor reaches.


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("fails", [False, True])
def test_a_send_by_another_queue_is_an_ordinary_one(
    queue: MessageQueue, opened: Callable[[str], MessageQueue], kind: str, fails: bool
) -> None:
    other = opened(kind)
    queue.enqueue_message("acme", b"a")

    def relay(delivery: Delivery) -> None:
        other.enqueue_message("acme", b"one")
        other.enqueue_messages("acme", [b"two", Message(b"three", key="k", weight=Weight(1, 1))], expires=600)
        if fails:
            raise RuntimeError

    tries = len(serve(queue, relay))
    # A failed message is tried again, and its sends by another queue are repeated, but for those with a key.
    sent = [b"one", b"two", b"three", *[b"one", b"two"] * (tries - 1)]
    assert sorted(waiting(other)) == sorted(sent)
    assert waiting(queue) == ([b"a"] if fails else [])


def test_a_send_by_a_second_queue_of_the_ring_goes_to_the_delivery(make_queue: Maker) -> None:
    queue, second = make_queue(order="rotation"), make_queue()
    queue.enqueue_message("acme", b"a")

    def fail(delivery: Delivery) -> None:
        second.enqueue_message("globex", b"b")
        raise RuntimeError

    serve(queue, fail)
    assert waiting(queue) == [b"a"]


@pytest.mark.parametrize("kind", OTHERS)
def test_another_ring_can_be_serviced_and_planned_inside_a_processor(
    queue: MessageQueue, opened: Callable[[str], MessageQueue], kind: str
) -> None:
    other = opened(kind)
    other.enqueue_messages("acme", [b"x", b"y"])
    queue.enqueue_message("acme", b"a")
    seen: list[bytes] = []

    def inner(delivery: Delivery) -> None:
        if delivery.origin != "acme":
            return
        seen.append(delivery.payload)
        delivery.enqueue("globex", b"of the other ring")
        # The outer message is not done yet, and this one may be: a send by its queue is stored at once.
        queue.enqueue_message("globex", b"of this ring")
        assert queue.service_queues(lambda delivery: None, LIMIT) == Serviced()
        for meddled in (queue, other):
            with pytest.raises(RecursiveDisallowed):
                meddled.admin.pause("acme")

    def outer(delivery: Delivery) -> None:
        if delivery.payload != b"a":
            return
        block = other.blocks.plan(limit=Weight(10**6, 1 << 20))
        assert block is not None
        other.blocks.release(block.token)
        assert other.service_queues(inner, LIMIT).processed == 4
        queue.enqueue_message("initech", b"of the delivery")

    tried = [payload for _, payload in serve(queue, outer, limit=LIMIT)]
    assert seen == [b"x", b"y"]
    assert sorted([*tried, *waiting(queue)]) == sorted([b"a", b"of the delivery", b"of this ring", b"of this ring"])


def test_inline_execution_in_another_ring_inside_a_processor(make_queue: Maker) -> None:
    queue, other = make_queue(order="rotation"), make_queue("other", order="rotation")
    queue.enqueue_message("acme", b"a")
    executed: list[int] = []
    inline = Inline(lambda delivery: None, LIMIT)

    def process(delivery: Delivery) -> None:
        for each in (queue, other):
            executed.append(each.enqueue_message("globex", b"b", inline=inline).executed)

    serve(queue, lambda delivery: process(delivery) if delivery.payload == b"a" else None)
    assert executed == [0, 1]


def test_a_worker_cannot_begin_inside_a_processor_of_its_ring(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")
    refused: list[RecursiveDisallowed] = []

    def process(delivery: Delivery) -> None:
        try:
            queue.service_forever(lambda inner: None, stop=threading.Event())
        except RecursiveDisallowed as error:
            refused.append(error)

    serve(queue, process)
    assert len(refused) == 1


def test_messages_of_a_call_go_to_the_delivery_all_or_none(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")

    def process(delivery: Delivery) -> None:
        if delivery.payload == b"a":
            with pytest.raises(InvalidInput):
                queue.enqueue_messages("globex", [b"first", b""])

    assert serve(queue, process) == [("acme", b"a")]
    assert waiting(queue) == []


# What is sent when no processor runs.


@pytest.mark.parametrize("batches", [False, True])
def test_progress_sends_outside_of_any_delivery(queue: MessageQueue, batches: bool) -> None:
    queue.enqueue_messages("acme", [b"%d" % number for number in range(8)])
    sent: list[bytes] = []

    def progress(done: Serviced) -> None:
        if len(sent) < 5:
            sent.append(b"sent %d" % len(sent))
            assert queue.enqueue_message("globex", sent[-1]).count == 1

    seen: list[bytes] = []
    processor: Any = batch_processor(lambda batch: seen.extend(batch.payloads))
    queue.service_queues(
        processor if batches else lambda delivery: seen.append(delivery.payload), LIMIT,
        slice_messages=1, slice_seconds=600, progress=progress,
    )  # fmt: skip
    assert sent
    assert sorted([found for found in seen if found in sent] + waiting(queue)) == sorted(sent)


def test_a_listener_sends_outside_of_any_delivery(make_queue: Maker) -> None:
    sent: list[bytes] = []
    plain = make_queue(order="rotation")

    def listener(origin: str, footprint: object) -> None:
        if origin == "acme" and 0 < len(sent) < 6:
            sent.append(b"sent %d" % len(sent))
            assert plain.enqueue_message("globex", sent[-1]).count == 1

    queue = make_queue(listeners=[listener])
    queue.enqueue_messages("acme", [b"%d" % number for number in range(8)])
    sent.append(b"")
    tried = [payload for _, payload in serve(queue, slice_messages=1, slice_seconds=600)]
    assert len(sent) > 1
    assert sorted([found for found in tried if found in sent] + waiting(queue)) == sorted(sent[1:])


@pytest.mark.parametrize("answer", [None, Done(), "raises"])
def test_a_kept_delivery_is_sealed(queue: MessageQueue, answer: Any) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    kept: list[Delivery] = []
    refused: list[bool] = []

    def process(delivery: Delivery) -> Any:
        for late in kept:
            with pytest.raises(DeliverySealed):
                late.enqueue("globex", b"late")
            refused.append(True)
        kept.append(delivery)
        if answer == "raises" and delivery.payload == b"a":
            raise RuntimeError
        return None if answer == "raises" else answer

    serve(queue, process)
    with pytest.raises(DeliverySealed, match="has answered"):
        kept[-1].enqueue("globex", b"late")
    assert queue.footprint("globex").count == 0
    assert refused or answer == "raises"


def test_a_copied_context_ends_with_the_processor(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    contexts: list[contextvars.Context] = []

    def process(delivery: Delivery) -> None:
        if delivery.origin != "acme":
            return
        contexts.append(contextvars.copy_context())
        # The thread of `asyncio.to_thread` has a copy of this context, and ends before the answer.
        asyncio.run(asyncio.to_thread(queue.enqueue_message, "globex", b"of " + delivery.payload))
        for former in contexts[:-1]:
            with pytest.raises(DeliverySealed):
                former.run(queue.enqueue_message, "globex", b"late")

    serve(queue, process)
    for context in contexts:
        with pytest.raises(DeliverySealed):
            context.run(queue.enqueue_messages, "globex", [b"late"])
        # Nothing runs there any more.
        assert context.run(queue.service_queues, lambda delivery: None, LIMIT).failed == 0
    assert b"late" not in waiting(queue)


@pytest.mark.slow
def test_a_thread_that_outlives_its_processor_loses_nothing_acknowledged(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"%d" % number for number in range(30)])
    acknowledged: list[bytes] = []
    threads: list[threading.Thread] = []

    def send(delivery: Delivery) -> None:
        for number in range(10_000):
            payload = b"%s of %s" % (b"%d" % number, delivery.payload)
            try:
                delivery.enqueue("globex", payload)
            except DeliverySealed:
                return
            acknowledged.append(payload)

    def process(delivery: Delivery) -> None:
        if delivery.origin == "acme":
            threads.append(threading.Thread(target=send, args=[delivery]))
            threads[-1].start()

    queue.admin.pause("globex")
    queue.service_queues(process, LIMIT)
    for thread in threads:
        thread.join()
    found = [peeked.payload for peeked in queue.inspect.peek("globex", limit=1_000_000)]
    assert sorted(found) == sorted(acknowledged)


def _send_in_child(queue: MessageQueue, delivery: Delivery, answers: Any) -> None:
    try:
        delivery.enqueue("globex", b"by the delivery")
    except DeliverySealed as error:
        answers.put(str(error))
    with MessageQueue(queue.store.address, queue.ring) as own:
        answers.put(own.enqueue_message("globex", b"by a queue").count)


def test_a_forked_child_sends_by_a_queue_of_its_own(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")
    fork = multiprocessing.get_context("fork")
    answers: Any = fork.SimpleQueue()
    found: list[Any] = []

    def process(delivery: Delivery) -> None:
        child = fork.Process(target=_send_in_child, args=(queue, delivery, answers))
        child.start()
        found.extend(answers.get() for _ in range(2))
        child.join()

    queue.admin.pause("globex")
    serve(queue, process)
    assert ["another process" in str(found[0]), found[1]] == [True, 1]
    assert waiting(queue) == [b"by a queue"]


@pytest.mark.parametrize("options", [{"key": "k"}, {"weight": Weight(1, 1)}])
def test_an_outcome_refuses_what_it_cannot_keep(queue: MessageQueue, options: dict[str, Any]) -> None:
    queue.enqueue_message("acme", b"a")
    serve(queue, lambda delivery: Done(enqueue=[("globex", Message(b"b", **options))]))
    assert waiting(queue) == [b"a"]
    assert any("InvalidOutcome" in str(event) for event in queue.inspect.events())
