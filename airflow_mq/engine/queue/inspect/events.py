"""Events of a ring, forwards and backwards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain

from ...rules.events import Event, EventRun
from ...rules.message import Address
from ...rules.priority import HIGH, book_name, books_of
from ...store import codec
from ...store.events import EventRow
from ...store.rows import LATEST
from ...store.unit import Unit
from ..session import RingSession

#: An event's place in its row takes this many bits of its `seq`.
SEQ_BITS = 16
#: Rows that are read at once, and the number of reads of a bounded search.
ROWS, READS = 256, 20


def runs_of(row: EventRow) -> Iterator[EventRun]:
    """Yield the runs of a row."""
    return codec.unpack_events(row.origin, bytes(row.data))


def events_of(row: EventRow) -> Iterator[Event]:
    """Yield the events of a row."""
    seq = row.id << SEQ_BITS
    for run in runs_of(row):
        yield from run.unroll(row.block, row.at / 1_000_000, seq)
        seq += len(run.ids)


def events_after(
    session: RingSession, after: int, *, origin: str | None, block: int | None, follow: bool
) -> Iterator[Event]:
    """Yield events with a larger `seq`, in order; with `follow`, without end."""
    high = None if origin is None else book_name(origin, HIGH)
    row_id = (after >> SEQ_BITS) - 1
    while True:
        with session.store.reading() as unit:
            rows = unit.events.after(session.ring_id, row_id, ROWS, origin=origin, also=high, block=block)
        yield from (event for event in chain.from_iterable(map(events_of, rows)) if event.seq > after)
        if rows:
            row_id = rows[-1].id
        if len(rows) < ROWS:
            if not follow:
                return
            time.sleep(0.5)


def latest_events(
    unit: Unit, ring: int, before: int, limit: int, *, origin: str | None = None, name: str | None = None
) -> tuple[list[Event], int | None]:
    """Return events before a `seq`, latest first, and the `seq` before which to continue."""
    row_id = (before >> SEQ_BITS) + 1
    found: list[Event] = []
    # Each row has at least one event.
    most = ROWS if name else min(ROWS, limit + 1)
    for _ in range(READS):
        if origin is None:
            rows = unit.events.recent(ring, row_id, most)
        else:
            rows = unit.events.recent_of(ring, books_of(origin), row_id, most)
        for row in rows:
            for event in reversed(list(events_of(row))):
                if event.seq >= before or (name and event.name != name):
                    continue
                if len(found) == limit:
                    return found, found[-1].seq
                found.append(event)
            row_id = row.id
        if len(rows) < most:
            return found, None
    return found, row_id << SEQ_BITS


def last_event(unit: Unit, ring: int, address: Address) -> Event | None:
    """Return the last event of a message, by one walk over the rows of its queue."""
    row_id = LATEST
    while rows := unit.events.recent_of(ring, [address.book], row_id, ROWS):
        for row in rows:
            row_id = row.id
            if any(run.page == address.page and 0 <= address.index - run.first < len(run.ids) for run in runs_of(row)):
                return next(event for event in reversed(list(events_of(row))) if event.address == address)
    return None
