"""Servicing in place: the processor is a Python callable of this process.

No transaction waits for it. The service holds the ring by a lease and works in slices: one short transaction writes the
outcomes of a slice and the messages that it enqueued. A crash repeats at most one slice, or two if they are large: see
`commits`.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager
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
from .blocks.settlement import BlockSettler
from .calls import checked
from .commits import LEAST_BESIDE, Commits
from .hold import Hold, is_inside, outside
from .servers import ServerRecord, server_record
from .session import RingSession, extend_lease, limit_of
from .tenure import Tenure
from .values import Delivery, Serviced
from .walk import renewing, walk_ring, warn_of_stuck, write_ledger
from .worker import sum_of

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


def service_ring(
    session: RingSession,
    settler: BlockSettler,
    processor: Processor | BatchProcessor,
    limit: Weight | None,
    tenure: Tenure | None = None,
    *,
    slice_messages: int = SLICE,
    slice_seconds: float = 1.0,
    seed: bytes | None = None,
    progress: Callable[[Serviced], None] | None = None,
    server: str | None = None,
    origins: Iterable[str] | None = None,
) -> Serviced:
    """Service the ready queues of a ring in this process; see `MessageQueue.service_queues`.

    :param tenure: keeps the lease for the next call of a worker.
    """
    processor = checked(processor)
    if is_inside(session.place):
        return Serviced()
    meter, patterns = Meter(limit_of(session.config, limit)), OriginPatterns.of(origins)
    record = server_record(server or session.actor, limit, patterns, is_dag=server is not None)
    total, left, goes_on, met_in_flight = Serviced(), set[str](), True, False
    while goes_on:
        session.meet_newcomers()
        told = progress and partial(_tell_total, progress, replace(total))
        service = Service(session, settler, processor, meter, slice_messages, slice_seconds, told)
        service.tenure, service.patterns, service.server = tenure, patterns, record
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
        goes_on = tenure is None and service.is_cut_off and len(left) < MOST_LEFT
        service.working_set.forget()
    if met_in_flight:
        # Settle the completed and expired leases: the next call services their queues.
        settler.settle_completed(only_tokens=True)
    return total


def _total(before: Serviced, now: Serviced) -> Serviced:
    """Return the result of two parts of a call, which service different queues within one weight."""
    return replace(sum_of(before, now), weight=now.weight, origins=before.origins + now.origins)


def _tell_total(progress: Callable[[Serviced], None], before: Serviced, now: Serviced) -> None:
    progress(_total(before, now))


class Service:
    """One call of servicing in place, or a part of one that services `max_block_queues` queues."""

    def __init__(
        self, session: RingSession, settler: BlockSettler, processor: Processor | BatchProcessor, meter: Meter,
        slice_messages: int, slice_seconds: float, progress: Callable[[Serviced], None] | None,
    ) -> None:  # fmt: skip
        self.session, self.settler, self.processor, self.progress = session, settler, processor, progress
        self.hold, self.meter = Hold(session.place), meter
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
        self.token = secrets.token_bytes(16)
        #: What keeps the lease for the next service of a worker.
        self.tenure: Tenure | None = None
        self.current: str | None = None
        self._tried, self._slice_began = 0, time.monotonic()

    @contextmanager
    def holding_ring(self, patience: float | None = None) -> Iterator[None]:
        """Lease the ring, unless a tenure does, and renew the lease until the end."""
        session, tenure = self.session, self.tenure
        if tenure is not None and tenure.ring is not None:
            self.token, locked = tenure.token, tenure.ring
        else:
            locked = session.take_lease(self.token, "serviced", patience)
        self.commits = Commits(session, self.token)
        try:
            with closing(self.commits), session.store.loose() as unit:
                # The next service need not read again what this one has read.
                unit.last_id = locked.horizon - 1
                state = locked.state._replace(lease_token=self.token)
                self._load(unit, locked._replace(state=state))
                self.has_begun = True
                if tenure is not None and (ahead := tenure.take_ahead()):
                    self.working_set.loader.source.expect_as(ahead)
                gaps = session.explaining_gaps(unit, lambda: self.working_set, TokenRefused(_TAKEN_OVER))
                with gaps, renewing(session, self.token):
                    try:
                        yield
                    except StoreCorrupt:
                        self._finish_commit()
                        raise
            self._save(last=True)
        except BaseException:
            self._stop()
            raise

    def _load(self, unit: Unit, locked: Locked) -> None:
        """Begin a working set that reads through a unit."""
        options = LoadOptions(with_payloads=True, looks_once=self.tenure is not None)
        working_set = self.working_set = self.session.working_set(unit, locked, options)
        self.cache = working_set.loader.payloads.cache
        working_set.loader.source.before_read = self._finish_commit
        if self.session.listeners:
            working_set.loader.inboxes.cut_everything()
        if self.patterns is not None or self.left_out:
            working_set.only(self.patterns, None, but=self.left_out)

    def run(self, seed: bytes | None) -> None:
        """Walk the ring in its order."""
        ladder, order = self._ladder(), self.working_set.config.order
        walk_ring(ladder, self.ledger, order, seed, self.working_set)
        if self._goes_on(ladder):
            self.working_set.loader.ring.look_anew()
        while self._goes_on(ladder):
            # Each walk looks at others, and a ring may have more queues than fit in memory.
            locked, before = self._save(), self.working_set
            self._load(before.unit, before.locked_after(locked))
            before.forget()
            ladder = self._ladder()
            ladder.looks_only = True
            walk_ring(ladder, self.ledger, order, seed, self.working_set)
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
            working_set.loader.reach.meter = self.meter
        ladder = Ladder(working_set, self.meter, overweight_limit(working_set, self.meter.limit), attempt)
        ladder.most_queues, ladder.is_resumed = working_set.config.max_block_queues, not self.is_first
        ladder.has_parts = self.tenure is None
        return ladder

    def _goes_on(self, ladder: Ladder) -> bool:
        """Return whether the call tried nothing yet, and ready queues are left at which no walk looked."""
        tried = any(entry.messages or entry.reason == "yielded" for entry in self.ledger.entries.values())
        return ladder.is_cut_short and self.is_first and not tried

    def unfinished(self) -> Iterator[str]:
        """Yield the visited queues that are still ready."""
        books = self.working_set.books
        return (name for name in self.ledger.entries if name in books and books[name].is_ready)

    def met_in_flight(self) -> bool:
        """Return whether messages of a queue were in flight when it was read."""
        return "in flight" in self.working_set.loader.ring.skipped() or any(
            known.row.in_flight for known in self.working_set.stored.values()
        )

    def _begin_visit(self, book: Book) -> None:
        self.current = book.origin

    def _execute(self, book: Book, page: Page, item: int, meter: Meter) -> Outcome:
        """Call a processor that meters itself for one message."""
        self.checkpoint(1)
        payload = self.working_set.payloads(book.origin, page, item + 1)[item]
        delivery = Delivery(book.origin, payload, page, item, meter, self.working_set, self.hold)
        return deliver(self._process, delivery, self.working_set)

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
            has_count = self._tried + (more or 1) > self.slice_messages
            if has_count and not self._is_long(milliseconds) and self._may_save_beside():
                self._save_beside()
            else:
                self._save()
            self._tried = more or 1

    def _may_save_beside(self) -> bool:
        """Return whether the slice is large, and the next one needs nothing that its commit changes.

        Messages that a processor sent are such, and two slices have to fit in memory.
        """
        return (
            self.session.store.reads_beside_writes
            and self._tried >= LEAST_BESIDE
            and self.cache.fetched <= HELD // 2
            and not self.working_set.changes.posted
            and not self.working_set.changes.put_off
            and not self.session.listeners
        )

    def _save(self, last: bool = False) -> Locked:
        """Commit the slice, in one short transaction; return the ring that it locked."""
        session = self.session
        self._finish_commit()
        with session.hold(token=self.token) as (unit, locked):
            self._prepare(unit, locked)()
            if last:
                write_ledger(unit, session.ring_id, self.ledger, locked.now)
                if not self._keeps_lease(unit, locked):
                    unit.rings.drop_lease(session.ring_id, self.token)
            else:
                extend_lease(unit, session.ring_id, locked)
        if locked.state.ends:
            self._apply_ends(last)
        session.store.rest()
        self._begin_slice()
        self._note_commit()
        if last:
            session.forget_old()
        return locked

    def _apply_ends(self, last: bool) -> None:
        """Apply ends that others recorded meanwhile: between two slices with the working set that goes on.

        After the time of a slice, what is left follows behind the next slice: there may be thousands of ends.
        """
        if last:
            self.session.apply_soon()
            return
        settler, began, is_due = self.settler, time.monotonic(), True
        while is_due:
            with settler.setting_apart() as trial, self.session.hold(token=self.token) as (unit, locked):
                self._refuse_lost(locked)
                if not settler.rehearse(unit, locked, trial):
                    return
                with self.working_set.within(unit, locked):
                    settler.apply_one(unit, self.working_set, trial)
                    self.working_set.loader.keep_payloads(HELD, self.current)
            if trial.failed and trial.changed:
                raise StoreCorrupt(
                    "a recorded end of a block cannot be applied, which left this service without a state to go on "
                    "with: what it processed is stored; service the ring again"
                )
            self.session.store.rest()
            is_due = time.monotonic() - began < self.slice_seconds

    def _save_beside(self) -> None:
        """Let a thread commit the slice, and return at once."""
        self._finish_commit()
        commit = self.commits.begin()
        unit, locked = commit.held()
        if locked.state.ends:
            # Recorded ends are applied between two slices, not beside one.
            self.commits.close()
            self._save()
            return
        write = self._prepare(unit, locked)

        def write_all() -> None:
            write()
            extend_lease(unit, self.session.ring_id, locked)

        commit.commit(write_all)
        self._begin_slice()

    def _prepare(self, unit: Unit, locked: Locked) -> Callable[[], None]:
        """Return a function that writes the slice, in a transaction that holds the ring."""
        self._refuse_lost(locked)
        self._count()
        write = self.working_set.prepare(unit, locked)
        self.working_set.loader.keep_payloads(HELD, self.current)
        return write

    def _refuse_lost(self, locked: Locked) -> None:
        """Raise `TokenRefused` unless this service still has the lease: without it, a service writes nothing."""
        if locked.state.lease_token != self.token:
            raise TokenRefused(_TAKEN_OVER)

    def _begin_slice(self) -> None:
        self._tried, self._slice_began = 0, time.monotonic()

    def _finish_commit(self) -> None:
        """Wait for the commit of the last slice, if it runs beside this one."""
        if self.commits.finish():
            self._note_commit()

    def _note_commit(self) -> None:
        """After a commit, do what depends on it."""
        self.session.sweep_payloads(self.working_set)
        self.session.notify(self.working_set.take_hooks())
        if self.progress:
            # A commit may end while a processor reads: what this callback sends is not sent by that processor.
            with outside(self.session.place):
                self.progress(self.result)

    def _keeps_lease(self, unit: Unit, locked: Locked) -> bool:
        if self.tenure is None:
            return False
        saved = self.working_set.locked_after(locked)
        # Messages in flight are settled before the next service, by a transaction that needs the ring.
        return self.tenure.keep(unit, saved, self.token, needed=self.met_in_flight())

    def _stop(self) -> None:
        """End an interrupted service: commit its outcomes if all books are consistent.

        They are consistent if a processor was interrupted. If the store failed, or a rule was interrupted, a message
        may be half settled: uncommitted messages are tried again.
        """
        if self.tenure is not None:
            self.tenure.ring, self.tenure = None, None
        if self.at_rest:
            try:
                self._save(last=True)
                return
            except MessageQueueError:
                log.exception("could not commit the last outcomes of an interrupted service")
        self.session.release_lease(self.token)
        self.session.apply_soon()

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
