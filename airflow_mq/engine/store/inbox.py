"""Repositories of inbox rows and of idempotency keys.

An inbox row holds stored messages that wait to be cut into pages, or are delayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

from ..rules.priority import PAST_ALL
from .primitives import Repository, columns
from .rows import (
    LATEST,
    Arrival,
    FirstWaiting,
    InboxRow,
    PlainRow,
)

#: From so many rows of a queue on, a range of ids is read.
MANY_ROWS = 8
#: Columns of delayed rows.
_DELAYED = "id", "due", "origin", "size", "items", "more", "lengths", "attributes", "heap", "sent_at"
#: Rows and bytes that one lock of a ring moves from the delayed messages into their queues.
MOST_DUE = {"most": 50_000, "most_size": 128 << 20}
#: Rows and bytes that one statement writes.
PARCEL_ROWS, PARCEL_BYTES = 1_024, 8 << 20


#: Ids of inbox rows by queue, in ascending order.
RowIds: TypeAlias = "Mapping[str, Sequence[int]]"


class StoredBytes(NamedTuple):
    """The place of a message's bytes in an inbox row."""

    from_ring: int
    from_origin: str
    from_id: int
    start: int
    size: int


class RowRange(NamedTuple):
    """All rows of a queue from one id to another, and how many there are."""

    origin: str
    first: int
    last: int
    rows: int


