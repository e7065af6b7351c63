"""Attempts: calls of processors in this process, for single messages or for batches."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from ... import failures
from ...observe import traces
from ..rules.blob import Reference
from ..rules.book import Book
from ..rules.characters import quoted, visible
from ..rules.charging import Charge
from ..rules.claims import Scales, Stretches
from ..rules.errors import BlobMissing, InvalidInput, InvalidOutcome
from ..rules.events import WRONG
from ..rules.judging import Decision
from ..rules.message import Posted
from ..rules.outcome import (
    DONE,
    Done,
    Outcome,
    Overweight,
    PageStatus,
    SendBounds,
    Unreadable,
    Unsupported,
    Yield,
    check_outcome,
    check_sent,
    is_tried_alone,
    send_bounds,
)
from ..rules.page import Page
from ..rules.service import Ladder, apply_outcome, carry_out, record_done
from ..rules.weight import ZERO, Meter, Weight, total_weight
from ..rules.working_set import WorkingSet
from ..store.blobs import is_there
from ..store.store import AnyStore
from .context import current_delivery
from .values import Batch, Delivery, OpenPage, deliveries_of

if TYPE_CHECKING:
    from .service import Service

log = logging.getLogger("airflow_mq.service")

#: Return value of a processor: an outcome, or true, false or None for done.
Answer = Outcome | bool | None
Processor = Callable[[Delivery], Answer]


class BatchProcessor:
    """A processor that takes neighbours of one origin together."""

    def __init__(self, process: Callable[[Batch], Sequence[Answer] | None]) -> None:
        check_runs(process)
        self.process = process


def check_runs(function: Callable[..., Any]) -> None:
    """Raise `InvalidInput` for a function of which a call only makes a coroutine or a generator."""
    lazy = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction
    if any(is_lazy(function) for is_lazy in lazy):
        raise InvalidInput(
            f"invalid processor {getattr(function, '__qualname__', type(function).__name__)} (async, or a generator): "
            "expected a function that returns an outcome; call asyncio.run(…) in it"
        )


def batch_processor(process: Callable[[Batch], Sequence[Answer] | None]) -> BatchProcessor:
    """Return a processor that calls a function for each batch; None as its answer means that all messages are done."""
    return BatchProcessor(process)


def deliver(processor: Processor, opened: OpenPage, item: int, working_set: WorkingSet) -> Outcome:
    """Call a processor for a message of a page; if it is done, enqueue the messages that it sent."""
    payload = working_set.payloads(opened.book, opened.page, item + 1)[item]
    delivery = Delivery(opened, payload, item)
    processor = traced(processor) if working_set.traces else processor
    mark, began = current_delivery.set(delivery), monotonic()
    try:
        answer = processor(delivery)
    except Exception as error:
        answer = failed(delivery, error)
    finally:
        delivery.sealed = True
        current_delivery.reset(mark)
        charge_time(working_set, delivery.book, began)
    return settled(answer, delivery, working_set)


def charge_time(working_set: WorkingSet, origin: str, began: float) -> None:
    """Charge a queue with the time of calls since they began, on the monotonic clock."""
    working_set.charge(origin, Charge(measured=round((monotonic() - began) * 1_000_000)))


def settled(answer: Answer, delivery: Delivery, working_set: WorkingSet) -> Outcome:
    """Seal a delivery and return the outcome of its answer; if the message is done, enqueue the messages of both."""
    try:
        outcome = checked(
            answer, delivery, send_bounds(working_set.config, working_set.permit), traced=working_set.traces
        )
    except Exception as error:
        outcome = failed(delivery, error)
    if isinstance(outcome, Done):
        working_set.post_all(outcome.enqueue)
    return outcome


def failed(delivery: Delivery, error: Exception) -> Outcome:
    """Return the outcome for an exception: *not now*, or *unsupported* if the external payload is missing."""
    opened = delivery._open.working_set
    if opened is not None and is_lost(error, delivery.payload, opened.reading.store):
        log.error("%s refers to a payload that is not there: %s", visible(str(delivery.address)), error)
        return Unsupported()
    loggable = failures.loggable(error)
    address = visible(str(delivery.address))
    log.error("the processor failed on %s; the message is kept", address, exc_info=loggable)
    return Yield(failures.reason_of(error))


def is_lost(error: Exception, payload: bytes, store: AnyStore) -> bool:
    """Return whether an external payload is missing in this store; the error may be about another one."""
    if not isinstance(error, BlobMissing) or not isinstance(payload, Reference) or error.hash != payload.hash:
        return False
    with store.loose() as unit:
        return error.store == store.address or not is_there(store, unit, payload)


def checked(answer: Answer, delivery: Delivery, bounds: SendBounds, *, traced: bool) -> Outcome:
    """Seal a delivery and return the outcome of its answer, with the messages that the processor sent.

    :param traced: the messages carry the trace of this one
    :raises InvalidOutcome: if the outcome cannot be stored
    """
    sent = [check_sent(entry, *bounds) for entry in delivery.seal()]
    outcome = check_outcome(outcome_of(answer), *bounds)
    if sent and isinstance(outcome, Done):
        outcome = replace(outcome, enqueue=[*sent, *outcome.enqueue])
    return going_on(outcome, delivery.headers, bounds[2]) if traced else outcome


def going_on(outcome: Outcome, headers: Mapping[str, str], most: int) -> Outcome:
    """Return an outcome whose new messages carry the trace of their message if their headers have room for it.

    :param most: largest number of bytes of all headers of one message
    """
    if isinstance(outcome, Done) and outcome.enqueue and traces.is_traced(headers):
        carried = traces.handed_on(headers)
        sent = [posted._replace(attributes=posted.attributes.checked(most, carried)) for posted in outcome.enqueue]
        return replace(outcome, enqueue=sent)
    return outcome


def traced(processor: Processor) -> Processor:
    """Return a processor that runs within the trace of each message."""

    def attempt(delivery: Delivery) -> Answer:
        if not traces.is_traced(delivery.headers):
            return processor(delivery)
        with traces.within(delivery.headers):
            return processor(delivery)

    return attempt


def outcome_of(answer: Answer) -> Outcome:
    """Return the outcome of an answer."""
    if answer is None or answer is True:
        return DONE
    if answer is False:
        return Done(success=False)
    if isinstance(answer, Outcome):
        return answer
    raise InvalidOutcome(f"invalid outcome ({type(answer).__name__}): expected an outcome, true, false or None")


class InPlace(Stretches):
    """Attempts in this process: decisions take effect at once."""

    def __init__(self, scales: Scales, service: Service) -> None:
        super().__init__(scales)
        self.service = service
        if service.is_careful:
            self.at_once = 1

    def begin_visit(self, book: Book) -> None:
        """Record the book that has its turn."""
        self.service.current = book.origin

    def save(self, ladder: Ladder, book: Book, page: Page, at: int, untried: Sequence[Weight]) -> Outcome | None:
        """Commit the slice. Until then, budgets have back what they paid for these messages: the process may die.

        Return the outcome of the next message if it was tried too often.
        """
        total = total_weight(untried)
        for bucket in ladder.buckets:
            bucket.refund(total)
        died = self.service.begin(book, page, at)
        ladder.working_set.spend(ladder.buckets, total)
        return died

    def decide(self, ladder: Ladder, book: Book, page: Page, decision: Decision) -> int:
        """Carry out a decision."""
        if self.service.is_full(1):
            self.service.save()
        self.service.tried += 1
        item = page.first_index
        page.first_index += 1
        return int(carry_out(ladder.working_set, book, page, item, decision))


class Calling(InPlace):
    """Calls of a processor for one message after the other.

    The weights of a stretch are paid together, and refunded for messages that are not tried. Plain successes are
    recorded together, any other outcome at once.
    """

    def __init__(self, scales: Scales, service: Service, processor: Processor) -> None:
        super().__init__(scales, service)
        self.processor = traced(processor) if scales.working_set.traces else processor

    def take(
        self, ladder: Ladder, book: Book, page: Page, weights: list[Weight], total: Weight
    ) -> tuple[int, PageStatus | None]:
        """Call the processor until the stretch ends or an outcome stops the queue."""
        first, processor, service, working_set = page.first_index, self.processor, self.service, ladder.working_set
        stop, begun, processed = first + len(weights), first, 0
        at, next_at = first, first
        payloads = working_set.payloads(book.origin, page, stop)[first:stop]
        context = service.context
        opened, outer = OpenPage(book.origin, page, ladder.meter, service.working_set, context), context.outer
        alike, died = weights.count(weights[0]) == len(weights), None
        has_long = service.is_long((weights[0] if alike else max(weights))[0])
        full, until = first + service.room, service.until
        mark, began = current_delivery.set(outer), monotonic()
        try:
            for delivery in deliveries_of(opened, payloads, first):
                at = delivery.index
                if at >= full or has_long or monotonic() > until:
                    service.tried, begun = service.tried + at - begun, at
                    if service.is_full(1, weights[at - first][0]):
                        processed += self._done(working_set, book, page, at, weights, first)
                        charge_time(working_set, book.origin, began)
                        died = self.save(ladder, book, page, at, weights[at - first :])
                        began, full, until = monotonic(), at + service.room, service.until
                next_at = at + 1
                current_delivery.set(delivery)
                try:
                    answer = died or processor(delivery)
                except Exception as error:
                    answer = failed(delivery, error)
                except BaseException:
                    service.at_rest = True
                    raise
                finally:
                    delivery.sealed = True
                if (answer is None or answer is True or answer is DONE) and not delivery.sent:
                    continue
                current_delivery.set(outer)
                processed += self._done(working_set, book, page, at, weights, first)
                verdict = self._record(ladder, book, page, at, answer, weights[at - first], delivery)
                if isinstance(verdict, PageStatus):
                    self._give_back(ladder, weights[next_at - first :])
                    return processed, verdict
                processed += verdict
            return processed + self._done(working_set, book, page, stop, weights, first), None
        except BaseException:
            # Interrupted during an attempt: the successes before it count.
            self._done(working_set, book, page, at, weights, first)
            ladder.refund(total_weight(weights[at - first :]))
            raise
        finally:
            service.tried += next_at - begun
            current_delivery.reset(mark)
            charge_time(working_set, book.origin, began)

    def _record(
        self, ladder: Ladder, book: Book, page: Page, at: int, answer: Answer, weight: Weight, delivery: Delivery
    ) -> int | PageStatus:
        """Record an answer that is no plain success; return the reason if the queue stops, else whether it is gone."""
        working_set = ladder.working_set
        outcome = settled(answer, delivery, working_set)
        verdict = apply_outcome(working_set, book, page, at, outcome, weight, ladder.bounds)
        if verdict is None:
            return ladder.stop_at(book, outcome)
        page.first_index = at + 1
        return int(verdict)

    def _done(
        self, working_set: WorkingSet, book: Book, page: Page, stop: int, weights: list[Weight], first: int
    ) -> int:
        """Record the plain successes since the last call."""
        start = page.first_index
        if stop > start:
            record_done(working_set, book, page, start, weights[start - first : stop - first])
            page.first_index = stop
        return stop - start

    def _give_back(self, ladder: Ladder, weights: list[Weight]) -> None:
        """Refund the messages after the one that stopped the queue."""
        total, item, count = total_weight(weights), ladder.item_cost, len(weights)
        ladder.meter.refund(Weight(total[0] + item[0] * count, total[1] + item[1] * count))
        ladder.refund(total)


class Batching(InPlace):
    """Calls of a batch processor for neighbouring messages."""

    def __init__(self, scales: Scales, service: Service, processor: BatchProcessor) -> None:
        super().__init__(scales, service)
        self.processor = processor

    def _stretch(self, page: Page, start: int, stop: int) -> int:
        """End before a message whose attempt is to be alone: it costs its neighbours at most one attempt."""
        stop, most = super()._stretch(page, start, stop), self.scales.working_set.config.max_attempts
        if most is None:
            return stop
        if is_tried_alone(page.note(start).attempts + 1, most):
            return min(stop, start + 1)
        notes = page.notes_of(start, stop)
        return min((item for item, note in notes if is_tried_alone(note.attempts + 1, most)), default=stop)

    def take(
        self, ladder: Ladder, book: Book, page: Page, weights: list[Weight], total: Weight
    ) -> tuple[int, PageStatus | None]:
        """Process the next messages, and record the outcomes."""
        first, count, died = page.first_index, len(weights), None
        if self.service.is_full(count, total[0]):
            died = self.save(ladder, book, page, first, weights)
        self.service.tried += count
        working_set = ladder.working_set
        payloads = working_set.payloads(book.origin, page, first + count)[first : first + count]
        batch = Batch(
            book.origin, payloads, page.index, first,
            _facts=partial(working_set.loader.facts, book.origin, page, first, first + count),
        )  # fmt: skip
        try:
            answers, sent = ([died], []) if died else self._process(batch, working_set)
        except BaseException:
            ladder.refund(total)
            raise
        if answers and working_set.traces and (headers := batch.headers):
            answers = [going_on(answer, own, working_set.config.max_headers) for answer, own in zip(answers, headers)]
        working_set.post_all(sent)
        if answers is None:
            record_done(ladder.working_set, book, page, first, weights)
            page.first_index += count
            return count, None
        return self._apply(ladder, book, page, weights, answers)

    def _process(self, batch: Batch, working_set: WorkingSet) -> tuple[list[Outcome] | None, list[Posted]]:
        opened = OpenPage(batch.book, Page(batch.page), Meter(ZERO), None, self.service.context)
        delivery = Delivery(opened, b"", batch.first)
        mark, began = current_delivery.set(delivery), monotonic()
        try:
            answers = self.processor.process(batch)
            if answers is not None and len(answers) != len(batch):
                raise InvalidOutcome(f"{len(answers)} answers for {len(batch)} messages: expected one answer each")
            bounds = send_bounds(working_set.config, working_set.permit)
            outcomes = None if answers is None else [check_outcome(outcome_of(answer), *bounds) for answer in answers]
            sent = delivery.seal()
            # A message that does not decode did not come to the processor.
            ended = (isinstance(outcome, (Done, Unreadable, *WRONG)) for outcome in outcomes or ())
            if sent and not all(ended):
                raise InvalidOutcome(
                    "messages enqueued by a batch of which a message is tried again: "
                    "enqueue them with one message, Done(enqueue=[(origin, payload)])"
                )
            return outcomes, [check_sent(entry, *bounds) for entry in sent]
        except Exception as error:
            loggable = failures.loggable(error)
            log.error("the processor failed on %d messages of %s", len(batch), quoted(batch.origin), exc_info=loggable)
            store, kept = self.service.session.store, Yield(failures.reason_of(error))
            return [Unsupported() if is_lost(error, payload, store) else kept for payload in batch.payloads], []
        except BaseException:
            self.service.at_rest = True
            raise
        finally:
            delivery.sealed = True
            current_delivery.reset(mark)
            charge_time(working_set, batch.book, began)

    def _apply(
        self, ladder: Ladder, book: Book, page: Page, weights: list[Weight], answers: Iterable[Outcome]
    ) -> tuple[int, PageStatus | None]:
        working_set, processed, stopped = ladder.working_set, 0, False
        first = page.first_index
        for item, (outcome, weight) in enumerate(zip(answers, weights, strict=True), start=first):
            waits_aside = isinstance(outcome, Yield) and working_set.puts_off(book)
            if stopped and isinstance(outcome, (Yield, Overweight)) and not waits_aside:
                # The visit paid for it, and no attempt counts.
                working_set.charge(book.origin, Charge(weight))
                continue
            verdict = apply_outcome(working_set, book, page, item, outcome, weight, ladder.bounds)
            if verdict is None and not stopped:
                ladder.stop_at(book, outcome)
            stopped = stopped or verdict is None
            processed += bool(verdict)
            if isinstance(outcome, Done):
                working_set.post_all(outcome.enqueue)
        page.advance()
        return processed, PageStatus.NO_PROGRESS if stopped else None
