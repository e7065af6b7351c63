"""Glances: how queues stand, from reads that are bounded however much waits.

Who shows a ring to people asks again and again, of rings with a hundred thousand queues. So nothing here cuts mail
into pages, as `footprint` does to tell a number that is exact: a glance adds up what books know and what lies behind
them, of at most so many mails a queue, and says where there is more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ..core.book import Standing
from ..core.events import Event
from ..core.message import MOST_ORIGIN_BYTES, check_number, check_origin, check_text
from ..core.orders import Entry
from ..core.page import ASIDE
from ..core.priority import MARK, REGULAR, book_name, books_of, check_priority, is_high, origin_of, priority_of
from ..core.weight import ZERO, Weight
from ..store import codec
from ..store.rows import BlockRow
from ..store.shelf import LEAST_REGULAR, LEAST_TICKET, SqlShelf
from ..store.thaw import page_of
from ..store.unit import Unit
from .accounting import Accounting
from .blocks import STATES
from .reading import LAST, SEQ_BITS, origins_from
from .values import moment

#: How many mails of a queue a glance adds up.
MOST_MAILS = 1_000
#: Mails that are looked at for queues which no block has met yet.
NEWS = 512
#: Rows of events that are read at once, and how often at most.
EVENT_ROWS, EVENT_READS = 256, 20
#: Ids are below this.
LATEST = 1 << 62
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


@dataclass
class Received:
    """What a queue got of the latest blocks."""

    #: Parts of what these gave to all: what it was promised, and what it got; nothing, where it never had to wait.
    promised: float | None = None
    received: float | None = None
    #: Messages that blocks took within the last ten minutes.
    messages: int = 0


@dataclass(frozen=True)
class BlockGlance:
    """A block, as it was planned and as it ended."""

    id: int
    key: str | None
    #: `planned`, `settled` or `released`.
    state: str
    by_hand: bool
    planned_at: datetime
    ended_at: datetime | None
    deadline: datetime
    limit: Weight
    #: What its messages were thought to cost, and the steps around them.
    planned: Weight
    #: What it cost in the end; nothing, as long as it lives.
    used: Weight | None
    messages: int
    by: str
    #: What became of its messages: `processed`, `failed`, `set_aside`, `went_back`, `expired`.
    result: Mapping[str, int]
    #: Its page of the ledger, as long as that is kept.
    entries: Sequence[Entry] = ()


@dataclass(frozen=True)
class PageGlance:
    """A stored page of a queue."""

    page: int
    #: The first message that was not tried yet.
    first: int
    messages: int
    size: int
    #: Those of them that wait for a person.
    kept: int
    #: `head` (serviced next), `waiting`, or `stale` (behind the window, for what is set aside).
    state: str


class Glancing(Accounting):
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

    def block_glances(self, before: int | None = None, limit: int = 50) -> list[BlockGlance]:
        """Blocks with what they were planned for and came to, the latest first; go on before the last one."""
        check_number(limit, "a limit")
        top = LATEST if before is None else check_number(before, "a block")
        with self.store.reading() as unit:
            rows = unit.rows("blocks", ring=self.ring_id, state=-1, before=top, limit=limit)
            blocks = [BlockRow(*row) for row in rows]
            pages = {}
            if blocks:
                first = blocks[-1].id
                found = unit.rows("ledger", ring=self.ring_id, before=blocks[0].id + 1, first=first, limit=limit)
                pages = {id_: codec.unpack_ledger(bytes(data)) for id_, _, data in found}
        return [_block(one, pages.get(one.id, ())) for one in blocks]

    def page_glances(self, origin: str, priority: str = REGULAR, limit: int = 100) -> list[PageGlance]:
        """The first stored pages of a queue, those behind the window first; what no page holds yet is not told."""
        name = book_name(check_origin(origin), check_priority(priority))
        check_number(limit, "a limit")
        with self._looking() as (unit, shelf):
            begin = shelf.book(name).begin
            pages = [page_of(row) for row in unit.pages(self.ring_id, [(name, 0, LATEST)], limit)]
        found, head = [], next((page.index for page in pages if page.index >= begin), None)
        for page in pages:
            state = "stale" if page.index < begin else "head" if page.index == head else "waiting"
            kept = sum(1 for mark in page.marks if mark == ASIDE)
            found.append(PageGlance(page.index, page.first_index, page.remaining, page.remaining_size, kept, state))
        return found

    def settings_of(self, origin: str) -> Standing:
        """How an origin is served, with the ring's defaults where nothing is set for it."""
        with self._looking() as (_, shelf):
            found = shelf.book(check_origin(origin)).standing
            return replace(found, ordered=shelf.config.ordered if found.ordered is None else found.ordered)

    def recent_events(
        self, before: int | None = None, limit: int = 100, *, origin: str | None = None, name: str | None = None
    ) -> tuple[list[Event], int | None]:
        """What became of messages, the latest first, and where to go on: before this `seq`; nothing at the end.

        :param name: only those of this name, as far as they are found among some thousand rows: there may be more
            of them where it says so, though none was found.
        """
        check_number(limit, "a limit")
        if origin is not None:
            check_origin(origin)
        top = LATEST if before is None else check_number(before, "an event")
        row_id = (top >> SEQ_BITS) + 1
        found: list[Event] = []
        for _ in range(EVENT_READS):
            rows = self._event_rows(row_id, origin)
            for row_id, whose, block, at, data in rows:
                for event in reversed(list(_events_of(row_id, whose, block, at, data))):
                    if event.seq >= top or (name and event.name != name):
                        continue
                    if len(found) == limit:
                        return found, found[-1].seq
                    found.append(event)
            if len(rows) < EVENT_ROWS:
                return found, None
        return found, row_id << SEQ_BITS

    def _event_rows(self, before: int, origin: str | None) -> list[Any]:
        values = {"ring": self.ring_id, "before": before, "limit": EVENT_ROWS}
        with self.store.loose() as unit:
            if origin is None:
                return unit.rows("recent_events", **values)
            rows = unit.rows_for("recent_events_of", {"origin": list(books_of(origin))}, **values)
        return sorted(rows, reverse=True)[:EVENT_ROWS]

    def count_set_aside(self, most: int = 10_000) -> int:
        """How many messages are set aside, of at most so many; what was swept is not counted."""
        with self.store.loose() as unit:
            return int(unit.rows("count_asides", ring=self.ring_id, limit=check_number(most, "a limit"))[0][0])

    def most_of_a_message(self) -> Weight | None:
        """What a full block leaves for a message; nothing, where each call says its own limit."""
        return None if self.config.service_weight is None else self.config.max_message_weight or ZERO

    def has_many_news(self, most: int = 500) -> bool:
        """Whether more queues than that have mail which no block has looked at: to meet them all takes long."""
        with self.store.loose() as unit:
            after = unit.only("floors", ring=self.ring_id)[1] - 1
            news = unit.rows("first_news", ring=self.ring_id, after=after, limit=10 * most)
        return len({name for name, _ in news}) > most

    def shares(self, blocks: int = 20) -> tuple[int | None, Mapping[tuple[str, str], Received]]:
        """What the ledger says of the latest blocks: the latest one, and what each queue got of all, and was promised.

        Of those that a block came to; `fairness` looks at those that wait, too.
        """
        check_number(blocks, "a number of blocks")
        with self._looking() as (unit, shelf):
            rows = unit.rows("ledger", ring=self.ring_id, before=LATEST, first=0, limit=blocks)
            pages = [(at, codec.unpack_ledger(bytes(data))) for _, at, data in rows]
            since = shelf.now - int(LATELY * 1_000_000)
        found: dict[tuple[str, str], Received] = {}
        for at, page in pages:
            for entry in page:
                one = found.setdefault((entry.origin, entry.priority), Received())
                one.messages += entry.messages if at > since else 0
        told = self.fairness(blocks, most=0) if pages else None
        for its in told.origins if told is not None else ():
            one = found.setdefault((its.origin, its.priority), Received())
            one.promised, one.received = its.promised, its.received
        return (rows[0][0] if rows else None), found


