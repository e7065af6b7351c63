"""Session of a ring: what every operation needs, and the ways to hold the ring."""

from __future__ import annotations

import getpass
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from ... import tracing
from ..rules.config import RingConfig
from ..rules.errors import (
    Busy,
    InvalidInput,
    MessageQueueError,
    RecursiveDisallowed,
    Refused,
    StoreBusy,
    StoreCorrupt,
    StoreError,
)
from ..rules.message import MOST_PID, Footprint, check_origin, check_text, check_visible, read_number
from ..rules.permit import OPEN
from ..rules.weight import Weight
from ..store import Store, StoreAddress, codec, open_store
from ..store.blobs import sweep
from ..store.rows import Locked, RingRow, StateRow
from ..store.unit import Unit
from ..store.working_set import MEET_IN_ALL, LoadOptions, Overlay, OverlayLoader, Source, StoredSet, StoreLoader
from .hold import delivery_at, is_inside, outside, place_of
from .values import Delivery

log = logging.getLogger("airflow_mq.session")

#: Settings of a ring as the databases return them: JSON text, or the value that it describes.
PlainConfig: TypeAlias = "str | bytes | dict[str, Any]"
#: Called after a commit for each queue that changed, with its new footprint.
Listener = Callable[[str, Footprint], None]

#: Seconds after which a send reads the settings of the ring again.
CONFIG_AGE = 10.0
#: Seconds between two deletions of expired rows by one process.
FORGET_EVERY = 60.0
#: Expired rows of each kind that one transaction deletes, so that it is short.
MOST_FORGOTTEN = 5_000
#: A call looks again for what the calls of so many microseconds before should have deleted: some may have failed.
AGAIN = 600_000_000
#: Before every time of a row.
BEGINNING = -(1 << 62)
#: Seconds for which a service, a weigher or an execution by hand holds the ring, unless it renews the lease.
SERVICE_LEASE = 30.0
#: State of a ring for readers that do not lock it.
_UNKNOWN = StateRow(0, BEGINNING, 0, [], None, 0, "")
#: Reads of a snapshot.
_READING = LoadOptions(with_due=True)
_FIRST_WAIT, _LONGEST_WAIT = 0.002, 0.05


class Ends(Protocol):
    """Ends of blocks that were recorded while another process held the ring."""

    def apply_ends(self) -> None:
        """Apply them in transactions of their own, as long as no other process holds the ring."""

    def foresee(
        self, overlay: Overlay, working_set_at: Callable[[int], StoredSet], names: Sequence[str] | None = None
    ) -> None:
        """Apply them to an overlay, for a reader of these queues, or of all."""


