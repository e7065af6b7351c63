"""How messages are handed to processors that run in this process: one by one, or in batches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from .. import failures, tracing
from ..core.blob import Reference
from ..core.book import Book
from ..core.characters import quoted, visible
from ..core.claims import Decision, Scales, Stretches, Verdict
from ..core.errors import BlobMissing, InvalidOutcome
from ..core.outcome import DONE, Done, Outcome, Overweight, PageStatus, Unsupported, Yield, check_outcome, check_sent
from ..core.page import Page
from ..core.service import Ladder, apply_outcome, done_run, drop_expired, put_aside
from ..core.weigher import WeighPayloads
from ..core.weight import ZERO, Meter, Weight, total_weight
from ..core.working_set import WorkingSet
from .session import current_delivery
from .values import Batch, Delivery, Facts

log = logging.getLogger("airflow_mq.service")

#: What a processor may return: an outcome, or true, false or nothing for done.
Answer = Outcome | bool | None
Processor = Callable[[Delivery], Answer]


class Slices(Protocol):
    """Whoever commits results now and then."""

    #: The queue that is being serviced.
    current: str | None
    #: Set when a processor was stopped, and so nothing is half done.
    at_rest: bool

    def is_full(self, more: int, milliseconds: int = 0) -> bool:
        """Whether results are to be written before more messages are tried, which are expected to take so long."""

    def checkpoint(self, more: int, milliseconds: int = 0) -> None:
        """Write results if it is time to; so many more messages are going to be tried, for about so long."""


class BatchProcessor:
    """A processor that takes neighbours of one origin together."""

    def __init__(
        self, process: Callable[[Batch], Sequence[Answer] | None], weigher: WeighPayloads | None = None
    ) -> None:
        self.process, self.weigher = process, weigher


def batch_processor(process: Callable[[Batch], Sequence[Answer] | None]) -> BatchProcessor:
    """Make a processor of a function that takes a whole batch: nothing returned means all done."""
    return BatchProcessor(process)


def deliver(processor: Processor, delivery: Delivery, working_set: WorkingSet) -> Outcome:
    """Call a processor, and enqueue what it sent if the message is done."""
    processor = traced(processor) if working_set.traces else processor
    mark = current_delivery.set(delivery)
    try:
        outcome = checked(processor(delivery), delivery, working_set)
    except Exception as error:
        outcome = failed(delivery, error)
    finally:
        current_delivery.reset(mark)
    if isinstance(outcome, Done):
        working_set.post_all((*delivery.sent, *outcome.enqueue))
    return outcome


def failed(delivery: Delivery, error: Exception) -> Outcome:
    """What a processor raises means *not now*; but that the message's payload is gone is so for good."""
    if isinstance(error, BlobMissing) and error.hash == delivery.id:
        log.error("%s refers to a payload that is not there: %s", visible(str(delivery.address)), error)
        return Unsupported()
    told = failures.loggable(error)
    address = visible(str(delivery.address))
    log.error("the processor failed on %s; the message will be tried again", address, exc_info=told)
    return Yield(failures.reason_of(error))


def _of_batch(payload: bytes, error: Exception) -> Outcome:
    gone = isinstance(error, BlobMissing) and isinstance(payload, Reference) and payload.hash == error.hash
    return Unsupported() if gone else Yield(failures.reason_of(error))


def checked(answer: Answer, delivery: Delivery, working_set: WorkingSet) -> Outcome:
    """What an answer means, and that all of it can be stored."""
    bounds = working_set.config.max_message_len, working_set.permit, working_set.config.max_headers
    delivery.sent = [check_sent(entry, *bounds) for entry in delivery.sent]
    outcome = check_outcome(outcome_of(answer), *bounds)
    if working_set.traces:
        delivery.sent = tracing.handed_on(delivery.sent, delivery.headers)
        outcome = going_on(outcome, delivery.headers)
    return outcome


def going_on(outcome: Outcome, headers: Mapping[str, str]) -> Outcome:
    """The same outcome; what it enqueues goes on with the trace of the message that it is of."""
    if isinstance(outcome, Done) and outcome.enqueue and tracing.is_traced(headers):
        return replace(outcome, enqueue=tracing.handed_on(outcome.enqueue, headers))
    return outcome


