"""An attempt counts where a processor was called, and not where a deployment error kept a message from it."""

from __future__ import annotations

import pytest

from airflow_mq import Address, Done, MessageQueue, Processor, Processors, Report, Yield
from airflow_mq.core.errors import InvalidInput
from airflow_mq.core.outcome import BEGUN, NotBegun
from airflow_mq.processors import Part
from airflow_mq.spark.store_side import reporting_failure, run_in_place
from tests.queue.conftest import Maker

WHOLE = Part(name="all", processors=["all"], part=0, parts=1, messages=0, where="in place")


def rules(function: str) -> Processors:
    return Processors([Processor("all", function)])


def poison(payload: bytes, origin: str) -> None:
    """Fail on every message."""
    raise KeyError(payload)


def run_block(queue: MessageQueue, function: str) -> None:
    """Plan, process and settle a block as its tasks do."""
    block = queue.blocks.plan(reports_begin=True)
    try:
        with reporting_failure(queue, block.token, rules(function), WHOLE):
            run_in_place(queue, block.token, rules(function), WHOLE)
    except InvalidInput:
        pass
    queue.blocks.settle(block)


def attempts(queue: MessageQueue, origin: str = "acme") -> list[tuple[bytes, str, int]]:
    return [(one.payload, one.state, one.attempts) for one in queue.inspect.peek(origin, page=0)]


@pytest.mark.parametrize("function", ["no_such_module:process", "tests.queue.test_begun:poisson"])
@pytest.mark.parametrize("ordered", [True, False])
def test_a_function_that_cannot_be_loaded_burns_no_attempts(make_queue: Maker, function: str, ordered: bool) -> None:
    queue = make_queue(max_attempts=2, ordered=ordered)
    queue.enqueue_messages("acme", [b"1", b"2"])
    for _ in range(3):
        run_block(queue, function)
    assert attempts(queue) == [(b"1", "waiting", 0), (b"2", "waiting", 0)]
    event = list(queue.inspect.events())[-1]
    assert event.name == "WentBack"
    assert event.why.startswith(f"not tried: InvalidInput: cannot load function {function} (")
    run_block(queue, "builtins:print")
    assert attempts(queue) == []


def test_what_no_worker_began_was_not_tried(make_queue: Maker) -> None:
    queue = make_queue(max_attempts=1)
    queue.enqueue_messages("acme", [b"1", b"2"])
    queue.blocks.settle(queue.blocks.plan(reports_begin=True))
    assert attempts(queue) == [(b"1", "waiting", 0), (b"2", "waiting", 0)]
    assert [event.why for event in queue.inspect.events()] == ["not tried: no worker began it"]


def test_what_a_worker_began_and_did_not_report_was_tried(make_queue: Maker) -> None:
    queue = make_queue(max_attempts=1, ordered=False)
    queue.enqueue_messages("acme", [b"1", b"2"])
    block = queue.blocks.plan(reports_begin=True)
    queue.blocks.report(block, [Report("acme", 0, 0, 0, NotBegun("OSError: no")), Report("acme", 0, 0, 0, BEGUN)])
    queue.blocks.settle(block)
    assert attempts(queue) == [(b"1", "set aside", 1), (b"2", "waiting", 0)]


def test_readers_of_a_block_begin_what_they_read(make_queue: Maker) -> None:
    queue = make_queue(max_attempts=1)
    queue.enqueue_message("acme", b"1")
    block = queue.blocks.plan(reports_begin=True)
    assert len(list(block.batches())) == 1
    queue.blocks.settle(block)
    assert attempts(queue) == [(b"1", "set aside", 1)]


def test_a_retry_that_begins_answers_after_all(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"1")
    block = queue.blocks.plan(reports_begin=True)
    queue.blocks.report(block, [Report("acme", 0, 0, 0, NotBegun("OSError: no"))])
    assert queue.footprint("acme").count == 1
    queue.blocks.report(block, [Report("acme", 0, 0, 0, BEGUN), Report("acme", 0, 0, 0, Done())])
    assert queue.blocks.settle(block).processed == 1


