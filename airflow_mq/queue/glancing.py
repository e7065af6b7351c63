"""Glances: how queues stand, from reads that are bounded however much waits.

Who shows a ring to people asks again and again, of rings with a hundred thousand queues. So nothing here cuts mail
into pages, as `footprint` does to tell a number that is exact: a glance adds up what books know and what lies behind
them, of at most so many mails a queue, and says where there is more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..core.message import MOST_ORIGIN_BYTES, check_number, check_text
from ..core.priority import MARK, book_name, books_of, check_priority, is_high, origin_of, priority_of
from ..store import codec
from ..store.rows import BlockRow
from ..store.shelf import LEAST_REGULAR, LEAST_TICKET, SqlShelf
from ..store.unit import Unit
from .reading import LAST, Reading, origins_from
from .values import moment

#: How many mails of a queue a glance adds up.
MOST_MAILS = 1_000
#: Mails that are looked at for queues which no block has met yet.
NEWS = 512
#: Seconds over which rates are told.
LATELY = 600.0


@dataclass(frozen=True)
class QueueGlance:
    """How a queue stands, at a glance."""

    origin: str
    priority: str
    #: What waits, is in flight, or is set aside; of what is in flight also what was answered for already.
    messages: int
    size: int
    #: Whether it is that much at least, and more lies behind it that was not counted.
    more: bool
    in_flight: int
    set_aside: int
    #: When the first of those that wait was sent.
    oldest: datetime | None
    #: Why servicing passes it by: `paused`, `in flight` or `backoff`; until when, of the last.
    passed_by: str
    wakes_at: datetime | None
    share: int
    #: Messages that came within the last ten minutes and are still there.
    lately: int

    @property
    def ready(self) -> int:
        """Messages that a block may take."""
        return max(self.messages - self.in_flight - self.set_aside, 0)


@dataclass(frozen=True)
class RingGlance:
    """A ring from its head on, at a glance."""

    now: datetime
    version: int
    #: How many queues stand in the ring; those whose first mail no block has looked at yet are not counted.
    ready: int
    #: The first of them, high ones first.
    queues: Sequence[QueueGlance]
    #: Messages that live blocks hold.
    in_flight: int


class Glancing(Reading):
    """The part of the queue that is looked at again and again."""

    def glances(
        self, prefix: str = "", after: str = "", limit: int = 50, *, lately: float = LATELY
    ) -> list[QueueGlance]:
        """Queues by name, so many origins at a time: go on after the last one. An origin may have two queues."""
        for text in (prefix, after):
            check_text(text, "the beginning of an origin", MOST_ORIGIN_BYTES)
        check_number(limit, "a limit")
        with self._looking() as (unit, shelf):
            names = origins_from(unit, shelf, prefix, after, limit)
            return _glance(unit, shelf, _with_high(shelf, names), lately)

    def glance_at(self, queues: Sequence[tuple[str, str]], *, lately: float = LATELY) -> list[QueueGlance]:
        """These queues, each an origin and a priority; those of which nothing is left are left out."""
        names = [book_name(origin, check_priority(priority)) for origin, priority in queues]
        with self._looking() as (unit, shelf):
            return _glance(unit, shelf, names, lately)

    def glance(self, most: int = 60) -> RingGlance:
        """The ring from its head on: at most so many queues."""
        check_number(most, "a limit")
        with self._looking() as (unit, shelf):
            ticket_floor, look_floor, version = unit.only("floors", ring=self.ring_id)
            ready = unit.rows("count_before", ring=self.ring_id, ticket=0, low=-(1 << 62), top=1 << 62)[0][1]
            held = unit.rows("blocks", ring=self.ring_id, state=0, before=1 << 62, limit=1_000)
            names = _from_the_head(unit, shelf, most, ticket_floor, look_floor)
            found = [one for one in _glance(unit, shelf, names, LATELY) if one.messages > one.set_aside]
            return RingGlance(moment(shelf.now), version, ready, found[:most], _messages_of(held))


def _with_high(shelf: SqlShelf, origins: Sequence[str]) -> list[str]:
    return [name for origin in origins for name in books_of(origin)] if shelf.config.high else list(origins)


def _from_the_head(unit: Unit, shelf: SqlShelf, most: int, ticket_floor: int, look_floor: int) -> list[str]:
    """The first queues of the ring: books by their tickets, and those with news by their first mail."""
    places = _high_places(unit, shelf, most) if shelf.config.high else {}
    for row in unit.ready_books(shelf.ring_id, max(ticket_floor, LEAST_REGULAR) - 1, most, shelf.now):
        places.setdefault(row.origin, (True, row.ticket or 0))
    for name, id_ in unit.rows("first_news", ring=shelf.ring_id, after=look_floor - 1, limit=NEWS):
        if not is_high(name):
            places.setdefault(name, (True, id_))
    if len(places) < most:
        # What was sent to other rings of the store lies between.
        for name in origins_from(unit, shelf, "", "", most):
            places.setdefault(name, (True, 1 << 62))
    # Of a book that is ready already the news is no reason to stand there.
    shelf.load_books(places)
    tickets = {name: shelf.origins[name].ticket for name in places}
    order = {name: (level, id_ if tickets[name] is None else tickets[name]) for name, (level, id_) in places.items()}
    return sorted(order, key=lambda name: order[name])[:most]


def _high_places(unit: Unit, shelf: SqlShelf, most: int) -> dict[str, tuple[bool, int]]:
    """The first high queues, and where each stands."""
    rows = unit.ready_books(shelf.ring_id, LEAST_TICKET, most, shelf.now)
    places = {row.origin: (False, row.ticket or 0) for row in rows if is_high(row.origin)}
    values = {"ring": shelf.ring_id, "after": MARK, "first": MARK, "below": MARK + LAST, "limit": most}
    for (name,) in unit.rows("mail_origins_from", **values):
        places.setdefault(name, (False, 0))
    return places


def _messages_of(rows: Sequence[Sequence[Any]]) -> int:
    return sum(BlockRow(*row).details_json["messages"] for row in rows)


def _glance(unit: Unit, shelf: SqlShelf, names: Sequence[str], lately: float) -> list[QueueGlance]:
    """How these books stand; those of which nothing is left are left out."""
    shelf.load_books(names)
    known = {name: shelf.origins[name] for name in names}
    columns: dict[str, list[Any]] = {
        "origin": list(names),
        "floor": [known[name].floor for name in names],
        "begin": [shelf.book(name).begin for name in names],
    }
    since = shelf.now - int(lately * 1_000_000)
    rows = unit.rows_for("depths", columns, ring=shelf.ring_id, most=MOST_MAILS, since=since) if names else []
    held = _held(unit, shelf.ring_id, names)
    found = []
    for name, added, items, size, oldest, new, asides in rows:
        book, ahead = shelf.book(name), known[name].ahead
        if ahead:
            mine = [
                one for one in unit.mail(shelf.ring_id, [(name, known[name].floor - 1)], MOST_MAILS) if one.id in ahead
            ]
            items, size = items - sum(one.items for one in mine), size - sum(one.size for one in mine)
        if not (book.message_count or items):
            continue
        wakes = known[name].row.wake_at
        found.append(QueueGlance(
            origin_of(name), priority_of(name), book.message_count + items, book.size + size, added == MOST_MAILS,
            held.get(name, 0), asides, None if oldest is None else moment(oldest), book.passed_by,
            moment(wakes) if book.passed_by == "backoff" else None, book.standing.share, new,
        ))  # fmt: skip
    return found


def _held(unit: Unit, ring: int, names: Sequence[str]) -> dict[str, int]:
    """How much of each book live blocks hold."""
    found: dict[str, int] = {}
    for name, data in unit.claims_of(ring, names):
        runs = codec.unpack_claim(name, bytes(data)).runs
        found[name] = found.get(name, 0) + sum(run.count for run in runs)
    return found
