"""Repository of pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..core.page import PROCESSED, Page
from . import codec
from .primitives import Repository
from .rows import PageRow


class StoredPage(NamedTuple):
    """A page, packed, in the columns of its table."""

    origin: str
    page: int
    items: int
    used: int
    first_index: int
    remaining: int
    remaining_size: int
    kept: int
    first_mail: int
    last_mail: int
    slices: bytes
    lengths: bytes
    marks: bytes
    notes: bytes


class FirstPageRow(NamedTuple):
    """The first waiting page of a book; `whole` if the book has no message elsewhere."""

    origin: str
    wake_at: int
    messages: int
    whole: bool
    page: int
    items: int
    used: int
    first_index: int
    remaining: int
    remaining_size: int
    first_mail: int
    slices: bytes
    lengths: bytes
    marks: bytes
    notes: bytes

    @property
    def page_row(self) -> PageRow:
        """The page."""
        return PageRow(
            self.origin, self.page, self.items, self.used, self.first_index, self.remaining, self.remaining_size,
            self.slices, self.lengths, self.marks, self.notes,
        )  # fmt: skip


class Pages(Repository):
    """Pages of a ring."""

    __slots__ = ()

    def between(self, ring: int, requests: Sequence[tuple[str, int, int]], limit: int) -> list[PageRow]:
        """Return for each request (origin, first, last) the stored pages from the first on, at most `limit`."""
        rows = self._read("pages", ("origin", "first", "last"), requests, ring=ring, limit=limit)
        return [PageRow(*row) for row in rows]

    def first_waiting(self, ring: int) -> list[FirstPageRow]:
        """Return the first waiting page of each ready book."""
        return [FirstPageRow(*row) for row in self.unit.rows("first_pages", ring=ring)]

    def kept(self, ring: int, origin: str, page: int, limit: int, only: str | None = None) -> list[PageRow]:
        """Return pages with set-aside messages, from a queue and page on."""
        rows = self.unit.rows("kept_pages", ring=ring, origin=origin, page=page, only=only, limit=limit)
        return [PageRow(*row) for row in rows]

    def swept(self, ring: int, origin: str, page: int, last: str, limit: int) -> list[PageRow]:
        """Return pages with swept messages, from a queue and page on, up to the queue `last`."""
        rows = self.unit.rows("swept_pages", ring=ring, origin=origin, page=page, last=last, limit=limit)
        return [PageRow(*row) for row in rows]

    def sweep(self, ring: int, origin: str, first: int) -> None:
        """Set aside all remaining messages of a queue from a page on."""
        self.unit.run("sweep_pages", ring=ring, origin=origin, first=first)

    def save(self, ring: int, pages: Sequence[tuple[str, Page, int]]) -> None:
        """Write pages: queue, page, and number of set-aside messages."""
        self._write("save_page", StoredPage._fields, [stored_page(*page) for page in pages], ring=ring)

    def delete(self, ring: int, keys: Sequence[tuple[str, int]]) -> None:
        """Delete pages."""
        self._write("delete_page", ("origin", "page"), keys, ring=ring)


def stored_page(origin: str, page: Page, kept: int) -> StoredPage:
    """Return the columns of a page as they are stored."""
    plain_marks = bytes([PROCESSED]) * page.first_index + bytes(len(page.marks) - page.first_index)
    return StoredPage(
        origin, page.index, len(page.lengths), page.used, page.first_index, page.remaining, page.remaining_size, kept,
        page.slices[0].row_id, page.slices[-1].row_id, codec.pack_slices(page.slices), codec.pack_numbers(page.lengths),
        b"" if page.marks == plain_marks else bytes(page.marks), codec.pack_notes(page.notes),
    )  # fmt: skip