def test_what_stands_behind_a_message_that_is_set_aside_was_not_tried(make_queue: Maker) -> None:
    """The worker left the queue at the first message, which its attempts set aside."""
    queue = make_queue(max_attempts=1)
    queue.enqueue_messages("acme", [b"1", b"2", b"3"])
    run_block(queue, "tests.queue.test_begun:poison")
    assert attempts(queue) == [(b"1", "set aside", 1), (b"2", "waiting", 0), (b"3", "waiting", 0)]


def test_an_error_after_processors_were_called_keeps_its_type_only(make_queue: Maker) -> None:
    queue = make_queue(ordered=False)
    queue.enqueue_messages("acme", [b"1", b"2"])
    block = queue.blocks.plan(reports_begin=True)
    queue.blocks.report(block, [Report("acme", 0, 0, 0, BEGUN)])
    with pytest.raises(OSError), reporting_failure(queue, block.token, rules("builtins:print"), WHOLE):
        raise OSError("a text that may quote a message")
    queue.blocks.settle(block)
    assert [event.why for event in queue.inspect.events()] == ["no outcome", "not tried: OSError"]


def test_no_processor_may_answer_with_a_mark(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"1")
    assert queue.service_queues(lambda delivery: BEGUN).processed == 0  # type: ignore[arg-type,return-value]


# What is told of it, and what goes back once the error is fixed.


def test_explain_names_attempts_and_the_last_error(make_queue: Maker) -> None:
    queue = make_queue(max_attempts=3)
    queue.enqueue_messages("acme", [b"1", b"2"])
    for _ in range(2):
        run_block(queue, "tests.queue.test_begun:poison")
    told = queue.inspect.explain("acme")
    assert told.sentence.endswith("; it was tried 2 times without success; the last error: KeyError.")
    assert (told.attempts, told.last_error) == (2, "KeyError")
    assert queue.inspect.explain_message(Address("acme", 0, 1)).attempts == 0
    run_block(queue, "tests.queue.test_begun:poison")
    aside = queue.inspect.explain_message(Address("acme", 0, 0))
    assert (aside.reason, aside.attempts, aside.last_error) == ("set aside", 3, "KeyError")
    assert aside.sentence.endswith("; it was tried 3 times without success; the last error: KeyError.")


def test_explain_names_what_kept_a_message_from_its_processor(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"1", b"2"])
    run_block(queue, "no_such_module:process")
    for at in (0, 1):
        told = queue.inspect.explain_message(Address("acme", 0, at))
        assert "; it was not tried in block " in told.sentence
        assert "InvalidInput: cannot load function no_such_module:process (ModuleNotFound" in told.sentence


def test_all_that_an_error_set_aside_goes_back_once_it_is_fixed(make_queue: Maker) -> None:
    queue = make_queue(max_attempts=1, ordered=False)
    queue.enqueue_messages("acme", [b"1", b"2"])
    run_block(queue, "tests.queue.test_begun:poison")
    queue.enqueue_message("globex", b"3")
    queue.service_queues(lambda delivery: Yield("not now"))
    assert [one.address.origin for one in queue.set_aside.list(error="KeyErr")] == ["acme", "acme"]
    assert [one.error for one in queue.set_aside.list(error="not")] == ["not now"]
    assert [one.error for one in queue.set_aside.list(errors=True)] == ["KeyError", "KeyError", "not now"]
    assert [one.error for one in queue.set_aside.list()] == ["", "", ""]
    assert [len(queue.set_aside.requeue_all().moved), len(queue.set_aside.requeue_all(error="ValueError").moved)] == [
        0,
        0,
    ]

    judged = queue.set_aside.requeue_all("fixed", error="KeyError")

    assert [one.moved is not None for one in judged.moved] == [True, True]
    assert [(one.payload, one.attempts) for one in queue.inspect.peek("acme")] == [(b"1", 0), (b"2", 0)]
    assert [str(one.address.origin) for one in queue.set_aside.list()] == ["globex"]
    (one,) = queue.set_aside.list()
    assert len(queue.set_aside.requeue(one.address, forget_attempts=True).moved) == 1
    assert queue.check() == []


def test_only_messages_that_were_tried_too_often_have_an_error(queue: MessageQueue) -> None:
    with pytest.raises(InvalidInput, match="only messages that were tried too often have an error"):
        queue.set_aside.list(error="KeyError", reason="size")
