"""Attempts: what a function receives in one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from airflow_mq import Batch
from airflow_mq.spark.attempts import ArrowAttempts, run_here
from airflow_mq.spark.items import messages_of
from airflow_mq.spark.terms import JobTerms


def test_messages_of_several_record_batches_are_one_call() -> None:
    messages = messages_of(Batch("acme", [bytes(600_000)], number, 0, block=7) for number in range(5))
    calls: list[list[int]] = []

    def process(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        calls.append([])
        for batch in batches:
            calls[-1].append(batch.num_rows)
            columns = [batch.column(name) for name in ("origin", "priority", "page", "item")]
            outcomes: Any = pa.nulls(batch.num_rows, pa.string())
            yield pa.RecordBatch.from_arrays([*columns, outcomes], ["origin", "priority", "page", "item", "outcome"])

    outcomes = list(ArrowAttempts(process, JobTerms(ordered=False, most=1 << 20)).outcomes(messages, run_here))

    assert [message.page for message, _ in outcomes] == [0, 1, 2, 3, 4]
    assert len(calls) == 1 and len(calls[0]) > 1 and sum(calls[0]) == 5
