"""Inline execution: a message is executed while it is enqueued, or stays queued untried."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mq import Corrupt, Done, MessageQueue, Overweight, Weight, Yield
from airflow_mq.engine.queue.attempts import batch_processor
from airflow_mq.engine.queue.sending.inline import Inline
from airflow_mq.engine.rules.config import ORDERS
from airflow_mq.engine.rules.errors import InvalidInput, InvalidWeight
from airflow_mq.engine.store.working_set.inbox import Inbox
from tests.store.queue.conftest import Maker

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
def test_inline_message_is_recorded_like_a_serviced_one(queue: MessageQueue, order: str) -> None:
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
def test_message_not_done_inline_stays_untried(queue: MessageQueue, answer: Any) -> None:
    queue.admin.change_ring(max_attempts=1, backoff=100.0)
    inline, seen = executing(queue, answer)
    assert queue.enqueue_message("a", b"x", inline=inline).executed == 0
    (message,) = queue.inspect.peek("a")
    assert seen == [b"x"] and (message.state, message.attempts) == ("waiting", 0)
    assert list(queue.inspect.events()) == [] and queue.inspect.ledger() == []
    assert queue.blocks.plan().messages == 1, "neither backoff nor a lease delays the message"


def test_inline_message_does_not_overtake_others(queue: MessageQueue) -> None:
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


def test_heavy_delayed_or_repeated_message_is_not_executed(queue: MessageQueue) -> None:
    inline, seen = executing(queue)
    assert queue.enqueue_message("a", b"x" * 1_001, inline=inline).executed == 0
    queue.service_queues(lambda delivery: None)
    assert queue.enqueue_message("a", b"x", weight=Weight(11, 1), inline=inline).executed == 0
    queue.service_queues(lambda delivery: None)
    assert queue.enqueue_message("a", b"x", not_before=60.0, inline=inline).executed == 0
    assert queue.enqueue_message("a", b"y", key="k", inline=inline).executed == 1
    assert queue.enqueue_message("a", b"y", key="k", inline=inline).executed == 0, "the key was already used"
    assert seen == [b"y"]


def test_inline_does_not_wait_for_a_busy_ring(queue: MessageQueue, store_uri: str) -> None:
    inline, seen = executing(queue)

    def process(delivery: Any) -> None:
        with MessageQueue(store_uri) as other:
            # The ring is busy in this process.
            assert other.enqueue_message("b", b"nested", inline=inline).executed == 0

    queue.enqueue_message("a", b"x")
    queue.service_queues(process, Weight(1, 1))
    assert seen == [] and queue.footprint("b").count == 1


def test_messages_of_an_inline_outcome_stay_queued(queue: MessageQueue) -> None:
    inline, seen = executing(queue, Done(enqueue=[("a", b"again"), ("b", b"x", "high")]))
    assert queue.enqueue_message("a", b"first", inline=inline).executed == 1
    assert seen == [b"first"] and [message.attempts for message in queue.inspect.peek("a")] == [0]
    assert queue.footprint("b", "high").count == 1


def test_crash_leaves_the_message_queued(queue: MessageQueue) -> None:
    class Killed(BaseException):
        pass

    def process(delivery: Any) -> None:
        raise Killed

    with pytest.raises(Killed):
        queue.enqueue_message("a", b"x", inline=Inline(process, LIGHT))
    assert [message.state for message in queue.inspect.peek("a")] == ["waiting"]

    def fail(name: str) -> None:
        if name == point:
            raise Killed

    for point in ("take_lease", "save_book", "change_lease"):
        queue.service_queues(lambda delivery: None)
        queue.store.probe = fail
        with pytest.raises(Killed):
            queue.enqueue_message("a", point.encode(), inline=Inline(lambda delivery: None, LIGHT))
        queue.store.probe = None
        assert [message.payload for message in queue.inspect.peek("a")] == [point.encode()], (
            "the message is enqueued exactly once"
        )
        assert queue.check() == []


def test_invalid_inline_arguments_are_rejected(queue: MessageQueue) -> None:
    for processor in (batch_processor(len), "name"):
        with pytest.raises(InvalidInput, match="a callable"):
            Inline(processor, LIGHT)  # type: ignore[arg-type]
    with pytest.raises(InvalidWeight):
        Inline(print, "light")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="expected Inline"):
        queue.enqueue_message("a", b"x", inline=print)  # type: ignore[arg-type]
    assert queue.footprint("a").count == 0


def test_inline_reads_few_of_the_messages_that_wait(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(500):
        queue.enqueue_message("a", b"%d" % number)
    cut: list[int] = []
    take = Inbox.take

    def counting(self: Inbox, most: int) -> Any:
        taken = take(self, most)
        cut.append(len(taken))
        return taken

    monkeypatch.setattr(Inbox, "take", counting)
    inline, seen = executing(queue)
    assert queue.enqueue_message("a", b"x", inline=inline).executed == 0
    assert not seen and sum(cut) < 100
