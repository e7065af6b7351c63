"""Ready queues of a ring, with waiting time and demand.

Two statements return the first waiting page, or the first inbox row, of every queue. That is usually all of it.
Otherwise it is a lower bound of the queue's demand, and `left` reads the rest of the few queues that need it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from math import inf
from typing import Any

from ...rules.book import Book
from ...rules.claims import Scales
from ...rules.fairness import Asks
from ...rules.groups import paths_of
from ...rules.page import WAITING, Page
from ...rules.priority import books_of, origin_of
from ...rules.weight import Weight
from ...store import codec
from ...store.rows import InboxRow, PageRow, page_of, rows_of
from ...store.working_set import StoredSet
from .messages import first_free, free_items

#: Messages of a queue whose demand is added up; the demand of a longer queue counts as unlimited.
COUNTED = 4096


class Waiting:
    """Queues of a ring from which a block could take messages now."""

    def __init__(self, working_set: StoredSet, parts: Callable[[Weight], int], blocks: Sequence[int]) -> None:
        """
        :param parts: returns the part of a block that a weight is
        :param blocks: ids of the blocks of the ledger, oldest first
        """
        self.working_set, self.parts, self.blocks = working_set, parts, blocks
        self._scales = Scales(working_set)
        #: Most queues look like others.
        self._by_lengths = lru_cache(4096)(self._asked_by_lengths)

    @cached_property
    def _due(self) -> dict[int, str]:
        """Delayed rows that are due and not in the inbox yet, with their books."""
        working_set = self.working_set
        return {row.id: row.origin for row in working_set.unit.inbox.due(working_set.ring_id, working_set.now)}

    @cached_property
    def _taken(self) -> dict[str, set[tuple[int, int]]]:
        """The places of messages in flight by book; none where a recorded end is yet to be applied."""
        working_set = self.working_set
        claims = working_set.unit.blocks.in_flight(working_set.ring_id)
        taken: dict[str, set[tuple[int, int]]] = {claim.origin: set() for claim in claims if not claim.by_hand}
        for row in working_set.reading.claims_of(sorted(taken)):
            taken[row.origin].update(row.claim.places())
        return taken

    @cached_property
    def _with_due(self) -> set[str]:
        return set(self._due.values())

    def of_all(self, most: int) -> tuple[dict[str, Asks], bool]:
        """Return the demand of each book of the ring, and whether that is all; of at most `most` books.

        Books in the ring count first, from its head, then new ones by name.
        """
        unit, ring, now = self.working_set.unit, self.working_set.ring_id, self.working_set.now
        firsts = unit.pages.first_waiting(ring, most + 1, now)
        if len(firsts) <= most:
            firsts += unit.inbox.first_waiting(ring, most + 1 - len(firsts), now)
        flying = {name for book in self._taken for name in books_of(origin_of(book))}
        found: dict[str, Asks] = {}
        apart: list[str] = []
        for asleep, messages, ahead, only, first_row, last_row, name, *at in firsts[:most]:
            if ahead or name in flying:
                apart.append(name)
            elif not asleep:
                found[name] = self._of_first(messages, only, first_row, last_row, name, at)
        # Some messages of these are in flight or in processed pages: only the working set knows which one is the first.
        self.working_set.loader.load_books(apart)
        books = [self.working_set.book(name) for name in apart]
        self.working_set.loader.pages.fetch(
            (book.origin, book.begin) for book in books if book.is_ready and not book.skipped
        )
        first_rows = ((book.origin, self._first_free_row(book)) for book in books)
        found |= {name: Asks(self._since(row_id)) for name, row_id in first_rows if row_id is not None}
        passed = {row.origin for row in unit.origins.paused(ring, now)}
        halted = {*chain(*self.working_set.reading.halted(now, origins=True))}
        if passed or halted:
            paths = self.working_set.config.paths
            found = {
                name: asks
                for name, asks in found.items()
                if origin_of(name) not in passed and halted.isdisjoint(paths_of(name, paths))
            }
        return found, len(firsts) <= most

    def left(self, name: str) -> float:
        """Return the whole demand of a queue; infinite beyond `COUNTED` messages."""
        book = self.working_set.book(name)
        while book.message_count <= COUNTED and self.working_set.pull(book):
            pass
        if book.message_count > COUNTED:
            return inf
        return sum(self._asked(name, page) for page in self.working_set.window(book))

    def _since(self, row_id: int) -> int:
        """Return the index of the first block after an inbox row."""
        # One counter numbers rows and blocks; due rows are not in the inbox yet.
        return len(self.blocks) if row_id in self._due else bisect_left(self.blocks, row_id)

    def _first_free_row(self, book: Book) -> int | None:
        """Return the inbox row of the first message that waits and is not in flight; None if blocks take none now."""
        found = None if book.skipped else first_free(self.working_set, book, self._taken.get(book.origin, ()))
        return None if found is None else found[0].place_of(found[1])[0]

    def _asked(self, name: str, page: Page) -> int:
        taken = self._taken.get(name, ())
        return sum(self.parts(self._scales.weight(name, page, item)) for item in free_items(page, taken))

    def _of_first(self, messages: int, only: bool, row_id: int, last_row: int, name: str, at: Sequence[Any]) -> Asks:
        """Return the demand of a queue by its first waiting page or row; the rest of `FirstWaiting` are the columns."""
        if len(at) == len(PageRow._fields) - 1:
            _, items, _, start, _, _, _, lengths, marks, notes = at
            if notes or (row_id < last_row and (start or marks)):
                page = page_of(PageRow(name, *at))
                row_id, asked = page.place_of(page.first_index)[0], self._asked(name, page)
            else:
                asked = self._by_lengths(lengths, items, None, start, marks)
        else:
            _, size, items, _, lengths, attributes = at
            messages += items
            if attributes:
                page = Page(0)
                page.append(rows_of([InboxRow(name, *at)]), self.working_set.config.heap_size)
                asked, only = self._asked(name, page), only and len(page.lengths) == items
            else:
                asked = self._by_lengths(lengths, items, size, 0, b"")
        if messages > COUNTED:
            return Asks(self._since(row_id), inf, True)
        # A delayed row of the queue may be due and not in the inbox yet.
        return Asks(self._since(row_id), asked, bool(only) and name not in self._with_due)

    def _asked_by_lengths(self, packed: bytes, items: int, size: int | None, start: int, marks: bytes) -> int:
        """Return the demand of messages by their lengths alone.

        :param size: the size of an inbox row; None: the lengths are those of a page
        """
        if size is not None:
            lengths = codec.unpack_lengths(packed, items, size)
        else:
            lengths = codec.unpack_numbers(packed, most=items)[0]
        if marks:
            lengths = [length for length, mark in zip(lengths, marks, strict=True) if mark == WAITING]
        weigh = self.working_set.config.weigher.weigh
        return sum(self.parts(weigh(length)) for length in lengths[0 if marks else start :])
