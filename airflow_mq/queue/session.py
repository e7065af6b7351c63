"""Session of a ring: what every operation needs, and the ways to hold the ring."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from .. import tracing
from ..core.config import RingConfig
from ..core.errors import Busy, InvalidInput, RecursiveDisallowed, Refused, StoreBusy, StoreCorrupt, StoreError
from ..core.message import MOST_PID, Footprint, check_origin, check_text, check_visible, read_number
from ..core.permit import OPEN
from ..core.weight import Weight
from ..store import Store, StoreAddress, codec, open_store
from ..store.blobs import sweep
from ..store.rows import Locked, StateRow
from ..store.shards import FenceRow
from ..store.unit import Unit
from ..store.working_set import MEET_IN_ALL, LoadOptions, Source, StoredSet, StoreLoader
from .values import Delivery

#: Settings of a ring as the databases return them: JSON text, or the value that it describes.
PlainConfig: TypeAlias = "str | bytes | dict[str, Any]"
#: Called after a commit for each queue that changed, with its new footprint.
Listener = Callable[[str, Footprint], None]

#: The message that this thread is processing in place, if any.
current_delivery: ContextVar[Delivery | None] = ContextVar("airflow_mq_delivery", default=None)
#: Seconds between two deletions of expired rows by one process.
FORGET_EVERY = 60.0
#: A call looks again for what the calls of so many microseconds before should have deleted: some may have failed.
AGAIN = 600_000_000
#: Before every time of a row.
BEGINNING = -(1 << 62)
#: Seconds for which a service, a weigher or an execution by hand holds the ring, unless it renews the lease.
SERVICE_LEASE = 30.0
#: State of a ring for readers that do not lock it.
_UNKNOWN = StateRow(0, BEGINNING, 0, [], None, 0, "")
_FIRST_WAIT, _LONGEST_WAIT = 0.002, 0.05


class Fence(Protocol):
    """Condition of each send to a shard, so that no origin is in two shards."""

    def plain(self, queues: Iterable[str]) -> FenceRow | None:
        """Return the shard and the version that a send to these queues requires; None if it requires more."""

    def check(self, unit: Unit, queues: Iterable[str]) -> None:
        """Check a send to these queues in its transaction; raise `LayoutChanged` to refuse it."""


class RingSession:
    """One ring of one store, opened by one actor. Internal: each capability of a queue is given a session."""

    def __init__(
        self,
        store: str | StoreAddress | Store[Any],
        ring: str = "default",
        *,
        listeners: Sequence[Listener] = (),
        busy_timeout: float = 10.0,
        actor: str | None = None,
        traces: bool | None = None,
    ) -> None:
        self.store: Store[Any] = store if isinstance(store, Store) else open_store(store, busy_timeout)
        self.ring = check_text(ring, "the name of a ring")
        self.busy_timeout = busy_timeout
        #: Senders and priorities that this connection permits.
        self.permit = self.store.address.permit
        self.listeners = list(listeners)
        self.actor = check_text(actor or _user(), "the actor")
        #: Whether sent messages carry the active trace.
        self.traces = tracing.wanted(traces)
        #: Condition of each send if the ring is a shard.
        self.fence: Fence | None = None
        self._config: tuple[PlainConfig, RingConfig] | None = None
        self._forgot_at = -FORGET_EVERY
        #: Until when rows of each kind were deleted.
        self._forgotten: dict[str, int] = {}
        #: Leases of the ring that this session held, or may hold, and no longer needs.
        self._given_up: set[bytes] = set()
        try:
            with self.store.loose() as unit:
                row = unit.rings.named(ring)
            self.remember_config(row.config)
        except BaseException:
            if not isinstance(store, Store):
                self.store.close()
            raise
        self.ring_id = row.id

    @property
    def config(self) -> RingConfig:
        """The settings of the ring, as last read."""
        assert self._config is not None
        return self._config[1]

    def check_sender(self, origin: object) -> str:
        """Return an origin that this connection permits as a sender, or raise the reason why not.

        Stored messages are serviced, whatever their origin.
        """
        checked = check_origin(origin) if self.permit is OPEN else self.permit.check_origin(origin)
        return checked if checked.isascii() or self.config.invisible_origins else check_visible(checked)

    def of_ring(self, ring: str | None) -> RingSession:
        """Return a session of another ring of the store, for the same actor."""
        if ring is None or ring == self.ring:
            return self
        return RingSession(self.store, ring, actor=self.actor, traces=self.traces)

    def reread_config(self) -> None:
        """Read the settings of the ring."""
        with self.store.loose() as unit:
            self.remember_config(unit.rings.named(self.ring).config)

    def remember_config(self, plain: PlainConfig) -> RingConfig:
        """Return the settings of the ring from their stored form, and keep them."""
        if self._config is None or self._config[0] != plain:
            self._config = plain, config_of(plain)
        return self._config[1]

    # Holding the ring.

    @contextmanager
    def transaction(
        self,
        *,
        beside_lease: bool = False,
        skip_in_flight: bool = True,
        planning: bool = False,
        patience: float | None = None,
    ) -> Iterator[tuple[Unit, StoredSet]]:
        """Hold the ring for one transaction, and save the changes of the working set at its end."""
        self.refuse_nested()
        with (
            self.hold(beside_lease, patience=patience) as (unit, locked),
            self._saved(unit, locked, beside_lease, skip_in_flight, planning) as working_set,
        ):
            yield unit, working_set
        self.store.rest()
        self.sweep_payloads(working_set)
        self.notify(working_set.take_hooks())

    @contextmanager
    def try_transaction(
        self, *, beside_lease: bool = False, skip_in_flight: bool = True, planning: bool = False
    ) -> Iterator[tuple[Unit, StoredSet] | None]:
        """Like `transaction`, but never wait: yield None if another process holds the ring."""
        self.refuse_nested()
        with ExitStack() as stack:
            unit = self._writing_at_once(stack)
            locked = None if unit is None else unit.try_lock(self.ring_id)
            if unit is None or locked is None:
                yield None
                return
            if not beside_lease and self._other_holder(locked, None) is not None:
                self._want(unit, locked)
                yield None
                return
            self._take(unit, locked, beside_lease, None)
            with self._saved(unit, locked, beside_lease, skip_in_flight, planning) as working_set:
                yield unit, working_set
        self.notify(working_set.take_hooks())

    def _writing_at_once(self, stack: ExitStack) -> Unit | None:
        try:
            return stack.enter_context(self.store.writing(wait=False))
        except StoreBusy:
            return None

    @contextmanager
    def _saved(
        self, unit: Unit, locked: Locked, beside_lease: bool, skip_in_flight: bool, planning: bool
    ) -> Iterator[StoredSet]:
        """Yield the working set of a ring that is held; save it at the end."""
        beside = beside_lease and locked.state.lease_token is not None
        options = LoadOptions(skip_in_flight=skip_in_flight)
        working_set = self.working_set(unit, locked, options, planning=planning, beside=beside)
        if self.listeners and not beside_lease:
            working_set.loader.inboxes.cut_everything()
        yield working_set
        working_set.save()

    @contextmanager
    def hold(
        self, beside_lease: bool = False, token: bytes | None = None, patience: float | None = None
    ) -> Iterator[tuple[Unit, Locked]]:
        """Lock the ring for one transaction, as soon as no other process holds it."""
        give_up = time.monotonic() + (self.busy_timeout if patience is None else patience)
        wait, left = _FIRST_WAIT, patience
        while True:
            with ExitStack() as stack:
                unit = stack.enter_context(self.store.writing(patience=left))
                locked = unit.lock(self.ring_id)
                holder = None if beside_lease else self._other_holder(locked, token)
                if holder is None:
                    self._take(unit, locked, beside_lease, token)
                    yield unit, locked
                    return
                self._want(unit, locked)
            if time.monotonic() + wait > give_up:
                raise Busy(f"ring {self.ring!r} is in use ({holder}); try again later")
            time.sleep(wait)
            # The lease and the lock of the row share one busy timeout.
            wait, left = min(wait * 2, _LONGEST_WAIT), max(give_up - time.monotonic(), 0.0)

    def take_lease(self, token: bytes, what: str, patience: float | None = None) -> Locked:
        """Hold the ring across transactions."""
        try:
            with self.hold(patience=patience) as (unit, locked):
                until = locked.now + int(SERVICE_LEASE * 1_000_000)
                holder = holder_name(what, self.actor)
                unit.rings.take_lease(self.ring_id, token, until, holder)
            return locked
        except Busy:
            raise
        except BaseException:
            # If the commit is in doubt, the lease is, too.
            self._given_up.add(token)
            raise

    def _take(self, unit: Unit, locked: Locked, beside_lease: bool, token: bytes | None) -> None:
        """Prepare the locked ring: delayed messages that are due join their queues."""
        held_by = locked.state.lease_token
        if not beside_lease and held_by not in (None, token):
            # The former holder may still live: it must not write what it loaded before.
            unit.rings.drop_lease(self.ring_id, held_by)
        self.store.promote_due(unit, self.ring_id, locked.now)
        unit.last_id = max(unit.last_id, locked.horizon - 1)

    @contextmanager
    def explaining_gaps(self, unit: Unit, working_set: StoredSet, error: Refused) -> Iterator[None]:
        """Raise this error for rows that are missing because the lease expired and another process changed the ring."""
        try:
            yield
        except StoreCorrupt:
            if unit.rings.floors(self.ring_id).version == working_set.loader.state.version:
                raise
            raise error from None

    def release_lease(self, token: bytes) -> None:
        """Release the ring. If the store cannot be reached, other processes wait until the lease expires."""
        self._given_up.add(token)
        with suppress(StoreError):
            with self.store.writing() as unit:
                unit.rings.drop_lease(self.ring_id, token)
            self._given_up.discard(token)

    def _want(self, unit: Unit, locked: Locked) -> None:
        """Ask the process that leases the ring to give the lease back."""
        if not locked.state.lease_wanted:
            unit.rings.want_lease(self.ring_id)

    def _other_holder(self, locked: Locked, token: bytes | None) -> str | None:
        state = locked.state
        if state.lease_token in (None, token) or state.lease_token in self._given_up:
            return None
        if state.lease_until <= locked.now:
            return None
        return None if _is_dead(state.lease_holder) else state.lease_holder or "an unknown process"

    def working_set(
        self, unit: Unit, locked: Locked, options: LoadOptions, *, planning: bool = False, beside: bool = False
    ) -> StoredSet:
        """Return the working set of an operation that holds the ring.

        :param planning: the operation only claims: its changes of books and pages are not saved.
        :param beside: another process holds the ring on lease.
        """
        loader = StoreLoader(Source(self.store, unit, self.ring_id), locked.state, locked.horizon, options)
        return StoredSet(
            self.remember_config(locked.config),
            locked.now,
            loader,
            planning=planning,
            listening=bool(self.listeners),
            beside=beside,
            permit=self.permit,
            traces=self.traces,
        )

    @contextmanager
    def snapshot(self) -> Iterator[tuple[Unit, StoredSet]]:
        """Yield a consistent snapshot: a unit, and a working set that is never saved."""
        with self.store.reading() as unit:
            yield unit, self.fresh_working_set(unit)

    def fresh_working_set(self, unit: Unit) -> StoredSet:
        """Return a working set for reading: it is never saved."""
        ring = unit.rings.named(self.ring)
        unit.last_id = 0
        loader = StoreLoader(Source(self.store, unit, self.ring_id), _UNKNOWN, 0, LoadOptions(with_due=True))
        return StoredSet(self.remember_config(ring.config), ring.now, loader)

    def forget_old(self, unit: Unit, now: int, *, at_once: bool = False) -> None:
        """Delete expired rows, at most once per `FORGET_EVERY` seconds, or at once all of them.

        Rows that earlier calls deleted are not looked for again: on PostgreSQL, an open transaction may keep them.
        """
        if not at_once and time.monotonic() - self._forgot_at < FORGET_EVERY:
            return
        self._forgot_at, config, forgotten = time.monotonic(), self.config, self._forgotten
        for kind, expire, seconds in (
            ("events", unit.events.expire, config.keep_events),
            ("ledger", unit.ledger.expire, config.keep_ledger),
            ("blocks", unit.blocks.expire, config.keep_ledger),
            ("keys", unit.keys.expire, config.key_window),
        ):
            after = BEGINNING if at_once else forgotten.get(kind, BEGINNING) - AGAIN
            forgotten[kind] = now - int(seconds * 1_000_000)
            expire(self.ring_id, after, forgotten[kind])

    def meet_newcomers(self) -> None:
        """Before an operation reads the whole ring, let new queues enter it in bounded transactions."""
        config = self.config
        while meets_apart(config) and self._many_newcomers():
            with self.transaction(skip_in_flight=False) as (_, working_set):
                more = working_set.loader.ring.meet_newcomers()
            self.store.rest()
            if not more:
                return

    def _many_newcomers(self) -> bool:
        with self.store.loose() as unit:
            after = unit.rings.floors(self.ring_id).look_floor - 1
            return len(unit.inbox.next_queues(self.ring_id, after, MEET_IN_ALL + 1)) > MEET_IN_ALL

    def sweep_payloads(self, working_set: StoredSet) -> None:
        """After a commit, delete external payloads without messages; housekeeping deletes the rest."""
        if working_set.released_payloads:
            working_set.released_payloads = False
            with suppress(StoreError, Refused):
                sweep(self.store)

    def notify(self, hooks: Sequence[tuple[str, Footprint]]) -> None:
        """Call the listeners."""
        for origin, footprint in hooks:
            for listener in self.listeners:
                listener(origin, footprint)

    def tell_listeners(self) -> None:
        """Cut sent messages into pages, and call the listeners."""
        if self.listeners:
            # If another process holds the ring, that process cuts the pages. The messages are stored in any case.
            with suppress(Busy, StoreError), self.transaction(patience=0):
                pass

    def refuse_nested(self) -> None:
        """Raise `RecursiveDisallowed` if this thread is processing a message."""
        if current_delivery.get() is not None:
            raise RecursiveDisallowed()


def meets_apart(config: RingConfig) -> bool:
    """Return whether an operation reads the whole ring, so that new queues enter it in transactions before."""
    return config.order == "shuffle" or bool(config.paths) or config.high


def extend_lease(unit: Unit, ring_id: int, ring: Locked) -> None:
    """Extend the lease of a locked ring if a third of it is over."""
    until = ring.now + int(SERVICE_LEASE * 1_000_000)
    if ring.state.lease_token and until - ring.state.lease_until >= SERVICE_LEASE * 1_000_000 / 3:
        unit.rings.renew_lease(ring_id, ring.state.lease_token, until)


def limit_of(config: RingConfig, limit: Weight | None) -> Weight:
    """Return the given limit; by default, the service weight of the ring."""
    given = config.service_weight if limit is None else limit
    if given is None:
        raise InvalidInput("limit is missing, and this ring has no service weight: set limit=Weight(time, size)")
    return Weight.of(given)


def config_of(plain: PlainConfig) -> RingConfig:
    """Return the settings of a ring from their stored form."""
    with codec.reading("the configuration of the ring"):
        return RingConfig.from_json(codec.read_json(plain) if isinstance(plain, (str, bytes)) else plain)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def holder_name(what: str, actor: str) -> str:
    """Return the name of a holder of the ring, for waiting processes; `_is_dead` reads it."""
    return f"{what} by {actor}, process {os.getpid()} on {_machine(os.getpid())}"


@cache
def _machine(process: int) -> str:
    """Return the name of the machine of this process, with what distinguishes machines and containers of one name.

    :param process: number of this process; a forked child may have a namespace of its own.
    """
    name = socket.gethostname()
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")[:8]
        return f"{name} (boot {boot}, {os.readlink('/proc/self/ns/pid')})"
    except OSError:
        return name


def _is_dead(holder: str) -> bool:
    """Return whether a holder was a process of this machine, or of this container, that has ended."""
    _, _, place = holder.rpartition(", process ")
    pid, _, machine = place.partition(" on ")
    process = read_number(pid, MOST_PID)
    if machine != _machine(os.getpid()) or not process:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
