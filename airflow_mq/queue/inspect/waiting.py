"""Ready queues of a ring, with waiting time and demand.

A few statements return the first waiting page, or the first inbox row, of every queue. That is usually all of it.
Otherwise it is a lower bound of the queue's demand, and `left` reads the rest of the few queues that need it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import chain, islice
from math import inf

from ...core.book import Book
from ...core.claims import Scales
from ...core.clock import Asks
from ...core.page import WAITING, Page
from ...core.priority import origin_of
from ...core.weight import Weight
from ...store import codec
from ...store.books import FirstPageRow
from ...store.inbox import FirstInboxRow
from ...store.rows import inbox_row_of, page_of
from ...store.working_set import StoredSet

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
        self._is_paused_below = working_set.loader.groups.is_paused_below
        self._scales = Scales(working_set)
        #: Demand of plain pages by their packed lengths, of those begun also by their marks, and of plain inbox rows.
        self._demand: dict[object, int] = {}

    @cached_property
    def _due(self) -> dict[int, str]:
        """Delayed rows that are due and not in the inbox yet, with their books."""
        working_set = self.working_set
        return {row.id: row.origin for row in working_set.unit.inbox.due(working_set.ring_id, working_set.now)}

    @cached_property
    def _with_due(self) -> set[str]:
        return set(self._due.values())

    def of_all(self, most: int) -> tuple[dict[str, Asks], bool]:
        """Return the demand of each book of the ring, from its head, and whether that is all; of at most `most` books.

        Books in the ring come first, then new ones by name.
        """
        unit, ring, now = self.working_set.unit, self.working_set.ring_id, self.working_set.now
        passed = {row.origin for row in unit.origins.paused(ring, now)}
        passed |= set(map(origin_of, unit.blocks.claimed_origins(ring)))
        found: dict[str, Asks | None] = {}
        pages = unit.pages.first_waiting(ring, most + 1)
        news = unit.inbox.first_waiting(ring, most + 1 - len(pages)) if len(pages) <= most else []
        rows: Iterable[FirstPageRow | FirstInboxRow] = islice(chain(pages, news), most)
        for row in rows:
            name = row.origin
            if row.wake_at <= now and origin_of(name) not in passed and not self._is_paused_below(name):
                found[name] = self._of_page(row) if isinstance(row, FirstPageRow) else self._of_inbox(row)
        whole = len(pages) + len(news) <= most
        return {name: asks for name, asks in found.items() if asks is not None}, whole

    def of_some(self, names: Iterable[str]) -> dict[str, Asks]:
        """Return the demand of some books, read one by one."""
        found = {}
        for name in names:
            book = self.working_set.book(name)
            row_id = None if book.skipped else first_row_id(self.working_set, book)
            if row_id is not None:
                found[name] = Asks(self._since(row_id))
        return found

    def left(self, name: str) -> float:
        """Return the whole demand of a queue; infinite beyond `COUNTED` messages."""
        book = self.working_set.book(name)
        while book.message_count <= COUNTED and self.working_set.pull(book):
            pass
        if book.message_count > COUNTED:
            return inf
        pages = (self.working_set.page(name, index) for index in range(book.begin, book.end))
        return sum(self._asked(name, page) for page in pages if page is not None)

    def _since(self, row_id: int) -> int:
        """Return the index of the first block after an inbox row."""
        # One counter numbers rows and blocks; due rows are not in the inbox yet.
        return len(self.blocks) if row_id in self._due else bisect_left(self.blocks, row_id)

    def _asked(self, name: str, page: Page) -> int:
        return sum(
            self.parts(self._scales.weight(name, page, item)) for item, mark in enumerate(page.marks) if mark == WAITING
        )

    def _of_page(self, row: FirstPageRow) -> Asks:
        """Return the demand of a queue by its first waiting page, which has slices unless it is plain."""
        if not row.slices:
            packed = bytes(row.lengths)
            row_id, asked = row.first_mail, self._by_lengths(packed, lambda: codec.unpack_numbers(packed)[0])
        else:
            page = page_of(row.page_row)
            row_id = page.row_id_of(row.first_index)
            key = bytes(row.lengths), bytes(page.marks)
            asked = self._asked(row.origin, page) if page.notes else self._by_lengths(key, lambda: _waiting(page))
        if row.messages > COUNTED:
            return Asks(self._since(row_id), inf, True)
        return Asks(self._since(row_id), asked, bool(row.whole) and row.origin not in self._with_due)

    def _by_lengths(self, key: object, lengths: Callable[[], Sequence[int]]) -> int:
        """Return the demand of messages by their lengths alone, once for each key: many pages and rows are alike."""
        if key not in self._demand:
            weigh = self.working_set.config.weigher.weigh
            self._demand[key] = sum(self.parts(weigh(length)) for length in lengths())
        return self._demand[key]

    def _of_inbox(self, row: FirstInboxRow) -> Asks | None:
        """Return the demand of a queue without pages by its first inbox row."""
        name, messages = row.origin, row.messages
        if row.ahead:
            # Some of its rows are in processed pages; only the working set knows the first that is not.
            self.working_set.pull(self.working_set.book(name))
            return self.of_some([name]).get(name)
        if messages + row.items > COUNTED:
            return Asks(self._since(row.id), inf, True)
        whole = bool(row.whole) and not messages and name not in self._with_due
        if not row.attributes:
            key = bytes(row.lengths), row.items, row.size
            return Asks(self._since(row.id), self._by_lengths(key, lambda: codec.unpack_lengths(*key)), whole)
        inbox_row, page = inbox_row_of(row.inbox_row), Page(0)
        page.append(inbox_row, self.working_set.config.heap_size)
        return Asks(self._since(row.id), self._asked(name, page), whole and len(page.lengths) == row.items)


def _waiting(page: Page) -> list[int]:
    """Return the lengths of the messages that wait."""
    return [length for length, mark in zip(page.lengths, page.marks) if mark == WAITING]


def first_row_id(working_set: StoredSet, book: Book) -> int | None:
    """Return the inbox row of the first waiting message."""
    for index in range(book.begin, book.end):
        page = working_set.page(book.origin, index)
        if page is None or page.is_attempted:
            continue
        place = page.first_index
        for part in page.slices:
            if place < part.items:
                return part.row_id
            place -= part.items
    return None