def traced(processor: Processor) -> Processor:
    """The same processor; while it takes a message that carries a trace, that is the active one."""

    def attempt(delivery: Delivery) -> Answer:
        if not tracing.is_traced(delivery.headers):
            return processor(delivery)
        with tracing.within(delivery.headers):
            return processor(delivery)

    return attempt


def outcome_of(answer: Answer) -> Outcome:
    """What an answer means."""
    if answer is None or answer is True:
        return DONE
    if answer is False:
        return Done(success=False)
    if isinstance(answer, Outcome):
        return answer
    raise InvalidOutcome(f"a processor returns an outcome, true, false or nothing, not {type(answer).__name__}")


class InPlace(Stretches):
    """What trying messages in this process has in common: decisions are carried out at once."""

    def __init__(self, scales: Scales, slices: Slices) -> None:
        super().__init__(scales)
        self.slices = slices

    def begin_visit(self, book: Book) -> None:
        """Remember whose turn it is."""
        self.slices.current = book.origin

    def begin_page(self, page: Page) -> None:
        """Nothing to prepare."""

    def end_page(self, closed: bool) -> None:
        """Nothing to remember."""

    def decide(self, ladder: Ladder, book: Book, page: Page, decision: Decision) -> int:
        """Carry a decision out at once."""
        working_set, item = ladder.working_set, page.first_index
        self.slices.checkpoint(1)
        if decision.verdict is Verdict.EXPIRED:
            drop_expired(working_set, book, page, item)
        else:
            exceeded = decision.reason, decision.limit
            put_aside(working_set, book, page, item, decision.weight, exceeded, decision.id)
        page.first_index += 1
        return int(decision.verdict is Verdict.EXPIRED)


class Calling(InPlace):
    """Call a processor for one message after the other.

    Their weights are paid by the stretch, and given back for those that are not tried. Plain
    successes are written down together; anything else is at once.
    """

    def __init__(self, scales: Scales, slices: Slices, processor: Processor) -> None:
        super().__init__(scales, slices)
        self.processor = traced(processor) if scales.working_set.traces else processor

    def take(
        self, ladder: Ladder, book: Book, page: Page, weights: list[Weight], total: Weight
    ) -> tuple[int, PageStatus | None]:
        """Call the processor until it says that this queue stops here."""
        first, working_set, processor = page.first_index, ladder.working_set, self.processor
        payloads, is_full = working_set.payloads(book.origin, page), self.slices.is_full
        stop, processed, status = first + len(weights), 0, None
        mark = current_delivery.set(None)
        try:
            for at in range(first, stop):
                if is_full(1, weights[at - first][0]):
                    processed += self._done(working_set, book, page, at, weights, first)
                    self.slices.checkpoint(0)
                delivery = Delivery(book.origin, payloads[at], page, at, ladder.meter, working_set)
                current_delivery.set(delivery)
                try:
                    answer = processor(delivery)
                except Exception as error:
                    answer = failed(delivery, error)
                except BaseException:
                    self.slices.at_rest = True
                    raise
                if (answer is None or answer is True or answer is DONE) and not delivery.sent:
                    continue
                current_delivery.set(None)
                processed += self._done(working_set, book, page, at, weights, first)
                try:
                    outcome = checked(answer, delivery, working_set)
                except Exception as error:
                    outcome = failed(delivery, error)
                verdict = self._apply(ladder, book, page, at, outcome, weights[at - first], delivery)
                if verdict is None:
                    ladder.note_asked(book, outcome)
                    self._give_back(ladder, weights[at + 1 - first :])
                    status = PageStatus.BAILED if isinstance(outcome, Overweight) else PageStatus.NO_PROGRESS
                    return processed, status
                page.first_index = at + 1
                processed += verdict
            return processed + self._done(working_set, book, page, stop, weights, first), None
        except BaseException:
            # Stopped from outside while a message was tried: what was done before it stays done.
            self._done(working_set, book, page, at, weights, first)
            raise
        finally:
            current_delivery.reset(mark)

    def _done(
        self, working_set: WorkingSet, book: Book, page: Page, stop: int, weights: list[Weight], first: int
    ) -> int:
        """Write down the plain successes since the last time."""
        start = page.first_index
        if stop > start:
            done_run(working_set, book, page, start, weights[start - first : stop - first])
            page.first_index = stop
        return stop - start

    def _apply(
        self, ladder: Ladder, book: Book, page: Page, item: int, outcome: Outcome, weight: Weight, delivery: Delivery
    ) -> bool | None:
        if isinstance(outcome, Done):
            ladder.working_set.post_all((*delivery.sent, *outcome.enqueue))
        return apply_outcome(ladder.working_set, book, page, item, outcome, weight, ladder.bounds)

    def _give_back(self, ladder: Ladder, weights: list[Weight]) -> None:
        """The messages after the one that stopped the queue were paid for and not tried."""
        total, item, count = total_weight(weights), ladder.item_cost, len(weights)
        ladder.meter.time -= total[0] + item[0] * count
        ladder.meter.size -= total[1] + item[1] * count
        if ladder.credit:
            ladder.credit.refund(total)


