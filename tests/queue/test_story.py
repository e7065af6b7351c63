"""A message's whole story, for every path that it can take, while it is there and after."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from airflow_mq import Address, BadFormat, Done, MessageQueue, Overweight, Weight, Yield
from airflow_mq.core.errors import InvalidInput
from airflow_mq.core.message import message_id
from airflow_mq.queue import History, Inline
from tests.queue.callers import Caller
from tests.queue.conftest import Maker, serve

HEAVY = Weight(700_000, 5)
LAST = Address("acme", 0, 0)


def block_of(queue: MessageQueue, *outcomes: Any) -> int:
    """A block whose first messages get these outcomes, and all others none."""
    block, left = queue.blocks.plan(), list(outcomes)
    for batch in block.batches():
        said = [left.pop(0) if left else None for _ in batch.payloads]
        answers = batch.answers([outcome or Done() for outcome in said])
        queue.blocks.report(block, [answer for answer, outcome in zip(answers, said) if outcome])
    queue.blocks.settle(block)
    return block.id


def words(story: History) -> list[str]:
    return [step.what for step in story.steps]


def test_one_that_is_processed(queue: MessageQueue) -> None:
    before = datetime.now(timezone.utc)
    queue.enqueue_message("acme", b"order")
    waiting = queue.inspect.history(LAST)
    assert (words(waiting), waiting.state, waiting.end) == (["enqueued"], "waiting", None)
    assert waiting.id == message_id(b"order")
    at = waiting.steps[0].at
    assert at is not None and abs(at - before) < timedelta(minutes=5)

    block = queue.blocks.plan()
    flying = queue.inspect.history(LAST)
    assert (words(flying), flying.state) == (["enqueued", "planned"], "in flight")
    assert (flying.steps[1].block, flying.steps[1].who) == (block.id, "tester")

    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)
    gone = queue.inspect.history(LAST)
    assert (words(gone), gone.state) == (["enqueued", "planned", "processed"], "gone")
    assert gone.steps[0].at is None and "before" in gone.steps[0].why, (
        "nothing unusual happened: nothing was kept of it"
    )
    assert gone.steps[1].at is not None and gone.end is gone.steps[2] and gone.end.block == block.id
    assert (
        queue.inspect.history(message_id(b"order"))
        == gone
        == queue.inspect.history(message_id(b"order"), origin="acme")
    )


def test_one_in_a_service_in_place(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"order")
    serve(queue, lambda delivery: Yield("their API is down"))
    queue.service_queues(lambda delivery: Done(success=False))
    told = queue.inspect.history(LAST)
    assert words(told)[0] == "enqueued" and words(told)[-1] == "processed" and "went back" in words(told)
    assert {step.why for step in told.steps if step.what == "went back"} == {"their API is down"}
    assert told.end is not None and told.end.why == "without success"


def test_one_that_goes_back_and_those_behind_it(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"1", b"2", b"3", b"4"])
    first = block_of(queue, Yield("down"), None, Done())
    second = block_of(queue, Done(), None)
    third = block_of(queue, Done(), Done())
    stories = [queue.inspect.history(Address("acme", 0, index)) for index in range(4)]
    assert words(stories[0]) == ["enqueued", "planned", "went back", "planned", "processed"]
    assert stories[0].steps[2].why == "down"
    assert words(stories[1]) == ["enqueued", "planned", "untried", "planned", "went back", "planned", "processed"]
    assert stories[1].steps[4].why == "no outcome" and stories[1].steps[2].why == "acme:0:0 before it went back"
    assert words(stories[2]) == ["enqueued", "planned", "processed"], "what was answered for keeps its outcome"
    assert words(stories[3]) == ["enqueued", "planned", "untried", "planned", "untried", "planned", "processed"]
    assert [step.block for step in stories[3].steps] == [None, first, first, second, second, third, third]


def test_one_that_weighs_more_than_was_thought(make_queue: Maker) -> None:
    queue = make_queue(ordered=False)
    queue.enqueue_messages("acme", [b"1", b"2"])
    block_of(queue, Overweight(Weight(9, 9)), Done())
    block_of(queue, Overweight(HEAVY))
    told = queue.inspect.history(LAST)
    assert words(told) == ["enqueued", "planned", "went back", "planned", "set aside"]
    assert "weighs 9/9" in told.steps[2].why and "more than the 600,000" in told.steps[4].why
    assert told.state == "set aside" and told.end is None
    assert words(queue.inspect.history(Address("acme", 0, 1))) == ["enqueued", "planned", "processed"]


@pytest.mark.parametrize("outcome", [BadFormat()])
def test_one_that_is_wrong_for_good(queue: MessageQueue, outcome: Any) -> None:
    queue.enqueue_message("acme", b"?")
    block_of(queue, outcome)
    told = queue.inspect.history(LAST)
    assert words(told) == ["enqueued", "planned", "failed"]
    assert told.end is not None and told.end.why == "BadFormat"


def test_one_that_is_judged_again_twice_and_executed(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"heavy", weight=HEAVY)
    sent = queue.inspect.history(LAST).steps[0].at
    block_of(queue)
    queue.admin.change_ring(service_weight=Weight(800_000, 1 << 30))
    (first,) = queue.set_aside.requeue_all("raised").moved
    queue.admin.change_ring(service_weight=Weight(600_000, 1 << 30))
    block_of(queue)
    (aside,) = queue.set_aside.list()
    assert aside.arrived_at == sent
    queue.execute_overweight(aside.address, lambda delivery: None)
    told = queue.inspect.history(LAST)
    assert words(told) == [
        "enqueued", "planned", "set aside", "judged again", "planned", "set aside", "executed", "processed"
    ]  # fmt: skip
    assert told.addresses == [LAST, first.moved] and told.steps[0].at == sent
    assert (told.steps[3].who, told.steps[6].who) == ("tester", "tester") and told.steps[3].why.startswith("raised")
    assert told == queue.inspect.history(aside.address) == queue.inspect.history(message_id(b"heavy"))


def test_one_that_is_executed_by_a_block(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"heavy", weight=HEAVY)
    block_of(queue)
    block = queue.blocks.plan_overweight(LAST, Weight(10**6, 10))
    assert words(queue.inspect.history(LAST)) == ["enqueued", "planned", "set aside", "planned"]
    assert queue.inspect.history(LAST).state == "in flight"
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)
    told = queue.inspect.history(LAST)
    assert words(told) == ["enqueued", "planned", "set aside", "planned", "executed", "processed"]
    assert told.steps[3].block == block.id and told.steps[0].at is not None


def test_ends_that_somebody_decides(make_queue: Maker) -> None:
    queue = make_queue(heap_size=10, max_stale=0, order="rotation")
    queue.enqueue_messages("acme", [b"abcd", b"efgh", b"ijkl", b"mnop"], weight=HEAVY)
    block_of(queue)
    queue.set_aside.discard(LAST, "sent by mistake")
    queue.reap_page("acme", 1, "too old")
    queue.admin.change_ring(set_aside_expires=1e-6)
    time.sleep(0.01)
    queue.admin.housekeep()
    ends = [queue.inspect.history(Address("acme", page, 0)).end for page in range(4)]
    assert [(end.what, end.who, end.why) for end in ends if end] == [
        ("discarded", "tester", "sent by mistake"), ("discarded", "tester", "too old"),
        ("expired", "policy set_aside_expires", "it waited for longer than 0 seconds"),
        ("expired", "policy set_aside_expires", "it waited for longer than 0 seconds"),
    ]  # fmt: skip
    assert all(queue.inspect.history(Address("acme", page, 0)).steps[0].at for page in range(4))


def test_one_that_is_swept(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"1", b"2"])
    block_of(queue, Done(), Yield())
    queue.sweep_queue("acme")
    queue.enqueue_message("acme", b"3")
    assert words(queue.inspect.history(LAST)) == ["enqueued", "planned", "processed"]
    told = queue.inspect.history(Address("acme", 0, 1))
    assert (words(told)[-1], told.state, told.steps[-1].who) == ("swept", "set aside", "tester")
    assert words(queue.inspect.history(Address("acme", 1, 0))) == ["enqueued"]
    queue.set_aside.requeue(Address("acme", 0, 1), "swept by mistake")
    serve(queue)
    assert words(queue.inspect.history(Address("acme", 0, 1)))[-3:] == ["swept", "judged again", "processed"]


def test_one_that_expires_and_one_that_is_tried_too_often(make_queue: Maker) -> None:
    queue = make_queue(max_attempts=1, order="rotation")
    queue.enqueue_message("acme", b"milk", expires=0)
    queue.enqueue_message("shy", b"mouse")
    block_of(queue)
    assert words(queue.inspect.history(LAST)) == ["enqueued", "planned", "expired"]
    told = queue.inspect.history(Address("shy", 0, 0))
    assert words(told) == ["enqueued", "planned", "set aside"]
    assert told.steps[2].why == "it was tried too often without an outcome"


def test_the_same_bytes_sent_twice_are_told_together(queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"ping"])
    serve(queue)
    queue.enqueue_messages("b", [b"ping"])
    serve(queue)
    told = queue.inspect.history(message_id(b"ping"))
    assert [address.origin for address in told.addresses] == ["a", "b"]
    assert words(told) == ["enqueued", "processed", "enqueued", "processed"]
    assert words(queue.inspect.history(message_id(b"ping"), origin="b")) == ["enqueued", "processed"]
    assert queue.check() == []


def test_what_was_never_heard_of(queue: MessageQueue) -> None:
    for unheard in (LAST, message_id(b"nothing")):
        told = queue.inspect.history(unheard)
        assert (told.state, told.steps, told.end) == ("unknown", [], None)
    with pytest.raises(InvalidInput):
        queue.inspect.history(b"short")
    with pytest.raises(InvalidInput):
        queue.inspect.history("acme:0:0")  # type: ignore[arg-type]
    queue.enqueue_message("acme", b"quiet")
    assert queue.inspect.history(message_id(b"quiet")).state == "waiting"
    assert queue.inspect.history(message_id(b"quiet"), origin="other").state == "unknown"


def test_one_that_is_transferred_set_aside_there_and_judged_again(queue: MessageQueue) -> None:
    caller = Caller(queue.store.address.uri, "driver")
    queue.enqueue_message("acme", b"order", headers={"trace": "7"})
    token = queue.leases.view("acme").try_next()
    assert token is not None
    caller.run("BEGIN") if caller.sqlite else None
    queue.commands(caller.connection).transfer(token, "out", weight=HEAVY).execute()
    caller.commit()
    queue.admin.housekeep()
    told = queue.inspect.history(LAST)
    assert words(told)[-1] == "transferred" and told.end is not None and told.end.why == "to out"
    serve(queue)
    (aside,) = queue.set_aside.list("out")
    queue.admin.change_ring(service_weight=Weight(800_000, 1 << 30))
    (moved,) = queue.set_aside.requeue(aside.address).moved
    assert moved.moved is not None and queue.check() == []
    assert queue.inspect.peek("out")[0].headers == {"trace": "7"}
    assert serve(queue) == [("out", b"order")]
    assert words(queue.inspect.history(moved.moved))[-3:] == ["set aside", "judged again", "processed"]
    prefix = queue.store.prefix
    for table in ("loan", "mail"):
        assert caller.run(f"SELECT count(*) FROM {prefix}{table}") == [(0,)]
    caller.rollback()
    caller.close()


def test_one_of_high_priority(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"urgent", priority="high")
    queue.enqueue_message("acme", b"regular")
    block_of(queue, Yield("down"), Done())
    block_of(queue, Done())
    told = queue.inspect.history(Address("acme", 0, 0, "high"))
    assert words(told) == ["enqueued", "planned", "went back", "planned", "processed"]
    assert (
        told
        == queue.inspect.history(message_id(b"urgent"), origin="acme")
        == queue.inspect.history(message_id(b"urgent"))
    )
    assert words(queue.inspect.history(LAST)) == ["enqueued", "planned", "processed"], (
        "the other book has the same places"
    )


def test_one_that_is_sent_for_later(queue: MessageQueue) -> None:
    at = datetime.now(timezone.utc) + timedelta(hours=1)
    queue.enqueue_messages("acme", [b"never", b"later"], not_before=at)
    queue.payloads.enqueue("acme", b"large" * 10_000, not_before=at)
    serve(queue)
    for payload in (b"later", b"large" * 10_000):
        told = queue.inspect.history(message_id(payload))
        assert (told.state, told.addresses, told.steps, told.due) == ("waiting", [], [], at)
        assert told == queue.inspect.history(message_id(payload), origin="acme")
    assert queue.inspect.history(message_id(b"later"), origin="other").state == "unknown"
    queue.enqueue_message("acme", b"soon", not_before=0)
    serve(queue)
    told = queue.inspect.history(message_id(b"soon"))
    assert (words(told), told.state) == (["enqueued", "processed"], "gone")


def test_one_that_is_executed_at_once(queue: MessageQueue) -> None:
    at_once = Inline(lambda delivery: None, Weight(10_000, 10_000))
    queue.enqueue_message("acme", b"now", inline=at_once)
    told = queue.inspect.history(message_id(b"now"))
    assert (words(told), told.state) == (["enqueued", "processed"], "gone")
    assert told.end is not None and told.end.block is None


def test_one_whose_payload_is_kept_apart(queue: MessageQueue) -> None:
    queue.payloads.enqueue("acme", b"large" * 10_000)
    assert (words(queue.inspect.history(LAST)), queue.inspect.history(LAST).state) == (["enqueued"], "waiting")
    serve(queue)
    queue.admin.housekeep()
    told = queue.inspect.history(LAST)
    assert (words(told), told.state) == (["enqueued", "processed"], "gone")
