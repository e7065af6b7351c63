"""Attempts: how messages reach a processor's function, by the function's shape.

An exception of a processor is a failed attempt of one message. A batch that fails is halved until the failing message
stands alone. Careful attempts call the function in a child process (`child`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, cast

from .. import failures
from ..codecs import Codec, load_codec
from ..engine.queue import BatchProcessor, Delivery
from ..engine.queue.attempts import going_on, outcome_of, traced
from ..engine.queue.calls import processor_of
from ..engine.queue.context import ProcessorContext, current_delivery
from ..engine.queue.typed import decoding, decoding_batches
from ..engine.rules.errors import InvalidOutcome
from ..engine.rules.outcome import DONE, Done, Outcome, Yield, check_outcome, check_sent
from ..processors import Processor
from .child import Call, ChildDied, ChildFailed, Outcomes
from .items import Item, ItemDelivery, Place, batch_of, groups_of, neighbours_of
from .terms import Terms

log = logging.getLogger("airflow_mq.spark")

#: A processor as its author wrote it, of any shape.
Function: TypeAlias = "Callable[..., Any] | BatchProcessor"
#: A way to run a call: in this process, or in a child.
Runner = Callable[[Call, Iterable[Item]], Outcomes]


def run_here(call: Call, items: Iterable[Item]) -> Outcomes:
    """Run a call in this process."""
    return call(items)


class Attempts:
    """The way in which messages reach a function of one shape."""

    def __init__(self, function: Function, terms: Terms) -> None:
        self.function: Any = function
        self.terms = terms
        #: Ordered books in which a message went back. Nothing behind it is tried.
        self.stopped: set[str] = set()

    def outcomes(self, items: Iterator[Item], run: Runner) -> Outcomes:
        """Yield each message with its outcome; messages without an answer are left out.

        It may be called again with the messages that follow.
        """
        raise NotImplementedError

    def checked(self, answer: Outcome | bool | None) -> Outcome:
        """Return the outcome that an answer stands for, checked against the terms."""
        return check_outcome(outcome_of(answer), *self.terms.bounds)

    def note_stop(self, item: Item, outcome: Outcome, stopped: set[str]) -> None:
        """Record that the messages behind this one in its book are not tried, if it goes back to an ordered book."""
        if self.terms.stops(item.origin, outcome):
            stopped.add(item.book)


def attempts_of(processor: Processor, function: Function, terms: Terms) -> Attempts:
    """Return the attempts that fit a processor's function."""
    codec = load_codec(processor.codec) if processor.codec else None
    if isinstance(function, BatchProcessor):
        return BatchAttempts(decoding_batches(codec, cast("Any", function.process)) if codec else function, terms)
    if processor.shape == "arrow":
        return ArrowAttempts(function, terms)
    return MessageAttempts(function, terms, codec)


class MessageAttempts(Attempts):
    """Attempts one by one; the function is called by its signature, with the value of a codec as its payload."""

    def __init__(self, function: Function, terms: Terms, codec: Codec[Any] | None = None) -> None:
        super().__init__(function, terms)
        self.process = traced(processor_of(self.function) if codec is None else decoding(codec, self.function))

    def outcomes(self, items: Iterator[Item], run: Runner) -> Outcomes:
        stopped = self.stopped
        for group in groups_of(items):
            left = [item for item in group if item.book not in stopped]
            while left:
                answered: set[Place] = set()
                try:
                    for item, outcome in run(self._call, left):
                        self._note(item, outcome, answered, stopped)
                        yield item, outcome
                    break
                except ChildDied as error:
                    untried = (item for item in left if item.place not in answered and item.book not in stopped)
                    # The message that was being tried when the child died.
                    item, outcome = next(untried), Yield(str(error))
                self._note(item, outcome, answered, stopped)
                yield item, outcome
                left = [item for item in left if item.place not in answered and item.book not in stopped]

    def _note(self, item: Item, outcome: Outcome, answered: set[Place], stopped: set[str]) -> None:
        answered.add(item.place)
        self.note_stop(item, outcome, stopped)

    def _call(self, items: Iterable[Item]) -> Outcomes:
        stopped: set[str] = set()
        # This process may be a child of the one that made these attempts.
        context = ProcessorContext(self.terms.place)
        for item in items:
            if item.book in stopped:
                continue
            outcome = self._try(item, context)
            self.note_stop(item, outcome, stopped)
            yield item, outcome

    def _try(self, item: Item, context: ProcessorContext) -> Outcome:
        delivery = ItemDelivery(item, context)
        mark = current_delivery.set(delivery)
        try:
            outcome = self.checked(self.process(delivery))
            return going_on(self._with_sent(outcome, delivery), item.headers or {})
        except (Exception, SystemExit) as error:
            return _failed(item, error, self.terms)
        finally:
            delivery.sealed = True
            current_delivery.reset(mark)

    def _with_sent(self, outcome: Outcome, delivery: Delivery) -> Outcome:
        """Add what the function enqueued through its delivery to the outcome."""
        sent = delivery.seal()
        if not sent or not isinstance(outcome, Done):
            return outcome
        checked = [check_sent(entry, *self.terms.bounds) for entry in (*sent, *outcome.enqueue)]
        return Done(outcome.success, outcome.id, outcome.used, checked)


