"""Servicing in place: the processor is a Python callable of this process.

No transaction waits for it. The service holds the ring by a lease and works in slices: one short transaction writes the
outcomes of a slice and the messages that it enqueued. A crash repeats at most one slice, or two if they are large: see
`commits`.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TypedDict

from ..core.book import Book
from ..core.claims import Scales
from ..core.errors import MessageQueueError, StoreCorrupt, TokenRefused
from ..core.events import Fate
from ..core.orders import Ledger
from ..core.outcome import Outcome
from ..core.page import Page
from ..core.service import Attempt, Ladder, OneByOne, overweight_limit
from ..core.weight import Meter, Weight
from ..store.rows import Locked
from ..store.unit import Unit
from ..store.working_set import LoadOptions
from .attempts import Answer, Batching, BatchProcessor, Calling, Processor, deliver
from .blocks.settlement import BlockSettler
from .commits import LEAST_BESIDE, Commits
from .servers import ServerRecord, server_record
from .session import RingSession, current_delivery, extend_lease, limit_of
from .tenure import Tenure
from .values import Delivery, Serviced
from .walk import renewing, walk_ring, warn_of_stuck, write_ledger

log = logging.getLogger("airflow_mq.service")

#: Messages after which a service commits its results by default.
SLICE = 20_000
#: Bytes of messages that a service fetches; then it commits its results, however few, and forgets the payloads of other
#: queues than the current one.
HELD = 64 << 20
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
) -> Serviced:
    """Service the ready queues of a ring in this process; see `MessageQueue.service_queues`.

    :param tenure: keeps the lease for the next call of a worker.
    """
    if current_delivery.get() is not None:
        return Serviced()
    weight = limit_of(session.config, limit)
    session.meet_newcomers()
    service = Service(session, processor, weight, slice_messages, slice_seconds, progress)
    service.tenure = tenure
    service.server = server_record(server or session.actor, limit, is_dag=server is not None)
    with service.holding_ring():
        service.run(seed)
    if service.met_in_flight():
        # Settle the completed and expired leases: the next call services their queues.
        settler.settle_completed(only_tokens=True)
    return service.result


class Service:
    """One call of servicing in place."""

    def __init__(
        self, session: RingSession, processor: Processor | BatchProcessor, limit: Weight,
        slice_messages: int, slice_seconds: float, progress: Callable[[Serviced], None] | None,
    ) -> None:  # fmt: skip
        self.session, self.processor, self.progress = session, processor, progress
        self.meter = Meter(limit)
        self.slice_messages, self.slice_seconds = slice_messages, slice_seconds
        self.result = Serviced()
        self.ledger = Ledger()
        #: The server as the ledger records it; None for inline execution.
        self.server: ServerRecord | None = None
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
                options = LoadOptions(with_payloads=True, looks_once=tenure is not None)
                self.working_set = session.working_set(unit, locked._replace(state=state), options)
                self.cache = self.working_set.loader.payloads.cache
                source = self.working_set.loader.source
                source.before_read = self._finish_commit
                if tenure is not None and (ahead := tenure.take_ahead()):
                    source.expect_as(ahead)
                if session.listeners:
                    self.working_set.loader.inboxes.cut_everything()
                gaps = session.explaining_gaps(unit, self.working_set, TokenRefused(_TAKEN_OVER))
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

    def run(self, seed: bytes | None) -> None:
        """Walk the ring in its order."""
        working_set, config = self.working_set, self.working_set.config
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
        walk_ring(ladder, self.ledger, config.order, seed, working_set)
        if self.server is not None:
            self.ledger.head = {"server": self.server}
            warn_of_stuck(self.session.ring, self.server["name"], self.ledger, ladder)
        self.result.weight = self.meter.consumed
        self.result.origins = len(self.ledger.entries)

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
        return deliver(
            self._process, Delivery(book.origin, payload, page, item, meter, self.working_set), self.working_set
        )

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
            and not self.session.listeners
        )

    def _save(self, last: bool = False) -> None:
        """Commit the slice, in one short transaction."""
        session = self.session
        self._finish_commit()
        with session.hold(token=self.token) as (unit, locked):
            self._prepare(unit, locked)()
            if last:
                session.forget_old(unit, locked.now)
                write_ledger(unit, session.ring_id, self.ledger, locked.now)
                if not self._keeps_lease(unit, locked):
                    unit.rings.drop_lease(session.ring_id, self.token)
            else:
                extend_lease(unit, session.ring_id, locked)
        session.store.rest()
        self._begin_slice()
        self._note_commit()

    def _save_beside(self) -> None:
        """Let a thread commit the slice, and return at once."""
        self._finish_commit()
        commit = self.commits.begin()
        unit, locked = commit.held()
        write = self._prepare(unit, locked)

        def write_all() -> None:
            write()
            extend_lease(unit, self.session.ring_id, locked)

        commit.commit(write_all)
        self._begin_slice()

    def _prepare(self, unit: Unit, locked: Locked) -> Callable[[], None]:
        """Return a function that writes the slice, in a transaction that holds the ring."""
        if locked.state.lease_token != self.token:
            raise TokenRefused(_TAKEN_OVER)
        self._count()
        write = self.working_set.prepare(unit, locked, self.current)
        self.working_set.loader.keep_payloads(HELD, self.current)
        return write

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
            self.progress(self.result)

    def _keeps_lease(self, unit: Unit, locked: Locked) -> bool:
        if self.tenure is None:
            return False
        tickets, looks = self.working_set.floors
        saved = locked._replace(state=locked.state._replace(ticket_floor=tickets, look_floor=looks))
        # Messages in flight are settled before the next service, by a transaction that needs the ring.
        return self.tenure.keep(unit, saved, self.token, needed=self.met_in_flight())

    def _stop(self) -> None:
        """End an interrupted service: commit its outcomes if all books are consistent.

        They are consistent if a processor was interrupted. If the store failed, or the core was interrupted, a message
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
