"""Attempts: how messages reach a processor's function, by the function's shape.

An exception of a processor is a failed attempt of one message. A batch that fails is halved until the failing message
stands alone. Careful attempts call the function in a child process (`child`).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from time import monotonic
from typing import Any, TypeAlias, cast

from .. import failures
from ..codecs import Codec, load_codec
from ..engine.queue.attempts import BatchProcessor, checked, going_on, outcome_of, traced
from ..engine.queue.calls import processor_of
from ..engine.queue.context import ProcessorContext, current_delivery
from ..engine.queue.typed import decoding, decoding_batches
from ..engine.queue.values import Delivery
from ..engine.rules.characters import visible
from ..engine.rules.errors import InvalidOutcome
from ..engine.rules.outcome import DONE, Outcome, Yield, check_outcome
from ..processors import Processor
from .child import Call, ChildFailed, Outcomes
from .items import Place, batch_of, batches_of, groups_of, place_of, runs_of
from .terms import JobTerms

log = logging.getLogger("airflow_mq.spark")

#: A processor as its author wrote it, of any shape.
Function: TypeAlias = "Callable[..., Any] | BatchProcessor"
#: A way to run a call: in this process, or in a child.
Runner = Callable[[Call, Iterable[Delivery]], Outcomes]


def run_here(call: Call, messages: Iterable[Delivery]) -> Outcomes:
    return call(messages)


class Stopwatch:
    """Measured time of calls, by batch: messages of one queue, or all of a call that mixes queues.

    The time of a failed call counts for the next outcome.
    """

    def __init__(self, *, mixes: bool) -> None:
        self.mixes = mixes
        self._book, self._batch, self._time, self._fresh = "", 0, 0.0, 0.0

    def timed(self, run: Runner) -> Runner:
        """Return a runner whose calls are measured."""

        def timing(call: Call, messages: Iterable[Delivery]) -> Outcomes:
            self._book, outcomes = "", iter(run(call, messages))
            while True:
                began = monotonic()
                try:
                    found = next(outcomes, None)
                finally:
                    self._fresh += monotonic() - began
                if found is None:
                    return
                yield found

        return timing

    def took(self, message: Delivery) -> tuple[int, int]:
        """Return the batch of a message that has its outcome now, and the time (`Report.took`)."""
        if not self._book or not (self.mixes or message.book == self._book):
            self._book, self._batch, self._time = message.book, secrets.randbelow(1 << 48) + 1, 0.0
        self._time, self._fresh = self._time + self._fresh, 0.0
        return self._batch, round(self._time * 1_000_000)


class Attempts:
    """The way in which messages reach a function of one shape."""

    #: Whether one call may receive messages of several queues.
    mixes = False

    def __init__(self, function: Function, terms: JobTerms) -> None:
        self.function: Any = function
        self.terms = terms
        #: Ordered books in which a message returned. Nothing behind it is tried.
        self.stopped: set[str] = set()

    def outcomes(self, messages: Iterator[Delivery], run: Runner) -> Outcomes:
        """Yield each message with its outcome; messages without an answer are left out.

        It may be called again with the messages that follow.
        """
        raise NotImplementedError

    def checked(self, answer: Outcome | bool | None) -> Outcome:
        """Return the outcome that an answer stands for, checked against the terms."""
        return check_outcome(outcome_of(answer), *self.terms.bounds)

    def noted(self, outcomes: Iterable[tuple[Delivery, Outcome]], answered: set[Place]) -> Outcomes:
        """Yield messages with their outcomes, and note that they have one."""
        for message, outcome in outcomes:
            answered.add(place_of(message))
            self.note_stop(message, outcome)
            yield message, outcome

    def note_stop(self, message: Delivery, outcome: Outcome) -> None:
        """Note that nothing behind a message is tried, if it goes back to an ordered book."""
        if self.terms.stops(message.origin, outcome):
            self.stopped.add(message.book)

    def left(self, messages: Iterable[Delivery], answered: Collection[Place] = ()) -> list[Delivery]:
        """Return the messages that are still to be tried."""
        tried = [message for message in messages if message.book not in self.stopped]
        return [message for message in tried if place_of(message) not in answered] if answered else tried


def attempts_of(processor: Processor, function: Function, terms: JobTerms) -> Attempts:
    """Return the attempts that fit a processor's function."""
    codec = load_codec(processor.codec) if processor.codec else None
    if isinstance(function, BatchProcessor):
        return BatchAttempts(decoding_batches(codec, cast("Any", function.process)) if codec else function, terms)
    if processor.shape == "arrow":
        return ArrowAttempts(function, terms)
    return MessageAttempts(function, terms, codec)


