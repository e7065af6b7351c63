"""Servicing in place: the processor is a Python callable of this process.

No transaction waits for it. The service holds the ring by a lease and works in slices: one short transaction writes the
outcomes of a slice and the messages that it enqueued. A crash repeats at most one slice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from threading import Event
from typing import TypedDict

from ..rules.book import IN_FLIGHT, Book
from ..rules.claims import OneByOne, Scales
from ..rules.errors import (
    Busy,
    CommitInDoubt,
    MessageQueueError,
    StoreBusy,
    StoreReadOnly,
    StoreUnreachable,
    TokenRefused,
)
from ..rules.events import Fate
from ..rules.orders import Ledger
from ..rules.outcome import Outcome, Yield
from ..rules.page import Page
from ..rules.patterns import OriginPatterns
from ..rules.service import Attempt, Ladder
from ..rules.weight import ZERO, Meter, Weight
from ..store.rows import Locked
from ..store.unit import Unit
from ..store.working_set import LoadOptions
from .attempts import Answer, Batching, BatchProcessor, Calling, Processor, deliver
from .context import ProcessorContext, outside
from .holding import RingLease
from .quota import RoomForSent
from .servers import server_record
from .session import RingSession, limit_of
from .values import Delivery, OpenPage, Pulse, Serviced
from .walk import Walks, meet_newcomers, warn_of_stuck, write_ledger

log = logging.getLogger("airflow_mq.service")

#: Messages after which a service commits its results by default.
SLICE = 20_000
#: Bytes of messages that a service fetches; then it commits its results, however few, and forgets the payloads of other
#: queues than the current one.
HELD = 64 << 20
#: Why a message is set aside whose attempts killed services.
DIED = "its process died during an attempt"
#: The number of a result that counts a fate; any other one counts as failed.
COUNTED = {
    Fate.PROCESSED: "processed", Fate.DECLINED: "processed", Fate.SET_ASIDE: "set_aside",
    Fate.ATTEMPTS_EXHAUSTED: "set_aside", Fate.EXPIRED: "expired", Fate.RETURNED: "returned",
}  # fmt: skip
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


def service_lease(session: RingSession, *, keeps: bool = False) -> RingLease:
    """Return a lease for services of a ring, not taken yet; a worker keeps it from one call to the next."""
    return RingLease(session.hold, "serviced", partial(TokenRefused, _TAKEN_OVER), keeps=keeps)


class Service:
    """A call of servicing in place, in parts of `max_block_queues` queues within one weight.

    See `MessageQueue.service_queues` for the options.

    :param kept: the lease that a worker keeps from one call to the next; such a call has one part.
    """

    def __init__(
        self, session: RingSession, processor: Processor | BatchProcessor, limit: Weight | None,
        kept: RingLease | None = None, *, slice_messages: int = SLICE, slice_seconds: float = 1.0,
        seed: bytes | None = None, progress: Callable[[Serviced], None] | None = None, server: str | None = None,
        origins: Iterable[str] | None = None,
    ) -> None:  # fmt: skip
        self.session, self.processor, self.progress, self.seed = session, processor, progress, seed
        self.lease = service_lease(session) if kept is None else kept
        #: The first working set, whose settings are the newest, sets the limit of the meter.
        self.meter, self.limit, self.patterns = Meter(ZERO), limit, OriginPatterns.of(origins)
        self.server = server_record(server, session.actor, limit, self.patterns)
        self.slice_messages, self.slice_seconds = slice_messages, slice_seconds
        room = RoomForSent(session, lambda: self.working_set.changes.posted)
        self.context, self.result = ProcessorContext(session.place, room), Serviced()
        #: Queues that earlier parts of the call visited and that are still ready.
        self.left_out: set[str] = set()
        #: The ledger of this part, and the queue that is being serviced.
        self.ledger = Ledger()
        self.current: str | None = None
        #: Whether no earlier part of the call visited a queue.
        self.is_first = True
        #: Whether this part held the ring.
        self.has_begun = False
        #: Whether each attempt is counted before it begins, because the service before this one died.
        self.is_careful = False
        #: Whether a processor was interrupted: then all books are consistent.
        self.at_rest = False
        #: Messages that were tried in this slice.
        self.tried, self._slice_began = 0, time.monotonic()

    def run(self) -> Serviced:
        """Service the ready queues; return the result of all parts."""
        keeps, goes_on, met_in_flight = self.lease.keeps, True, False
        with nullcontext() if keeps else self.lease:
            while goes_on:
                self.ledger, self.has_begun = Ledger(), False
                try:
                    meet_newcomers(self.session)
                    with self.holding_ring():
                        ladder = self._walk()
                except Busy:
                    if self.is_first or self.has_begun:
                        raise
                    # Another process took the ring between two parts: what this call did is its result.
                    break
                met_in_flight = met_in_flight or self.met_in_flight()
                books = self.working_set.books
                self.left_out.update(name for name in self.ledger.entries if name in books and books[name].is_ready)
                is_cut_off = ladder.is_full and bool(ladder.givers)
                goes_on = not keeps and is_cut_off and len(self.left_out) < MOST_LEFT
                self.working_set.forget()
        if met_in_flight:
            # Settle the completed and expired leases: the next call services their queues.
            self.session.settler.release_dead(wait=False, only_tokens=True)
        return self.result

    @contextmanager
    def holding_ring(self, patience: float | None = None) -> Iterator[None]:
        """Lease the ring, and commit the results at the end."""
        locked = self.lease.take(patience)
        try:
            with self.lease.reading() as unit:
                # The next service need not read again what this one has read.
                unit.last_id = locked.horizon - 1
                self._load(unit, locked)
                self.is_careful |= self.lease.follows_death
                self.has_begun = True
                yield
            self.save(last=True)
        except BaseException:
            self._stop()
            raise

    def _load(self, unit: Unit, locked: Locked) -> None:
        """Begin a working set that reads through a unit."""
        options = LoadOptions(with_payloads=True, looks_once=self.lease.keeps)
        working_set = self.working_set = self.session.working_set(unit, locked, options)
        self.limit = self.meter.limit = limit_of(working_set.config, self.limit)
        self.cache = working_set.loader.payloads.cache
        if self.session.listeners:
            working_set.loader.inboxes.cut_everything()
        if self.patterns is not None or self.left_out:
            working_set.only(self.patterns, None, but=self.left_out)

    def _walk(self) -> Ladder:
        """Walk the ring in its order; return the last ladder."""
        walks, ladder = Walks(self.ledger, self.seed), self._ladder()
        walks.walk(ladder, self.working_set, self._took)
        serviced = ladder.serviced
        while walks.goes_on and self.is_first:
            locked, before = self.save(), self.working_set
            self._load(before.unit, before.locked_after(locked))
            before.forget()
            ladder = self._ladder()
            walks.walk(ladder, self.working_set, self._took)
            serviced |= ladder.serviced
        self.ledger.head = {"server": self.server}
        self.is_first = self.is_first and not self.ledger.entries
        self.result.origins += len(serviced)
        warn_of_stuck(self.session.ring, self.server["name"], self.ledger, ladder)
        return ladder

    def _ladder(self) -> Ladder:
        working_set = self.working_set
        scales = Scales(working_set)
        attempt: Attempt
        if isinstance(self.processor, BatchProcessor):
            attempt = Batching(scales, self, self.processor)
        elif getattr(self.processor, "meters_itself", False):
            attempt = OneByOne(self._execute, scales)
        else:
            attempt = Calling(scales, self, self.processor)
        if not isinstance(attempt, OneByOne):
            working_set.meter = self.meter
        ladder = Ladder(working_set, self.meter, attempt)
        ladder.most_queues, ladder.is_resumed = working_set.config.max_block_queues, not self.is_first
        ladder.has_parts = not self.lease.keeps
        return ladder

    def _took(self) -> bool:
        """Return whether this part of the call tried a message."""
        return any(entry.messages or entry.reason == "yielded" for entry in self.ledger.entries.values())

    def met_in_flight(self) -> bool:
        """Return whether messages of a queue were in flight when it was read."""
        return IN_FLIGHT in self.working_set.skipped or any(
            known.row.in_flight for known in self.working_set.stored.values()
        )

    def _execute(self, book: Book, page: Page, item: int, meter: Meter) -> Outcome:
        """Call a processor that meters itself for one message."""
        self.current = book.origin
        if self.is_full(1) and (died := self.begin(book, page, item)):
            return died
        self.tried += 1
        opened = OpenPage(book.origin, page, meter, self.working_set, self.context)
        return deliver(self._process, opened, item, self.working_set)

    def _process(self, delivery: Delivery) -> Answer:
        assert not isinstance(self.processor, BatchProcessor)
        try:
            return self.processor(delivery)
        except BaseException as error:
            self.at_rest = not isinstance(error, Exception)
            raise

    def is_full(self, more: int, milliseconds: int = 0) -> bool:
        """Return whether to commit before `more` messages, which are expected to take so long."""
        if self.is_careful:
            return True
        return self.tried > 0 and (
            self.tried + more > self.slice_messages
            or self.is_long(milliseconds)
            or time.monotonic() > self.until
            or self.cache.fetched > HELD
        )

    def is_long(self, milliseconds: int) -> bool:
        """Return whether messages that are expected to take so long follow a commit."""
        return milliseconds >= self.slice_seconds * 1_000

    @property
    def room(self) -> int:
        """How many messages may be tried before the next commit."""
        return 0 if self.is_careful or self.cache.fetched > HELD else self.slice_messages - self.tried

    @property
    def until(self) -> float:
        """When the next commit is due, on the monotonic clock."""
        return self._slice_began + self.slice_seconds

    def begin(self, book: Book, page: Page, item: int) -> Outcome | None:
        """Commit the slice before a message; return the outcome of one that was tried too often.

        A careful service counts the attempt, unless the outcome does. Without `max_attempts`, one attempt is enough.
        """
        note, most = page.note(item), self.working_set.config.max_attempts
        if not self.is_careful:
            self.save()
        elif note.attempts < (most or 1):
            page.notes[item] = note._replace(attempts=note.attempts + 1)
            self.working_set.touch(book, page)
            self.save()
            page.notes[item] = note
            self.working_set.touch(book, page)
        else:
            page.notes[item] = note._replace(attempts=(most or note.attempts + 1) - 1)
            return Yield(DIED)
        return None

    def save(self, last: bool = False) -> Locked:
        """Commit the slice, in one short transaction; return the ring that it locked."""
        session = self.session
        with self.lease.transaction() as (unit, locked, _):
            self._count()
            self.result.weight, self.working_set.changes.server = self.meter.consumed, self.server["name"]
            self.working_set.save_in(unit, locked)
            self.working_set.loader.keep_payloads(HELD, self.current)
            if last:
                write_ledger(unit, session.ring_id, self.ledger, locked.now)
                # Messages in flight are settled before the next service, by a transaction that needs the ring.
                self.lease.end_call(unit, self.working_set.locked_after(locked), needed=self.met_in_flight())
            else:
                self.lease.extend(unit, locked)
        if locked.state.ends and last:
            session.hold.apply_soon()
        elif locked.state.ends:
            self._apply_ends()
        session.store.rest()
        self.tried, self._slice_began = 0, time.monotonic()
        session.committed(self.working_set)
        if self.progress:
            # What this callback sends is not sent by the processor that ran last.
            with outside(session.place):
                self.progress(replace(self.result))
        if last:
            session.forget_old()
        return locked

    def _apply_ends(self) -> None:
        """Apply ends that others recorded meanwhile: between two slices with the working set that goes on.

        After the time of a slice, what is left follows behind the next slice: there may be thousands of ends.
        """
        began, is_due = time.monotonic(), True
        while is_due and self.session.settler.apply_next(self.lease, self.working_set):
            self.working_set.loader.keep_payloads(HELD, self.current)
            self.session.store.rest()
            is_due = time.monotonic() - began < self.slice_seconds

    def _stop(self) -> None:
        """End an interrupted service: commit its outcomes if all books are consistent.

        They are consistent if a processor was interrupted. If the store failed, or a rule was interrupted, a message
        may be half settled: uncommitted messages are tried again.
        """
        if self.at_rest:
            try:
                self.save(last=True)
                return
            except MessageQueueError:
                log.exception("could not commit the last outcomes of an interrupted service")
        self.lease.release()

    def _count(self) -> None:
        for run in self.working_set.changes.events:
            name = COUNTED.get(run.fate, "failed")
            setattr(self.result, name, getattr(self.result, name) + len(run.ids))


#: Seconds between two reads of a worker: at first, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.001, 1.0
#: Seconds of short pauses after the last messages or notification. A process that sends without a notification has
#: notified less than `WAKE_EVERY` seconds ago, so this lasts a little longer.
ACTIVE = 0.3


def service_forever(
    session: RingSession, pulse: Callable[[], Pulse], call: Callable[[RingLease], Service], stop: Event
) -> Serviced:
    """Service a ring whenever it has messages, until the stop; sleep meanwhile. Return the sums of all calls.

    :param pulse: reads the ready queues
    :param call: makes a call that services the ring with this lease
    :param stop: ends the loop after the call under way
    """
    total, pause, active_at = Serviced(weight=ZERO), FIRST_PAUSE, time.monotonic()
    # The newest row that the last call left, and when to look at the queues again: its message may fail, or its queue
    # be paused. A recorded end of a block may have messages without rows.
    left, retry, look_at = 0, FIRST_PAUSE, 0.0
    with closing(session.store.sleeper(session.ring_id)) as sleeper, service_lease(session, keeps=True) as lease:
        # Listen first: then no message falls between the first read and the first sleep.
        sleeper.sleep(0)
        while not stop.is_set():
            try:
                newest = lease.newest()
                is_new = newest not in (0, left)
                if is_new or time.monotonic() >= look_at:
                    is_ready = is_new or bool(pulse())
                    if is_ready:
                        done = call(lease).run()
                        total = total.plus(done)
                        if done.moved:
                            active_at, left, retry = time.monotonic(), 0, FIRST_PAUSE
                            look_at = active_at + LONGEST_PAUSE
                            continue
                    # Where nothing is ready, nothing has failed.
                    left, retry = newest, min(2 * retry, LONGEST_PAUSE) if is_ready else FIRST_PAUSE
                    look_at = time.monotonic() + (retry if is_ready else LONGEST_PAUSE)
            except (Busy, StoreBusy, TokenRefused, CommitInDoubt, StoreUnreachable, StoreReadOnly) as error:
                # After a failover, a name may lead to a standby for a moment; before any success, it is wrong.
                if isinstance(error, StoreReadOnly) and not total.processed:
                    raise
                log.warning("could not service ring %r, trying again: %s", session.ring, error)
                pause = LONGEST_PAUSE
                if isinstance(error, (CommitInDoubt, StoreUnreachable, StoreReadOnly)):
                    # Another process may have taken the ring over meanwhile.
                    lease.release()
                    stop.wait(LONGEST_PAUSE)
                    continue
            if sleeper.sleep(pause):
                active_at, left = time.monotonic(), 0
            is_active = time.monotonic() - active_at < ACTIVE
            pause = FIRST_PAUSE if is_active else min(pause * 2, LONGEST_PAUSE)
            if not is_active:
                lease.release()
    return total
