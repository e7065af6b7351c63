"""A message that is executed at once, or stays queued as if nobody had tried."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mq import Corrupt, Done, MessageQueue, Overweight, Weight, Yield
from airflow_mq.core.config import ORDERS
from airflow_mq.core.errors import InvalidInput, InvalidWeight
from airflow_mq.queue import Inline, batch_processor
from tests.queue.conftest import Maker

LIGHT = Weight(10, 1_000)


@pytest.fixture
def queue(make_queue: Maker) -> MessageQueue:
    return make_queue("default")


def executing(queue: MessageQueue, answer: Any = None) -> tuple[Inline, list[bytes]]:
    seen: list[bytes] = []

    def process(delivery: Any) -> Any:
        seen.append(delivery.payload)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Inline(process, LIGHT), seen


@pytest.mark.parametrize("order", ORDERS)
def test_it_is_enqueued_and_settled_in_the_usual_way(queue: MessageQueue, order: str) -> None:
    queue.admin.change_ring(order=order)
    inline, seen = executing(queue)
    for number in range(3):
        sent = queue.enqueue_message("a", b"%d" % number, inline=inline, priority="high" if number == 1 else None)
        assert (sent.count, sent.executed) == (1, 1)
    assert seen == [b"0", b"1", b"2"] and queue.footprint("a").count == 0
    assert [(event.name, str(event.address), event.weight) for event in queue.inspect.events()] == [
        ("Processed", "a:0:0", Weight(1, 1)),
        ("Processed", "a:0:0:high", Weight(1, 1)),
        ("Processed", "a:1:0", Weight(1, 1)),
    ]  # fmt: skip
    assert [entry.messages for page in queue.inspect.ledger() for entry in page.entries] == [1, 1, 1]
    wrong, _ = executing(queue, Corrupt())
    assert queue.enqueue_message("a", b"x", inline=wrong).executed == 1
    assert [event.name for event in queue.inspect.events()][-1] == "ProcessingFailed"


@pytest.mark.parametrize("answer", [Yield(), Overweight(Weight(1 << 60, 1)), Overweight(Weight(11, 1)), OSError("no")])
def test_what_is_not_done_stays_as_if_never_tried(queue: MessageQueue, answer: Any) -> None:
    queue.admin.change_ring(max_attempts=1, backoff=100.0)
    inline, seen = executing(queue, answer)
    assert queue.enqueue_message("a", b"x", inline=inline).executed == 0
    (left,) = queue.inspect.peek("a")
    assert seen == [b"x"] and (left.state, left.attempts) == ("waiting", 0)
    assert list(queue.inspect.events()) == [] and queue.inspect.ledger() == []
    assert queue.blocks.plan().messages == 1, "nobody waits for a backoff, and nobody holds the ring"


def test_it_overtakes_nothing(queue: MessageQueue) -> None:
    inline, seen = executing(queue)
    queue.enqueue_message("a", b"first")
    assert queue.enqueue_message("a", b"second", inline=inline).executed == 0
    assert queue.enqueue_message("b", b"of another", inline=inline).executed == 0
    block = queue.blocks.plan()
    assert queue.enqueue_message("c", b"beside a block", inline=inline).executed == 0
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)
    assert queue.enqueue_message("d", b"behind c", inline=inline).executed == 0
    queue.service_queues(lambda delivery: None)
    queue.admin.pause("e")
    assert queue.enqueue_message("e", b"paused", inline=inline).executed == 0
    assert seen == []


def test_what_is_too_heavy_or_not_due_stays(queue: MessageQueue) -> None:
    inline, seen = executing(queue)
    assert queue.enqueue_message("a", b"x" * 1_001, inline=inline).executed == 0
    queue.service_queues(lambda delivery: None)
    assert queue.enqueue_message("a", b"x", weight=Weight(11, 1), inline=inline).executed == 0
    queue.service_queues(lambda delivery: None)
    assert queue.enqueue_message("a", b"x", not_before=60.0, inline=inline).executed == 0
    assert queue.enqueue_message("a", b"y", key="k", inline=inline).executed == 1
    assert queue.enqueue_message("a", b"y", key="k", inline=inline).executed == 0, "it was done before"
    assert seen == [b"y"]


def test_a_busy_ring_is_no_reason_to_wait(queue: MessageQueue, store_uri: str) -> None:
    inline, seen = executing(queue)

    def process(delivery: Any) -> None:
        with MessageQueue(store_uri) as other:
            # Nested, and in another's hands.
            assert other.enqueue_message("b", b"nested", inline=inline).executed == 0

    queue.enqueue_message("a", b"x")
    queue.service_queues(process, Weight(1, 1))
    assert seen == [] and queue.footprint("b").count == 1


def test_what_it_sends_waits_for_its_turn(queue: MessageQueue) -> None:
    inline, seen = executing(queue, Done(enqueue=[("a", b"again"), ("b", b"x", "high")]))
    assert queue.enqueue_message("a", b"first", inline=inline).executed == 1
    assert seen == [b"first"] and [one.attempts for one in queue.inspect.peek("a")] == [0]
    assert queue.footprint("b", "high").count == 1


def test_a_crash_leaves_it_queued(queue: MessageQueue) -> None:
    class Killed(BaseException):
        pass

    def process(delivery: Any) -> None:
        raise Killed

    with pytest.raises(Killed):
        queue.enqueue_message("a", b"x", inline=Inline(process, LIGHT))
    assert [one.state for one in queue.inspect.peek("a")] == ["waiting"]

    def fail(name: str) -> None:
        if name == point:
            raise Killed

    for point in ("take_lease", "save_book", "drop_lease"):
        queue.service_queues(lambda delivery: None)
        queue.store.probe = fail
        with pytest.raises(Killed):
            queue.enqueue_message("a", point.encode(), inline=Inline(lambda delivery: None, LIGHT))
        queue.store.probe = None
        assert [one.payload for one in queue.inspect.peek("a")] == [point.encode()], (
            "it was enqueued either way, and once"
        )
        assert queue.check() == []


def test_bad_input(queue: MessageQueue) -> None:
    for processor in (batch_processor(len), "name"):
        with pytest.raises(InvalidInput, match="a callable"):
            Inline(processor, LIGHT)  # type: ignore[arg-type]
    with pytest.raises(InvalidWeight):
        Inline(print, "light")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="an Inline"):
        queue.enqueue_message("a", b"x", inline=print)  # type: ignore[arg-type]
    assert queue.footprint("a").count == 0
