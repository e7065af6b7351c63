"""Attempts: count a message only if its processor was called."""

from __future__ import annotations

import pytest

from airflow_mq import Address, Done, MessageQueue, Processor, Processors, Report, Yield
from airflow_mq.engine.rules.errors import InvalidInput
from airflow_mq.engine.rules.outcome import BEGUN, NotBegun
from airflow_mq.processors import Part
from airflow_mq.spark.store_side import reporting_failure, run_in_place
from tests.store.queue.conftest import Maker

WHOLE = Part(name="all", processors=["all"], part=0, parts=1, messages=0, where="in place")


def rules(function: str) -> Processors:
    return Processors([Processor("all", function)])


def poison(payload: bytes, origin: str) -> None:
    """Fail on each message."""
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
    return [(message.payload, message.state, message.attempts) for message in queue.inspect.peek(origin, page=0)]


@pytest.mark.parametrize("function", ["no_such_module:process", "tests.store.queue.test_begun:poisson"])
@pytest.mark.parametrize("ordered", [True, False])
def test_unloadable_function_costs_no_attempts(make_queue: Maker, function: str, ordered: bool) -> None:
    queue = make_queue(max_attempts=2, ordered=ordered)
    queue.enqueue_messages("acme", [b"1", b"2"])
    for _ in range(3):
        run_block(queue, function)
    assert attempts(queue) == [(b"1", "waiting", 0), (b"2", "waiting", 0)]
    event = list(queue.inspect.events())[-1]
    assert event.name == "Returned"
    assert event.why.startswith(f"not tried: InvalidInput: cannot load function {function} (")
    run_block(queue, "builtins:print")
    assert attempts(queue) == []


def test_unloadable_function_stops_no_other_function_of_its_part(queue: MessageQueue) -> None:
    """Its own messages keep the text of the error, though another processor was called."""
    broken = Processor("all", "no_such_module:process", origins=("acme",))
    shared = Processors([broken, Processor("print", "builtins:print")])
    queue.enqueue_messages([("acme", b"1"), ("birch", b"2")])
    block = queue.blocks.plan(reports_begin=True)
    part = Part(**{**WHOLE, "processors": ["all", "print"]})  # type: ignore[typeddict-item]
    with pytest.raises(InvalidInput, match="no_such_module"), reporting_failure(queue, block.token, shared, part):
        run_in_place(queue, block.token, shared, part)
    settled = queue.blocks.settle(block)
    assert (settled.processed, settled.returned) == (1, 1)
    assert attempts(queue) == [(b"1", "waiting", 0)]
    (event,) = queue.inspect.events(origin="acme")
    assert event.why.startswith("not tried: InvalidInput: cannot load function no_such_module:process (")


def test_unloadable_functions_of_a_part_report_their_own_errors(queue: MessageQueue) -> None:
    names = {"acme": "no_such_module:process", "birch": "another_module:process"}
    broken = Processors([Processor(origin, function, origins=(origin,)) for origin, function in names.items()])
    queue.enqueue_messages([(origin, b"1") for origin in names])
    block = queue.blocks.plan(reports_begin=True)
    part = Part(**{**WHOLE, "processors": list(names)})  # type: ignore[typeddict-item]
    with pytest.raises(InvalidInput, match="another_module"), reporting_failure(queue, block.token, broken, part):
        run_in_place(queue, block.token, broken, part)
    queue.blocks.settle(block)
    for origin, function in names.items():
        (event,) = queue.inspect.events(origin=origin)
        assert event.why.startswith(f"not tried: InvalidInput: cannot load function {function} (")


def test_reader_that_dies_of_one_message_costs_no_other_its_attempts(make_queue: Maker) -> None:
    queue = make_queue(max_attempts=3, ordered=False)
    queue.enqueue_messages("acme", [b"1", b"2", b"die", b"3", b"4"])
    for number in range(3):
        queue.enqueue_messages(f"new {number}", [b"1", b"2"])
        block = queue.blocks.plan(reports_begin=True)
        for batch in block.batches():
            if b"die" in batch.payloads:
                break
            queue.blocks.report(block, [batch.answer()])
        queue.blocks.settle(block)
    assert [str(aside.address) for aside in queue.set_aside.list()] == ["acme:0:2"]
    block = queue.blocks.plan(reports_begin=True)
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)
    assert sum(footprint.count for _, footprint in queue.footprints()) == 1


def test_message_that_no_worker_began_has_no_attempt(make_queue: Maker) -> None:
    queue = make_queue(max_attempts=1)
    queue.enqueue_messages("acme", [b"1", b"2"])
    queue.blocks.settle(queue.blocks.plan(reports_begin=True))
    assert attempts(queue) == [(b"1", "waiting", 0), (b"2", "waiting", 0)]
    assert [event.why for event in queue.inspect.events()] == ["not tried: no worker began it"]


def test_message_begun_without_report_has_an_attempt(make_queue: Maker) -> None:
    queue = make_queue(max_attempts=1, ordered=False)
    queue.enqueue_messages("acme", [b"1", b"2"])
    block = queue.blocks.plan(reports_begin=True)
    queue.blocks.report(block, [Report("acme", 0, 0, 0, NotBegun("OSError: no")), Report("acme", 0, 0, 0, BEGUN)])
    queue.blocks.settle(block)
    assert attempts(queue) == [(b"1", "set aside", 1), (b"2", "waiting", 0)]


