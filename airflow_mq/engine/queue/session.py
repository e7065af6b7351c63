"""Session of a ring: its settings and permits, snapshots and working sets, housekeeping and listeners."""

from __future__ import annotations

import getpass
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import chain
from shlex import quote
from typing import Any

from ...observe.traces import wanted as traces_wanted
from ..rules.charging import DAY
from ..rules.config import DEFAULT_RING, RingConfig
from ..rules.errors import (
    Busy,
    InvalidInput,
    MessageQueueError,
    RecursiveDisallowed,
    Refused,
    StoreBusy,
    StoreError,
)
from ..rules.groups import paths_of
from ..rules.message import Footprint, check_origin, check_text, check_visible
from ..rules.patterns import OPEN
from ..rules.weight import Weight
from ..store import Store, StoreAddress, codec, open_store
from ..store.blobs import sweep
from ..store.rows import LATEST, Locked, RingRow
from ..store.unit import Unit
from ..store.working_set import UNKNOWN, LoadOptions, Overlay, Source, StoredSet
from .blocks.settlement import BlockSettler
from .context import is_inside, outside, place_of
from .holding import Hold

log = logging.getLogger("airflow_mq.session")

#: Called after a commit for each queue that changed, with its new footprint.
Listener = Callable[[str, Footprint], None]

#: Seconds after which a send reads the settings of the ring again.
CONFIG_AGE = 10.0
#: Books of which a session remembers how much room they have.
MOST_BOUNDED = 10_000
#: Seconds between two deletions of expired rows by one process.
FORGET_EVERY = 60.0
#: Expired rows of each kind that one transaction deletes, so that it is short.
MOST_FORGOTTEN = 5_000
#: A call looks again for what the calls of so many microseconds before should have deleted: some may have failed.
AGAIN = 600_000_000
#: Reads of a snapshot.
_READING = LoadOptions(skip_in_flight=False, with_due=True)


