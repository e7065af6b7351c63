"""Stored state of books and pages at the time when they were loaded."""

from __future__ import annotations

from typing import NamedTuple

from ...core.page import Page
from .. import codec
from ..rows import BookRow
from .inbox import Cut


class StoredBook:
    """The row of a book, and the parts of it that change while the book is loaded."""

    def __init__(self, row: BookRow) -> None:
        self.row = row
        #: Which rows of the inbox lie in stored pages.
        self.cut = Cut(row.floor, frozenset(codec.unpack_numbers(row.ahead)[0] if row.ahead else ()))
        self.ticket = row.ticket


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
