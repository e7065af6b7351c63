"""Shares of a block: the messages that one executor tries, and what they came to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from ..codecs import load_codec
from ..engine.queue.attempts import BatchProcessor
from ..engine.queue.calls import processor_of
from ..engine.queue.values import Batch, Delivery, Report
from ..engine.rules.errors import InvalidInput, TokenRefused
from ..engine.rules.outcome import BEGUN, Done, Outcome, Overweight, Yield
from ..engine.rules.settle import Answers, Tally
from ..loading import load_named
from ..processors import Part, Processor, Processors
from .attempts import Attempts, Function, MessageAttempts, Stopwatch, attempts_of, run_here
from .child import in_child
from .items import batches_of, groups_of, messages_of, neighbours_of, place_of, stretches_of
from .reports import Reporter, chunked, flushed
from .terms import JobTerms

#: A function that groups messages, and may leave some out.
Groups = Callable[[Iterator[Delivery]], Iterator[list[Delivery]]]


class Side(Protocol):
    """The source of messages and the destination of outcomes: the store, or a folder between store and job."""

    #: Seconds after which outcomes are sent, however few.
    seconds: float

    def begin(self) -> None:
        """Report that the messages are about to be tried: from now on, an attempt counts."""

    def batches(self) -> Iterable[Batch]:
        """Return the messages in the order of service."""

    def report(self, reports: Sequence[Report]) -> None:
        """Report outcomes of some messages."""

    def answered(self) -> Mapping[str, Answers]:
        """Return the outcomes reported before, by book."""


class Channel(Protocol):
    """Access to messages that Spark can ship to executors."""

    def open(self, share: Any, epoch: int = 0) -> AbstractContextManager[Side]:
        """Open a share; without one, a side that only reports.

        :param epoch: number of an attempt that replaces earlier ones (`Report.epoch`)
        """

    def epoch(self, shares: Iterable[Any]) -> int:
        """Return the epoch of the latest attempt at shares; 0 without one."""


@dataclass(frozen=True)
class Task:
    """The work of one executor at a time: a processor and its share of the messages."""

    processor: Processor
    share: Any = field(repr=False)
    messages: int = 0


@dataclass
class Reported(Tally):
    """How many messages have each outcome that a job reported."""

    #: Reported before, by a job that did not finish.
    before: int = 0
    #: Reason for which the block takes no more outcomes.
    refused: str | None = None

    def count(self, outcome: Outcome) -> None:
        if isinstance(outcome, Done):
            self.processed += 1
        elif isinstance(outcome, (Yield, Overweight)):
            self.returned += 1
        else:
            self.failed += 1

    def add(self, other: Reported) -> None:
        """Add what another share reported."""
        self.add_counts(other)
        self.before += other.before
        self.refused = self.refused or other.refused

    @classmethod
    def sum_of(cls, tallies: Iterable[Reported]) -> Reported:
        """Return the sum of the tallies of several shares."""
        total = cls()
        for tally in tallies:
            total.add(tally)
        return total

    def __str__(self) -> str:
        text = f"{self.processed:,} done, {self.failed:,} failed, {self.returned:,} returned"
        return f"{text}, {self.before:,} reported before" if self.before else text


def load_function(name: str) -> Function:
    """Return the function that a processor names. Raises `InvalidInput` if it cannot be loaded."""
    try:
        function: object = load_named(name)
    except Exception as error:
        raise InvalidInput(
            f"cannot load function {name} ({type(error).__name__}: {error}): its module must be where this Python, and "
            "that of the executors, finds modules: installed, in PYTHONPATH, or in py_files"
        ) from error
    if not callable(function) and not isinstance(function, BatchProcessor):
        raise InvalidInput(f"{name} is a {type(function).__name__}: expected a function")
    return function


def check_function(processor: Processor) -> None:
    """Load a processor's function and codec; raise `InvalidInput` if the function does not fit its shape."""
    function = load_function(processor.function)
    if not isinstance(function, BatchProcessor):
        if processor.shape == "message":
            processor_of(function)
    elif processor.shape != "message":
        raise InvalidInput(f"{processor.function} is a batch processor: expected the shape 'message'")
    if processor.codec:
        load_codec(processor.codec)


