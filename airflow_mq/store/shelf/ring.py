"""The ring, slice by slice: ready books by their tickets, and origins with news by their first mail."""

from __future__ import annotations

from collections.abc import Iterable

from ...core.priority import is_high
from .books import Books
from .memory import RING_SLICE
from .tickets import POSTED, ticket_of

#: Above so many ids since the last look, ask which origins have mail instead of reading it all.
LONG_LOOK = 20_000


class Slices(Books):
    """The part of a shelf that finds out who is ready."""

    def more_ready(self) -> list[str]:
        """The next stretch: books by their tickets, and origins with news by their first mail."""
        found: list[tuple[int, str]] = []
        while not found and not self.rest_done:
            rows = self.unit.ready_books(self.ring_id, self.ticket_cursor, RING_SLICE, self.now)
            mine = rows if self.patterns is None else [row for row in rows if self.takes(row.origin)]
            if len(mine) < len(rows) and self.least_skipped is None:
                self.least_skipped = next(row.ticket for row in rows if not self.takes(row.origin))
            self._load_standings(row.origin for row in mine)
            self.rest_done = len(rows) < RING_SLICE
            found = [(row.ticket or 0, self._load(row)) for row in mine]
            if rows:
                self.ticket_cursor = rows[-1].ticket or 0
            found += self._news(None if self.rest_done else self.ticket_cursor)
        if not found:
            found = self._news(None)
        return [origin for _, origin in sorted(found)]

    def more_high(self) -> list[str]:
        """The same of high books; all of their news at once: they come first, however late they were sent."""
        if self.high_done:
            return []
        rows = self.unit.ready_books(self.ring_id, self.high_cursor, RING_SLICE, self.now)
        high = [row for row in rows if is_high(row.origin)]
        found = [(row.ticket or 0, self._load(row)) for row in high]
        if len(high) == RING_SLICE:
            self.high_cursor = high[-1].ticket or 0
        else:
            self.high_done = True
            found += self._unready(self.unit.high_news(self.ring_id))
        return [origin for _, origin in sorted(found)]

    def line(self) -> list[tuple[str, int]]:
        """All ready origins in the ring's order, with their deficits, but for those in paused groups."""
        self.load_branches()
        rows = self.unit.line(self.ring_id)
        if self.config.high:
            rows = [row for row in rows if not is_high(row[1])]
        self.whole_line = rows
        fresh = self._news(None)
        for _, origin in fresh:
            self.ring.meet(origin)
        rows = sorted(rows + [(ticket, origin, self.books[origin].deficit) for ticket, origin in fresh])
        if self.paused_groups():
            rows = [row for row in rows if not self.is_paused_below(row[1])]
        return [(origin, deficit) for _, origin, deficit in rows]

    def _news(self, below: int | None) -> list[tuple[int, str]]:
        """Origins that were not ready and have mail, each at the place of its first one."""
        if below is not None and below <= self.look_cursor:
            return []
        last = self.unit.last_id
        if below is None and last - self.look_cursor > LONG_LOOK:
            rows = self.unit.news_by_origin(self.ring_id)
        else:
            rows = self.unit.news_by_id(self.ring_id, self.look_cursor, below if below is not None else POSTED)
        self.look_cursor = below if below is not None else last + 1
        self.look_floor = min(self.look_cursor, self.look_horizon)
        return self._unready(row for row in rows if not is_high(row[0]))

    def news_left(self) -> bool:
        """Whether origins that are not ready have mail that no look came to."""
        return bool(self.unit.news_by_id(self.ring_id, self.look_cursor, POSTED))

    def _unready(self, rows: Iterable[tuple[str, int]]) -> list[tuple[int, str]]:
        """Origins that are not ready and have mail: each enters its ring."""
        found = []
        fresh = [(id_, origin) for origin, id_ in rows if origin not in self.circle(origin)]
        self.load_books(origin for _, origin in fresh)
        for id_, origin in fresh:
            book, ring = self.book(origin), self.circle(origin)
            if origin not in ring.unknitted and (book.is_ready or self.pull(book)) and origin not in ring:
                found.append((self.tickets.get(origin, ticket_of(origin, id_)), origin))
        return found
