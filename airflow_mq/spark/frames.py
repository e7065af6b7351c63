"""Processors that take a whole DataFrame: messages in, outcomes out."""

from __future__ import annotations

import json
import logging
import secrets
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from .. import failures
from ..engine.rules.errors import InvalidOutcome, ProcessorError, TokenRefused
from ..engine.rules.outcome import check_outcome
from ..processors import Part
from .cause import reason_of_worker
from .output import writing_for
from .reports import Reporter, flushed
from .share import Channel, Reported, Side, Task, done, load_function, noting_refusal
from .tables import MESSAGES_DDL, answers_in, tables_of
from .terms import JobTerms

log = logging.getLogger("airflow_mq.spark")

#: Bits by chance in the number of an attempt.
_CHANCE = 20
#: The column of a tally, as JSON.
TALLY = "tally STRING"

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    FrameFunction = Callable[[DataFrame], DataFrame | None]


def run_frames(
    session: SparkSession, channel: Channel, tasks: Sequence[Task], terms: JobTerms, part: Part,
    can_continue: Callable[[Exception], bool],
) -> Reported:  # fmt: skip
    """Call each processor with its messages as one DataFrame, and report the outcomes that it returns.

    When a part is repeated, the processor receives all its messages again, also those with an outcome, so that its
    output can replace the earlier one (`output`). Each attempt is an epoch: from its begin, only its outcomes count.
    A processor that fails stops no other: its error is raised at the end.
    """
    total, failed = Reported(), None
    for processor in dict.fromkeys(task.processor for task in tasks):
        function = load_function(processor.function)
        name = f"{processor.name}-{part['part'] + 1}-of-{part['parts']}"
        shares = Shares(channel, [task.share for task in tasks if task.processor == processor], terms)
        shares.begin()
        try:
            with writing_for(terms.block_name, name, shares.refuse_superseded):
                total.add(_run_frame(session, processor.name, cast("FrameFunction", function), shares))
        except TokenRefused:
            raise
        except Exception as error:
            shown = failures.loggable(error, terms.log_texts)
            log.error("processor %r failed on its DataFrame", processor.name, exc_info=shown)
            reason = reason_of_worker(error)
            failed = failed or ProcessorError(f"processor {processor.name!r} failed on its DataFrame: {reason}")
            if not can_continue(error):
                break
    if failed is not None:
        raise failed
    return total


def _run_frame(session: SparkSession, name: str, function: FrameFunction, shares: Shares) -> Reported:
    numbers = session.range(0, len(shares.shares), 1, len(shares.shares))
    outcomes = function(numbers.mapInArrow(shares.messages, MESSAGES_DDL))
    if outcomes is None:
        answers = numbers.mapInArrow(shares.report_done, TALLY)
    elif hasattr(outcomes, "mapInArrow"):
        answers = outcomes.mapInArrow(shares.report_outcomes, TALLY)
    else:
        raise InvalidOutcome(
            f"the function of processor {name!r} returns a DataFrame of outcomes or nothing, "
            f"not {type(outcomes).__name__}"
        )
    return Reported.sum_of(tallies_in(answers.collect()))


class Shares:
    """Shares of one processor; Spark ships it to executors, one number of a share to each partition."""

    def __init__(self, channel: Channel, shares: Sequence[object], terms: JobTerms) -> None:
        self.channel, self.shares, self.terms = channel, shares, terms
        #: The number of this attempt; larger than that of every attempt before.
        self.epoch = 0

    def begin(self) -> None:
        """Report that all messages are about to be tried: outcomes of earlier attempts count no more."""
        # Attempts that begin at the same moment differ by chance.
        self.epoch = ((self.channel.epoch(self.shares) >> _CHANCE) + 1 << _CHANCE) + secrets.randbits(_CHANCE)
        for share in self.shares:
            with self._open(share) as side:
                side.begin()

    def _open(self, share: object) -> AbstractContextManager[Side]:
        return self.channel.open(share, self.epoch)

    def refuse_superseded(self) -> None:
        """Raise `TokenRefused` if a later attempt has begun: its output must stand, with its outcomes."""
        if self.channel.epoch(self.shares) != self.epoch:
            raise TokenRefused("another attempt of this part began meanwhile: this one writes no output")

    def messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a partition's shares."""
        for number in _numbers(batches):
            with self._open(self.shares[number]) as side:
                yield from tables_of(side.batches(), self.terms.block)

    def report_outcomes(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Report a partition's outcomes, of any share; yield their tally."""
        tally = Reported()
        with self._open(None) as side:
            reporter = Reporter(side.report, side.seconds)
            with noting_refusal(tally):
                with flushed(reporter):
                    for place, outcome in (answer for batch in batches for answer in answers_in(batch)):
                        checked = check_outcome(outcome, *self.terms.bounds)
                        reporter.add(*place, checked)
                        tally.count(checked)
                reporter.flush()
        yield _tally_row(tally)

    def report_done(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Report that a partition's shares are done as a whole; yield their tally."""
        tally = Reported()
        for number in _numbers(batches):
            with self._open(self.shares[number]) as side, noting_refusal(tally):
                for reports in done(side.batches(), side.answered(), self.terms):
                    side.report(reports)
                    tally.processed += sum(report.last - report.first + 1 for report in reports)
        yield _tally_row(tally)


class Numbered:
    """Runner of each partition's tasks; returns their tallies."""

    def __init__(self, tasks: Sequence[Task], call: Callable[[Iterable[Task]], Iterable[Reported]]) -> None:
        self.tasks, self.call = tasks, call

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for tally in self.call(self.tasks[number] for number in _numbers(batches)):
            yield _tally_row(tally)


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _tally_row(tally: Reported) -> pa.RecordBatch:
    text = json.dumps(vars(tally)).encode()
    # `pa.array` imports pandas, which takes longer than a small share.
    buffers = [None, pa.py_buffer(array("i", [0, len(text)])), pa.py_buffer(text)]
    return pa.RecordBatch.from_arrays([pa.Array.from_buffers(pa.string(), 1, buffers)], ["tally"])


def tallies_in(rows: Iterable[Row]) -> Iterator[Reported]:
    """Yield the tallies that executors returned as rows."""
    return (Reported(**json.loads(row.tally)) for row in rows)
