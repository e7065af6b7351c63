"""Message histories: each path of a message, while it is stored and afterwards."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from airflow_mq import Address, BadFormat, Done, MessageQueue, Overweight, Weight, Yield
from airflow_mq.engine.queue.inspect.history import History
from airflow_mq.engine.queue.sending.inline import Inline
from airflow_mq.engine.rules import service
from airflow_mq.engine.rules.errors import InvalidInput
from airflow_mq.engine.rules.message import message_id
from tests.store.queue.callers import Caller
from tests.store.queue.conftest import Maker, serve

HEAVY = Weight(700_000, 5)
LAST = Address("acme", 0, 0)


def block_of(queue: MessageQueue, *outcomes: Any) -> int:
    """Settle a block that reports these outcomes for its first messages, and return its id."""
    block, remaining = queue.blocks.plan(), list(outcomes)
    for batch in block.batches():
        reported = [remaining.pop(0) if remaining else None for _ in batch.payloads]
        answers = batch.answers([outcome or Done() for outcome in reported])
        queue.blocks.report(block, [answer for answer, outcome in zip(answers, reported) if outcome])
    queue.blocks.settle(block)
    return block.id


def steps_of(history: History) -> list[str]:
    return [step.what for step in history.steps]


def test_history_of_a_processed_message(queue: MessageQueue) -> None:
    before = datetime.now(timezone.utc)
    queue.enqueue_message("acme", b"order")
    waiting = queue.inspect.history(LAST)
    assert (steps_of(waiting), waiting.state, waiting.end) == (["enqueued"], "waiting", None)
    assert waiting.id == message_id(b"order")
    at = waiting.steps[0].at
    assert at is not None and abs(at - before) < timedelta(minutes=5)

    block = queue.blocks.plan()
    flying = queue.inspect.history(LAST)
    assert (steps_of(flying), flying.state) == (["enqueued", "planned"], "in flight")
    assert (flying.steps[1].block, flying.steps[1].actor) == (block.id, "tester")

    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)
    gone = queue.inspect.history(LAST)
    assert (steps_of(gone), gone.state) == (["enqueued", "planned", "processed"], "gone")
    assert gone.steps[0].at is None and "before" in gone.steps[0].why, (
        "without unusual events, no arrival time is stored"
    )
    assert gone.steps[1].at is not None and gone.end is gone.steps[2] and gone.end.block == block.id
    assert (
        queue.inspect.history(message_id(b"order"))
        == gone
        == queue.inspect.history(message_id(b"order"), origin="acme")
    )


def test_history_of_a_serviced_message(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"order")
    serve(queue, lambda delivery: Yield("their API is down"))
    queue.service_queues(lambda delivery: Done(success=False))
    history = queue.inspect.history(LAST)
    assert (
        steps_of(history)[0] == "enqueued" and steps_of(history)[-1] == "processed" and "returned" in steps_of(history)
    )
    assert {step.why for step in history.steps if step.what == "returned"} == {"their API is down"}
    assert history.end is not None and history.end.why == "without success"


def test_history_of_requeued_messages(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"1", b"2", b"3", b"4"])
    first = block_of(queue, Yield("down"), None, Done())
    second = block_of(queue, Done(), None)
    third = block_of(queue, Done(), Done())
    histories = [queue.inspect.history(Address("acme", 0, index)) for index in range(4)]
    assert steps_of(histories[0]) == ["enqueued", "planned", "returned", "planned", "processed"]
    assert histories[0].steps[2].why == "down"
    assert steps_of(histories[1]) == ["enqueued", "planned", "untried", "planned", "returned", "planned", "processed"]
    assert histories[1].steps[4].why == "no outcome" and histories[1].steps[2].why == "acme:0:0 before it returned"
    assert steps_of(histories[2]) == ["enqueued", "planned", "processed"], "a reported message keeps its outcome"
    assert steps_of(histories[3]) == ["enqueued", "planned", "untried", "planned", "untried", "planned", "processed"]
    assert [step.block for step in histories[3].steps] == [None, first, first, second, second, third, third]


def test_history_of_an_overweight_message(make_queue: Maker) -> None:
    queue = make_queue(ordered=False)
    queue.enqueue_messages("acme", [b"1", b"2"])
    block_of(queue, Overweight(Weight(9, 9)), Done())
    block_of(queue, Overweight(HEAVY))
    history = queue.inspect.history(LAST)
    assert steps_of(history) == ["enqueued", "planned", "returned", "planned", "set aside"]
    assert "weighs 9 ms · 9 B" in history.steps[2].why and "more than the 10 min" in history.steps[4].why
    assert history.state == "set aside" and history.end is None
    assert steps_of(queue.inspect.history(Address("acme", 0, 1))) == ["enqueued", "planned", "processed"]


@pytest.mark.parametrize("outcome", [BadFormat()])
def test_history_of_a_failed_message(queue: MessageQueue, outcome: Any) -> None:
    queue.enqueue_message("acme", b"?")
    block_of(queue, outcome)
    history = queue.inspect.history(LAST)
    assert steps_of(history) == ["enqueued", "planned", "failed"]
    assert history.end is not None and history.end.why == "BadFormat"


def test_history_of_a_requeued_and_executed_message(queue: MessageQueue) -> None:
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
    history = queue.inspect.history(LAST)
    assert steps_of(history) == [
        "enqueued", "planned", "set aside", "requeued", "planned", "set aside", "executed", "processed"
    ]  # fmt: skip
    assert history.addresses == [LAST, first.moved] and history.steps[0].at == sent
    assert (history.steps[3].actor, history.steps[6].actor) == ("tester", "tester") and history.steps[3].why.startswith(
        "raised"
    )
    assert history == queue.inspect.history(aside.address) == queue.inspect.history(message_id(b"heavy"))


def test_history_of_a_message_executed_in_a_block(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"heavy", weight=HEAVY)
    block_of(queue)
    block = queue.blocks.plan_overweight(LAST, Weight(10**6, 10))
    assert steps_of(queue.inspect.history(LAST)) == ["enqueued", "planned", "set aside", "planned"]
    assert queue.inspect.history(LAST).state == "in flight"
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)
    history = queue.inspect.history(LAST)
    assert steps_of(history) == ["enqueued", "planned", "set aside", "planned", "executed", "processed"]
    assert history.steps[3].block == block.id and history.steps[0].at is not None


def test_history_ends_with_a_decision(make_queue: Maker) -> None:
    queue = make_queue(heap_size=10, max_stale=0, order="rotation")
    queue.enqueue_messages("acme", [b"abcd", b"efgh", b"ijkl", b"mnop"], weight=HEAVY)
    block_of(queue)
    queue.set_aside.discard(LAST, "sent by mistake")
    queue.reap_page("acme", 1, "too old")
    queue.admin.change_ring(set_aside_expires=1e-6)
    time.sleep(0.01)
    queue.admin.housekeep()
    ends = [queue.inspect.history(Address("acme", page, 0)).end for page in range(4)]
    assert [(end.what, end.actor, end.why) for end in ends if end] == [
        ("discarded", "tester", "sent by mistake"), ("discarded", "tester", "too old"),
        ("expired", "policy set_aside_expires", "it waited for longer than 0 seconds"),
        ("expired", "policy set_aside_expires", "it waited for longer than 0 seconds"),
    ]  # fmt: skip
    assert all(queue.inspect.history(Address("acme", page, 0)).steps[0].at for page in range(4))


def test_history_of_a_swept_message(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"1", b"2"])
    block_of(queue, Done(), Yield())
    queue.sweep_queue("acme")
    queue.enqueue_message("acme", b"3")
    assert steps_of(queue.inspect.history(LAST)) == ["enqueued", "planned", "processed"]
    history = queue.inspect.history(Address("acme", 0, 1))
    assert (steps_of(history)[-1], history.state, history.steps[-1].actor) == ("swept", "set aside", "tester")
    assert steps_of(queue.inspect.history(Address("acme", 1, 0))) == ["enqueued"]
    queue.set_aside.requeue(Address("acme", 0, 1), "swept by mistake")
    serve(queue)
    assert steps_of(queue.inspect.history(Address("acme", 0, 1)))[-3:] == ["swept", "requeued", "processed"]


def test_history_of_expired_and_exhausted_messages(make_queue: Maker) -> None:
    queue = make_queue(max_attempts=1, order="rotation")
    queue.enqueue_message("acme", b"milk", expires=0)
    queue.enqueue_message("shy", b"mouse")
    block_of(queue)
    assert steps_of(queue.inspect.history(LAST)) == ["enqueued", "planned", "expired"]
    history = queue.inspect.history(Address("shy", 0, 0))
    assert steps_of(history) == ["enqueued", "planned", "set aside"]
    assert history.steps[2].why == "it was tried without an outcome, and is not tried again; the last error: no outcome"


def test_history_names_the_last_error_of_an_exhausted_message(make_queue: Maker) -> None:
    queue = make_queue(max_attempts=1)
    queue.enqueue_message("acme", b"milk")

    def process(payload: bytes) -> None:
        raise ValueError(payload)

    queue.service_queues(process)
    (*_, last) = queue.inspect.history(LAST).steps
    assert (last.what, last.why) == (
        "set aside",
        "it was tried without an outcome, and is not tried again; the last error: ValueError",
    )


@pytest.mark.parametrize("reason", ["waits aside for 5 s, joins again behind 0:0", "no; untried behind it up to 9:9"])
def test_a_reason_in_the_words_of_the_queue_is_a_reason(queue: MessageQueue, reason: str) -> None:
    queue.enqueue_message("acme", b"a")
    block_of(queue, Yield(reason))
    (event,) = queue.inspect.events(name="Returned")
    assert (event.wait, event.untried_up_to, event.why) == (None, None, f"{reason}.")
    queue.enqueue_message("acme", b"b")
    assert steps_of(queue.inspect.history(Address("acme", 0, 1))) == ["enqueued"]


def test_history_of_a_message_ends_if_its_wait_leads_back(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "returned", lambda why: why)
    queue.enqueue_messages("acme", [b"a", b"b"])
    block_of(queue, Done(), Yield("waits aside for 5 s, joins again behind 0:0"))
    history = queue.inspect.history(Address("acme", 0, 1))
    assert (history.addresses, steps_of(history)) == ([Address("acme", 0, 1)], ["enqueued", "planned", "returned"])


def test_history_by_id_covers_repeated_payloads(queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"ping"])
    serve(queue)
    queue.enqueue_messages("b", [b"ping"])
    serve(queue)
    history = queue.inspect.history(message_id(b"ping"))
    assert [address.origin for address in history.addresses] == ["a", "b"]
    assert steps_of(history) == ["enqueued", "processed", "enqueued", "processed"]
    assert steps_of(queue.inspect.history(message_id(b"ping"), origin="b")) == ["enqueued", "processed"]
    assert queue.check() == []


def test_history_of_an_unknown_message(queue: MessageQueue) -> None:
    for unknown in (LAST, message_id(b"nothing")):
        history = queue.inspect.history(unknown)
        assert (history.state, history.steps, history.end) == ("unknown", [], None)
    with pytest.raises(InvalidInput):
        queue.inspect.history(b"short")
    with pytest.raises(InvalidInput):
        queue.inspect.history("acme:0:0")  # type: ignore[arg-type]
    queue.enqueue_message("acme", b"quiet")
    assert queue.inspect.history(message_id(b"quiet")).state == "waiting"
    assert queue.inspect.history(message_id(b"quiet"), origin="other").state == "unknown"


def test_history_of_a_transferred_and_requeued_message(queue: MessageQueue) -> None:
    caller = Caller(queue.store.address.uri, "driver")
    queue.enqueue_message("acme", b"order", headers={"trace": "7"})
    token = queue.leases.view("acme").try_next()
    assert token is not None
    caller.run("BEGIN") if caller.sqlite else None
    queue.commands(caller.connection).transfer(token, "out", weight=HEAVY).execute()
    caller.commit()
    queue.admin.housekeep()
    history = queue.inspect.history(LAST)
    assert steps_of(history)[-1] == "transferred" and history.end is not None and history.end.why == "to out"
    serve(queue)
    (aside,) = queue.set_aside.list("out")
    queue.admin.change_ring(service_weight=Weight(800_000, 1 << 30))
    (moved,) = queue.set_aside.requeue(aside.address).moved
    assert moved.moved is not None and queue.check() == []
    assert queue.inspect.peek("out")[0].headers == {"trace": "7"}
    assert serve(queue) == [("out", b"order")]
    assert steps_of(queue.inspect.history(moved.moved))[-3:] == ["set aside", "requeued", "processed"]
    prefix = queue.store.prefix
    assert caller.run(f"SELECT count(*) FROM {prefix}inbox") == [(0,)]
    caller.rollback()
    caller.close()


def test_history_of_a_high_message(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"urgent", priority="high")
    queue.enqueue_message("acme", b"regular")
    block_of(queue, Yield("down"), Done())
    block_of(queue, Done())
    history = queue.inspect.history(Address("acme", 0, 0, "high"))
    assert steps_of(history) == ["enqueued", "planned", "returned", "planned", "processed"]
    assert (
        history
        == queue.inspect.history(message_id(b"urgent"), origin="acme")
        == queue.inspect.history(message_id(b"urgent"))
    )
    assert steps_of(queue.inspect.history(LAST)) == ["enqueued", "planned", "processed"], (
        "the other book has the same places"
    )


def test_history_of_a_delayed_message(queue: MessageQueue) -> None:
    at = datetime.now(timezone.utc) + timedelta(hours=1)
    queue.enqueue_messages("acme", [b"never", b"later"], not_before=at)
    queue.payloads.enqueue("acme", b"large" * 10_000, not_before=at)
    serve(queue)
    for payload in (b"later", b"large" * 10_000):
        history = queue.inspect.history(message_id(payload))
        assert (history.state, history.addresses, history.steps, history.due) == ("waiting", [], [], at)
        assert history == queue.inspect.history(message_id(payload), origin="acme")
    assert queue.inspect.history(message_id(b"later"), origin="other").state == "unknown"
    queue.enqueue_message("acme", b"soon", not_before=0)
    serve(queue)
    history = queue.inspect.history(message_id(b"soon"))
    assert (steps_of(history), history.state) == (["enqueued", "processed"], "gone")


def test_history_of_an_inline_message(queue: MessageQueue) -> None:
    at_once = Inline(lambda delivery: None, Weight(10_000, 10_000))
    queue.enqueue_message("acme", b"now", inline=at_once)
    history = queue.inspect.history(message_id(b"now"))
    assert (steps_of(history), history.state) == (["enqueued", "processed"], "gone")
    assert history.end is not None and history.end.block is None


def test_history_of_a_message_with_external_payload(queue: MessageQueue) -> None:
    queue.payloads.enqueue("acme", b"large" * 10_000)
    assert (steps_of(queue.inspect.history(LAST)), queue.inspect.history(LAST).state) == (["enqueued"], "waiting")
    serve(queue)
    queue.admin.housekeep()
    history = queue.inspect.history(LAST)
    assert (steps_of(history), history.state) == (["enqueued", "processed"], "gone")


def test_an_id_is_looked_up_without_keeping_the_payloads_of_a_queue(
    queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_mq.engine.queue.inspect import history

    kept: list[int] = []
    drop = history.drop_payloads

    def dropped(working_set: Any, pages: Any) -> None:
        kept.append(sum(len(page.payloads) for page in working_set.pages.values() if page))
        drop(working_set, pages)

    monkeypatch.setattr(history, "drop_payloads", dropped)
    queue.enqueue_messages("acme", [b"%d" % number * 20_000 for number in range(30)])
    page = queue.config.heap_size // 20_000
    assert queue.inspect.history(message_id(b"29" * 20_000)).addresses
    assert len(kept) > 5 and max(kept) <= page