class NotLoaded(InvalidInput):
    """A processor that does not load: its own error was reported to its messages."""


@contextmanager
def loaded(processors: Processors, part: Part, report: Callable[[Part, InvalidInput], object]) -> Iterator[Part]:
    """Yield a part without the processors that do not load: the others do not wait until these are repaired.

    `report` receives each one's error; one of these errors is raised at the end, or at once if none loads.
    """
    names, failed = [], None
    for name in part["processors"]:
        try:
            check_function(processors[name])
            names.append(name)
        except InvalidInput as error:
            failed = error
            report({**part, "processors": [name]}, error)
    if names:
        yield {**part, "processors": names}
    if failed is not None:
        raise NotLoaded(str(failed)) from failed


def run_share(
    processor: Processor,
    side: Side,
    terms: JobTerms,
    *,
    careful: bool = False,
    again: bool = False,
    groups: Groups | None = None,
    function: Function | None = None,
) -> Reported:
    """Try the messages of one side and report their outcomes; a message's failure is an outcome, never raised.

    :param careful: call the function in child processes
    :param again: outcomes may have been reported before: skip messages that have one
    :param groups: chooses and groups the messages; each group is reported as begun directly before it is tried
    :param function: called message by message, in place of the processor's function
    """
    tally, reporter = Reported(), Reporter(side.report, side.seconds)
    attempts: Attempts
    if function is None:
        attempts = attempts_of(processor, load_function(processor.function), terms)
    else:
        attempts = MessageAttempts(function, terms)
    # A process with threads must not fork: while a child works, its parent flushes.
    run = partial(in_child, idle=reporter.flush_quietly, seconds=reporter.seconds) if careful else run_here
    watch = Stopwatch(mixes=attempts.mixes)
    with noting_refusal(tally):
        messages = left_of(side.batches(), side.answered() if again or careful else {}, terms, tally)
        with nullcontext() if careful else flushed(reporter):
            for begun in _begun(side, reporter, messages, attempts, groups):
                for message, outcome in attempts.outcomes(begun, watch.timed(run)):
                    reporter.add(*place_of(message), outcome, message.payload, watch.took(message))
                    tally.count(outcome)
        reporter.flush()
    return tally


def _begun(
    side: Side, reporter: Reporter, messages: Iterator[Delivery], attempts: Attempts, groups: Groups | None
) -> Iterator[Iterator[Delivery]]:
    """Yield messages in the stretches in which they are tried, each reported as begun directly before."""
    if attempts.terms.max_attempts is None and groups is None:
        # No message loses anything by an attempt.
        side.begin()
        yield messages
        return
    for stretch in stretches_of((groups or groups_of)(messages), attempts.terms.is_alone):
        left = attempts.left(stretch)
        if left:
            # With the outcomes before: a message that is done must not lose an attempt by the next one.
            runs = neighbours_of(left, place_of)
            reporter.flush([Report(*place_of(run[0]), run[-1].index, BEGUN) for run in runs])
            yield iter(left)


@contextmanager
def noting_refusal(tally: Reported) -> Iterator[None]:
    """Note in a tally that the block takes no more outcomes, and end the context."""
    try:
        yield
    except TokenRefused as error:
        tally.refused = str(error)


def done(batches: Iterable[Batch], answered: Mapping[str, Answers], terms: JobTerms) -> Iterator[list[Report]]:
    """Yield reports that messages are done, without those that were not handed over: behind an unreadable payload."""
    return chunked(batch.answer() for batch in batches_of(left_of(batches, answered, terms, Reported())))


def left_of(
    batches: Iterable[Batch], answered: Mapping[str, Answers], terms: JobTerms, tally: Reported
) -> Iterator[Delivery]:
    """Yield the messages that have no outcome and are not behind one that stops their origin."""
    stopped: set[str] = set()
    for message in messages_of(batches, terms.block):
        known = answered.get(message.book)
        prior = known.get(message.page, message.index) if known else None
        if terms.stops(message.origin, prior):
            stopped.add(message.book)
        tally.before += prior is not None
        if prior is None and message.book not in stopped:
            yield message
