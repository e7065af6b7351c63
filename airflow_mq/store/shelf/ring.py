"""The ring, slice by slice: ready books by their tickets, and origins with news by their first mail."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from ...core.priority import is_high
from ..books import LineRow
from .books import Books
from .known import Coming
from .memory import RING_SLICE
from .tickets import POSTED, ticket_of

#: Above so many ids since the last look, ask which origins have mail instead of reading it all.
LONG_LOOK = 20_000
#: So many newcomers are met together: their books are made, and their first mail is cut; and so many in a transaction
#: that does nothing else.
MEET_AT_ONCE, MEET_IN_ALL = 1_024, 4_096


class Slices(Books):
    """The part of a shelf that finds out who is ready."""

    def more_ready(self) -> list[str]:
        """Return the next stretch: books by their tickets, and newcomers by their first mail."""
        found: list[tuple[int, str]] = []
        looked_to_end = False
        while not found:
            if self.coming.is_empty and not self.rest_done:
                self._fetch_ready()
            if not self.coming.newcomers and not looked_to_end:
                self._look_for_news(None if self.rest_done else self.ticket_cursor)
                looked_to_end = self.rest_done
            if looked_to_end and self.coming.is_empty:
                break
            found = self._next_stretch(self.coming)
        return [origin for _, origin in sorted(found)]

    def _fetch_ready(self) -> None:
        rows = self.unit.books.ready(self.ring_id, self.ticket_cursor, RING_SLICE, self.now)
        mine = rows if self.patterns is None else [row for row in rows if self.takes(row.origin)]
        if len(mine) < len(rows) and self.least_skipped is None:
            self.least_skipped = next(row.ticket for row in rows if not self.takes(row.origin))
        self._load_standings(row.origin for row in mine)
        self.rest_done = len(rows) < RING_SLICE
        for row in mine:
            heappush(self.coming.standing, (row.ticket or 0, self._load(row)))
        if rows:
            self.ticket_cursor = rows[-1].ticket or 0

    def more_high(self) -> list[str]:
        """Return the same of high books: they come before all regular ones, however late they were sent."""
        coming = self.coming_high
        if not self.high_done:
            rows = self.unit.books.ready(self.ring_id, self.high_cursor, RING_SLICE, self.now)
            high = [row for row in rows if is_high(row.origin)]
            for row in high:
                heappush(coming.standing, (row.ticket or 0, self._load(row)))
            if len(high) == RING_SLICE:
                self.high_cursor = high[-1].ticket or 0
            else:
                self.high_done = True
                self._look_for_high_news()
        found: list[tuple[int, str]] = []
        while not found and not coming.is_empty:
            found = self._next_stretch(coming)
        return [origin for _, origin in sorted(found)]

    def line(self) -> list[tuple[str, int]]:
        """All ready origins in the ring's order, with their deficits, but for those in paused groups."""
        self.load_branches()
        rows = self.unit.books.line(self.ring_id)
        if self.config.high:
            rows = [row for row in rows if not is_high(row[1])]
        self.whole_line = rows
        self._look_for_news(None)
        fresh: list[tuple[int, str]] = []
        while not self.coming.is_empty:
            fresh += self._next_stretch(self.coming)
        fresh.sort()
        for _, origin in fresh:
            self.ring.meet(origin)
        rows = sorted(rows + [LineRow(ticket, origin, self.books[origin].deficit) for ticket, origin in fresh])
        if self.paused_groups():
            rows = [row for row in rows if not self.is_paused_below(row[1])]
        return [(origin, deficit) for _, origin, deficit in rows]

    def meet_newcomers(self, most: int = MEET_IN_ALL) -> bool:
        """Meet at most so many newcomers of each priority, in the order of their first mail; tell if more wait."""
        self._look_for_news(None)
        if self.config.high:
            self._look_for_high_news()
        for coming in (self.coming_high, self.coming):
            for _ in range(0, min(most, len(coming.newcomers)), MEET_AT_ONCE):
                self._next_stretch(coming)
        return bool(self.coming.newcomers or self.coming_high.newcomers)

    def _look_for_news(self, below: int | None) -> None:
        """Find the origins that were not ready and have mail; each is met later, at the place of its first one."""
        if below is not None and below <= self.look_cursor:
            return
        last = self.unit.last_id
        if below is None and last - self.look_cursor > LONG_LOOK:
            rows = self.unit.inbox.unready(self.ring_id)
        else:
            rows = self.unit.inbox.unready_from(self.ring_id, self.look_cursor, below if below is not None else POSTED)
        self.look_cursor = below if below is not None else last + 1
        self.coming.newcomers.extend(sorted((id_, origin) for origin, id_ in rows if not is_high(origin)))

    def _look_for_high_news(self) -> None:
        rows = self.unit.inbox.unready_high(self.ring_id)
        self.coming_high.newcomers.extend(sorted((id_, origin) for origin, id_ in rows))

    def _next_stretch(self, coming: Coming) -> list[tuple[int, str]]:
        """Meet the next newcomers, and return all who come before those that are still to be met."""
        fresh = [coming.newcomers.popleft() for _ in range(min(MEET_AT_ONCE, len(coming.newcomers)))]
        for entry in self._unready(fresh):
            heappush(coming.standing, entry)
        found: list[tuple[int, str]] = []
        reached = ticket_of(coming.newcomers[0][1], coming.newcomers[0][0]) if coming.newcomers else None
        while coming.standing and (reached is None or coming.standing[0][0] < reached):
            found.append(heappop(coming.standing))
        return found

    def news_left(self) -> bool:
        """Whether origins that are not ready have mail that no look came to."""
        return bool(self.coming.newcomers or self.unit.inbox.unready_from(self.ring_id, self.look_cursor, POSTED))

    def _unready(self, rows: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
        """Origins that are not ready and have mail: each enters its ring."""
        found = []
        fresh = [(id_, origin) for id_, origin in rows if origin not in self.circle(origin)]
        self.load_books(origin for _, origin in fresh)
        for id_, origin in fresh:
            book, ring = self.book(origin), self.circle(origin)
            if origin not in ring.unknitted and (book.is_ready or self.pull(book)) and origin not in ring:
                found.append((self.tickets.get(origin, ticket_of(origin, id_)), origin))
        return found