def _events_of(row_id: int, whose: str, block: int | None, at: int, data: Any) -> Iterator[Event]:
    seq = row_id << SEQ_BITS
    for run in codec.unpack_events(whose, bytes(data)):
        yield from run.unroll(block, at / 1_000_000, seq)
        seq += len(run.ids)


def _block(row: BlockRow, entries: Sequence[Entry]) -> BlockGlance:
    said = row.details_json
    result = dict(said.get("result", {}))
    used = result.pop("weight", None)
    return BlockGlance(
        row.id, row.key, STATES[row.state], bool(row.by_hand), moment(row.planned_at),
        None if row.ended_at is None else moment(row.ended_at), moment(row.deadline), said["limit"],
        said["planned"].plus(said["overhead"]), None if used is None else Weight(int(used[0]), int(used[1])),
        said["messages"], str(said.get("by", "")), result, entries,
    )  # fmt: skip


def _with_high(shelf: SqlShelf, origins: Sequence[str]) -> list[str]:
    return [name for origin in origins for name in books_of(origin)] if shelf.config.high else list(origins)


def _from_the_head(unit: Unit, shelf: SqlShelf, most: int, ticket_floor: int, look_floor: int) -> list[str]:
    """The first queues of the ring: books by their tickets, and those with news by their first mail."""
    places = _high_places(unit, shelf, most) if shelf.config.high else {}
    for row in unit.ready_books(shelf.ring_id, max(ticket_floor, LEAST_REGULAR) - 1, most, shelf.now):
        places.setdefault(row.origin, (True, row.ticket or 0))
    for name, id_ in unit.rows("first_news", ring=shelf.ring_id, after=look_floor - 1, limit=NEWS):
        if not is_high(name) and len(places) < 3 * most:
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
