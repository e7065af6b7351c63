"""What people decide: overweight messages, pauses, sweeps, the head, how an origin is served."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from ..core import overweight as rules
from ..core.claims import Scales
from ..core.config import RingConfig
from ..core.errors import (
    ConfigRefused,
    InFlight,
    InsufficientWeight,
    NotFound,
    Refused,
    RingExists,
    TemporarilyUnprocessable,
)
from ..core.events import Fate, decided
from ..core.message import Address, check_address, check_origin, check_seconds, check_text
from ..core.outcome import Outcome, Overweight
from ..core.page import Page
from ..core.priority import REGULAR, book_name, books_of, check_priority, is_high
from ..core.weight import UNLIMITED, ZERO, Meter, Weight
from ..store import codec
from ..store.shelf import SqlShelf, level_of, ticket_of
from ..store.unit import Unit
from .asides import Asides
from .attempts import Processor, deliver
from .blocks import refuse_claimed_by_hand
from .sending import When
from .values import Delivery, Paused, instant, moment
from .walking import renewing


class Deciding(Asides):
    """The part of the queue that people use."""

    def execute_overweight(
        self, address: Address, processor: Processor, limit: Weight = UNLIMITED, *, for_everything: bool = False
    ) -> Weight:
        """Execute one set-aside message now, within a weight; tell what it used.

        :param for_everything: the limit pays for keeping the books of it, too, and the errors
            are the coarser ones of the pallet's outer entry point. Only this entry point records
            that a processor reached its stack limit; the other one undoes all it stored when it fails.
        """
        self._refuse_nested()
        check_address(address)
        limit = Weight.of(limit)
        if not for_everything:
            return self._execute(address, processor, limit, keep_refusal=False)
        left = limit.minus(self.config.costs.execution)
        if left is None:
            raise InsufficientWeight(f"{limit} does not even pay {self.config.costs.execution} for keeping the books")
        try:
            return self._execute(address, processor, left, keep_refusal=True)
        except TemporarilyUnprocessable as error:
            raise Refused(str(error)) from error
        except NotFound as error:
            raise NotFound(str(error)) from error

    def _execute(self, address: Address, processor: Processor, limit: Weight, *, keep_refusal: bool) -> Weight:
        token = secrets.token_bytes(16)
        locked = self._take_lease(token, "a message executed by hand")
        try:
            with self.store.loose() as unit, renewing(self, token):
                shelf = self._shelf(unit, locked, passes_in_flight=False)
                if self.listeners:
                    shelf.cut_everything()
                _, page = rules.find_set_aside(shelf, address)
                refuse_claimed_by_hand(unit, self.ring_id, address)
                meter = Meter(limit)
                outcome = self._run(shelf, processor, address, page, meter)
                sent = shelf.sent()
                cost, refusal = self._settle_execution(shelf, address, outcome, meter.consumed, limit, keep_refusal)
            with self._held(token=token) as (unit, locked):
                if locked.state.lease_token != token:
                    raise InFlight("the ring was taken over while the message was executed; look before you repeat")
                if locked.state.version != shelf.state.version:
                    # A block ended meanwhile, perhaps one of this queue: write it down in the books as they are now.
                    shelf = self._shelf(unit, locked, passes_in_flight=False)
                    shelf.book(address.book).passed_by = ""
                    shelf.post_all(sent)
                    cost, refusal = self._settle_execution(shelf, address, outcome, meter.consumed, limit, keep_refusal)
                shelf.unit, shelf.state = unit, locked.state
                hooks = shelf.hooks
                shelf.save()
        finally:
            self._let_go(token)
        self._sweep_blobs(shelf)
        self._tell(hooks)
        if refusal:
            raise refusal
        return meter.consumed.plus(cost)

    def _settle_execution(
        self, shelf: SqlShelf, address: Address, outcome: Outcome, used: Weight, limit: Weight, keep_refusal: bool
    ) -> tuple[Weight, Refused | None]:
        book, page = rules.find_set_aside(shelf, address)
        try:
            return rules.settle_execution(shelf, book, page, address.index, outcome, used, limit, self.who), None
        except TemporarilyUnprocessable as error:
            if not (keep_refusal and shelf.events):
                raise
            # Nothing changed, but the event that gives the reason is kept.
            return ZERO, error

    def _run(self, shelf: SqlShelf, processor: Processor, address: Address, page: Page, meter: Meter) -> Outcome:
        if not getattr(processor, "meters_itself", False):
            weight = Scales(shelf).weight(address.book, page, address.index)
            if not meter.consume(weight):
                return Overweight(weight)
        payload = shelf.payloads(address.book, page)[address.index]
        delivery = Delivery(address.book, payload, page, address.index, meter, shelf)
        return deliver(processor, delivery, shelf)

    def reap_page(self, origin: str, page: int, why: str = "", *, priority: str = REGULAR) -> None:
        """Remove an old page of an origin, with what it still holds."""
        check_address(Address(origin, page, 0, priority))
        check_text(why, "a reason")
        name = book_name(origin, priority)
        with self._working(passes_in_flight=False) as (unit, shelf):
            self.refuse_claimed_page(unit, name, page)
            rules.reap_page(shelf, name, page, why, self.who)

    def pause(self, origin: str, reason: str = "", until: When | None = None, *, below: bool = False) -> None:
        """Let servicing pass an origin by; enqueuing goes on. A block in flight is not stopped.

        :param below: of a ring with paths, pass by all below this origin as well, also what comes later.
        """
        self._refuse_nested()
        check_text(reason, "a reason")
        with self.store.writing() as unit:
            now = unit.now()
            if below and not self._remember_config(unit.ring(self.ring).config).paths:
                raise ConfigRefused(
                    f"ring {self.ring!r} has no groups to pause: its origins are no paths; "
                    "change_ring(paths=True), or `airflow-mq ring change --set paths=true`, makes them so"
                )
            unit.run("pause", ring=self.ring_id, origin=check_origin(origin), reason=reason, who=self.who, now=now,
                     until=None if until is None else _instant(until, now), below=below)  # fmt: skip

    def resume(self, origin: str) -> bool:
        """Service an origin again; tell whether it was paused."""
        self._refuse_nested()
        with self.store.writing() as unit:
            return unit.run("resume", ring=self.ring_id, origin=check_origin(origin)) > 0

    def paused(self) -> list[Paused]:
        """The origins that are paused."""
        with self.store.loose() as unit:
            return [
                Paused(origin, reason, who, moment(at), None if until is None else moment(until), bool(below))
                for origin, reason, who, at, until, below in unit.rows("paused", ring=self.ring_id, now=unit.now())
            ]

    def sweep(self, origin: str) -> int:
        """Move the windows past everything: what is left waits for a person. Tell how much that is."""
        check_origin(origin)
        with self._working(passes_in_flight=False) as (unit, shelf):
            names = books_of(origin) if shelf.config.high else (origin,)
            if unit.claims_of(self.ring_id, names) and self._is_in_flight(shelf, origin):
                raise InFlight(f"a block holds messages of {origin!r}; sweep it when the block has ended")
            return sum(self._sweep(unit, shelf, name) for name in names)

    def _is_in_flight(self, shelf: SqlShelf, origin: str) -> bool:
        shelf.book(origin)
        return shelf.origins[origin].row.in_flight

    def _sweep(self, unit: Unit, shelf: SqlShelf, name: str) -> int:
        book = shelf.book(name)
        while shelf.pull(book):
            pass
        if not book.is_ready:
            return 0
        first, book.begin = book.begin, book.end
        shelf.unknit(book)
        swept = decided(f"pages {first} to {book.end - 1}", self.who)
        shelf.emit(Fate.SWEPT, name, first, 0, b"", detail=swept)
        shelf.after_save.append(lambda: unit.run("sweep_pages", ring=self.ring_id, origin=name, first=first))
        return book.message_count

    def force_set_head(self, origin: str, meter: Meter | None = None, *, priority: str = REGULAR) -> bool | None:
        """Make a ready origin the head; tell whether it was ready, or nothing if the meter cannot pay.

        :param priority: the head of which books; high ones come first in any case.
        """
        self._refuse_nested()
        name = book_name(check_origin(origin), check_priority(priority))
        if meter is not None and not meter.consume(self.config.costs.set_service_head):
            return None
        with self._working(passes_in_flight=False) as (unit, shelf):
            # Everybody whose turn comes by arrival gets a ticket first: the circle's order stays.
            ring = shelf.circle(name)
            found = ring.head()
            while found is not None and found != name:
                found = ring.next_in_line(found)
            if found is None:
                return False
            if shelf.config.paths and not is_high(name):
                # Deficits say whose turn it is; the head only decides between equals.
                shelf.put_first(name)
            shelf.after_save.append(lambda: _force(unit, self.ring_id, shelf, name))
        return True

    def set_origin(
        self, origin: str, *, share: int | None = None, least: Weight | None = None, most: Weight | None = None,
        ordered: bool | None = None,
    ) -> None:  # fmt: skip
        """Say how an origin is served; what is not said goes back to the ring's default."""
        self._refuse_nested()
        if share is not None:
            check_share(share)
        if least is not None and most is not None and Weight.of(least).exceeds(Weight.of(most)):
            raise ConfigRefused(f"an origin cannot be promised {Weight.of(least)} and get {Weight.of(most)} at most")
        said = {"share": share, "least": Weight.of(least) if least is not None else None,
                "most": Weight.of(most) if most is not None else None, "ordered": ordered}  # fmt: skip
        settings = {name: value for name, value in said.items() if value is not None}
        with self.store.writing() as unit:
            unit.run("set_standing", ring=self.ring_id, origin=check_origin(origin), settings=settings,
                     guaranteed=least is not None)  # fmt: skip

    # Rings.

    def change_ring(self, **changes: Any) -> RingConfig:
        """Set the ring differently, for everybody; checked against what is stored."""
        with self._working(passes_in_flight=False) as (unit, shelf):
            config = shelf.config.changed(**changes)
            if config.heap_size != shelf.config.heap_size:
                # What was sent before lies in pages of the old size, whether it was cut yet or not.
                shelf.cut_everything()
            if config.paths != shelf.config.paths:
                self._refuse_paused_groups(unit, shelf.now)
                # Deficits count otherwise now; nobody has used anything yet.
                for statement in ("forget_deficits", "forget_branches"):
                    shelf.after_save.append(partial(unit.run, statement, ring=self.ring_id))
            unit.run("change_ring", ring=self.ring_id, config=config.to_json())
        self._remember_config(config.to_json())
        return config

    def _refuse_paused_groups(self, unit: Unit, now: int) -> None:
        """Without paths there would be no groups any more, and what is below them would run."""
        paused = [row[0] for row in unit.rows("paused_groups", ring=self.ring_id, now=now)]
        if paused:
            raise ConfigRefused(f"all below {', '.join(map(repr, paused[:5]))} is paused; resume it first")

    def create_ring(self, name: str, config: RingConfig | None = None) -> None:
        """Make another ring in the same store."""
        self._refuse_nested()
        with self.store.writing() as unit:
            insert_ring(unit, name, (config or RingConfig()).check())

    def rings(self) -> list[str]:
        """The names of all rings of the store."""
        with self.store.loose() as unit:
            return [row[0] for row in unit.rows("ring_names")]


