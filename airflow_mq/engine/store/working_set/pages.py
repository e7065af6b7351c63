"""Loader of pages; with each it fetches those that the walk will come to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...rules.message import Address
from ...rules.page import WAITING, Page
from ...rules.working_set import WorkingSet
from ..rows import LATEST, Arrival, PageRow, page_of
from . import books
from .books import BookLoader
from .source import Source

#: A look for pages of one queue never brings more than this.
LONGEST_LOOK = 256


class StoredPage(NamedTuple):
    """The progress of a page when it was loaded; a page that was opened since has none."""

    first_index: int = 0
    marks: bytes = b""
    remaining: int = 0
    remaining_size: int = 0
    items: int = 0

    @classmethod
    def of(cls, page: Page) -> StoredPage:
        """Return the progress of a page."""
        return cls(page.first_index, bytes(page.marks), page.remaining, page.remaining_size, len(page.lengths))

    def extended_to(self, page: Page) -> Page:
        """Return a page with the items of this one and the stored progress: new items wait."""
        items = len(page.lengths)
        fresh = Page(page.index)
        fresh.slices, fresh.lengths, fresh.notes, fresh.used = page.slices, page.lengths, page.notes, page.used
        fresh.first_index = self.first_index
        fresh.marks = bytearray(self.marks) + bytes(items - self.items)
        fresh.remaining = self.remaining + items - self.items
        fresh.remaining_size = self.remaining_size + page.held(self.items, items)
        return fresh


#: The progress of a page that no transaction stored yet.
NO_PAGE = StoredPage()


class PageLoader:
    """Loads pages, and keeps their stored progress."""

    def __init__(self, working_set: WorkingSet, source: Source, books: BookLoader) -> None:
        self.working_set = working_set
        self.source = source
        self.books = books
        self.stored: dict[tuple[str, int], StoredPage] = {}
        self._look: dict[str, int] = {}
        self._arrivals: dict[Address, Arrival] = {}

    def load(self, origin: str, index: int) -> None:
        """Load a page, and with it the next ones of the queues that the walk will come to."""
        book = self.working_set.book(origin)
        if not book.begin <= index < book.end:
            self._take(self.source.pages([(origin, index, index)], 1))
            return
        look = self._look[origin] = min(self._look.get(origin, 1) * 2, LONGEST_LOOK)
        last = min(index + look // 2, book.end) - 1
        self._take(self.source.pages([(origin, index, last), *self._upcoming(origin)], look))
        pages = self.working_set.pages
        for at in range(index, last + 1):
            pages.setdefault((origin, at), None)
        if pages[origin, index] is None and last < book.end - 1:
            # Pages that were processed out of turn are gone; there may be very many.
            stop = book.end
            while (origin, stop - 1) in pages:
                stop -= 1
            found = self.source.pages([(origin, index, stop - 1)], 1)
            self._take(found)
            self.working_set.gaps[origin] = range(index, found[0].page if found else stop)

    def _upcoming(self, origin: str) -> Iterator[tuple[str, int, int]]:
        pages = self.working_set.pages
        for other in self.working_set.circle(origin).upcoming(origin, books.RING_SLICE):
            book = self.working_set.books[other]
            ahead = range(book.begin, min(book.begin + 2, book.end)) if not book.skipped else ()
            missing = [at for at in ahead if (other, at) not in pages]
            if missing:
                yield other, missing[0], missing[-1]

    def look_far(self, origin: str) -> None:
        """Fetch as many pages of this queue as possible at each look."""
        self._look[origin] = LONGEST_LOOK

    def fetch(self, wanted: Iterable[tuple[str, int]]) -> None:
        """Load single pages, many at once."""
        missing = [key for key in dict.fromkeys(wanted) if key not in self.working_set.pages]
        self.books.load(origin for origin, _ in missing)
        if missing:
            self._take(self.source.pages([(origin, at, at) for origin, at in missing], 1))

    def keep(self, rows: Iterable[PageRow]) -> Iterator[tuple[str, Page]]:
        """Load pages of which the caller fetched the rows."""
        found = list(rows)
        self.books.load(row.origin for row in found)
        self._take(found)
        for row in found:
            page = self.working_set.pages.get((row.origin, row.page))
            if page is not None:
                yield row.origin, page

    def load_all(self, origin: str) -> None:
        """Load all stored pages of an origin, also those behind the window."""
        self._take(self.source.pages([(origin, 0, LATEST)], LATEST))

    def read_all(self, origin: str) -> Iterator[tuple[int, Page]]:
        """Read all stored pages of an origin without loading them."""
        for row in self.source.pages([(origin, 0, LATEST)], LATEST):
            yield row.page, page_of(row)

    def _take(self, rows: list[PageRow]) -> None:
        pages, fresh = self.working_set.pages, set()
        for row in rows:
            key = (row.origin, row.page)
            if key not in pages:
                pages[key] = page = page_of(row)
                self.stored[key] = StoredPage.of(page)
                fresh.add(row.origin)
        if fresh and self.working_set.planning:
            self._hide_claimed(sorted(origin for origin in fresh if self.books.stored[origin].row.in_flight))

    def _hide_claimed(self, origins: list[str]) -> None:
        """Let messages that other blocks claimed look processed to a plan."""
        for row in self.source.claims_of(origins) if origins else ():
            for run in row.claim.runs:
                page = self.working_set.pages.get((row.origin, run.page))
                if page is not None:
                    for item in range(run.first, min(run.first + run.count, len(page.marks))):
                        if page.marks[item] == WAITING:
                            page.mark_processed(item)

    # Arrivals of messages that lie in loaded pages.

    def arrivals(self, addresses: Iterable[Address]) -> dict[Address, Arrival]:
        """Return when messages in loaded pages were sent, and the first block planned since.

        A message that returned to its queue keeps the block of its first arrival.
        """
        wanted = list(addresses)
        row_ids = self.row_ids_of(at for at in wanted if at not in self._arrivals)
        found = self.source.unit.inbox.arrivals(self.source.ring_id, row_ids.values())
        for at, row_id in row_ids.items():
            page, arrival = self.working_set.page(at.book, at.page), found.get(row_id)
            if arrival is not None and page is not None:
                self._arrivals[at] = arrival._replace(block=page.note(at.index).arrived or arrival.block)
        return {at: self._arrivals[at] for at in wanted if at in self._arrivals}

    def row_ids_of(self, addresses: Iterable[Address]) -> dict[Address, tuple[str, int]]:
        """Return origin and id of the rows in which messages of loaded pages came."""
        items: dict[tuple[str, int], list[Address]] = {}
        for at in addresses:
            items.setdefault((at.book, at.page), []).append(at)
        found: dict[Address, tuple[str, int]] = {}
        for key, places in items.items():
            page = self.working_set.pages.get(key)
            if page is not None:
                row_ids = page.row_ids_of(at.index for at in places)
                found.update(zip(places, ((key[0], row_id) for row_id in row_ids)))
        return found
