"""Executing a message at once, where nobody has to wait for that: the ring is empty, and nothing is in flight.

The message is enqueued and committed first, as always. Then, if the ring is free, nothing is in flight in it, and
this message is all that waits in it, it is executed here and settled in the usual way, with its events, its page of
the ledger, and what the processor sent. Else it stays queued, and nobody can tell that it was looked at; so it does
when it weighs more than a call may use, and when the processor yields, wants more weight, or fails.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

from ...core.book import Book
from ...core.claims import Scales
from ...core.errors import Busy, InvalidInput, StoreBusy, TokenRefused
from ...core.outcome import BadFormat, Corrupt, Done, Outcome, Overweight, Unsupported
from ...core.page import WAITING, Page
from ...core.priority import told
from ...core.service import Ladder, OneByOne, overweight_limit
from ...core.weight import ZERO, Meter, Weight
from ...store.rows import PLANNED
from ...store.working_set import LoadOptions
from ..attempts import BatchProcessor, Processor, deliver
from ..service import Service
from ..session import RingSession
from ..values import Delivery
from ..walk import walk_ring

log = logging.getLogger("airflow_mq.service")


@dataclass(frozen=True)
class Inline:
    """What executes messages at once, and what that may cost in one call, with the steps of servicing."""

    processor: Processor
    weight: Weight

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", Weight.of(self.weight))
        processor: object = self.processor
        if isinstance(processor, BatchProcessor) or not callable(processor):
            raise InvalidInput("what executes a message at once is a processor of single messages, a callable")


class _StaysQueued(Exception):
    """Not now: nothing is written."""


def execute_inline(session: RingSession, inline: Inline, book: str, payload: bytes) -> bool:
    """Execute the message that was just enqueued, if it is alone; tell whether it is settled."""
    try:
        once = _Once(session, inline)
        with once.holding_ring(patience=0.0):
            once.execute(book, payload)
    except _StaysQueued:
        return False
    except (Busy, StoreBusy, TokenRefused) as reason:
        log.debug("a message of %s stays queued: %s", told(book), reason)
        return False
    return True


class _Once(Service):
    """A call of servicing that tries one message."""

    options = LoadOptions()

    def __init__(self, session: RingSession, inline: Inline) -> None:
        super().__init__(session, inline.processor, inline.weight, 1, 60.0, None)
        self.inline, self.tried = inline, False

    def execute(self, book: str, payload: bytes) -> None:
        """Try the one message that waits, if it is this one."""
        if not self._is_alone(book, payload):
            raise _StaysQueued
        self.scales = Scales(self.working_set)
        attempt = OneByOne(self._try, self.scales, self._begin_visit)
        ladder = Ladder(self.working_set, self.meter, overweight_limit(self.working_set, self.meter.limit), attempt)
        walk_ring(ladder, self.ledger, self.working_set.config.order, None, self.working_set)
        if not self.tried:
            raise _StaysQueued

    def _is_alone(self, name: str, payload: bytes) -> bool:
        working_set = self.working_set
        if working_set.unit.blocks.latest(working_set.ring_id, PLANNED, limit=1):
            return False
        if list(islice(chain(working_set.high, working_set.ring), 2)) != [name] or working_set.book(name).skipped:
            return False
        waiting = list(islice(self._waiting(working_set.book(name)), 2))
        return len(waiting) == 1 and working_set.payloads(name, waiting[0][0])[waiting[0][1]] == payload

    def _waiting(self, book: Book) -> Iterator[tuple[Page, int]]:
        """What waits in a queue, all of it."""
        while self.working_set.pull(book):
            pass
        for index in range(book.begin, book.end):
            page = self.working_set.page(book.origin, index)
            for item, mark in enumerate(page.marks if page is not None else b""):
                if page is not None and mark == WAITING:
                    yield page, item

    def _try(self, book: Book, page: Page, item: int, meter: Meter) -> Outcome:
        if self.tried:
            # What the processor sent waits for its turn, as if it had come from anywhere else.
            return Overweight(ZERO)
        weight = self.scales.weight(book.origin, page, item)
        if not meter.fits(weight) or not (getattr(self.processor, "meters_itself", False) or meter.consume(weight)):
            raise _StaysQueued
        payload = self.working_set.payloads(book.origin, page)[item]
        delivery = Delivery(book.origin, payload, page, item, meter, self.working_set)
        outcome = deliver(self.inline.processor, delivery, self.working_set)
        if not isinstance(outcome, (Done, BadFormat, Corrupt, Unsupported)):
            raise _StaysQueued
        self.tried = True
        return outcome
