"""Administration of a ring: pauses, origins, settings, old pages, the head and housekeeping."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from ...tariff import Tariff
from ..rules import overweight as rules
from ..rules.book import DEFAULT_SETTINGS
from ..rules.budget import BURSTS, RATES, Rate, burst_of, rate_of
from ..rules.config import RingConfig, difference
from ..rules.errors import Busy, ConfigRefused, InFlight, InvalidInput, RingExists
from ..rules.events import Fate, decided
from ..rules.message import Address, check_address, check_origin, check_text
from ..rules.nearest import suggestion
from ..rules.priority import REGULAR, book_name, books_of, check_priority, is_high
from ..rules.units import byte_count
from ..rules.weight import Meter, Weight
from ..store import codec
from ..store.blobs import sweep
from ..store.rings import is_ring_name
from ..store.rows import LATEST, settings_of
from ..store.unit import Unit
from ..store.working_set import StoredSet
from .bills import close_day
from .session import RingSession
from .set_aside import SetAsides, refuse_claimed_page
from .values import Paused, When, instant, moment

log = logging.getLogger("airflow_mq.admin")


class Admin:
    """Decisions about a ring: pauses, origins, settings, old pages, the head, housekeeping."""

    def __init__(self, session: RingSession, set_asides: SetAsides) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id
        self._set_asides = set_asides

    def reap_page(self, origin: str, page: int, why: str = "", *, priority: str = REGULAR) -> None:
        """Delete an old page of an origin, with its remaining messages."""
        check_address(Address(origin, page, 0, priority))
        check_text(why, "a reason")
        name = book_name(origin, priority)
        with self.session.hold.transaction() as (unit, working_set):
            refuse_claimed_page(unit, self.ring_id, name, page)
            rules.reap_page(working_set, name, page, why, self.session.actor)

    def pause(self, origin: str, reason: str = "", until: When | None = None, *, below: bool = False) -> None:
        """Pause an origin: services skip it, senders may enqueue. A block in flight is not stopped.

        :param until: the end of the pause, or its duration.
        :param below: in a ring with paths, also pause all present and future origins below this one.
        """
        self.session.refuse_nested()
        check_text(reason, "a reason")
        with self.store.writing() as unit:
            now = unit.now()
            # A change of `paths` waits for this transaction, and sees the pause.
            if below and not self.session.remember_config(unit.rings.held_config(self.ring_id)).paths:
                raise ConfigRefused(
                    f"ring {self.session.ring!r} has no groups to pause: its origins are no paths; "
                    f"change_ring(paths=True), or `{self.session.cli('ring change --set paths=true')}`, makes them so"
                )
            ends = None if until is None else instant(until, lambda: now, least=0)
            if ends is not None and ends < now:
                raise InvalidInput(f"until ({until}) is past: expected a later time; nothing was paused")
            actor = self.session.actor
            unit.origins.pause(
                self.ring_id, check_origin(origin), reason=reason, actor=actor, now=now, until=ends, below=below
            )

    def resume(self, origin: str) -> bool:
        """End the pause of an origin, and the backoff of its messages that returned; return whether there was any."""
        self.session.refuse_nested()
        names, waited = books_of(check_origin(origin)), False
        with self.session.snapshot(names=names) as (_, working_set):
            waits = any(map(working_set.may_wait, names))
        if waits:
            # Only a process that holds the ring writes its books.
            with self.session.hold.transaction() as (_, working_set):
                waited = any([working_set.end_backoff(name) for name in names])
        with self.store.writing() as unit:
            return unit.origins.resume(self.ring_id, origin) or waited

    def paused(self) -> list[Paused]:
        """Return the paused origins."""
        with self.store.loose() as unit:
            return [
                Paused(origin, reason, actor, moment(at), None if until is None else moment(until), bool(below))
                for origin, reason, actor, at, until, below in unit.origins.paused(self.ring_id, unit.now())
            ]

    def sweep_queue(self, origin: str) -> int:
        """Move the windows of an origin past all messages: they are set aside. Return their number."""
        check_origin(origin)
        with self.session.hold.transaction() as (unit, working_set):
            names = books_of(origin) if working_set.config.high else (origin,)
            working_set.book(origin)
            if unit.blocks.claims_on(self.ring_id, names) and working_set.stored[origin].row.in_flight:
                raise InFlight(f"a block holds messages of {origin!r}; sweep it when the block has ended")
            return sum(self._sweep(unit, working_set, name) for name in names)

    def _sweep(self, unit: Unit, working_set: StoredSet, name: str) -> int:
        book = working_set.book(name)
        working_set.pull_all(book)
        if not book.is_ready:
            return 0
        first, book.begin = book.begin, book.end
        working_set.unknit(book)
        swept = decided(f"pages {first} to {book.end - 1}", self.session.actor)
        working_set.emit(Fate.SWEPT, name, first, 0, b"", detail=swept)
        working_set.after_save.append(lambda: unit.pages.sweep(self.ring_id, name, first))
        return book.message_count

    def force_set_head(self, origin: str, meter: Meter | None = None, *, priority: str = REGULAR) -> bool | None:
        """Make a ready origin the head of the ring; return whether it was ready, or None if the meter cannot pay.

        :param priority: the priority of the book; high books come first in any case.
        """
        self.session.refuse_nested()
        name = book_name(check_origin(origin), check_priority(priority))
        if meter is not None and not meter.consume(self.session.config.costs.set_service_head):
            return None
        with self.session.hold.transaction() as (_, working_set):
            ring, before = working_set.circle(name), list[str]()
            found = ring.head()
            while found is not None and found != name:
                before.append(found)
                found = ring.next_in_line(found)
            if found is None or working_set.loader.books.buckets.wake_at(working_set.book(name).origin):
                # A queue that woke sleeps again if the clock was set back.
                return False
            if working_set.config.paths and not is_high(name):
                # Deficits decide whose turn it is; the head decides only between equals.
                working_set.put_first(name)
            # The order of the circle stays.
            for passed in before:
                ring.bump(passed)
        return True

    def set_origin(
        self,
        origin: str,
        *,
        share: int | None = None,
        least: Weight | None = None,
        most: Weight | None = None,
        ordered: bool | None = None,
        rate: str | Rate | None = None,
        rate_bytes: str | Rate | None = None,
        burst: str | int | None = None,
        burst_bytes: str | int | None = None,
        quota: int | str | None = None,
        unset: Iterable[str] = (),
    ) -> dict[str, tuple[Any, Any]]:
        """Change how an origin is serviced; return the old and the new value of each setting that changed.

        :param rate: the weight that it may use over time, such as `2h/day`; in a ring with paths, all below it together
        :param rate_bytes: the same for the size part, such as `50GiB/day`
        :param burst: the most that it may save up of `rate`, such as `30m`; by default, one hour's rate
        :param burst_bytes: the same of `rate_bytes`
        :param quota: the most bytes that it may store, as a number or as text such as `5GiB`.
        :param unset: names of settings that return to the ring's; other omitted ones stay.
        """
        self.session.refuse_nested()
        given = {
            "share": share, "least": least, "most": most, "ordered": ordered,
            "rate": rate, "rate_bytes": rate_bytes, "burst": burst, "burst_bytes": burst_bytes, "quota": quota,
        }  # fmt: skip
        dropped = set(unset)
        for name in dropped:
            if name not in given:
                raise ConfigRefused(f"unknown setting {name[:80]!r}: {suggestion(name, given)}")
            if given[name] is not None:
                raise ConfigRefused(f"{name} is both set and unset: specify one of them")
        changes = {name: read_setting(name, value) for name, value in given.items() if value is not None}
        with self.store.writing() as unit:
            before = settings_of(unit.origins.lock_settings(self.ring_id, check_origin(origin)))
            after = replace(before, **{name: getattr(DEFAULT_SETTINGS, name) for name in dropped}, **changes)
            if after.least is not None and after.most is not None and after.least.exceeds(after.most):
                raise ConfigRefused(f"an origin cannot be promised {after.least} and get {after.most} at most")
            for rate_name, burst_name in zip(RATES, BURSTS):
                if getattr(after, burst_name) is not None and getattr(after, rate_name) is None:
                    raise ConfigRefused(f"{burst_name} needs a {rate_name}: specify both, or unset {burst_name}")
            stored = {name: value for name, value in vars(after).items() if value != getattr(DEFAULT_SETTINGS, name)}
            unit.origins.set(self.ring_id, origin, stored, guaranteed=after.least is not None, quota=after.quota)
            if before.budget != after.budget:
                unit.origins.renew_bucket(self.ring_id, origin, kept=after.budget is not None)
        self.session.reread_config()
        return difference(vars(before), vars(after))

    def housekeep(self) -> int:
        """Release dead blocks, close days, delete expired rows, apply policies; return the number of dead blocks."""
        self.session.refuse_nested()
        dead = self.session.settler.release_dead()
        try:
            self.session.settler.retry_ends()
            while self._close_day():
                pass
        except Busy as error:
            log.warning("failed ends were not tried again, and finished days not closed: %s", error)
        self.session.forget_all_old()
        sweep(self.store, LATEST)
        self._set_asides.expire()
        return dead

    def _close_day(self) -> bool:
        """Close the bills of the next day that is over, in a transaction of its own."""
        with self.session.hold.transaction() as (unit, working_set):
            return close_day(unit, self.ring_id, self.session.ring, working_set)

    # Rings.

    def change_ring(self, **changes: Any) -> RingConfig:
        """Change settings of the ring, checked against the stored messages; return all settings.

        A dictionary of `costs` changes the costs that it names.
        """
        with self.session.hold.transaction() as (unit, working_set):
            ends = unit.blocks.ends(self.ring_id, failed=True)
            if ends:
                # Its verdicts rest on the settings.
                raise InFlight(
                    f"the recorded end of block {ends[0].row.number} is not applied: settings cannot change before; "
                    f"run `{self.session.cli('ring housekeep')}`, which tries it again, and see `airflow-mq doctor`"
                )
            config = _with_tariff(working_set.config.changed(**changes))
            if config.heap_size != working_set.config.heap_size:
                # Messages sent before lie in pages of the old size, cut or not.
                working_set.loader.inboxes.cut_everything()
            if config.paths != working_set.config.paths:
                unit.rings.held_config(self.ring_id)
                paused = [row.origin for row in unit.origins.paused(self.ring_id, working_set.now) if row.below]
                if paused:
                    # Without paths, the origins below it would resume.
                    raise ConfigRefused(f"all below {', '.join(map(repr, paused[:5]))} is paused; resume it first")
                # Deficits have another unit now: all origins start at zero.
                working_set.after_save.append(partial(unit.books.forget_deficits, self.ring_id))
                working_set.after_save.append(partial(unit.origins.forget_groups, self.ring_id))
            unit.rings.change(self.ring_id, config.to_json())
        self.session.remember_config(config.to_json())
        return config

    def create_ring(self, name: str, config: RingConfig | None = None) -> None:
        """Create another ring in the store."""
        self.session.refuse_nested()
        with self.store.writing() as unit:
            insert_ring(unit, name, _with_tariff((config or RingConfig()).check()))

    def rings(self) -> list[str]:
        """Return the names of all rings of the store."""
        with self.store.loose() as unit:
            return [ring.name for ring in unit.rings.all()]


def _with_tariff(config: RingConfig) -> RingConfig:
    """Return the settings, or refuse those whose tariff cannot be read."""
    if config.tariff is not None:
        Tariff.from_json(config.tariff)
    return config


#: Readers of settings by name.
_READERS: dict[str, Callable[[str, Any], Any]] = {
    "share": lambda _, value: checked_share(value),
    "ordered": lambda _, value: checked_ordered(value),
    **dict.fromkeys(("least", "most"), lambda _, value: Weight.of(value)),
    **dict.fromkeys(RATES, rate_of),
    **dict.fromkeys(BURSTS, burst_of),
    "quota": lambda _, value: checked_quota(value),
}


def read_setting(name: str, value: Any) -> Any:
    """Return a caller's value of a setting of an origin, which may be text as in a command, or raise `InvalidInput`."""
    return _READERS[name](name, value)