class Ending(NamedTuple):
    """A locked ring, and the working set of its holder; none if another process holds the ring."""

    unit: Unit
    locked: Locked
    working_set: StoredSet | None


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
        #: Name of the ring and its store, by which a processor's own queues are recognized.
        self.place = place_of(self.store.address, self.ring)
        self.busy_timeout = busy_timeout
        #: Senders and priorities that this connection permits.
        self.permit = self.store.address.permit
        self.listeners = list(listeners)
        self.actor = check_text(actor or _user(), "the actor")
        #: Whether sent messages carry the active trace.
        self.traces = tracing.wanted(traces)
        self._config: tuple[PlainConfig, RingConfig] | None = None
        self._config_read_at = 0.0
        self._forgot_at = -FORGET_EVERY
        #: Until when rows of each kind were deleted.
        self._forgotten: dict[str, int] = {}
        #: Leases of the ring that this session held, or may hold, and no longer needs.
        self._given_up: set[bytes] = set()
        #: What applies recorded ends of blocks.
        self.ends: Ends | None = None
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

    def refresh_config(self) -> None:
        """Read the settings again if they are older than `CONFIG_AGE`: a sender may keep its session for weeks."""
        if time.monotonic() - self._config_read_at > CONFIG_AGE:
            self.reread_config()

    def reread_config(self) -> None:
        """Read the settings of the ring."""
        with self.store.loose() as unit:
            self.remember_config(unit.rings.named(self.ring).config)

    def remember_config(self, plain: PlainConfig) -> RingConfig:
        """Return the settings of the ring from their stored form, and keep them."""
        self._config_read_at = time.monotonic()
        if self._config is None or self._config[0] != plain:
            self._config = plain, config_of(plain)
        return self._config[1]

    # Holding the ring.

    @contextmanager
    def transaction(
        self, *, skip_in_flight: bool = True, planning: bool = False, patience: float | None = None
    ) -> Iterator[tuple[Unit, StoredSet]]:
        """Hold the ring for one transaction, and save the changes of the working set at its end."""
        self.refuse_nested()
        with (
            self.hold(patience=patience) as (unit, locked),
            self._saved(unit, locked, skip_in_flight, planning) as working_set,
        ):
            yield unit, working_set
        self.store.rest()
        self.sweep_payloads(working_set)
        self.notify(working_set.take_hooks())

    @contextmanager
    def try_transaction(
        self, *, skip_in_flight: bool = True, planning: bool = False
    ) -> Iterator[tuple[Unit, StoredSet] | None]:
        """Like `transaction`, but never wait: yield None if another process holds the ring."""
        self.refuse_nested()
        for tried in (False, True):
            with ExitStack() as stack:
                unit, locked = self._lock_at_once(stack)
                if unit is None or locked is None:
                    yield None
                    return
                if self._other_holder(locked, None) is not None:
                    self._want(unit, locked)
                    yield None
                    return
                if not self._has_ends(locked, tried):
                    self.take(unit, locked, None)
                    with self._saved(unit, locked, skip_in_flight, planning) as working_set:
                        yield unit, working_set
                    break
            self.apply_ends()
        self.notify(working_set.take_hooks())

    @contextmanager
    def ending(self, *, wait: bool = True) -> Iterator[Ending | None]:
        """Lock the ring for one transaction that ends a block.

        The working set is that of the holder, and saved at the end. If another process holds the ring, there is none:
        then the transaction may only record the end. Without `wait`, yield None while another transaction has the lock.
        """
        self.refuse_nested()
        for tried in (False, True):
            with ExitStack() as stack:
                unit, locked = self._lock(stack) if wait else self._lock_at_once(stack)
                if unit is None or locked is None:
                    yield None
                    return
                if self._other_holder(locked, None) is not None:
                    yield Ending(unit, locked, None)
                    return
                if not self._has_ends(locked, tried):
                    self.take(unit, locked, None)
                    working_set = self.working_set(unit, locked, LoadOptions())
                    yield Ending(unit, locked, working_set)
                    working_set.save()
                    break
            self.apply_ends()
        if wait:
            self.store.rest()
        self.notify(working_set.take_hooks())

    def _lock(self, stack: ExitStack, patience: float | None = None) -> tuple[Unit, Locked]:
        unit = stack.enter_context(self.store.writing(patience=patience))
        return unit, unit.lock(self.ring_id)

    def _lock_at_once(self, stack: ExitStack) -> tuple[Unit | None, Locked | None]:
        unit = self._writing_at_once(stack)
        return unit, None if unit is None else unit.try_lock(self.ring_id)

    def _has_ends(self, locked: Locked, tried: bool) -> bool:
        """Return whether recorded ends are to be applied before a locked ring that is free is read.

        :param tried: this was tried: an end whose block another transaction has locked comes later
        """
        return bool(locked.state.ends) and not tried and self.ends is not None

    def _writing_at_once(self, stack: ExitStack) -> Unit | None:
        try:
            return stack.enter_context(self.store.writing(wait=False))
        except StoreBusy:
            return None

    @contextmanager
    def _saved(self, unit: Unit, locked: Locked, skip_in_flight: bool, planning: bool) -> Iterator[StoredSet]:
        """Yield the working set of a ring that is held; save it at the end."""
        options = LoadOptions(skip_in_flight=skip_in_flight)
        working_set = self.working_set(unit, locked, options, planning=planning)
        if self.listeners:
            working_set.loader.inboxes.cut_everything()
        yield working_set
        working_set.save()

    @contextmanager
    def hold(self, token: bytes | None = None, patience: float | None = None) -> Iterator[tuple[Unit, Locked]]:
        """Lock the ring for one transaction, as soon as no other process holds it.

        :param token: of the lease that the caller has. It waits for the lock as long as a lease lives: others hold it
            for a moment, and would throw away what the caller has done.
        """
        give_up = time.monotonic() + (self.busy_timeout if patience is None else patience)
        wait, left, tried = _FIRST_WAIT, patience, token is not None
        if token is not None and patience is None:
            left = max(SERVICE_LEASE, self.busy_timeout)
        while True:
            with ExitStack() as stack:
                unit, locked = self._lock(stack, left)
                holder = self._other_holder(locked, token)
                if holder is None and not self._has_ends(locked, tried):
                    self.take(unit, locked, token)
                    yield unit, locked
                    return
                if holder is not None:
                    self._want(unit, locked)
            if holder is None:
                self.apply_ends()
                tried = True
                continue
            if time.monotonic() + wait > give_up:
                raise Busy(f"ring {self.ring!r} is in use ({holder}); try again later")
            time.sleep(wait)
            # Others may record ends as long as the holder has the ring.
            tried = token is not None
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

    def is_free(self, locked: Locked) -> bool:
        """Return whether no other process holds a locked ring on lease."""
        return self._other_holder(locked, None) is None

    def apply_ends(self) -> None:
        """Apply the recorded ends of blocks, as long as no other process holds the ring."""
        if self.ends is not None:
            self.ends.apply_ends()

    def take(self, unit: Unit, locked: Locked, token: bytes | None = None) -> None:
        """Prepare the locked ring: delayed messages that are due join their queues."""
        held_by = locked.state.lease_token
        if held_by not in (None, token):
            # The former holder may still live: it must not write what it loaded before.
            unit.rings.drop_lease(self.ring_id, held_by)
        self.store.promote_due(unit, self.ring_id, locked.now)
        unit.last_id = max(unit.last_id, locked.horizon - 1)

    @contextmanager
    def explaining_gaps(self, unit: Unit, current: Callable[[], StoredSet], error: Refused) -> Iterator[None]:
        """Raise this error for rows that are missing because the lease expired and another process changed the ring.

        :param current: returns the working set of the operation
        """
        try:
            yield
        except StoreCorrupt:
            if unit.rings.state(self.ring_id).version == current().loader.state.version:
                raise
            raise error from None

    def release_lease(self, token: bytes) -> None:
        """Release the ring. If the store cannot be reached, other processes wait until the lease expires."""
        self._given_up.add(token)
        with suppress(StoreError):
            with self.store.writing() as unit:
                unit.rings.drop_lease(self.ring_id, token)
            self._given_up.discard(token)

    def apply_soon(self) -> None:
        """Apply recorded ends, if there are any and no other process holds the ring: no operation may follow soon."""
        with suppress(Busy, StoreError):
            with self.store.loose() as unit:
                ends = unit.rings.ends(self.ring_id)
            if ends:
                self.apply_ends()

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

    def working_set(self, unit: Unit, locked: Locked, options: LoadOptions, *, planning: bool = False) -> StoredSet:
        """Return the working set of an operation that holds the ring.

        :param planning: the operation only claims: its changes of books and pages are not saved.
        """
        loader = StoreLoader(Source(self.store, unit, self.ring_id), locked.state, locked.horizon, options)
        return StoredSet(
            self.remember_config(locked.config),
            locked.now,
            loader,
            planning=planning,
            listening=bool(self.listeners),
            permit=self.permit,
            traces=self.traces,
        )

    @contextmanager
    def snapshot(self, *, stored: bool = False, names: Sequence[str] | None = None) -> Iterator[tuple[Unit, StoredSet]]:
        """Yield a consistent snapshot: a unit, and a working set that is never saved.

        :param stored: as it is stored, without recorded ends
        :param names: the only queues that are read; by default, all are
        """
        with self.store.reading() as unit:
            yield unit, self.stored_working_set(unit) if stored else self.fresh_working_set(unit, names)

    def fresh_working_set(self, unit: Unit, names: Sequence[str] | None = None) -> StoredSet:
        """Return a working set for reading, with recorded ends applied: it is never saved.

        :param names: the only queues that are read; by default, all are
        """
        ring = unit.rings.named(self.ring)
        config = self.remember_config(ring.config)
        if ring.ends and self.ends is not None and unit.reads_reports():
            overlay = Overlay(self.store, unit, self.ring_id, joins_due=False)
            self.ends.foresee(overlay, lambda now: working_set_above(overlay, config, now), names)
            return StoredSet(config, ring.now, StoreLoader(overlay, overlay.state, overlay.horizon, _READING))
        return self.stored_working_set(unit, ring)

    def stored_working_set(self, unit: Unit, ring: RingRow | None = None) -> StoredSet:
        """Return a working set of what is stored, without recorded ends."""
        ring = unit.rings.named(self.ring) if ring is None else ring
        unit.last_id = 0
        loader = StoreLoader(Source(self.store, unit, self.ring_id), _UNKNOWN, 0, _READING)
        return StoredSet(self.remember_config(ring.config), ring.now, loader)

    def forget_old(self) -> None:
        """Delete some expired rows in a short transaction of their own, at most once per `FORGET_EVERY` seconds.

        Called after a commit, which it neither delays nor fails: where it would have to wait, a later call deletes the
        rows. It does not look again for rows that earlier calls deleted: an open transaction of PostgreSQL may keep
        them.
        """
        if time.monotonic() - self._forgot_at < FORGET_EVERY:
            return
        self._forgot_at = time.monotonic()
        try:
            if self._forget_some({kind: until - AGAIN for kind, until in self._forgotten.items()}, wait=False):
                # More rows have expired than one transaction deletes: the next call continues.
                self._forgot_at = -FORGET_EVERY
        except (Busy, StoreBusy):
            pass
        except MessageQueueError as error:
            log.warning("could not delete expired rows of ring %r: %s", self.ring, error)

    def forget_all_old(self) -> None:
        """Delete all expired rows, in short transactions."""
        self._forgot_at = time.monotonic()
        while self._forget_some({}, wait=True):
            self.store.rest()

    def _forget_some(self, after: Mapping[str, int], *, wait: bool) -> bool:
        """Delete a bounded number of expired rows of each kind; return whether there may be more.

        :param after: rows of each kind that expired before this time were deleted by earlier calls
        """
        forgotten, more = self._forgotten, False
        with self.store.writing(wait=wait, patience=None if wait else 0.0) as unit:
            ring = unit.rings.named(self.ring)
            config, now = self.remember_config(ring.config), ring.now
            for kind, expire, seconds in (
                ("events", unit.events.expire, config.keep_events),
                ("ledger", unit.ledger.expire, config.keep_ledger),
                ("blocks", unit.blocks.expire, config.keep_ledger),
                ("keys", unit.keys.expire, config.key_window),
            ):
                before = now - int(seconds * 1_000_000)
                if expire(self.ring_id, after.get(kind, BEGINNING), before, MOST_FORGOTTEN) == MOST_FORGOTTEN:
                    more = True
                else:
                    forgotten[kind] = before
        return more

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
            after = unit.rings.state(self.ring_id).look_floor - 1
            return len(unit.inbox.next_queues(self.ring_id, after, MEET_IN_ALL + 1)) > MEET_IN_ALL

    def sweep_payloads(self, working_set: StoredSet) -> None:
        """After a commit, delete external payloads without messages; housekeeping deletes the rest."""
        if working_set.released_payloads:
            working_set.released_payloads = False
            with suppress(StoreError, Refused):
                sweep(self.store)

    def notify(self, hooks: Sequence[tuple[str, Footprint]]) -> None:
        """Call the listeners."""
        with outside(self.place):
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
        """Raise `RecursiveDisallowed` inside a processor of this ring."""
        if is_inside(self.place):
            raise RecursiveDisallowed()

    def delivery(self) -> Delivery | None:
        """Return the delivery whose processor runs here, if its message is of this ring."""
        return delivery_at(self.place)


def working_set_above(overlay: Overlay, config: RingConfig, now: int) -> StoredSet:
    """Return a working set of a ring as an overlay shows it, at a time."""
    return StoredSet(config, now, OverlayLoader(overlay, overlay.state, overlay.horizon, LoadOptions()))


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
