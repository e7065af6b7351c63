"""The hold of a ring: only its holder changes the ring's books and pages.

A hold lasts for one transaction, which locks the ring. A lease extends it across transactions: a thread renews the
lease until its end. A process that finds the ring leased either records what the holder will apply, or sets a mark in
the ring's state and waits; each save of the holder shows it the mark.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...ticker import RENEWALS, Renewal
from ..rules.config import RingConfig
from ..rules.errors import Busy, Refused, StoreBusy, StoreCorrupt, StoreError
from ..rules.message import MOST_PID, read_number
from ..store.rows import Locked
from ..store.unit import Unit
from ..store.working_set import LoadOptions, StoredSet

if TYPE_CHECKING:
    from .session import RingSession

#: Seconds for which a service, a weigher or an execution by hand holds the ring, unless it renews the lease. Leases of
#: blocks and of single messages are others.
RING_LEASE = 30.0
#: Seconds after the last mark of another process for which no lease is kept from call to call.
SHARED = 1.0
_FIRST_WAIT, _LONGEST_WAIT = 0.002, 0.05


class LockedRing(NamedTuple):
    """A ring that a transaction has locked."""

    unit: Unit
    locked: Locked
    #: The process that leases the ring; None if the caller holds it.
    holder: str | None


class Hold:
    """The ways to hold the ring of a session."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id
        #: Leases of the ring that this session had, or may have, and no longer needs.
        self.given_up: set[bytes] = set()

    @contextmanager
    def transaction(
        self, *, wait: bool = True, planning: bool = False, patience: float | None = None
    ) -> Iterator[tuple[Unit, StoredSet]]:
        """Hold the ring for one transaction, and save the changes of the working set at its end; see `lock`."""
        session = self.session
        session.refuse_nested()
        with self.lock(wait=wait, patience=patience) as ring:
            options = LoadOptions(skip_in_flight=False)
            working_set = session.working_set(ring.unit, ring.locked, options, planning=planning)
            if session.listeners:
                working_set.loader.inboxes.cut_everything()
            yield ring.unit, working_set
            working_set.save()
        if wait:
            self.store.rest()
        session.committed(working_set)

    @contextmanager
    def lock(
        self, token: bytes | None = None, *, wait: bool = True, records: bool = False, applies: bool = False,
        patience: float | None = None,
    ) -> Iterator[LockedRing]:  # fmt: skip
        """Lock the ring for one transaction, as soon as no other process holds it and recorded ends are applied.

        :param token: of the caller's lease. It waits for the lock as long as a lease lives: others hold it for a
            moment, and would throw away what the caller has done
        :param wait: without it, raise `Busy` if another transaction has the lock or another process holds the ring
        :param records: also yield a ring that another process holds: the caller only records what that process applies
        :param applies: the caller itself applies recorded ends
        """
        give_up = time.monotonic() + (self.session.busy_timeout if patience is None else patience)
        pause, left, applied = _FIRST_WAIT, patience, applies or token is not None
        if token is not None and patience is None:
            left = max(RING_LEASE, self.session.busy_timeout)
        while True:
            with self._locked_row(token, left, wait=wait) as ring:
                is_free = ring.holder is None
                if (is_free and (applied or not ring.locked.state.ends)) or (records and not is_free):
                    if is_free:
                        self._enter(ring, token)
                    yield ring
                    return
                if not is_free and not ring.locked.state.lease_wanted:
                    ring.unit.rings.want_lease(self.ring_id)
            if is_free:
                self.session.settler.apply_ends()
                # An end whose block another transaction has locked comes later.
                applied = True
                continue
            if not wait or time.monotonic() + pause > give_up:
                raise Busy(f"ring {self.session.ring!r} is in use ({ring.holder}); try again later")
            time.sleep(pause)
            # Others may record ends as long as the holder has the ring.
            applied = applies or token is not None
            # The lease and the lock of the row share one busy timeout.
            pause, left = min(pause * 2, _LONGEST_WAIT), max(give_up - time.monotonic(), 0.0)

    @contextmanager
    def _locked_row(self, token: bytes | None, patience: float | None, *, wait: bool) -> Iterator[LockedRing]:
        """Lock the ring for one transaction, whichever process holds it."""
        with ExitStack() as stack:
            try:
                unit = stack.enter_context(self.store.writing(wait=wait, patience=patience))
            except StoreBusy as error:
                if wait:
                    raise
                raise Busy(str(error)) from error
            locked = (unit.lock if wait else unit.try_lock)(self.ring_id)
            if locked is None:
                raise Busy(f"ring {self.session.ring!r} is in use by another transaction; try again later")
            yield LockedRing(unit, locked, self._other_holder(locked, token))

    def _enter(self, ring: LockedRing, token: bytes | None) -> None:
        """Prepare a locked ring: delayed messages that are due join their queues."""
        unit, locked = ring.unit, ring.locked
        held_by = locked.state.lease_token
        if held_by not in (None, token):
            # The former holder may still live: it must not write what it loaded before.
            unit.rings.drop_lease(self.ring_id, held_by, locked.state.lease_holder)
        self.store.promote_due(unit, self.ring_id, locked.now)
        unit.last_id = max(unit.last_id, locked.horizon - 1)

    def _other_holder(self, locked: Locked, token: bytes | None) -> str | None:
        state = locked.state
        if state.lease_token in (None, token) or state.lease_token in self.given_up:
            return None
        if state.lease_until <= locked.now:
            return None
        return None if _is_dead(state.lease_holder) else state.lease_holder or "an unknown process"

    def apply_soon(self) -> None:
        """Apply recorded ends, if there are any and no other process holds the ring: no operation may follow soon."""
        with suppress(Busy, StoreError):
            with self.store.loose() as unit:
                ends = unit.rings.state(self.ring_id).ends
            if ends:
                self.session.settler.apply_ends()