def checked_share(share: object) -> int:
    """Return a share, or raise `ConfigRefused`."""
    if type(share) is not int or not 1 <= share <= 1 << 20:
        raise ConfigRefused(f"a share is a whole number from 1 to {1 << 20}, not {share!r}")
    return share


def checked_ordered(value: object) -> bool:
    """Return whether a queue is ordered, or raise `ConfigRefused`."""
    if type(value) is not bool:
        raise ConfigRefused(f"ordered is True or False, not {value!r:.80}")
    return value


def checked_quota(value: object) -> int:
    """Return a quota in bytes, or raise `ConfigRefused`."""
    size = byte_count(value) if isinstance(value, str) else value
    if type(size) is not int or not 1 <= size < 1 << 63:
        raise ConfigRefused(f"invalid quota {value!r:.80}: expected a number of bytes of at least 1, such as 5GiB")
    return size


def insert_ring(unit: Unit, name: str, config: RingConfig) -> None:
    """Write a new ring."""
    check_text(name, "the name of a ring")
    if not is_ring_name(name):
        raise ConfigRefused(f"a ring's name is a word of at most 63 letters, digits, - and _, not {name[:80]!r}")
    if not unit.rings.insert(name, codec.write_json(config.to_json()).decode()):
        raise RingExists(f"there is a ring {name!r} already; change it, or choose another name")