def _facts_of(working_set: WorkingSet, name: str, page: Page) -> Facts:
    attempts = {item: note.attempts for item, note in page.notes.items() if note.attempts}
    return Facts(attempts, working_set.loader.sent_at(name, page))


class Batching(InPlace):
    """Try messages by handing neighbours to a batch processor together."""

    def __init__(self, scales: Scales, slices: Slices, processor: BatchProcessor) -> None:
        super().__init__(scales, slices)
        self.processor = processor

    def take(
        self, ladder: Ladder, book: Book, page: Page, weights: list[Weight], total: Weight
    ) -> tuple[int, PageStatus | None]:
        """Process the next messages, and write down the answers."""
        first, count = page.first_index, len(weights)
        self.slices.checkpoint(count, total[0])
        working_set = ladder.working_set
        payloads = working_set.payloads(book.origin, page)[first : first + count]
        batch = Batch(
            book.origin, payloads, page.index, first,
            partial(working_set.loader.headers, book.origin, page, first, first + count),
            _facts=partial(_facts_of, working_set, book.origin, page),
        )  # fmt: skip
        answers, sent = self._process(batch, working_set)
        if answers and working_set.traces:
            answers = [going_on(one, said) for one, said in zip(answers, batch.headers)]
        working_set.post_all(sent)
        if answers is None:
            done_run(ladder.working_set, book, page, first, weights)
            page.first_index += count
            return count, None
        return self._apply(ladder, book, page, weights, answers)

    def _process(self, batch: Batch, working_set: WorkingSet) -> tuple[list[Outcome] | None, list[tuple[Any, ...]]]:
        delivery = Delivery(batch.book, b"", Page(batch.page), batch.first, Meter(ZERO))
        mark = current_delivery.set(delivery)
        try:
            answers = self.processor.process(batch)
            if answers is not None and len(answers) != len(batch):
                raise InvalidOutcome(f"a batch of {len(batch)} messages needs as many answers, not {len(answers)}")
            bounds = working_set.config.max_message_len, working_set.permit, working_set.config.max_headers
            outcomes = None if answers is None else [check_outcome(outcome_of(one), *bounds) for one in answers]
            if delivery.sent and not all(isinstance(outcome, Done) for outcome in outcomes or ()):
                raise InvalidOutcome(
                    "a batch of which something is not done cannot enqueue as a whole; "
                    "say with which message it goes: Done(enqueue=[(origin, payload)])"
                )
            return outcomes, [check_sent(entry, *bounds) for entry in delivery.sent]
        except Exception as error:
            told = failures.loggable(error)
            log.error("the processor failed on %d messages of %s", len(batch), quoted(batch.origin), exc_info=told)
            return [_of_batch(payload, error) for payload in batch.payloads], []
        except BaseException:
            self.slices.at_rest = True
            raise
        finally:
            current_delivery.reset(mark)

    def _apply(
        self, ladder: Ladder, book: Book, page: Page, weights: list[Weight], answers: Iterable[Outcome]
    ) -> tuple[int, PageStatus | None]:
        working_set, processed, stopped = ladder.working_set, 0, False
        first = page.first_index
        for item, (outcome, weight) in enumerate(zip(answers, weights), start=first):
            if stopped and isinstance(outcome, (Yield, Overweight)):
                continue
            verdict = apply_outcome(working_set, book, page, item, outcome, weight, ladder.bounds)
            if verdict is None and not stopped:
                ladder.note_asked(book, outcome)
            stopped = stopped or verdict is None
            processed += bool(verdict)
            if isinstance(outcome, Done):
                working_set.post_all(outcome.enqueue)
        page.advance()
        return processed, PageStatus.NO_PROGRESS if stopped else None
