"""Who is ready, since when, and what it asks for: all queues of a ring at once.

A few statements tell of each queue the first page, or the first mail, that waits. Mostly that is all of it; where it
is not, it is the least that the queue asks for, and `left` finds out the rest for the few of whom it matters.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import chain
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

#: A queue of so many messages is looked through for what it still asks for.
COUNTED = 4096


class Waiting:
    """The queues of a ring that a block could take something of now."""

    def __init__(self, working_set: StoredSet, parts: Callable[[Weight], int], blocks: Sequence[int]) -> None:
        """
        :param parts: how much of a block a weight is.
        :param blocks: the ids of those of the ledger, the oldest first.
        """
        self.working_set, self.parts, self.blocks = working_set, parts, blocks
        self._is_paused_below = working_set.loader.groups.is_paused_below
        self._scales = Scales(working_set)
        #: What a page asks for of which nothing but the lengths of its messages matters: many are alike.
        self._alike: dict[bytes, int] = {}

    @cached_property
    def _due(self) -> dict[int, str]:
        """Mail that is due and has not joined yet, and whose it is."""
        working_set = self.working_set
        return {row.id: row.origin for row in working_set.unit.inbox.due(working_set.ring_id, working_set.now)}

    @cached_property
    def _with_due(self) -> set[str]:
        return set(self._due.values())

    def of_all(self) -> dict[str, Asks]:
        """What each book of the ring asks for, by its name."""
        unit, ring, now = self.working_set.unit, self.working_set.ring_id, self.working_set.now
        passed = {row.origin for row in unit.origins.paused(ring, now)}
        passed |= set(map(origin_of, unit.blocks.claimed_origins(ring)))
        found: dict[str, Asks | None] = {}
        rows: Iterable[FirstPageRow | FirstInboxRow]
        rows = chain(unit.pages.first_waiting(ring), unit.inbox.first_waiting(ring))
        for row in rows:
            name = row.origin
            if row.wake_at <= now and origin_of(name) not in passed and not self._is_paused_below(name):
                found[name] = self._of_page(row) if isinstance(row, FirstPageRow) else self._of_inbox(row)
        return {name: asks for name, asks in found.items() if asks is not None}

    def of_some(self, names: Iterable[str]) -> dict[str, Asks]:
        """What these books ask for, looked at one by one."""
        found = {}
        for name in names:
            book = self.working_set.book(name)
            row_id = None if book.skipped else first_row_id(self.working_set, book)
            if row_id is not None:
                found[name] = Asks(self._since(row_id))
        return found

    def left(self, name: str) -> float:
        """All that a queue asks for; where it is much, nobody counts it, and it counts as without end."""
        book = self.working_set.book(name)
        while book.message_count <= COUNTED and self.working_set.pull(book):
            pass
        if book.message_count > COUNTED:
            return inf
        pages = (self.working_set.page(name, index) for index in range(book.begin, book.end))
        return sum(self._asked(name, page) for page in pages if page is not None)

    def _since(self, row_id: int) -> int:
        """From which of the blocks on this mail was there."""
        # Ids of mail and blocks come from one counter; what is due has not joined yet.
        return len(self.blocks) if row_id in self._due else bisect_left(self.blocks, row_id)

    def _asked(self, name: str, page: Page) -> int:
        return sum(
            self.parts(self._scales.weight(name, page, item)) for item, mark in enumerate(page.marks) if mark == WAITING
        )

    def _of_page(self, row: FirstPageRow) -> Asks:
        """What a queue asks for by the first page that waits; its slices are there where it is no plain one."""
        if not row.slices:
            row_id, asked = row.first_mail, self._plain(bytes(row.lengths))
        else:
            page = page_of(row.page_row)
            row_id, asked = page.row_id_of(row.first_index), self._asked(row.origin, page)
        if row.messages > COUNTED:
            return Asks(self._since(row_id), inf, True)
        return Asks(self._since(row_id), asked, bool(row.whole) and row.origin not in self._with_due)

    def _plain(self, lengths: bytes) -> int:
        if lengths not in self._alike:
            numbers = codec.unpack_numbers(lengths)[0]
            self._alike[lengths] = sum(self.parts(self.working_set.config.weigher.weigh(length)) for length in numbers)
        return self._alike[lengths]

    def _of_inbox(self, row: FirstInboxRow) -> Asks | None:
        """What a queue that is in no page asks for by its first mail."""
        name, messages = row.origin, row.messages
        if row.ahead:
            # Some of its mail is in pages that are done: it takes a look to know which is the first that is not.
            self.working_set.pull(self.working_set.book(name))
            return self.of_some([name]).get(name)
        inbox_row, page = inbox_row_of(row.inbox_row), Page(0)
        if messages + inbox_row.items > COUNTED:
            return Asks(self._since(inbox_row.id), inf, True)
        page.append(inbox_row, self.working_set.config.heap_size)
        whole = bool(row.whole) and not messages and len(page.lengths) == inbox_row.items and name not in self._with_due
        return Asks(self._since(inbox_row.id), self._asked(name, page), whole)


def first_row_id(working_set: StoredSet, book: Book) -> int | None:
    """The mail in which the first message that waits arrived."""
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