class RingSession:
    """One ring of one store, opened by one actor. Internal: each capability of a queue is given a session."""

    def __init__(
        self,
        store: str | StoreAddress | Store[Any],
        ring: str = DEFAULT_RING,
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
        self.traces = traces_wanted(traces)
        #: The settings as they were stored when they were last read; before that, a value that equals none.
        self._plain_config: object = object()
        self._ring_read_at = 0.0
        #: Whether any queue of the ring has a quota, as last read.
        self.has_quotas = False
        #: For each of these books an id up to which rows of all senders have room; `LATEST` without a quota.
        self.room: dict[str, int] = {}
        self._forgot_at = -FORGET_EVERY
        #: Until when rows of each kind were deleted.
        self._forgotten: dict[str, int] = {}
        try:
            with self.store.loose() as unit:
                row = unit.rings.named(ring)
            self._remember_ring(row)
        except BaseException:
            if not isinstance(store, Store):
                self.store.close()
            raise
        self.ring_id = row.id
        self.hold, self.settler = Hold(self), BlockSettler(self)

    def cli(self, command: str, name: str = "", options: str = "") -> str:
        """Return a command line about this ring, for people.

        :param command: its words; one that ends with `=` takes the name as a value
        :param name: the origin, address or block that the command is about; senders choose names
        """
        if command.endswith("="):
            command, name = f"{command}{quote(name)}", ""
        quoted, store = quote(name) if name else "", self.store.options
        ring = f"--ring {quote(self.ring)}" if store or self.ring != DEFAULT_RING else ""
        words = (options, store, ring, "--", quoted) if name.startswith("-") else (quoted, options, store, ring)
        return " ".join(filter(None, ("airflow-mq", command, *words)))

    def check_sender(self, origin: object) -> str:
        """Return an origin that this connection permits as a sender, or raise the reason why not.

        Stored messages of any origin are serviced.
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
        if time.monotonic() - self._ring_read_at > CONFIG_AGE:
            self.reread_config()

    def reread_config(self) -> None:
        """Read the settings of the ring."""
        with self.store.loose() as unit:
            self._remember_ring(unit.rings.named(self.ring))

    def _remember_ring(self, row: RingRow) -> None:
        self.remember_config(row.config)
        self.has_quotas, self.room, self._ring_read_at = row.has_quotas, {}, time.monotonic()

    def remember_config(self, plain: Any) -> RingConfig:
        """Return the settings of the ring from their stored form, and keep them."""
        if self._plain_config != plain:
            with codec.reading("the configuration of the ring"):
                #: The settings of the ring, as last read.
                self.config = RingConfig.from_json(codec.read_json(plain))
            self._plain_config = plain
        return self.config

    def room_until(self, names: Collection[str], unit: Unit | None = None) -> int:
        """Return an id up to which all senders have room in these books: 0 before a check, `LATEST` without a quota.

        :param unit: the open transaction of this thread, if there is one
        """
        try:
            return min(map(self.room.__getitem__, names), default=LATEST) if self.has_quotas else LATEST
        except KeyError:
            self.room = room = self.room if len(self.room) <= MOST_BOUNDED else {}
            fresh = [name for name in names if name not in room]
        with nullcontext(unit) if unit is not None else self.store.loose() as reader:
            # Once per `CONFIG_AGE`; in parts, because each book may have more than a hundred groups above it.
            for start in range(0, len(fresh), 250):
                paths = {name: paths_of(name, self.config.paths) for name in fresh[start : start + 250]}
                quotas = reader.origins.quotas(self.ring_id, sorted(set(chain.from_iterable(paths.values()))))
                for name, above in paths.items():
                    room[name] = LATEST if quotas.keys().isdisjoint(above) else 0
        return min(map(room.__getitem__, names))

    def working_set(self, unit: Unit, locked: Locked, options: LoadOptions, *, planning: bool = False) -> StoredSet:
        """Return the working set of an operation that holds the ring.

        :param planning: the operation only claims: its changes of books and pages are not saved.
        """
        return StoredSet(
            self.remember_config(locked.config),
            locked.now,
            Source(self.store, unit, self.ring_id, locked.state, locked.horizon),
            options,
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
        if ring.ends and unit.reads_reports():
            overlay = Overlay(self.store, unit, self.ring_id, joins_due=False)
            options = LoadOptions(without_payloads=True)
            self.settler.foresee(overlay, lambda now: StoredSet(config, now, overlay, options), names)
            return StoredSet(config, ring.now, overlay, _READING)
        return self.stored_working_set(unit, ring)

    def stored_working_set(self, unit: Unit, ring: RingRow | None = None) -> StoredSet:
        """Return a working set of what is stored, without recorded ends."""
        ring = unit.rings.named(self.ring) if ring is None else ring
        unit.last_id = 0
        source = Source(self.store, unit, self.ring_id, UNKNOWN, 0)
        return StoredSet(self.remember_config(ring.config), ring.now, source, _READING)

    def rows_not_looked_at(self, unit: Unit, most: int) -> list[str]:
        """Return the queue of each row behind the last look, in a range of at most so many rows."""
        after = unit.rings.state(self.ring_id).look_floor - 1
        return [row.origin for row in unit.inbox.uncut(self.ring_id, after, most)]

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
            after = {kind: until - AGAIN for kind, until in self._forgotten.items()}
            for charges in (False, True):
                if self._forget_some(after, charges=charges, wait=False):
                    # More rows have expired than one transaction deletes: the next call continues.
                    self._forgot_at = -FORGET_EVERY
        except (Busy, StoreBusy):
            pass
        except MessageQueueError as error:
            log.warning("could not delete expired rows of ring %r: %s", self.ring, error)

    def forget_all_old(self) -> None:
        """Delete all expired rows, in short transactions."""
        self._forgot_at = time.monotonic()
        for charges in (False, True):
            while self._forget_some({}, charges=charges, wait=True):
                self.store.rest()

    def _forget_some(self, after: Mapping[str, int], *, charges: bool, wait: bool) -> bool:
        """Delete a bounded number of expired rows of each kind; return whether there may be more.

        :param after: rows of each kind that expired before this time were deleted by earlier calls
        :param charges: add up charges and delete old ones, which may wait for others, instead of the other kinds
        """
        forgotten = self._forgotten
        with self.store.writing(wait=wait, patience=None if wait else 0.0) as unit:
            ring = unit.rings.named(self.ring)
            config, now = self.remember_config(ring.config), ring.now
            more = charges and unit.charges.roll_up(self.ring_id, now // DAY)
            for kind, seconds in (
                ("events", config.keep_events),
                ("ledger", config.keep_ledger),
                ("blocks", config.keep_ledger),
                ("keys", config.key_window),
                ("charges", kept_charges(config)),
            ):
                if (kind == "charges") != charges:
                    continue
                before, since = now - int(seconds * 1_000_000), after.get(kind, -LATEST)
                if unit.rings.expire(kind, self.ring_id, since, before, MOST_FORGOTTEN) == MOST_FORGOTTEN:
                    more = True
                else:
                    forgotten[kind] = before
        return more

    def committed(self, working_set: StoredSet, *, sweeps: bool = True) -> None:
        """After a commit, call the listeners, and delete external payloads without messages.

        :param sweeps: without it, or if the deletion fails, housekeeping deletes the payloads
        """
        if working_set.released_payloads and sweeps:
            working_set.released_payloads = False
            with suppress(StoreError, Refused):
                sweep(self.store)
        hooks = working_set.take_hooks()
        if hooks and self.listeners:
            with outside(self.place):
                for origin, footprint in hooks:
                    for listener in self.listeners:
                        listener(origin, footprint)

    def tell_listeners(self) -> None:
        """Cut sent messages into pages, and call the listeners."""
        # A service that runs around this call, or another process that holds the ring, cuts the pages itself. The
        # messages are stored in any case.
        if self.listeners and not is_inside(self.place):
            with suppress(Busy, StoreError), self.hold.transaction(patience=0):
                pass

    def refuse_nested(self) -> None:
        """Raise `RecursiveDisallowed` inside a processor of this ring."""
        if is_inside(self.place):
            raise RecursiveDisallowed()


def kept_charges(config: RingConfig) -> float:
    """Return the seconds for which rows of charges are kept: as long as the ledger, and until their day is closed."""
    return max(config.keep_ledger, 2 * DAY / 1_000_000)


def limit_of(config: RingConfig, limit: Weight | None) -> Weight:
    """Return the given limit; by default, the service weight of the ring."""
    given = config.service_weight if limit is None else limit
    if given is None:
        raise InvalidInput("limit is missing, and this ring has no service weight: set limit=Weight(time, size)")
    return Weight.of(given)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
