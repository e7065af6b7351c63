"""Attempts: what a function receives in one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from airflow_mq import Batch, Done, Message, batch_processor
from airflow_mq.engine.rules.config import MOST_HEADERS
from airflow_mq.engine.rules.message import Attributes
from airflow_mq.engine.rules.page import Facts
from airflow_mq.engine.rules.patterns import OPEN
from airflow_mq.spark.attempts import ArrowAttempts, BatchAttempts, MessageAttempts, run_here
from airflow_mq.spark.items import batches_of, messages_of
from airflow_mq.spark.terms import JobTerms


def answered(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the outcome *done* for each message of a batch."""
    columns = [batch.column(name) for name in ("origin", "priority", "page", "item")]
    outcomes: Any = pa.nulls(batch.num_rows, pa.string())
    return pa.RecordBatch.from_arrays([*columns, outcomes], ["origin", "priority", "page", "item", "outcome"])


def test_messages_of_several_record_batches_are_one_call() -> None:
    messages = messages_of(Batch("acme", [bytes(600_000)], number, 0, block=7) for number in range(5))
    calls: list[list[int]] = []

    def process(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        calls.append([])
        for batch in batches:
            calls[-1].append(batch.num_rows)
            yield answered(batch)

    outcomes = list(
        ArrowAttempts(process, JobTerms(ordered=False, bounds=(1 << 20, OPEN, MOST_HEADERS))).outcomes(
            messages, run_here
        )
    )

    assert [message.page for message, _ in outcomes] == [0, 1, 2, 3, 4]
    assert len(calls) == 1 and len(calls[0]) > 1 and sum(calls[0]) == 5


def test_a_call_of_a_batch_processor_has_a_bounded_size() -> None:
    """A page has neighbours in any number whose external payloads are far larger than itself."""
    calls: list[int] = []
    terms = JobTerms(ordered=True, bounds=(1 << 20, OPEN, MOST_HEADERS))
    attempts = BatchAttempts(batch_processor(lambda batch: calls.append(len(batch))), terms)
    messages = messages_of(Batch("acme", [bytes(3 << 20)], 0, index, block=7) for index in range(10))

    outcomes = list(attempts.outcomes(messages, run_here))

    assert [message.index for message, _ in outcomes] == [*range(10)]
    assert calls == [6, 4] == [len(batch) for batch in batches_of(message for message, _ in outcomes)]


@pytest.mark.parametrize("shown", [True, False])
def test_an_error_after_the_last_outcome_is_logged(caplog: pytest.LogCaptureFixture, shown: bool) -> None:
    def process(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from map(answered, batches)
        raise ValueError("no commit")

    messages = messages_of([Batch("acme", [b"a", b"b"], 0, 0, block=7)])
    terms = JobTerms(ordered=False, bounds=(1 << 20, OPEN, MOST_HEADERS), log_texts=shown)

    assert len(list(ArrowAttempts(process, terms).outcomes(messages, run_here))) == 2
    assert "the processor failed after its last outcome" in caplog.text
    assert ("ValueError: no commit" in caplog.text) == shown


def test_a_sent_message_has_the_trace_of_its_message_if_its_headers_have_room() -> None:
    terms, traced = JobTerms(ordered=False, bounds=(100, OPEN, 60)), {"traceparent": "x" * 20}
    facts, own = Facts({}, {}, {0: Attributes(headers=traced)}), {"own": "v" * 30}
    done = Done(enqueue=[("b", Message(b"1", headers=own)), ("b", b"2")])
    by_message = MessageAttempts(lambda delivery: done, terms)
    for attempts in (by_message, BatchAttempts(batch_processor(lambda batch: [done]), terms)):
        messages = messages_of([Batch("a", [b"0"], 0, 0, block=7, _facts=lambda: facts)])
        ((_, outcome),) = attempts.outcomes(messages, run_here)
        assert isinstance(outcome, Done)
        assert [dict(sent.attributes.headers) for sent in outcome.enqueue] == [own, traced]
