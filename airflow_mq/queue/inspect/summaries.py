"""Glances: how queues, blocks and pages stand, from reads that are bounded however much waits.

A summary adds up books and a bounded number of inbox rows of each queue, and marks queues that have more; `footprint`
is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...core.priority import origin_of, priority_of
from ...store import codec
from ...store.rows import PLANNED
from ...store.unit import Unit
from ...store.working_set import StoredSet
from ..blocks.block import Block, block_of
from ..values import moment
from .waiting import first_row_id

#: How many inbox rows of a queue a glance adds up.
MOST_ROWS = 1_000
#: Living blocks that are looked at.
_LIVING = 1_000
#: Seconds over which the page tells rates.
LATELY = 600.0


@dataclass(frozen=True)
class QueueState:
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
    skipped: str
    wakes_at: datetime | None
    share: int
    #: Messages that came lately and are still there, where that was asked for.
    lately: int

    @property
    def ready(self) -> int:
        """Messages that a block may take."""
        return max(self.messages - self.in_flight - self.set_aside, 0)

    @property
    def in_ring(self) -> bool:
        """Whether it has a turn: not all of it waits for a person."""
        return self.messages > self.set_aside

    @property
    def paused(self) -> bool:
        """Whether it is paused, by itself or with a group that holds it."""
        return self.skipped == "paused"


@dataclass(frozen=True)
class PageState:
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


def queues_of(
    unit: Unit, working_set: StoredSet, names: Sequence[str], *, lately: float = 0.0, most: int | None = None,
    exact: bool = False,
) -> list[QueueState]:  # fmt: skip
    """How these books stand; those of which nothing is left are left out.

    :param lately: seconds within which messages count as new.
    :param most: how many inbox rows of a queue are added up.
    :param exact: tell when the first message was sent that still waits, not the first of its page.
    """
    most = MOST_ROWS if most is None else most
    working_set.loader.load_books(names)
    books = [(name, working_set.stored[name].cut.floor, working_set.book(name).begin) for name in names]
    latest, since = MOST_ROWS if lately else 0, working_set.now - int(lately * 1_000_000)
    rows = unit.books.depths(working_set.ring_id, books, most=most, latest=latest, since=since)
    held, first = _held(unit, working_set.ring_id, names), _first_sent(unit, working_set, names) if exact else {}
    found = []
    for name, row_count, items, size, oldest, new, kept in rows:
        book, ahead = working_set.book(name), working_set.stored[name].cut.ahead
        for _, its_items, its_size in facts(unit, working_set.ring_id, sorted(ahead)):
            items, size = items - its_items, size - its_size
        if book.message_count + items <= 0:
            continue
        sent, wakes = first.get(name, oldest), working_set.stored[name].row.wake_at
        found.append(QueueState(
            origin_of(name), priority_of(name), book.message_count + items, book.size + size, row_count == most,
            held.get(name, 0), kept, None if sent is None else moment(sent), book.skipped,
            moment(wakes) if book.skipped == "backoff" else None, book.standing.share, new,
        ))  # fmt: skip
    return found


def _first_sent(unit: Unit, working_set: StoredSet, names: Sequence[str]) -> dict[str, int]:
    """When the first message was sent that waits in a page of these books."""
    books = [working_set.book(name) for name in names]
    working_set.loader.pages.fetch((book.origin, book.begin) for book in books if book.is_ready)
    first = {book.origin: first_row_id(working_set, book) for book in books if book.is_ready}
    known = {name: id_ for name, id_ in first.items() if id_ is not None}
    sent = unit.inbox.sent_at(working_set.ring_id, list(known.items()))
    return {name: sent[id_] for name, id_ in known.items() if id_ in sent}


def _held(unit: Unit, ring: int, names: Sequence[str]) -> dict[str, int]:
    """How much of each book live blocks hold."""
    found: dict[str, int] = {}
    for name, data in unit.blocks.claims_on(ring, names):
        found[name] = found.get(name, 0) + codec.unpack_claim(name, bytes(data)).messages
    return found


def facts(unit: Unit, ring: int, ids: Sequence[int]) -> list[Any]:
    """Of inbox rows that lie in pages already, though they are counted as new: id, messages, bytes."""
    return unit.inbox.facts(ring, ids)


def living(unit: Unit, ring: int) -> list[Block]:
    """The blocks that hold messages."""
    return [block_of(row) for row in unit.blocks.latest(ring, PLANNED, limit=_LIVING)]
