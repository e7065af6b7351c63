"""Repositories of events, packed so that neighbours of one queue share a row, and of the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..rules.events import EventRun
from . import codec
from .blocks import Blocks
from .primitives import Repository, columns
from .rows import LATEST

#: The most events of one queue in a row.
EVENTS_PER_ROW = 4096


class EventRow(NamedTuple):
    """Packed events of a queue."""

    id: int
    origin: str
    block: int | None
    at: int
    data: bytes


class Events(Repository):
    """Events of a ring."""

    __slots__ = ()

    def save(self, ring: int, runs: Iterable[EventRun], now: int, block: int | None = None) -> None:
        """Write events in order."""
        rows = [(origin, count, codec.pack_events(together)) for origin, count, together in _together(runs)]
        wanted = columns(("origin", "events", "data"), rows)
        if rows and self.unit.draws_ids:
            wanted = {"id": self.unit.fresh_ids(len(rows)), **wanted}
        self.unit.put("insert_event", wanted, ring=ring, at=now, block=block)

    def after(
        self, ring: int, after: int, limit: int, *, origin: str | None = None, also: str | None = None,
        block: int | None = None,
    ) -> list[EventRow]:  # fmt: skip
        """Return events after an id in order: of all queues, or of `origin` and `also`; of one block if given."""
        rows = self.unit.rows("events", ring=ring, after=after, origin=origin, high=also, block=block, limit=limit)
        return [EventRow(*row) for row in rows]

    def first_since(self, ring: int, since: int) -> int | None:
        """Return the id of the first event since a time."""
        rows = self.unit.rows("first_event", ring=ring, since=since)
        return rows[0][0] if rows else None

    def recent(self, ring: int, before: int, limit: int) -> list[EventRow]:
        """Return events of all queues before an id, the latest first."""
        return [EventRow(*row) for row in self.unit.rows("recent_events", ring=ring, before=before, limit=limit)]

    def recent_of(self, ring: int, origins: Sequence[str], before: int, limit: int) -> list[EventRow]:
        """Return events of these queues before an id, the latest first, at most `limit` in all."""
        rows = self.unit.rows("recent_events_of", {"origin": origins}, ring=ring, before=before, limit=limit)
        return sorted((EventRow(*row) for row in rows), reverse=True)[:limit]


def _together(runs: Iterable[EventRun]) -> list[tuple[str, int, list[EventRun]]]:
    """Return neighbouring runs of one queue together, with the number of their events."""
    rows: list[tuple[str, int, list[EventRun]]] = []
    for run in (part for whole in runs for part in whole.split(EVENTS_PER_ROW)):
        if rows and rows[-1][0] == run.origin and rows[-1][1] + len(run.ids) <= EVENTS_PER_ROW:
            origin, count, together = rows[-1]
            together.append(run)
            rows[-1] = (origin, count + len(run.ids), together)
        else:
            rows.append((run.origin, len(run.ids), [run]))
    return rows


class LedgerRow(NamedTuple):
    """The entry of a block in the ledger."""

    block: int
    at: int
    data: bytes
    id: int


class Ledger(Repository):
    """The ledger of a ring."""

    __slots__ = ()

    def insert(self, ring: int, block: int, id_: int, data: bytes, now: int) -> None:
        """Write the entry of a block."""
        self.unit.put("insert_ledger", columns(("block", "id", "data"), [(block, id_, data)]), ring=ring, at=now)

    def insert_round(self, ring: int, data: bytes, now: int) -> None:
        """Count a round of service as a block, and write its entry; requires the ring lock."""
        if self.unit.draws_ids:
            id_ = self.unit.fresh_ids(1)[0]
            self.insert(ring, Blocks(self.unit).next_number(ring, id_), id_, data, now)
        else:
            self.unit.put("insert_round", ring=ring, data=data, at=now)

    def latest(
        self, ring: int, limit: int, first: int = 0, before: int = LATEST, *, most: int = (1 << 31) - 1
    ) -> list[LedgerRow]:
        """Return entries from block `first` to before block `before`, the latest first, up to `most` bytes of each."""
        rows = self.unit.rows("ledger", ring=ring, before=before, first=first, limit=limit, bytes=most)
        # SQLite returns null for a part of no bytes.
        return [LedgerRow(block, at, bytes(data or b""), id_) for block, at, data, id_ in rows]

    def heads(self, ring: int, limit: int) -> list[LedgerRow]:
        """Return the beginnings of the latest entries, which name the process that serviced the ring."""
        return self.latest(ring, limit, most=16_384)