class RingLease:
    """The hold of a ring across transactions.

    To take a lease and to drop it are transactions that each message would wait for. So a worker keeps its lease from
    one service to the next while messages come. It reads the mark of other processes before and after each service, and
    gives the lease back; for a while, each service then takes and drops the lease itself, as a single call does.

    :param purpose: what the holder does, for processes that wait
    :param lost: makes the error for a holder whose lease expired while another process took the ring
    :param keeps: keep the lease from one service to the next
    """

    def __init__(self, hold: Hold, purpose: str, lost: Callable[[], Refused], *, keeps: bool = False) -> None:
        self.hold, self.session, self.ring_id = hold, hold.session, hold.ring_id
        self._purpose, self._lost, self.keeps = purpose, lost, keeps
        #: The token of the lease; None if there is none.
        self.token: bytes | None = None
        #: The leased ring as it was last read.
        self.ring: Locked | None = None
        #: Whether a holder with the same purpose did not give the ring back: it may have died.
        self.follows_death = False
        #: A holder that did not give the ring back: it stays named until a service ends.
        self._died = ""
        self._shared_until = 0.0
        self._renewal: Renewal | None = None

    def take(self, patience: float | None = None) -> Locked:
        """Take the lease unless it is kept; return the ring as it was last read."""
        if self.token is None or self.ring is None:
            token = secrets.token_bytes(16)
            try:
                with self.hold.lock(patience=patience) as (unit, locked, _):
                    holder = holder_name(self._purpose, self.session.actor)
                    unit.rings.take_lease(self.ring_id, token, _lease_end(locked.now), holder)
            except Busy:
                raise
            except BaseException:
                # If the commit is in doubt, the lease is, too.
                self.hold.given_up.add(token)
                raise
            self.token, self.ring = token, locked._replace(state=locked.state._replace(lease_token=token))
            self._died = locked.state.lease_holder
            self.follows_death = self._died.startswith(self._purpose)
            if self._renewal is None:
                self._renewal = Renewal(self._renew, RING_LEASE, f"ring {self.session.ring!r}")
                self._renewal.start()
        return self.ring

    @contextmanager
    def transaction(self) -> Iterator[LockedRing]:
        """Lock the ring for one transaction; raise the error of a lost lease if another process took it."""
        with self.hold.lock(self.token) as ring:
            if ring.locked.state.lease_token != self.token:
                raise self._lost()
            yield ring
        if self.ring is None:
            self.token = None

    @contextmanager
    def reading(self) -> Iterator[Unit]:
        """Read outside of transactions; raise the error of a lost lease for rows that the new holder deleted."""
        with self.hold.store.loose() as unit:
            try:
                yield unit
            except StoreCorrupt:
                if unit.leased(self.ring_id)().state.lease_token == self.token:
                    raise
                raise self._lost() from None

    def extend(self, unit: Unit, locked: Locked) -> None:
        """Extend the lease, in a transaction of it, if it is time to."""
        until, token = _lease_end(locked.now), locked.state.lease_token
        if token and until - locked.state.lease_until >= RING_LEASE / RENEWALS * 1_000_000:
            unit.rings.renew_lease(self.ring_id, token, until)

    def end_call(self, unit: Unit, ring: Locked, *, needed: bool) -> None:
        """End a service, in its last transaction: keep the lease for the next one, or drop it.

        :param ring: the ring as this transaction leaves it
        :param needed: the caller itself needs the ring before the next service
        """
        self.follows_death, self._died = False, ""
        if self.keeps and not needed and self._may_keep(ring):
            self.ring = ring
            self.extend(unit, ring)
        else:
            self.ring = None
            unit.rings.drop_lease(self.ring_id, self.token)

    def newest(self) -> int:
        """Return the newest inbox row, or when a delayed one was due; give back a lease that another process needs."""
        with self.hold.store.loose() as unit:
            leased = None if self.ring is None else unit.leased(self.ring_id)
            newest, _, due = unit.inbox.pulse(self.ring_id)
            self.ring = None if leased is None else leased()
            is_due = due is not None and due <= (unit.now() if self.ring is None else self.ring.now)
        if self.ring is not None and (is_due or not self._may_keep(self.ring)):
            # Due rows join their queues when the ring is locked.
            self.release()
        return due if due is not None and is_due else newest or 0

    def release(self) -> None:
        """Give the lease back. If that fails, other processes wait until it expires."""
        token, self.token, self.ring = self.token, None, None
        if token is None:
            return
        self.hold.given_up.add(token)
        with suppress(Busy, StoreError):
            with self.hold.store.writing() as unit:
                unit.rings.drop_lease(self.ring_id, token, self._died)
            self.hold.given_up.discard(token)
        self.hold.apply_soon()

    def __enter__(self) -> RingLease:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._renewal is not None:
            self._renewal.stop()
        self.release()

    def _may_keep(self, ring: Locked) -> bool:
        state, config = ring.state, self.session.remember_config(ring.config)
        if state.lease_wanted:
            self._shared_until = time.monotonic() + SHARED
        return (
            state.lease_token == self.token
            and not state.ends
            and time.monotonic() >= self._shared_until
            and not self.session.listeners
            and not meets_apart(config)
        )

    def _renew(self) -> bool:
        if (token := self.token) is not None:
            with self.hold.store.loose() as unit:
                unit.rings.renew_lease(self.ring_id, token, _lease_end(unit.now()))
        return True


def meets_apart(config: RingConfig) -> bool:
    """Return whether an operation reads the whole ring, so that new queues enter it in transactions before."""
    return config.order == "shuffle" or bool(config.paths) or config.high


def _lease_end(now: int) -> int:
    return now + int(RING_LEASE * 1_000_000)


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
    return bool(process and machine == _machine(os.getpid()) and not lives(process))


def lives(process: int) -> bool:
    """Return whether a process of this machine, or of this container, lives."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        # This process may not signal that one.
        return True
    return True