class GroupAttempts(Attempts):
    """Attempts of many messages at once: a failed call is repeated by halves until the failing message stands alone.

    No later call receives messages of an ordered book behind one that went back.
    """

    def outcomes(self, items: Iterator[Item], run: Runner) -> Outcomes:
        for group in self.groups(items):
            yield from self._halved(group, run, self.stopped)

    def groups(self, items: Iterator[Item]) -> Iterator[list[Item]]:
        """Yield messages that one call receives together."""
        raise NotImplementedError

    def call(self, items: Iterable[Item]) -> Outcomes:
        """Call the function."""
        raise NotImplementedError

    def _halved(self, group: Sequence[Item], run: Runner, stopped: set[str]) -> Outcomes:
        items = [item for item in group if item.book not in stopped]
        if not items:
            return
        answered = set()
        try:
            for item, outcome in run(self.call, items):
                answered.add(item.place)
                self.note_stop(item, outcome, stopped)
                yield item, outcome
            return
        except (Exception, SystemExit) as error:
            left = [item for item in items if item.place not in answered and item.book not in stopped]
            if len(left) == 1:
                failure = _failed(left[0], error, self.terms)
                self.note_stop(left[0], failure, stopped)
                yield left[0], failure
            if len(left) <= 1:
                return
            log.warning("the processor failed on %d messages (%s); retrying by halves", len(left), _reason(error))
        half = len(left) // 2
        yield from self._halved(left[:half], run, stopped)
        yield from self._halved(left[half:], run, stopped)


class BatchAttempts(GroupAttempts):
    """Attempts by a function that `batch_processor` made: neighbours in one page."""

    def groups(self, items: Iterator[Item]) -> Iterator[list[Item]]:
        return neighbours_of(items)

    def call(self, items: Iterable[Item]) -> Outcomes:
        group = list(items)
        answers = self.function.process(batch_of(group))
        if answers is not None and len(answers) != len(group):
            raise InvalidOutcome(
                f"wrong number of answers ({len(answers)}): a batch of {len(group)} messages needs {len(group)}"
            )
        outcomes = [DONE] * len(group) if answers is None else [self.checked(answer) for answer in answers]
        for item, outcome in zip(group, outcomes):
            yield item, going_on(outcome, item.headers or {})


class ArrowAttempts(GroupAttempts):
    """Attempts by a function from record batches to record batches."""

    def groups(self, items: Iterator[Item]) -> Iterator[list[Item]]:
        return groups_of(items)

    def call(self, items: Iterable[Item]) -> Outcomes:
        from .tables import answers_in, tables_of_items

        waiting = {item.place: item for item in items}
        for batch in self.function(tables_of_items(list(waiting.values()))):
            for place, outcome in answers_in(batch):
                item = waiting.pop(place, None)
                if item is not None:
                    yield item, self.checked(outcome)


def _failed(item: Item, error: BaseException, terms: Terms) -> Yield:
    # The text of a child's error is safe to store already.
    shown = error if isinstance(error, (ChildDied, ChildFailed)) else failures.loggable(error, terms.log_texts)
    log.error("the processor failed on %s; the message is kept", ascii(str(item.address))[1:-1], exc_info=shown)
    return Yield(_reason(error).encode("utf-8", "replace").decode().replace("\0", " ")[:2000])


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, (ChildDied, ChildFailed)) else failures.reason_of(error)
