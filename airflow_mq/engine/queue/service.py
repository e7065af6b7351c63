"""Servicing in place: the processor is a Python callable of this process.

No transaction waits for it. The service holds the ring by a lease and works in slices: one short transaction writes the
outcomes of a slice and the messages that it enqueued. A crash repeats at most one slice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TypedDict

from ..rules.book import Book
from ..rules.claims import Scales
from ..rules.errors import Busy, MessageQueueError, StoreCorrupt, TokenRefused
from ..rules.events import Fate
from ..rules.orders import Ledger
from ..rules.outcome import Outcome
from ..rules.page import Page
from ..rules.service import Attempt, Ladder, OneByOne, overweight_limit
from ..rules.taking import OriginPatterns
from ..rules.weight import Meter, Weight
from ..store.rows import Locked
from ..store.unit import Unit
from ..store.working_set import LoadOptions
from .attempts import Answer, Batching, BatchProcessor, Calling, Processor, deliver
from .calls import checked
from .context import ProcessorContext, is_inside, outside
from .holding import Lease
from .servers import ServerRecord, server_record
from .session import RingSession, limit_of
from .values import Delivery, OpenPage, Serviced
from .walk import Walks, meet_newcomers, warn_of_stuck, write_ledger

log = logging.getLogger("airflow_mq.service")

#: Messages after which a service commits its results by default.
SLICE = 20_000
#: Bytes of messages that a service fetches; then it commits its results, however few, and forgets the payloads of other
#: queues than the current one.
HELD = 64 << 20
#: Queues that stay ready, after which a call services no further ones: it remembers their names.
MOST_LEFT = 100_000
_TAKEN_OVER = (
    "the ring was taken over while a message was processed for longer than the lease: outcomes since the last commit "
    "are lost, and their messages will be tried again"
)


class ServiceOptions(TypedDict, total=False):
    """Options of each call of a worker; see `MessageQueue.service_queues`."""

    slice_messages: int
    slice_seconds: float
    seed: bytes | None
    progress: Callable[[Serviced], None] | None
    server: str | None


def service_lease(session: RingSession, *, keeps: bool = False) -> Lease:
    """Return a lease for services of a ring, not taken yet; a worker keeps it from one call to the next."""
    return Lease(session.hold, "serviced", partial(TokenRefused, _TAKEN_OVER), keeps=keeps)


def service_ring(
    session: RingSession,
    processor: Processor | BatchProcessor,
    limit: Weight | None,
    kept: Lease | None = None,
    *,
    slice_messages: int = SLICE,
    slice_seconds: float = 1.0,
    seed: bytes | None = None,
    progress: Callable[[Serviced], None] | None = None,
    server: str | None = None,
    origins: Iterable[str] | None = None,
) -> Serviced:
    """Service the ready queues of a ring in this process; see `MessageQueue.service_queues`.

    :param kept: the lease that a worker keeps from one call to the next.
    """
    processor = checked(processor)
    if is_inside(session.place):
        return Serviced()
    meter, patterns = Meter(limit_of(session.config, limit)), OriginPatterns.of(origins)
    record = server_record(server or session.actor, limit, patterns, is_dag=server is not None)
    total, left, goes_on, met_in_flight = Serviced(), set[str](), True, False
    with service_lease(session) if kept is None else nullcontext(kept) as lease:
        while goes_on:
            meet_newcomers(session)
            told = progress and partial(_tell_total, progress, replace(total))
            service = Service(session, processor, meter, slice_messages, slice_seconds, told, lease)
            service.patterns, service.server = patterns, record
            service.left_out, service.is_first = left, not total.origins
            try:
                with service.holding_ring():
                    service.run(seed)
            except Busy:
                if service.is_first or service.has_begun:
                    raise
                # Another process took the ring between two parts: what this call did is its result.
                break
            total, met_in_flight = _total(total, service.result), met_in_flight or service.met_in_flight()
            left.update(service.unfinished())
            goes_on = kept is None and service.is_cut_off and len(left) < MOST_LEFT
            service.working_set.forget()
    if met_in_flight:
        # Settle the completed and expired leases: the next call services their queues.
        session.settler.release_dead(wait=False, only_tokens=True)
    return total


def _total(before: Serviced, now: Serviced) -> Serviced:
    """Return the result of two parts of a call, which service different queues within one weight."""
    return replace(before.plus(now), weight=now.weight, origins=before.origins + now.origins)


def _tell_total(progress: Callable[[Serviced], None], before: Serviced, now: Serviced) -> None:
    progress(_total(before, now))


class Service:
    """One call of servicing in place, or a part of one that services `max_block_queues` queues."""

    def __init__(
        self, session: RingSession, processor: Processor | BatchProcessor, meter: Meter,
        slice_messages: int, slice_seconds: float, progress: Callable[[Serviced], None] | None, lease: Lease,
    ) -> None:  # fmt: skip
        self.session, self.processor, self.progress = session, processor, progress
        self.lease = lease
        self.context, self.meter = ProcessorContext(session.place), meter
        self.slice_messages, self.slice_seconds = slice_messages, slice_seconds
        self.result = Serviced()
        self.ledger = Ledger()
        #: The server as the ledger records it; None for inline execution.
        self.server: ServerRecord | None = None
        #: The origins that it services; None: all.
        self.patterns: OriginPatterns | None = None
        #: Queues that earlier parts of the call visited and that are still ready.
        self.left_out: Collection[str] = ()
        #: Whether no earlier part of the call serviced a queue.
        self.is_first = True
        #: Whether it held the ring; and whether it ended because enough queues gave messages.
        self.has_begun = self.is_cut_off = False
        #: Whether a processor was interrupted: then all books are consistent.
        self.at_rest = False
        self.current: str | None = None
        self._tried, self._slice_began = 0, time.monotonic()

    @contextmanager
    def holding_ring(self, patience: float | None = None) -> Iterator[None]:
        """Lease the ring, and commit the results at the end."""
        locked = self.lease.take(patience)
        try:
            with self.lease.reading() as unit:
                # The next service need not read again what this one has read.
                unit.last_id = locked.horizon - 1
                self._load(unit, locked)
                self.has_begun = True
                yield
            self._save(last=True)
        except BaseException:
            self._stop()
            raise

    def _load(self, unit: Unit, locked: Locked) -> None:
        """Begin a working set that reads through a unit."""
        options = LoadOptions(with_payloads=True, looks_once=self.lease.keeps)
        working_set = self.working_set = self.session.working_set(unit, locked, options)
        self.cache = working_set.loader.payloads.cache
        if self.session.listeners:
            working_set.loader.cut_everything()
        if self.patterns is not None or self.left_out:
            working_set.only(self.patterns, None, but=self.left_out)

    def run(self, seed: bytes | None) -> None:
        """Walk the ring in its order."""
        walks, ladder = Walks(self.ledger, seed), self._ladder()
        walks.walk(ladder, self.working_set, self._took)
        while walks.goes_on and self.is_first:
            locked, before = self._save(), self.working_set
            self._load(before.unit, before.locked_after(locked))
            before.forget()
            ladder = self._ladder()
            walks.walk(ladder, self.working_set, self._took)
        if self.server is not None:
            self.ledger.head = {"server": self.server}
            warn_of_stuck(self.session.ring, self.server["name"], self.ledger, ladder)
        self.result.weight = self.meter.consumed
        self.result.origins = len(self.ledger.entries)
        self.is_cut_off = ladder.is_full and bool(ladder.givers)

    def _ladder(self) -> Ladder:
        working_set = self.working_set
        scales = Scales(working_set, getattr(self.processor, "weigher", None))
        attempt: Attempt
        if isinstance(self.processor, BatchProcessor):
            attempt = Batching(scales, self, self.processor)
        elif getattr(self.processor, "meters_itself", False):
            attempt = OneByOne(self._execute, scales, self._begin_visit)
        else:
            attempt = Calling(scales, self, self.processor)
        if scales.weigh is None and not isinstance(attempt, OneByOne):
            working_set.meter = self.meter
        ladder = Ladder(working_set, self.meter, overweight_limit(working_set, self.meter.limit), attempt)
        ladder.most_queues, ladder.is_resumed = working_set.config.max_block_queues, not self.is_first
        ladder.has_parts = not self.lease.keeps
        return ladder

    def _took(self) -> bool:
        """Return whether this part of the call tried a message."""
        return any(entry.messages or entry.reason == "yielded" for entry in self.ledger.entries.values())

    def unfinished(self) -> Iterator[str]:
        """Yield the visited queues that are still ready."""
        books = self.working_set.books
        return (name for name in self.ledger.entries if name in books and books[name].is_ready)

    def met_in_flight(self) -> bool:
        """Return whether messages of a queue were in flight when it was read."""
        return "in flight" in self.working_set.skipped or any(
            known.row.in_flight for known in self.working_set.stored.values()
        )

    def _begin_visit(self, book: Book) -> None:
        self.current = book.origin

    def _execute(self, book: Book, page: Page, item: int, meter: Meter) -> Outcome:
        """Call a processor that meters itself for one message."""
        self.checkpoint(1)
        payload = self.working_set.payloads(book.origin, page, item + 1)[item]
        opened = OpenPage(book.origin, page, meter, self.working_set, self.context)
        return deliver(self._process, Delivery(opened, payload, item), self.working_set)

    def _process(self, delivery: Delivery) -> Answer:
        assert not isinstance(self.processor, BatchProcessor)
        try:
            return self.processor(delivery)
        except BaseException as error:
            self.at_rest = not isinstance(error, Exception)
            raise

    def is_full(self, more: int, milliseconds: int = 0) -> bool:
        """Return whether to commit before `more` messages, which are expected to take so long."""
        if self._tried and (
            self._tried + more > self.slice_messages
            or self._is_long(milliseconds)
            or time.monotonic() - self._slice_began > self.slice_seconds
            or self.cache.fetched > HELD
        ):
            return True
        self._tried += more
        return False

    def reserve(self, most: int, milliseconds: int) -> tuple[int, float]:
        """Reserve room in the slice for messages, as `is_full` does for one; return how many, and until when."""
        if self._is_long(milliseconds) or self.cache.fetched > HELD:
            return 0, 0.0
        count = max(min(most, self.slice_messages - self._tried), 0)
        self._tried += count
        return count, self._slice_began + self.slice_seconds

    def _is_long(self, milliseconds: int) -> bool:
        """Return whether messages that are expected to take so long follow a commit."""
        return milliseconds >= self.slice_seconds * 1_000

    def unreserve(self, count: int) -> None:
        """Give back the room of messages that were not tried."""
        self._tried -= count

    def checkpoint(self, more: int, milliseconds: int = 0) -> None:
        """Between two messages: commit the outcomes if the slice is full."""
        if self.is_full(more, milliseconds) or not more:
            self._save()
            self._tried = more or 1

    def _save(self, last: bool = False) -> Locked:
        """Commit the slice, in one short transaction; return the ring that it locked."""
        session = self.session
        with self.lease.transaction() as (unit, locked):
            self._count()
            self.working_set.save_in(unit, locked)
            self.working_set.loader.keep_payloads(HELD, self.current)
            if last:
                write_ledger(unit, session.ring_id, self.ledger, locked.now)
                # Messages in flight are settled before the next service, by a transaction that needs the ring.
                self.lease.end_call(unit, self.working_set.locked_after(locked), needed=self.met_in_flight())
            else:
                self.lease.extend(unit, locked)
        if locked.state.ends:
            self._apply_ends(last)
        session.store.rest()
        self._tried, self._slice_began = 0, time.monotonic()
        session.committed(self.working_set)
        if self.progress:
            # What this callback sends is not sent by the processor that ran last.
            with outside(session.place):
                self.progress(self.result)
        if last:
            session.forget_old()
        return locked

    def _apply_ends(self, last: bool) -> None:
        """Apply ends that others recorded meanwhile: between two slices with the working set that goes on.

        After the time of a slice, what is left follows behind the next slice: there may be thousands of ends.
        """
        if last:
            self.session.hold.apply_soon()
            return
        settler, began, is_due = self.session.settler, time.monotonic(), True
        while is_due:
            with settler.setting_apart() as trial, self.lease.transaction() as (unit, locked):
                if not settler.rehearse(unit, locked, trial):
                    return
                with self.working_set.within(unit, locked):
                    settler.apply_one(self.working_set, trial)
                    self.working_set.loader.keep_payloads(HELD, self.current)
            if trial.failed and trial.changed:
                raise StoreCorrupt(
                    "a recorded end of a block cannot be applied, which left this service without a state to go on "
                    "with: what it processed is stored; service the ring again"
                )
            self.session.store.rest()
            is_due = time.monotonic() - began < self.slice_seconds

    def _stop(self) -> None:
        """End an interrupted service: commit its outcomes if all books are consistent.

        They are consistent if a processor was interrupted. If the store failed, or a rule was interrupted, a message
        may be half settled: uncommitted messages are tried again.
        """
        if self.at_rest:
            try:
                self._save(last=True)
                return
            except MessageQueueError:
                log.exception("could not commit the last outcomes of an interrupted service")
        self.lease.release()

    def _count(self) -> None:
        for run in self.working_set.changes.events:
            count = len(run.ids)
            if run.fate in (Fate.PROCESSED, Fate.DECLINED):
                self.result.processed += count
            elif run.fate in (Fate.SET_ASIDE, Fate.ATTEMPTS_EXHAUSTED):
                self.result.set_aside += count
            elif run.fate is Fate.EXPIRED:
                self.result.expired += count
            elif run.fate is Fate.WENT_BACK:
                self.result.went_back += count
            else:
                self.result.failed += count
