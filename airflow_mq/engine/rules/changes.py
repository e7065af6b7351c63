"""Changes: the record of what one operation did to a ring and has not written yet."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from .charging import Charge
from .events import EventRun
from .message import Address, Posted
from .page import Page
from .weight import Weight

#: Ids from here on stand for messages that the operation enqueued itself; a writer draws the final ids.
POSTED = 1 << 62


@dataclass(frozen=True)
class Aside:
    """The reason why a message was set aside: its weight, and the limit it was judged by."""

    id: bytes
    size: int
    weight: Weight | None
    limit: Weight | None
    reason: str


class PutOff(NamedTuple):
    """A message of a relaxed queue that returned: it leaves its page, and joins its queue again when it is due."""

    posted: Posted
    due: int
    #: Where it was.
    page: Page
    item: int


@dataclass
class CutTotal:
    """The messages of one book that were cut into pages, and their bytes."""

    messages: int = 0
    size: int = 0


class Changes:
    """The books, pages and messages that an operation changed.

    A plan writes only what it cut (`cut`, `cut_pages`, `tickets`) and what its queues earned. Every other operation
    writes all of it.
    """

    def __init__(self) -> None:
        #: Messages that were cut into pages, by book, and the pages that took them.
        self.cut: defaultdict[str, CutTotal] = defaultdict(CutTotal)
        self.cut_pages: set[tuple[str, int]] = set()
        #: Places in the ring of books that became ready, by the first row that was cut.
        self.tickets: dict[str, int] = {}
        #: Books and pages that servicing or a decision changed.
        self.books: set[str] = set()
        self.pages: set[tuple[str, int]] = set()
        self.removed_pages: dict[tuple[str, int], Page] = {}
        self.groups: set[str] = set()
        #: Buckets that were charged or refunded, and the messages that found one exhausted. A plan writes these, too.
        self.buckets: set[str] = set()
        self.exhaustions: list[EventRun] = []
        #: Times before which a book is not tried again, in microseconds.
        self.waits: dict[str, int] = {}
        #: Messages set aside; None for one that is set aside no longer.
        self.asides: dict[Address, Aside | None] = {}
        self.events: list[EventRun] = []
        #: Charges by book and name of the processor.
        self.charges: dict[tuple[str, ...], Charge] = {}
        self.posted: dict[int, Posted] = {}
        #: Messages that wait outside of their queue until they are due.
        self.put_off: list[PutOff] = []
        #: Number of the block that the operation settles, and the DAG or program that serviced its messages.
        self.block: int | None = None
        self.server = ""

    def delay(self, by: int) -> None:
        """Put off all that waits by some microseconds: a processor may take long, and a wait begins after it."""
        self.waits = {name: due + by for name, due in self.waits.items()}
        self.put_off = [one._replace(due=one.due + by) for one in self.put_off]
