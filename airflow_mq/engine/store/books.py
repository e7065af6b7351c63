"""Repositories of books (the queue of each origin, its place in the ring, its depth) and of their pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from ..rules.page import PROCESSED, Page
from ..rules.priority import PAST_ALL
from . import codec
from .inbox import Inbox
from .primitives import Repository, columns
from .rows import ASLEEP, BookRow, FirstWaiting, PageRow

#: Books, and inbox rows, that one step of a count reads.
_BOOKS, _ROWS = 5_000, 5_000
#: Columns of a book that belong to its own table.
_COLUMNS = BookRow._fields[:11]


class DepthRow(NamedTuple):
    """Figures of a queue beyond its pages; `oldest` is when its first message was sent."""

    origin: str
    inbox_rows: int
    items: int
    size: int
    oldest: int | None
    lately: int
    set_aside: int


class QueueDepth(NamedTuple):
    """All that a queue holds, and when its first waiting message was sent; the ids of `ahead` are cut already."""

    #: The name of its book.
    name: str
    messages: int = 0
    size: int = 0
    sent: int | None = None
    set_aside: int = 0
    set_aside_size: int = 0
    ahead: bytes | None = None

    @property
    def waiting(self) -> int:
        """Messages that have a turn or are in flight."""
        return self.messages - self.set_aside


class Books(Repository):
    """Books of a ring."""

    __slots__ = ()

    def save(self, ring: int, rows: Sequence[BookRow]) -> None:
        """Write books: the columns of `BookRow` up to `wake_at`."""
        self.unit.put("save_book", columns(_COLUMNS, rows), ring=ring)

    def second_rows(self, ring: int) -> list[tuple[str | None, int]]:
        """Return the books with more than one row, and the number of their rows; None stands for the ring's state."""
        return [(origin, rows) for origin, rows in self.unit.rows("second_rows", ring=ring)]

    def counts(self, ring: int, after: str) -> list[QueueDepth]:
        """Return what the next queues hold, after a name; nothing behind the last one."""
        rows = self.unit.rows("counts", ring=ring, after=after, end=PAST_ALL, books=_BOOKS, rows=_ROWS)
        return [QueueDepth(*row) for row in rows]

    def depths(
        self, ring: int, requests: Sequence[tuple[str, int, int]], *, most: int, latest: int, since: int
    ) -> list[DepthRow]:
        """Return the depth of queues beyond their pages.

        :param requests: name, floor and first page of each book
        :param most: inbox rows and pages to add up
        :param latest: inbox rows to search for messages sent since `since`
        """
        names = ("origin", "floor", "begin")
        rows = self.unit.rows("depths", columns(names, requests), ring=ring, most=most, latest=latest, since=since)
        return [DepthRow(*row) for row in rows]

    def held(self, ring: int, names: Sequence[str]) -> tuple[int, int]:
        """Return the bytes that these queues store together, and how many rows from their floors on were added up."""
        rows = self.unit.rows("held", {"origin": names}, ring=ring)
        ahead = {name: codec.unpack_numbers(bytes(ahead))[0] for name, _, _, ahead in rows if ahead}
        twice = sum(row.stored for row in Inbox(self.unit).heads(ring, ahead)) if ahead else 0
        return sum(size for _, size, *_ in rows) - twice, sum(uncut for _, _, uncut, *_ in rows)

    def forget_deficits(self, ring: int) -> None:
        """Reset the deficits of all books."""
        self.unit.run("forget_deficits", ring=ring)

    def names(
        self, ring: int, after: str, first: str, below: str, limit: int, *, empty: bool = False, delayed: bool = False
    ) -> list[str]:
        """Return names of queues with messages in a range, after a name.

        :param empty: return the names of empty books, too
        :param delayed: return the names of queues with delayed messages, too
        """
        bounds = {"after": after, "first": first, "below": below, "limit": limit}
        rows = self.unit.rows("names", ring=ring, **bounds, all=empty, delayed=delayed)
        return [origin for (origin,) in rows]

    def known(self, ring: int, origins: Sequence[str]) -> list[str]:
        """Return which of these queues have a book, an inbox row or a delayed row."""
        return [origin for (origin,) in self.unit.rows("known_origins", {"origin": origins}, ring=ring)]


#: A page to be written, the number of its set-aside messages, and its first and last inbox row.
SavedPage: TypeAlias = "tuple[PageRow, int, int, int]"


class Pages(Repository):
    """Pages of a ring."""

    __slots__ = ()

    def between(self, ring: int, requests: Sequence[tuple[str, int, int]], limit: int) -> list[PageRow]:
        """Return for each request (origin, first, last) the stored pages from the first on, at most `limit`."""
        rows = self.unit.rows("pages", columns(("origin", "first", "last"), requests), ring=ring, limit=limit)
        return [PageRow(*row) for row in rows]

    def first_waiting(self, ring: int, limit: int, now: int) -> list[FirstWaiting]:
        """Return the first waiting page of each book with a turn, of the first `limit` ones in the ring's order."""
        return self.unit.rows("first_pages", ring=ring, below=ASLEEP, limit=limit, now=now)

    def with_set_aside(
        self, ring: int, origin: str, page: int, limit: int, *, last: str = PAST_ALL, swept: bool = False
    ) -> list[PageRow]:
        """Return pages with set-aside messages, from a queue and page on, up to the queue `last`.

        :param swept: only pages with swept messages
        """
        place = {"origin": origin, "page": page, "last": last}
        rows = self.unit.rows("pages_with_set_aside", ring=ring, **place, swept=swept, limit=limit)
        return [PageRow(*row) for row in rows]

    def sweep(self, ring: int, origin: str, first: int) -> None:
        """Set aside all remaining messages of a queue from a page on."""
        self.unit.run("sweep_pages", ring=ring, origin=origin, first=first)

    def save(self, ring: int, pages: Sequence[SavedPage]) -> None:
        rows = [(*page, *sums) for page, *sums in pages]
        self.unit.put("save_page", columns((*PageRow._fields, "set_aside", "first_row", "last_row"), rows), ring=ring)

    def delete(self, ring: int, keys: Sequence[tuple[str, int]]) -> None:
        self.unit.put("delete_page", columns(("origin", "page"), keys), ring=ring)


def saved_page(origin: str, page: Page, set_aside: int) -> SavedPage:
    """Return a page as it is to be written."""
    plain_marks = bytes([PROCESSED]) * page.first_index + bytes(len(page.marks) - page.first_index)
    row = PageRow(
        origin, page.index, len(page.lengths), page.used, page.first_index, page.remaining, page.remaining_size,
        codec.pack_slices(page.slices), codec.pack_numbers(page.lengths),
        b"" if page.marks == plain_marks else bytes(page.marks), codec.pack_notes(page.notes),
    )  # fmt: skip
    return row, set_aside, page.slices.row_ids[0], page.slices.row_ids[-1]