class Inbox(Repository):
    """Inbox rows of a ring."""

    __slots__ = ()

    # Rows of known queues.

    def after(self, ring: int, requests: Sequence[tuple[str, int]], limit: int, inline: int = 0) -> list[PlainRow]:
        """Return for each request (origin, id) the rows after that id, at most `limit`, with bytes up to a size."""
        return self._ranges(ring, [RowRange(origin, after + 1, LATEST, limit) for origin, after in requests], inline)

    def ids_between(
        self, ring: int, requests: Sequence[tuple[str, int, int]]
    ) -> Callable[[], list[tuple[str, list[int]]]]:
        """Request the ids of the rows of each request (origin, first, below)."""
        rows = self.unit.soon("inbox_between", columns(("origin", "first", "below"), requests), ring=ring)
        return lambda: [(origin, _numbers(ids)) for origin, ids in rows() if ids]

    def heaps(self, ring: int, wanted: RowIds) -> list[PlainRow]:
        """Return rows with their bytes."""
        return self._by_id(ring, wanted, inline=LATEST)

    def delayed_heaps(self, ids: Sequence[int]) -> list[PlainRow]:
        """Return delayed rows with their bytes."""
        return self.unit.rows("delayed_heaps", {"id": ids})

    def heads(self, ring: int, wanted: RowIds) -> list[InboxRow]:
        """Return rows without their bytes."""
        return list(map(InboxRow._make, self._by_id(ring, wanted, with_times=True)))

    def _ranges(
        self, ring: int, ranges: Sequence[RowRange], inline: int = 0, *, with_times: bool = False
    ) -> list[PlainRow]:
        """Return the first rows of ranges, with bytes up to a size, or without any, and with times if wanted."""
        asked = columns(RowRange._fields, ranges)
        if inline:
            return self.unit.rows("inbox_rows", asked, ring=ring, inline=inline)
        return self.unit.rows("inbox_heads", asked, ring=ring, with_times=with_times)

    def _by_id(self, ring: int, wanted: RowIds, inline: int = 0, *, with_times: bool = False) -> list[PlainRow]:
        """Return rows by id: read by a range of ids of each queue of which many are wanted.

        A range returns at most as many rows as are wanted of it, so other rows among them cost little.
        """
        ranges: list[RowRange] = []
        for origin, own in wanted.items():
            if len(own) >= MANY_ROWS:
                ranges.append(RowRange(origin, own[0], own[-1], len(own)))
            else:
                ranges += [RowRange(origin, id_, id_, 1) for id_ in own]
        rows = self._ranges(ring, ranges, inline, with_times=with_times)
        ids = list(chain.from_iterable(wanted.values()))
        if [row[1] for row in rows] == ids:
            return rows
        missing = set(ids)
        found = [row for row in rows if row[1] in missing]
        missing.difference_update(row[1] for row in found)
        left = [RowRange(origin, id_, id_, 1) for origin, own in wanted.items() for id_ in own if id_ in missing]
        return found + self._ranges(ring, left, inline, with_times=with_times)

    def arrivals(self, ring: int, keys: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Arrival]:
        """Return when rows were sent, and the first block planned after each."""
        wanted: dict[str, list[int]] = {}
        for origin, id_ in sorted(set(keys)):
            wanted.setdefault(origin, []).append(id_)
        rows = self.heads(ring, wanted)
        blocks = dict(self.unit.rows("first_blocks", {"id": [row.id for row in rows]}, ring=ring))
        return {(row.origin, row.id): Arrival(row.sent_at, blocks[row.id]) for row in rows}

    def still_stored(self, ring: int, origin: str, ids: Iterable[int]) -> set[int]:
        """Return which rows of a queue exist. A look-up by id visits no deleted row between them."""
        return {row[1] for row in self._ranges(ring, [RowRange(origin, id_, id_, 1) for id_ in ids])}

    # Rows of all queues.

    def uncut(self, ring: int, after: int, limit: int) -> list[InboxRow]:
        """Return rows of all queues in order of ids; some may lie in pages already."""
        return [InboxRow(*row) for row in self.unit.rows("uncut", ring=ring, after=after, limit=limit)]

    def first_waiting(self, ring: int, limit: int, now: int) -> list[FirstWaiting]:
        """Return the first row of each queue that is not ready, of the first `limit` ones by name."""
        return self.unit.rows("first_inbox_rows", ring=ring, limit=limit, now=now)

    def pulse(self, ring: int) -> tuple[int, int, int | None]:
        """Return the newest row, when a message was last set aside, and when the first delayed row is due."""
        newest, set_aside, due = self.unit.rows("pulse", ring=ring)[0]
        return newest, set_aside, due

    def with_blobs(self, ring: int) -> list[tuple[str, int, bytes, bool]]:
        """Return origin, id and attributes of rows that refer to external payloads, and whether they are delayed."""
        return self.unit.rows("blob_rows", ring=ring)

    # Writes.

    def insert(self, ring: int, rows: Iterable[InboxRow]) -> None:
        """Write single messages under ids drawn before; they keep their time of sending, if it is known."""
        names = ("id", "origin", "size", "attributes", "heap", "sent_at")
        requests = [(row.id, row.origin, row.size, row.attributes, row.heap, row.sent_at or None) for row in rows]
        self.unit.put("insert_posted", columns(names, requests), ring=ring)

    def insert_copy(self, ring: int, origin: str, attributes: bytes, source: StoredBytes) -> None:
        """Write a message whose bytes the database copies from another row; no payload leaves the database."""
        given = {"id": self.unit.fresh_ids(1)[0], "origin": origin, "attributes": attributes}
        self.unit.run("insert_copy", ring=ring, **given, **source._asdict())

    def delay(self, ring: int, rows: Iterable[InboxRow], due: int) -> None:
        """Write rows that join their queues at a time."""
        for parcel in parcels(rows):
            ids = self.unit.fresh_ids(len(parcel))
            self.put_off(ring, [(due, row._replace(id=id_)) for id_, row in zip(ids, parcel)])

    def put_off(self, ring: int, rows: Iterable[tuple[int, InboxRow]]) -> None:
        """Write rows that join their queues at a time, under ids drawn before; with the time of sending, if known."""
        requests = [(row.id, due, row.origin, *row[2:8], row.sent_at or None) for due, row in rows]
        self.unit.put("insert_delayed", columns(_DELAYED, requests), ring=ring)

    def end_waits(self, ring: int, origin: str, now: int) -> int:
        """Let the messages of a queue that wait aside join it now; return their number. Requires the ring lock."""
        return self.unit.run("end_waits", ring=ring, origin=origin, now=now)

    def delete(self, ring: int, keys: Iterable[tuple[str, int, int | None]]) -> None:
        """Delete rows that lay within a page, given without it, or at the edge of a page, unless others need them."""
        self.unit.put("delete_inbox_rows", columns(("origin", "id", "page"), keys), ring=ring)

    def delete_ranges(self, ring: int, ranges: Sequence[RowRange]) -> Callable[[], bool]:
        """Request to delete ranges of rows; the answer is false if any was kept: it holds other rows, or fewer."""
        count = self.unit.put("delete_range", columns(RowRange._fields, ranges), ring=ring)
        return lambda: count() == sum(one.rows for one in ranges)

    # Delayed rows.

    def due(self, ring: int, now: int) -> list[InboxRow]:
        """Return the due rows that the next lock of the ring moves into their queues, without bytes."""
        rows, earlier = list[InboxRow](), 0
        for _, row in self.delayed(ring, -LATEST, 0, MOST_DUE["most"], until=now):
            if earlier >= MOST_DUE["most_size"]:
                break
            rows.append(row)
            earlier += row.size
        return rows

    def due_of(self, ring: int, origins: Sequence[str], now: int) -> list[InboxRow]:
        """Return due rows of these queues, without bytes."""
        return [InboxRow(*row) for row in self.unit.rows("due_rows", {"origin": origins}, ring=ring, now=now)]

    def delayed(
        self, ring: int, due: int, after: int, limit: int, *, until: int = LATEST
    ) -> list[tuple[int, InboxRow]]:
        """Return delayed rows after a due time and an id, and due by another time, with the due time of each."""
        rows = self.unit.rows("delayed", ring=ring, due=due, after=after, until=until, limit=limit)
        return [(due, InboxRow(*row)) for due, *row in rows]

    def delayed_of(self, ring: int, origin: str | None, now: int) -> tuple[int, int | None]:
        """Return the number of delayed messages of a queue, or of all, and when the first is due after `now`."""
        first, last = ("", PAST_ALL) if origin is None else (origin, origin)
        count, due = self.unit.rows("delayed_of", ring=ring, first=first, last=last, now=now)[0]
        return count, due


