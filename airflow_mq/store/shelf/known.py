"""What a shelf knows of one origin: how its book and its pages stood."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ...core.page import Page
from .. import codec
from ..rows import BookRow
from .inbox import Cut


class Origin:
    """How a book stood when it was loaded, and what was cut for it since."""

    def __init__(self, row: BookRow) -> None:
        self.row = row
        #: Which rows of its inbox lie in pages, as it is stored.
        self.cut = Cut(row.floor, frozenset(codec.unpack_numbers(row.ahead)[0] if row.ahead else ()))
        self.ticket = row.ticket
        #: How many of those that were posted to it were cut.
        self.posted = 0
        self.messages = 0
        self.size = 0


class PageBase(NamedTuple):
    """How a page stood when it was fetched; one that was opened here stood empty."""

    first_index: int = 0
    marks: bytes = b""
    remaining: int = 0
    remaining_size: int = 0
    items: int = 0

    @classmethod
    def of(cls, page: Page) -> PageBase:
        """How a page stands."""
        return cls(page.first_index, bytes(page.marks), page.remaining, page.remaining_size, len(page.lengths))


NO_PAGE = PageBase()


class Coming:
    """Who comes next in a ring, as far as that was looked for: ready books, and newcomers that are not met yet."""

    def __init__(self) -> None:
        #: A heap of ready books, by ticket.
        self.standing: list[tuple[int, str]] = []
        #: Origins that are in no ring and have mail, by the id of their first one.
        self.newcomers: deque[tuple[int, str]] = deque()

    @property
    def is_empty(self) -> bool:
        """Whether nobody is known to come."""
        return not (self.standing or self.newcomers)
