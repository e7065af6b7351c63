"""Ready queues of a ring, with waiting time and demand.

A few statements return the first waiting page, or the first inbox row, of every queue. That is usually all of it.
Otherwise it is a lower bound of the queue's demand, and `left` reads the rest of the few queues that need it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from math import inf

from ...rules.book import Book
from ...rules.claims import Scales
from ...rules.fairness import Asks
from ...rules.page import WAITING, Page
from ...rules.priority import origin_of
from ...rules.weight import Weight
from ...store import codec
from ...store.books import FirstPages
from ...store.inbox import FirstInboxRows
from ...store.rows import page_of, rows_of
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
        self._is_paused_below = working_set.loader.is_paused_below
        self._scales = Scales(working_set)

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
        pages = unit.pages.first_waiting(ring, most + 1, now, COUNTED)
        count = sum(len(alike.origins) for alike in pages)
        if count > most:
            pages = unit.pages.first_waiting(ring, most, now, COUNTED)
        news = unit.inbox.first_waiting(ring, most + 1 - count, now) if count <= most else []
        count += sum(len(alike.origins) for alike in news)
        found: dict[str, Asks] = {}
        for page in pages:
            found |= {} if page.asleep else self._of_pages(page)
        for row in news:
            found |= {} if row.asleep else self._of_inboxes(row)
        if news and count > most:
            found.pop(max(name for row in news for name in row.origins), None)
        passed = {row.origin for row in unit.origins.paused(ring, now)}
        passed |= set(map(origin_of, unit.blocks.claimed_origins(ring)))
        if passed or self.working_set.config.paths:
            found = {
                name: asks
                for name, asks in found.items()
                if origin_of(name) not in passed and not self._is_paused_below(name)
            }
        return found, count <= most

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

    def _each(self, names: Sequence[str], row_ids: Sequence[int], asked: float, *, whole: bool) -> dict[str, Asks]:
        """Return the demand of queues that differ in their first row only."""
        first, last = (bisect_left(self.blocks, choice(row_ids)) for choice in (min, max))
        found = dict.fromkeys(names, Asks(first, asked, whole))
        if first != last:
            found = {name: Asks(bisect_left(self.blocks, id_), asked, whole) for name, id_ in zip(names, row_ids)}
        if whole and asked != inf:
            # A delayed row of these is due and not in the inbox yet.
            found |= {name: found[name]._replace(all=False) for name in self._with_due & found.keys()}
        return found

    def _of_pages(self, alike: FirstPages) -> dict[str, Asks]:
        """Return the demand of queues by their first waiting page."""
        names, row_ids = alike.origins, alike.first_rows
        if alike.page is not None:
            page = page_of(alike.page_row)
            row_ids, asked = [page.row_id_of(page.first_index)], self._asked(names[0], page)
        else:
            lengths = codec.unpack_numbers(alike.lengths, most=alike.items)[0]
            if alike.marks:
                lengths = [length for length, mark in zip(lengths, alike.marks, strict=True) if mark == WAITING]
            else:
                lengths = lengths[alike.first_index :]
            asked = self._by_lengths(lengths)
        return (
            self._each(names, row_ids, inf, whole=True)
            if alike.many
            else self._each(names, row_ids, asked, whole=bool(alike.whole))
        )

    def _by_lengths(self, lengths: Sequence[int]) -> int:
        """Return the demand of messages by their lengths alone."""
        weigh = self.working_set.config.weigher.weigh
        return sum(self.parts(weigh(length)) for length in lengths)

    def _of_inboxes(self, alike: FirstInboxRows) -> dict[str, Asks]:
        """Return the demand of queues without pages by their first inbox row."""
        names = alike.origins
        if alike.ahead:
            # Some of its rows are in processed pages; only the working set knows the first that is not.
            self.working_set.pull(self.working_set.book(names[0]))
            return self.of_some(names)
        if alike.messages + alike.items > COUNTED:
            return self._each(names, alike.ids, inf, whole=True)
        whole = bool(alike.whole) and not alike.messages
        if not alike.attributes:
            asked = self._by_lengths(codec.unpack_lengths(bytes(alike.lengths), alike.items, alike.size))
            return self._each(names, alike.ids, asked, whole=whole)
        page = Page(0)
        page.append(rows_of([alike.inbox_row]), self.working_set.config.heap_size)
        whole = whole and len(page.lengths) == alike.items
        return self._each(names, alike.ids, self._asked(names[0], page), whole=whole)


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