class MessageAttempts(Attempts):
    """Attempts one by one; the function is called by its signature, with the value of a codec as its payload."""

    def __init__(self, function: Function, terms: JobTerms, codec: Codec[Any] | None = None) -> None:
        super().__init__(function, terms)
        self.process = traced(processor_of(self.function) if codec is None else decoding(codec, self.function))

    def outcomes(self, messages: Iterator[Delivery], run: Runner) -> Outcomes:
        for group in groups_of(messages):
            answered: set[Place] = set()
            while left := self.left(group, answered):
                try:
                    yield from self.noted(run(self._call, left), answered)
                except ChildFailed as error:
                    # The first one without an outcome was being tried when the child ended.
                    died = [(message, Yield(str(error))) for message in self.left(left, answered)[:1]]
                    yield from self.noted(died, answered)

    def _call(self, messages: Iterable[Delivery]) -> Outcomes:
        # This process may be a child of the one that made these attempts: it has a context, and notes its own stops.
        context = ProcessorContext(self.terms.place)
        for page, group in groupby(messages, lambda message: message._open):
            opened = page._replace(context=context)
            for message in group:
                if message.book not in self.stopped:
                    message._open = opened
                    outcome = self._try(message)
                    self.note_stop(message, outcome)
                    yield message, outcome

    def _try(self, delivery: Delivery) -> Outcome:
        mark = current_delivery.set(delivery)
        try:
            return checked(self.process(delivery), delivery, self.terms.bounds, traced=True)
        except (Exception, SystemExit) as error:
            return _failed(delivery, error, self.terms)
        finally:
            delivery.sealed = True
            current_delivery.reset(mark)


class GroupAttempts(Attempts):
    """Attempts of many messages at once: a failed call is repeated by halves until the failing message stands alone.

    No later call receives messages of an ordered book behind one that returned.
    """

    groups = staticmethod(groups_of)

    def outcomes(self, messages: Iterator[Delivery], run: Runner) -> Outcomes:
        for group in self.groups(messages):
            yield from self._halved(group, run)

    def call(self, messages: Iterable[Delivery]) -> Outcomes:
        """Call the function."""
        raise NotImplementedError

    def _halved(self, group: Sequence[Delivery], run: Runner) -> Outcomes:
        answered: set[Place] = set()
        messages = self.left(group)
        try:
            if messages:
                yield from self.noted(run(self.call, messages), answered)
            return
        except (Exception, SystemExit) as error:
            left = self.left(messages, answered)
            if not left:
                log.error("the processor failed after its last outcome", exc_info=_shown(error, self.terms))
            if len(left) <= 1:
                yield from self.noted([(message, _failed(message, error, self.terms)) for message in left], answered)
                return
            log.warning("the processor failed on %d messages (%s); retrying by halves", len(left), _reason(error))
        half = len(left) // 2
        yield from self._halved(left[:half], run)
        yield from self._halved(left[half:], run)


class BatchAttempts(GroupAttempts):
    """Attempts by a function that `batch_processor` made: neighbours in one page."""

    groups = staticmethod(runs_of)

    def call(self, messages: Iterable[Delivery]) -> Outcomes:
        group = list(messages)
        answers = self.function.process(batch_of(group))
        if answers is not None and len(answers) != len(group):
            raise InvalidOutcome(
                f"wrong number of answers ({len(answers)}): a batch of {len(group)} messages needs {len(group)}"
            )
        outcomes = [DONE] * len(group) if answers is None else [self.checked(answer) for answer in answers]
        _, _, most_headers = self.terms.bounds
        for message, outcome in zip(group, outcomes):
            yield message, going_on(outcome, message.headers, most_headers)


class ArrowAttempts(GroupAttempts):
    """Attempts by a function from record batches to record batches."""

    mixes = True

    def call(self, messages: Iterable[Delivery]) -> Outcomes:
        from .tables import answers_in, tables_of

        waiting = {place_of(message): message for message in messages}
        for batch in self.function(tables_of(batches_of(list(waiting.values())))):
            for place, outcome in answers_in(batch):
                message = waiting.pop(place, None)
                if message is not None:
                    yield message, self.checked(outcome)


def _failed(message: Delivery, error: BaseException, terms: JobTerms) -> Yield:
    shown = _shown(error, terms)
    log.error("the processor failed on %s; the message is kept", visible(str(message.address)), exc_info=shown)
    return Yield(_reason(error).encode("utf-8", "replace").decode().replace("\0", " ")[:2000])


def _shown(error: BaseException, terms: JobTerms) -> BaseException:
    # The text of a child's error is safe to store already.
    return error if isinstance(error, ChildFailed) else failures.loggable(error, terms.log_texts)


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, ChildFailed) else failures.reason_of(error)