def check_share(share: object) -> None:
    """Refuse what is no share of an origin."""
    if type(share) is not int or not 1 <= share <= 1 << 20:
        raise ConfigRefused(f"a share is a whole number from 1 to {1 << 20}, not {share!r}")


def insert_ring(unit: Unit, name: str, config: RingConfig) -> None:
    """Write a new ring."""
    check_text(name, "the name of a ring")
    if not (name.isascii() and name.replace("-", "_").isidentifier() and len(name) <= 63):
        raise ConfigRefused(f"a ring's name is a word of at most 63 letters, digits, - and _, not {name[:80]!r}")
    rows = unit.rows("insert_ring", name=name, config=codec.write_json(config.to_json()).decode())
    if not rows:
        raise RingExists(f"there is a ring {name!r} already; change it, or choose another name")
    unit.run("insert_state", ring=rows[0][0])


def _force(unit: Unit, ring: int, shelf: SqlShelf, origin: str) -> None:
    """Move the smaller side of the circle: those before the new head to the end, or the rest to the front.

    Who has yet to enter the ring stands behind all others, and goes nowhere: then those before the head move.
    """
    ticket = shelf.origins[origin].ticket
    low, top = level_of(origin)
    before, count, lowest, highest = unit.rows("count_before", ring=ring, ticket=ticket, low=low, top=top)[0]
    if before <= count - before or (not is_high(origin) and shelf.news_left()):
        moved = [row[0] for row in unit.rows("tickets_before", ring=ring, ticket=ticket, low=low)]
        if moved:
            tickets = [ticket_of(origin, id_) for id_ in unit.fresh_ids(len(moved))]
            unit.run_for("set_ticket", {"origin": moved, "ticket": tickets}, ring=ring)
    else:
        shift = highest - lowest + 1
        unit.run("advance_tickets", ring=ring, ticket=ticket, shift=shift, top=top)
        if not is_high(origin):
            unit.run("lower_floor", ring=ring, ticket=ticket - shift)


def _instant(when: When, now: int) -> int:
    if isinstance(when, datetime):
        return instant(when)
    seconds = when.total_seconds() if isinstance(when, timedelta) else when
    return now + int(check_seconds(seconds, "how long from now") * 1_000_000)
