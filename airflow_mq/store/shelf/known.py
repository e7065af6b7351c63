"""What a shelf knows of one origin: how its book and its pages stood, and its mail."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ...core.page import Page
from .. import codec
from ..rows import BookRow, MailRow

#: How many pages and mails of a queue the first look at it brings; each further one doubles it.
FIRST_LOOK = 8


class Origin:
    """How a book stood when it was loaded, and what was cut for it since."""

    def __init__(self, row: BookRow) -> None:
        self.row = row
        self.ahead = set(codec.unpack_numbers(row.ahead)[0]) if row.ahead else set()
        self.floor = row.floor
        self.ticket = row.ticket
        self.taken: list[int] = []
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


class MailBox:
    """The mail of one origin that is in no page yet, as far as it was fetched."""

    def __init__(self, floor: int, horizon: int) -> None:
        self.after = floor - 1
        #: Mail below this was there for everybody to see before the first look into this box.
        self.horizon = max(horizon, floor)
        #: Mail from the horizon on that was read. Between two looks a sender may commit mail with a
        #: smaller id than these, and then more with a larger one: a look that began behind what was
        #: read would bring the second before the first. So each look begins at the horizon again.
        self.read: set[int] = set()
        self.rows: deque[MailRow] = deque()
        self.look = FIRST_LOOK
        self.empty = False
        self.due: deque[MailRow] = deque()
        self.due_seen = False

    def leading_singles(self, most: int) -> list[MailRow]:
        """Take the mails of one plain message from the front."""
        found: list[MailRow] = []
        while self.rows and len(found) < most and self.rows[0].items == 1 and not self.rows[0].attributes:
            found.append(self.rows.popleft())
        if len(found) == 1:
            self.rows.appendleft(found.pop())
        return found
