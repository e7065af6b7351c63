"""Books, as they are loaded."""

from __future__ import annotations

from collections.abc import Iterable

from ...core.book import Book
from ...core.errors import StoreCorrupt
from ...core.priority import origin_of, told
from ..rows import BookRow
from ..thaw import standing_of
from .groups import Groups
from .known import Origin

#: Pages that were processed out of turn leave holes in a window; so many of them there cannot be.
MOST_HOLES = 1 << 20


class Books(Groups):
    """The part of a shelf that loads books."""

    def fetch_book(self, origin: str) -> Book:
        """One book."""
        self.load_books([origin])
        return self.books[origin]

    def load_books(self, origins: Iterable[str]) -> None:
        """Many books at once."""
        wanted = [origin for origin in dict.fromkeys(origins) if origin not in self.books]
        if not wanted:
            return
        self._load_standings(wanted)
        for row in self.unit.books.named(self.ring_id, wanted, self.now):
            self._load(row)
        for origin in wanted:
            if origin not in self.books:
                self._load(BookRow(origin, 0, 0, 0, 0, 0, None, 0, 0, b"", 0, False, False, None))

    def _load(self, row: BookRow) -> str:
        origin = row.origin
        if origin in self.books:
            return origin
        if row.end_page - row.begin_page > row.pages + MOST_HOLES:
            raise StoreCorrupt(
                f"the window of {told(origin)} goes from page {row.begin_page} to {row.end_page}, "
                f"but it has {row.pages} pages"
            )
        standing = standing_of(row.standing)
        book = Book(origin, row.begin_page, row.end_page, row.pages, row.messages, row.size, row.deficit, "", standing)
        if self.config.paths:
            self.standings.setdefault(origin_of(origin), standing)
            book.standing = self._within_groups(origin, standing)
        if row.paused or self.is_paused_below(origin):
            book.passed_by = "paused"
        elif row.in_flight and (self.passes_in_flight or self.is_ordered(book)):
            book.passed_by = "in flight"
        elif row.wake_at > self.now:
            book.passed_by = "backoff"
        self.books[origin] = book
        self.origins[origin] = Origin(row)
        return origin
