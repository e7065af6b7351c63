"""Inline execution: a message is executed at once if no other message waits in the ring.

The message is enqueued and committed first. If the ring is free, no message is in flight and this message is the only
one that waits, it is executed here. It settles as any other message: with its events, its page of the ledger and the
messages that the processor sent. Otherwise it stays in its queue, unchanged. It also stays if it is heavier than the
weight of the call, and if the processor yields, asks for more weight, or fails.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import chain, islice

from ...rules.book import Book
from ...rules.claims import OneByOne, Scales
from ...rules.errors import Busy, InvalidInput, Refused, StoreBusy, StoreError, TokenRefused
from ...rules.outcome import BadFormat, Corrupt, Done, Outcome, Overweight, Unsupported
from ...rules.page import Page
from ...rules.priority import told
from ...rules.service import Ladder
from ...rules.weight import ZERO, Meter, Weight
from ...store.rows import PLANNED
from ..attempts import BatchProcessor, Processor, deliver
from ..calls import processor_of
from ..inspect.messages import free_items
from ..service import Service
from ..session import RingSession
from ..values import OpenPage
from ..walk import walk_ring

log = logging.getLogger("airflow_mq.service")


@dataclass(frozen=True)
class Inline:
    """A processor that executes messages at once, and the weight of one call, the steps of servicing included."""

    processor: Processor
    weight: Weight

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", Weight.of(self.weight))
        processor: object = self.processor
        if isinstance(processor, BatchProcessor) or not callable(processor):
            raise InvalidInput(
                f"invalid processor ({type(processor).__name__}): expected a callable for single messages"
            )
        object.__setattr__(self, "processor", processor_of(processor))


class _StaysQueued(Exception):
    """The message is not executed: nothing is written."""


def execute_inline(session: RingSession, inline: Inline, book: str, payload: bytes) -> bool:
    """Execute the message that was just enqueued, if no other one waits; return whether it is settled."""
    try:
        once = _Once(session, inline.processor, inline.weight, slice_messages=1, slice_seconds=60.0)
        with once.lease, once.holding_ring(patience=0.0):
            once.execute(book, payload)
    except _StaysQueued:
        return False
    except (Refused, StoreError) as reason:
        # The message is stored. An error would make its sender send it again.
        level = logging.DEBUG if isinstance(reason, (Busy, StoreBusy, TokenRefused)) else logging.WARNING
        log.log(level, "kept a message of %s in its queue: %s", told(book), reason)
        return False
    return True


class _Once(Service):
    """A call of servicing that tries one message."""

    #: Whether the message was executed.
    is_done = False

    def execute(self, book: str, payload: bytes) -> None:
        """Execute the waiting message, if it is this one and the only one."""
        if not self._is_alone(book, payload):
            raise _StaysQueued
        self.current, self.scales = book, Scales(self.working_set)
        attempt = OneByOne(self._try, self.scales)
        ladder = Ladder(self.working_set, self.meter, attempt)
        walk_ring(ladder, self.ledger, None, self.working_set)
        if not self.is_done:
            raise _StaysQueued

    def _is_alone(self, name: str, payload: bytes) -> bool:
        working_set = self.working_set
        if working_set.reading.state.ends or working_set.unit.blocks.latest(working_set.ring_id, PLANNED, limit=1):
            return False
        if list(islice(chain(working_set.high, working_set.ring), 2)) != [name] or working_set.book(name).skipped:
            return False
        # The last page comes again when further messages are cut into it: then this one is not alone.
        pages = working_set.window(working_set.book(name), pulls=True)
        waiting = list(islice(((page, item) for page in pages for item in free_items(page, ())), 2))
        return len(waiting) == 1 and working_set.payloads(name, waiting[0][0])[waiting[0][1]] == payload

    def _try(self, book: Book, page: Page, item: int, meter: Meter) -> Outcome:
        if self.is_done:
            # A message that the processor sent waits for its turn.
            return Overweight(ZERO)
        weight = self.scales.weight(book.origin, page, item)
        if not meter.fits(weight) or not (getattr(self.processor, "meters_itself", False) or meter.consume(weight)):
            raise _StaysQueued
        opened = OpenPage(book.origin, page, meter, self.working_set, self.context)
        assert not isinstance(self.processor, BatchProcessor)
        outcome = deliver(self.processor, opened, item, self.working_set)
        if not isinstance(outcome, (Done, BadFormat, Corrupt, Unsupported)):
            raise _StaysQueued
        self.is_done = True
        return outcome
