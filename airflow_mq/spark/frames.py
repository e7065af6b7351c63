"""Processors that take a whole DataFrame: messages in, outcomes out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from .. import failures
from ..core.errors import InvalidOutcome, ProcessorError, TokenRefused
from ..core.outcome import check_outcome
from ..processors import Part, Processor
from .items import groups_of, items_of
from .output import writing_for
from .reports import Reporter, flushed
from .share import Side, Tally, Task, load_function
from .tables import MESSAGES_DDL, answers_in, batch_of
from .terms import Terms

log = logging.getLogger("airflow_mq.spark")

TALLY = "done BIGINT, failed BIGINT, back BIGINT, before BIGINT, refused STRING"


def run_frames(session: Any, channel: Any, tasks: Sequence[Task], terms: Terms, part: Part) -> Tally:
    """Call each processor with its messages as one DataFrame, and report the outcomes that it returns.

    When a part is repeated, the processor receives all its messages again, also those with an outcome, so that its
    output can replace the earlier one (`output`). The first outcome counts.
    """
    total = Tally()
    for processor in dict.fromkeys(task.processor for task in tasks):
        shares = [task.share for task in tasks if task.processor == processor]
        function = load_function(processor.function)
        name = f"{processor.name}-{part['part'] + 1}-of-{part['parts']}"
        for share in shares:
            _begin(channel.open(share))
        try:
            with writing_for(terms.block_name, name):
                total.add(_run_frame(session, channel, processor, function, shares, terms))
        except Exception as error:
            log.error(
                "processor %r failed on its DataFrame", processor.name,
                exc_info=failures.loggable(error, terms.log_texts),
            )  # fmt: skip
            reason = failures.reason_of(error)
            raise ProcessorError(f"processor {processor.name!r} failed on its DataFrame: {reason}") from None
    return total


def _begin(side: Side) -> None:
    try:
        side.begin()
    finally:
        side.close()


def _run_frame(
    session: Any, channel: Any, processor: Processor, function: Any, shares: Sequence[Any], terms: Terms
) -> Tally:
    total = Tally()
    numbers = session.range(0, len(shares), 1, len(shares))
    messages = numbers.mapInArrow(Messages(channel, shares, terms), MESSAGES_DDL)
    outcomes = function(messages)
    if outcomes is None:
        answers = numbers.mapInArrow(AllDone(channel, shares, terms), TALLY)
    elif hasattr(outcomes, "mapInArrow"):
        answers = outcomes.mapInArrow(Outcomes(channel, terms), TALLY)
    else:
        raise InvalidOutcome(
            f"the function of processor {processor.name!r} returns a DataFrame of outcomes or nothing, "
            f"not {type(outcomes).__name__}"
        )
    for row in answers.collect():
        total.add(Tally(row.done, row.failed, row.back, row.before, row.refused))
    return total


class Messages:
    """Messages of each partition's share."""

    def __init__(self, channel: Any, shares: Sequence[Any], terms: Terms) -> None:
        self.channel, self.shares, self.terms = channel, shares, terms

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in _numbers(batches):
            side = self.channel.open(self.shares[number])
            try:
                yield from record_batches(items_of(side.batches(), self.terms.block))
            finally:
                side.close()


class Outcomes:
    """Reporter of a partition's outcomes, of any share."""

    def __init__(self, channel: Any, terms: Terms) -> None:
        self.channel, self.terms = channel, terms

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        side = self.channel.open(None)
        tally, reporter = Tally(), Reporter(side.report, side.seconds)
        try:
            with flushed(reporter):
                for batch in batches:
                    for place, outcome in answers_in(batch):
                        checked = check_outcome(outcome, self.terms.most, self.terms.permit, self.terms.most_headers)
                        reporter.add(*place, checked)
                        tally.count(checked)
            reporter.flush()
        except TokenRefused as error:
            tally.refused = str(error)
        finally:
            side.close()
        yield _tally_row(tally)


class AllDone:
    """Reporter of shares that are done as a whole."""

    def __init__(self, channel: Any, shares: Sequence[Any], terms: Terms) -> None:
        self.channel, self.shares, self.terms = channel, shares, terms

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tally = Tally()
        for number in _numbers(batches):
            side = self.channel.open(self.shares[number])
            try:
                for batch in side.batches():
                    side.report([batch.answer()])
                    tally.done += len(batch)
            except TokenRefused as error:
                tally.refused = str(error)
            finally:
                side.close()
        yield _tally_row(tally)


class Numbered:
    """Runner of each partition's tasks; returns their tallies."""

    def __init__(self, tasks: Sequence[Task], call: Any) -> None:
        self.tasks, self.call = tasks, call

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for tally in self.call(self.tasks[number] for number in _numbers(batches)):
            yield _tally_row(tally)


def record_batches(items: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    """Return messages as record batches of suitable size."""
    return map(batch_of, groups_of(items))


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _tally_row(tally: Tally) -> pa.RecordBatch:
    counts = [pa.array([getattr(tally, name)], pa.int64()) for name in ("done", "failed", "back", "before")]
    names = ["done", "failed", "back", "before", "refused"]
    return pa.RecordBatch.from_arrays([*counts, pa.array([tally.refused], pa.string())], names=names)
