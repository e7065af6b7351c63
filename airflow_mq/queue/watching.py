"""Looking at a ring again and again: who stands where, what blocks did, who waits longest, and how quickly it moves.

A look is cheap however many origins there are: of the ring it reads as far as somebody sees, and the sums over all of
it only as often as they are quick to make.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, islice
from typing import Any

from ..core.book import Book
from ..core.groups import is_below
from ..core.message import check_number, check_text
from ..core.priority import HIGH, book_name, books_of, is_high, origin_of, priority_of
from ..core.weight import Weight
from ..store import codec
from ..store.rows import BlockRow
from ..store.shelf import SqlShelf
from ..store.unit import Unit
from .accounting import first_mail
from .base import QueueBase
from .blocks import STATES
from .planning import PLANNED
from .reading import origins_from
from .story import ENDS
from .values import moment

#: In which order queues are shown: as their turns come, by how much they hold, by how long they wait, by name.
SORTS = ("turn", "backlog", "oldest", "name")
#: How many mails one look goes through for those that have no place in the ring yet, and in how many steps.
_NEWS, _NEWS_STEPS = 5_000, 8
#: Of so many mails of one queue that lie in no page yet, nobody counts the rest.
_MOST_MAILS = 20_000
#: So many rows of events are read at one look; rates are told over so many microseconds.
_EVENT_ROWS, _EVENT_STEPS = 512, 20
_SPAN = 60_000_000
#: Sums over a whole ring are made again after so many times what they took the last time.
_REST = 10.0


@dataclass(frozen=True)
class Turn:
    """A queue, as it stands in the ring."""

    origin: str
    priority: str
    #: What is stored of it, in flight and set aside included.
    messages: int
    bytes: int
    #: Whether there are more, which nobody counted.
    more: bool
    #: How many of them a living block holds.
    in_flight: int
    paused: bool
    #: When the first message that waits was sent.
    oldest: datetime | None


@dataclass(frozen=True)
class Totals:
    """Sums over a ring."""

    #: Queues that have something to service.
    ready: int
    waiting: int
    bytes: int
    in_flight: int
    set_aside: int
    #: Sent for later, or waiting for another try.
    delayed: int


@dataclass(frozen=True)
class BlockLook:
    """What a block may cost, and what it costs."""

    id: int
    key: str | None
    #: `planned`, `settled`, `released`, or `overdue`.
    state: str
    by_hand: bool
    planned_at: datetime
    ended_at: datetime | None
    limit: Weight
    #: What it used; of one that lives, what it is planned to use.
    used: Weight
    messages: int
    #: Of one that ended: how many were processed, failed, went back, were set aside.
    processed: int = 0
    failed: int = 0
    went_back: int = 0
    set_aside: int = 0


@dataclass(frozen=True)
class Look:
    """A ring at one moment."""

    at: datetime
    ring: str
    order: str
    limit: Weight | None
    #: The queues, the head first, or in the order that was asked for.
    turns: Sequence[Turn]
    #: Those that wait longest, the longest first.
    waits: Sequence[Turn]
    blocks: Sequence[BlockLook]
    paused: int
    totals: Totals | None
    #: Messages a second; what goes out is processed, failed, discarded, expired or handed on.
    rate_in: float | None
    rate_out: float | None

    @property
    def oldest(self) -> datetime | None:
        """When the message was sent that waits longest."""
        return self.waits[0].oldest if self.waits else None


@dataclass(frozen=True)
class _Uncut:
    """What a queue has in no page yet."""

    messages: int = 0
    bytes: int = 0
    first: int | None = None
    more: bool = False


@dataclass
class _Rates:
    """How many messages came to their end, and how many were stored, over time."""

    last_event: int = -1
    ended: int = 0
    ends: deque[tuple[int, int]] = field(default_factory=deque)
    #: Of looks that counted everything: when, how many were stored, and how many had ended.
    counts: deque[tuple[int, int, int]] = field(default_factory=deque)

    def rate_out(self, now: int) -> float:
        while self.ends and self.ends[0][0] < now - _SPAN:
            self.ends.popleft()
        return sum(count for _, count in self.ends) * 1e6 / _SPAN

    def rate_in(self, now: int) -> float | None:
        while len(self.counts) > 2 and self.counts[1][0] < now - _SPAN:
            self.counts.popleft()
        if len(self.counts) < 2 or self.counts[-1][0] <= self.counts[0][0]:
            return None
        (began, stored, ended), (until, stored_now, ended_now) = self.counts[0], self.counts[-1]
        return max(0.0, (stored_now - stored + ended_now - ended) * 1e6 / (until - began))


class Watcher:
    """Looks at one ring, and remembers enough of the last looks to tell how quickly it moves."""

    def __init__(self, queue: QueueBase) -> None:
        self.queue = queue
        self._totals: Totals | None = None
        self._cost, self._counted_at = 0.0, float("-inf")
        self._rates = _Rates()

    def look(
        self, limit: int = 50, *, search: str = "", sort: str = "turn", blocks: int = 10, waits: int = 10,
        totals: bool = True,
    ) -> Look:  # fmt: skip
        """See how the ring stands.

        :param limit: how many queues.
        :param search: only queues whose name holds this.
        :param sort: in which order, one of `SORTS`.
        :param blocks: how many of the latest blocks.
        :param waits: how many of those that wait longest.
        :param totals: with the sums over the whole ring; those of the last time, where it is too early to count again.
        """
        check_number(limit, "a limit")
        check_text(search, "what to search for")
        queue = self.queue
        with queue._looking() as (unit, shelf):
            now = shelf.now
            pauses = unit.rows("paused", ring=queue.ring_id, now=now)
            live, held = self._held(unit)
            teller = _Teller(unit, shelf, held, {row[0] for row in pauses}, [row[0] for row in pauses if row[5]])
            named = teller.turns(self._names(unit, shelf, limit, search, sort))
            longest = sorted(
                (one for one in teller.turns(_longest(unit, shelf, waits + len(pauses), search)) if one.oldest),
                key=lambda one: (one.oldest, one.origin),
            )
            self._hear(unit, now)
            if totals and time.monotonic() - self._counted_at >= _REST * self._cost:
                self._count(unit, now, live)
            last = [_block(BlockRow(*row), now) for row in self._blocks(unit, blocks)]
            config = shelf.config
            return Look(
                moment(now), queue.ring, config.order, config.service_weight, named, longest[:waits], last,
                len(pauses), self._totals, self._rates.rate_in(now), self._rates.rate_out(now),
            )  # fmt: skip

    # Who.

    def _names(self, unit: Unit, shelf: SqlShelf, limit: int, search: str, sort: str) -> list[str]:
        ring = self.queue.ring_id
        if sort == "backlog":
            return [row[0] for row in unit.rows("backlog", ring=ring, text=search, limit=limit)]
        if sort == "oldest":
            return _longest(unit, shelf, limit, search)
        if sort == "name":
            return _by_name(unit, shelf, limit, search)
        if shelf.config.paths and not search:
            circles = [shelf.high, shelf.ring] if shelf.config.high else [shelf.ring]
            return list(islice(chain.from_iterable(circles), limit))
        return _in_turn(unit, shelf, limit, search)

    def _held(self, unit: Unit) -> tuple[int, dict[str, int]]:
        """What living blocks hold: in all, and by the names of books."""
        found: dict[str, int] = {}
        for row in unit.rows("blocks", ring=self.queue.ring_id, state=PLANNED, before=1 << 62, limit=1_000):
            block = BlockRow(*row)
            for name, data in () if block.by_hand else unit.rows("claims", block=block.id):
                found[name] = found.get(name, 0) + codec.unpack_claim(name, bytes(data)).messages
        return sum(found.values()), found

    def _blocks(self, unit: Unit, limit: int) -> list[Any]:
        return unit.rows("blocks", ring=self.queue.ring_id, state=-1, before=1 << 62, limit=limit)

    # How much, and how quickly.

    def _count(self, unit: Unit, now: int, in_flight: int) -> None:
        began = time.monotonic()
        ring = self.queue.ring_id
        ready, messages, size, origins, fresh, fresh_size, kept, delayed = unit.rows("ring_totals", ring=ring)[0]
        ahead = [id_ for (data,) in unit.rows("books_ahead", ring=ring) for id_ in codec.unpack_numbers(data)[0]]
        for _, items, its_size in _facts(unit, ring, ahead):
            fresh, fresh_size = fresh - items, fresh_size - its_size
        stored = messages + fresh
        waiting = max(0, stored - kept - in_flight)
        self._totals = Totals(ready + origins, waiting, size + fresh_size, in_flight, kept, delayed)
        self._rates.counts.append((now, stored + delayed, self._rates.ended))
        self._counted_at = time.monotonic()
        self._cost = self._counted_at - began

    def _hear(self, unit: Unit, now: int) -> None:
        """Take note of messages that came to their end since the last look."""
        rates, ring = self._rates, self.queue.ring_id
        if rates.last_event < 0:
            first = unit.rows("first_event", ring=ring, since=now - _SPAN)
            if not first:
                return
            rates.last_event = first[0][0] - 1
        for _ in range(_EVENT_STEPS):
            rows = unit.rows(
                "events", ring=ring, after=rates.last_event, origin=None, high=None, block=None, limit=_EVENT_ROWS
            )
            for id_, whose, _, at, data in rows:
                runs = codec.unpack_events(whose, bytes(data))
                count = sum(len(run.ids) for run in runs if run.fate in ENDS)
                rates.last_event, rates.ended = id_, rates.ended + count
                rates.ends.append((at, count))
            if len(rows) < _EVENT_ROWS:
                return


class _Teller:
    """Tells of queues what one sees of them."""

    def __init__(
        self, unit: Unit, shelf: SqlShelf, held: dict[str, int], paused: set[str], groups: Sequence[str]
    ) -> None:
        self.unit, self.shelf, self.held, self.paused, self.groups = unit, shelf, held, paused, groups
        self.told: dict[str, Turn] = {}

    def turns(self, names: Sequence[str]) -> list[Turn]:
        """One for each of these books."""
        fresh = [name for name in names if name not in self.told]
        self.told.update((name, turn) for name, turn in zip(fresh, self._turns(fresh)))
        return [self.told[name] for name in names]

    def _turns(self, names: Sequence[str]) -> list[Turn]:
        unit, shelf = self.unit, self.shelf
        shelf.load_books(names)
        uncut = self._uncut(names)
        shelf.fetch_pages((name, shelf.book(name).begin) for name in names if shelf.book(name).is_ready)
        first = {name: self._first(shelf.book(name), uncut[name]) for name in names}
        known = {name: id_ for name, id_ in first.items() if id_ is not None}
        sent: dict[int, int] = {}
        if known:
            columns: dict[str, Sequence[Any]] = {"origin": list(known), "id": list(known.values())}
            sent = dict(unit.rows_for("sent_at", columns, ring=shelf.ring_id))
        return [self._turn(name, uncut[name], sent.get(known.get(name, -1))) for name in names]

    def _turn(self, name: str, uncut: _Uncut, sent: int | None) -> Turn:
        book, origin = self.shelf.book(name), origin_of(name)
        paused = origin in self.paused or any(is_below(origin, group) for group in self.groups)
        return Turn(
            origin, priority_of(name), book.message_count + uncut.messages, book.size + uncut.bytes, uncut.more,
            self.held.get(name, 0), paused, None if sent is None else moment(sent),
        )  # fmt: skip

    def _first(self, book: Book, uncut: _Uncut) -> int | None:
        found = first_mail(self.shelf, book) if book.is_ready else None
        return uncut.first if found is None else found

    def _uncut(self, names: Sequence[str]) -> dict[str, _Uncut]:
        shelf, found = self.shelf, dict.fromkeys(names, _Uncut())
        if not names:
            return found
        asked: dict[str, Sequence[Any]] = {
            "origin": list(names),
            "floor": [shelf.origins[name].floor for name in names],
        }
        for name, items, size, first, mails in self.unit.rows_for(
            "uncut_of", asked, ring=shelf.ring_id, limit=_MOST_MAILS
        ):
            for _, its_items, its_size in _facts(self.unit, shelf.ring_id, sorted(shelf.origins[name].ahead)):
                items, size = items - its_items, size - its_size
            found[name] = _Uncut(max(0, items), max(0, size), first, mails == _MOST_MAILS)
        return found


def _facts(unit: Unit, ring: int, ids: Sequence[int]) -> list[Any]:
    """Of mails that lie in pages already, though they are counted as new: id, messages, bytes."""
    return unit.rows_for("mail_facts", {"id": ids}, ring=ring) if ids else []


def _in_turn(unit: Unit, shelf: SqlShelf, limit: int, search: str) -> list[str]:
    """Books by their tickets, and newcomers by their first mail: one counter gives out both."""
    ring = shelf.ring_id
    found = [(ticket, name) for name, ticket in unit.rows("turns", ring=ring, text=search, limit=limit)]
    below = found[-1][0] if len(found) == limit else None
    for id_, name in _newcomers(unit, ring, limit, search, below):
        # What was sent with a high priority comes before everything else.
        found.append((id_ - (1 << 62) if is_high(name) else id_, name))
    return [name for _, name in sorted(found)][:limit]


def _newcomers(unit: Unit, ring: int, limit: int, search: str = "", below: int | None = None) -> list[tuple[int, str]]:
    """Books that have no place in the ring yet, by their first mail; as far as a bounded look goes."""
    found: dict[str, int] = {}
    start = unit.only("floors", ring=ring)[1]
    for _ in range(_NEWS_STEPS):
        rows = unit.rows("newcomers", ring=ring, start=start, limit=_NEWS)
        for name, first, _ in rows:
            if first is not None and search in origin_of(name) and (below is None or first < below or is_high(name)):
                found[name] = min(first, found.get(name, first))
        start = max((row[2] for row in rows), default=0) + 1
        if not rows or len(found) >= limit or (below is not None and start > below):
            break
    return sorted((id_, name) for name, id_ in found.items())[:limit]


def _longest(unit: Unit, shelf: SqlShelf, limit: int, search: str) -> list[str]:
    """Books by the oldest mail that they may still wait with."""
    ring = shelf.ring_id
    found = [(id_, name) for name, id_ in unit.rows("oldest_books", ring=ring, text=search, limit=limit)]
    found += _newcomers(unit, ring, limit, search)
    return [name for _, name in sorted(found)][:limit]


def _by_name(unit: Unit, shelf: SqlShelf, limit: int, search: str) -> list[str]:
    if search:
        found = [row[0] for row in unit.rows("turns", ring=shelf.ring_id, text=search, limit=limit)]
        return sorted(found, key=lambda name: (origin_of(name), not is_high(name)))
    origins = origins_from(unit, shelf, "", "", limit)
    high = {name for _, name in _newcomers(unit, shelf.ring_id, limit)} if shelf.config.high else set()
    shelf.load_books(book_name(origin, HIGH) for origin in origins if shelf.config.high)
    return [
        name for origin in origins for name in books_of(origin)
        if not is_high(name) or (shelf.config.high and (name in high or shelf.book(name).message_count))
    ]  # fmt: skip


def _block(row: BlockRow, now: int) -> BlockLook:
    said = row.details_json
    result = said.get("result", {})
    state = "overdue" if row.state == PLANNED and row.deadline <= now else STATES[row.state]
    used = Weight(*result["weight"]) if "weight" in result else said["planned"].plus(said["overhead"])
    parts = {part: int(result.get(part, 0)) for part in ("processed", "failed", "went_back", "set_aside")}
    ended = None if row.ended_at is None else moment(row.ended_at)
    return BlockLook(
        row.id, row.key, state, bool(row.by_hand), moment(row.planned_at), ended, said["limit"], used,
        said["messages"], **parts,
    )  # fmt: skip