def parcels(rows: Iterable[InboxRow]) -> Iterator[list[InboxRow]]:
    """Divide rows into lists that one statement writes each."""
    parcel, size = list[InboxRow](), 0
    for row in rows:
        if len(parcel) == PARCEL_ROWS or (parcel and size + row.size > PARCEL_BYTES):
            yield parcel
            parcel, size = [], 0
        parcel.append(row)
        size += row.size
    if parcel:
        yield parcel


def _numbers(ids: str | list[int]) -> list[int]:
    """Return ids that a database returns as an array, or as text with commas."""
    return [int(id_) for id_ in ids.split(",")] if isinstance(ids, str) else ids


class Keys(Repository):
    """Idempotency keys of a ring."""

    __slots__ = ()

    def claim(self, ring: int, key: str, origin: str, digest: bytes, now: int, window: int) -> bool:
        """Claim a key of an origin; return whether it was not used within the window."""
        values = {"key": key, "origin": origin, "digest": digest}
        return bool(self.unit.run("claim_key", ring=ring, now=now, window=window, **values))

    def used(self, ring: int, origin: str, first: str, last: str, since: int = -LATEST) -> list[tuple[str, bytes]]:
        """Return the keys of an origin in a range that were used after a time, and the digests of what they sent."""
        rows = self.unit.rows("used_keys", ring=ring, origin=origin, first=first, last=last, since=since)
        return [(key, bytes(digest)) for key, digest in rows]