def test_reading_batches_begins_their_messages(make_queue: Maker) -> None:
    queue = make_queue(max_attempts=1)
    queue.enqueue_message("acme", b"1")
    block = queue.blocks.plan(reports_begin=True)
    assert len(list(block.batches())) == 1
    queue.blocks.settle(block)
    assert attempts(queue) == [(b"1", "set aside", 1)]


def test_report_of_a_retry_replaces_not_begun(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"1")
    block = queue.blocks.plan(reports_begin=True)
    queue.blocks.report(block, [Report("acme", 0, 0, 0, NotBegun("OSError: no"))])
    assert queue.footprint("acme").count == 1
    queue.blocks.report(block, [Report("acme", 0, 0, 0, BEGUN), Report("acme", 0, 0, 0, Done())])
    assert queue.blocks.settle(block).processed == 1


def test_messages_behind_a_set_aside_one_have_no_attempt(make_queue: Maker) -> None:
    """The worker stops the queue at its first failing message."""
    queue = make_queue(max_attempts=1)
    queue.enqueue_messages("acme", [b"1", b"2", b"3"])
    run_block(queue, "tests.store.queue.test_begun:poison")
    assert attempts(queue) == [(b"1", "set aside", 1), (b"2", "waiting", 0), (b"3", "waiting", 0)]


def test_error_after_processing_began_records_only_its_type(make_queue: Maker) -> None:
    queue = make_queue(ordered=False)
    queue.enqueue_messages("acme", [b"1", b"2"])
    block = queue.blocks.plan(reports_begin=True)
    queue.blocks.report(block, [Report("acme", 0, 0, 0, BEGUN)])
    with pytest.raises(OSError), reporting_failure(queue, block.token, rules("builtins:print"), WHOLE):
        raise OSError("a text that may quote a message")
    queue.blocks.settle(block)
    assert [event.why for event in queue.inspect.events()] == ["no outcome", "not tried: OSError"]


def test_processor_answer_begun_is_rejected(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"1")
    assert queue.service_queues(lambda delivery: BEGUN).processed == 0  # type: ignore[arg-type,return-value]


# Explanations, and requeuing after the error is fixed.


def test_explain_names_attempts_and_the_last_error(make_queue: Maker) -> None:
    queue = make_queue(max_attempts=3)
    queue.enqueue_messages("acme", [b"1", b"2"])
    for _ in range(2):
        run_block(queue, "tests.store.queue.test_begun:poison")
    explanation = queue.inspect.explain("acme")
    assert explanation.sentence.endswith("; it was tried 2 times without success; the last error: KeyError.")
    assert explanation.remedies[-1].endswith(
        "airflow-mq message events --name Returned --latest --limit 20 --ring test"
    )
    assert (explanation.attempts, explanation.last_error) == (2, "KeyError")
    assert queue.inspect.explain_message(Address("acme", 0, 1)).attempts == 0
    run_block(queue, "tests.store.queue.test_begun:poison")
    aside = queue.inspect.explain_message(Address("acme", 0, 0))
    assert (aside.reason, aside.attempts, aside.last_error) == ("set aside", 3, "KeyError")
    assert aside.sentence.endswith("; it was tried 3 times without success; the last error: KeyError.")


def test_explain_names_the_error_before_processing(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"1", b"2"])
    run_block(queue, "no_such_module:process")
    for index in (0, 1):
        explanation = queue.inspect.explain_message(Address("acme", 0, index))
        assert "; it was not tried in block " in explanation.sentence
        assert "InvalidInput: cannot load function no_such_module:process (ModuleNotFound" in explanation.sentence


def test_requeue_all_by_error_requeues_its_messages(make_queue: Maker) -> None:
    queue = make_queue(max_attempts=1, ordered=False)
    queue.enqueue_messages("acme", [b"1", b"2"])
    run_block(queue, "tests.store.queue.test_begun:poison")
    queue.enqueue_message("globex", b"3")
    queue.service_queues(lambda delivery: Yield("not now"))
    assert [aside.address.origin for aside in queue.set_aside.list(error="KeyErr")] == ["acme", "acme"]
    assert [aside.error for aside in queue.set_aside.list(error="not")] == ["not now"]
    assert [aside.error for aside in queue.set_aside.list(errors=True)] == ["KeyError", "KeyError", "not now"]
    assert [aside.error for aside in queue.set_aside.list()] == ["", "", ""]
    assert [len(queue.set_aside.requeue_all().moved), len(queue.set_aside.requeue_all(error="ValueError").moved)] == [
        0,
        0,
    ]

    requeued = queue.set_aside.requeue_all("fixed", error="KeyError")

    assert [move.moved is not None for move in requeued.moved] == [True, True]
    assert [(message.payload, message.attempts) for message in queue.inspect.peek("acme")] == [(b"1", 0), (b"2", 0)]
    assert [str(aside.address.origin) for aside in queue.set_aside.list()] == ["globex"]
    (aside,) = queue.set_aside.list()
    assert len(queue.set_aside.requeue(aside.address, forget_attempts=True).moved) == 1
    assert queue.check() == []


def test_error_filter_is_rejected_for_other_reasons(queue: MessageQueue) -> None:
    with pytest.raises(InvalidInput, match="only messages that were tried too often have an error"):
        queue.set_aside.list(error="KeyError", reason="size")
