"""The shelf: what the rules see of a ring while they work on it.

Books, pages, mail and the ring are taken off the shelf by name, changed in memory, and
whoever owns the shelf writes back what changed, all at once. The rules never wait for
anything and never know where it is kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .book import Book, Branch, Standing
from .config import RingConfig
from .events import EventRun, Fate
from .groups import ROOT, head_of
from .message import Address, Footprint, message_id
from .page import Mail, Page
from .permit import OPEN, Permit
from .priority import MARK, books_of, origin_of
from .ring import Ring
from .taking import OriginPatterns
from .weight import Weight


@dataclass(frozen=True)
class Aside:
    """Why a message was set aside: what it asked for, and the limit it was judged by."""

    id: bytes
    size: int
    weight: Weight | None
    limit: Weight | None
    reason: str


class Shelf(ABC):
    """Everything a ring holds, as far as somebody asked for it, and all that changed."""

    #: What processors may enqueue here.
    permit: Permit = OPEN
    #: Whether what a processor sends goes on with the trace of the message that it has.
    traces: bool = False

    def __init__(self, config: RingConfig, now: int, *, listening: bool = False) -> None:
        self.config = config
        #: The store's clock, in microseconds.
        self.now = now
        self.listening = listening
        #: Whether what happens to books and pages here will be forgotten again.
        self.planning = False
        self.ring = Ring(self.more_ready)
        #: The same of the high books, which come first.
        self.high = Ring(self.more_high)
        self.books: dict[str, Book] = {}
        self.pages: dict[tuple[str, int], Page | None] = {}
        #: Of a ring with paths: its groups, as far as they were asked for, and who comes first in the next block.
        self.branches: dict[str, Branch] = {}
        #: Which origins this walk services; all, where nothing is said. And what high messages of these owe to regular
        #: ones, where that is not kept for the whole ring.
        self.patterns: OriginPatterns | None = None
        self.own_debt: int | None = None
        self.changed_branches: set[str] = set()
        self.owed: list[str] = []
        self.forget_changes()

    def forget_changes(self) -> None:
        """Begin a new list of what changed."""
        self.changed_books: set[str] = set()
        self.changed_pages: set[tuple[str, int]] = set()
        self.removed_pages: dict[tuple[str, int], Page] = {}
        self.asides: dict[Address, Aside | None] = {}
        self.waits: dict[str, int] = {}
        self.events: list[EventRun] = []
        self.hooks: list[tuple[str, Footprint]] = []

    # What the owner of the shelf must know how to fetch.

    @abstractmethod
    def more_ready(self) -> list[str]:
        """The next ready origins in the ring's order; none when that was all."""

    def more_high(self) -> list[str]:
        """The next ready high books; an owner that knows of none needs to do nothing."""
        return []

    @abstractmethod
    def fetch_book(self, origin: str) -> Book:
        """The book of this origin, an empty one if it never had any."""

    @abstractmethod
    def fetch_page(self, origin: str, index: int) -> Page | None:
        """A stored page, or nothing."""

    @abstractmethod
    def next_mail(self, origin: str) -> Mail | None:
        """The next mail of this origin that is in no page yet, or nothing."""

    @abstractmethod
    def payloads(self, origin: str, page: Page) -> list[bytes]:
        """The messages of a page, in order."""

    @abstractmethod
    def headers(
        self, origin: str, page: Page, first: int = 0, stop: int | None = None
    ) -> Mapping[int, Mapping[str, str]]:
        """Return the headers of the messages of a page by index, at least of those from `first` to before `stop`."""

    @abstractmethod
    def post(self, origin: str, payload: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Enqueue on behalf of a processor; seen at once."""

    def post_all(self, sent: Iterable[Sequence[Any]]) -> None:
        """Enqueue all that was sent, in order."""
        for one in sent:
            self.post(*one)

    # What only a ring with paths asks for.

    def line(self) -> list[tuple[str, int]]:
        """All ready origins in the ring's order, with their deficits; the groups are known then, too."""
        found = []
        origin = self.ring.head()
        while origin is not None:
            found.append((origin, self.book(origin).deficit))
            origin = self.ring.next_in_line(origin)
        return found

    def load_branches(self) -> None:
        """Let all groups be known."""
        return

    def load_books(self, origins: Iterable[str]) -> None:
        """Many books at once."""
        for origin in origins:
            self.book(origin)

    def standing(self, origin: str) -> Standing:
        """What is set under this name, for a queue or for a group."""
        return self.book(origin).standing

    def is_ordered(self, book: Book) -> bool:
        """Whether a queue's messages are processed one after the other: as set for its origin, else for the ring."""
        own = book.standing.ordered
        return self.config.ordered if own is None else own

    @abstractmethod
    def rejoin(self, book: Book, page: Page, item: int, weight: Weight | None) -> Address:
        """Enqueue a stored message once more, behind everything that was sent, with all that is known of it.

        :param weight: what it is known to weigh, if anything is known
        :return: where it lies now
        """

    def put_first(self, origin: str) -> None:
        """Let this origin start first in the next block."""
        self.load_branches()
        whose = head_of(origin)
        self.owed = [origin, *(one for one in self.owed if head_of(one) != whose)]
        self.branches.setdefault(ROOT, Branch(ROOT, 0, 0))
        self.changed_branches.add(ROOT)

    # What is the same for everybody.

    def only(self, patterns: OriginPatterns) -> None:
        """Service only the origins that match these patterns: for this walk, the others are in no ring."""
        self.patterns = patterns
        for ring in (self.high, self.ring):
            ring.only(patterns.takes)

    def takes(self, name: str) -> bool:
        """Return whether this walk services a book."""
        return self.patterns is None or self.patterns.takes(name)

    def circle(self, origin: str) -> Ring:
        """The ring in which this book has its place."""
        return self.high if origin.startswith(MARK) else self.ring

    def book(self, origin: str) -> Book:
        """The book of this origin."""
        book = self.books.get(origin)
        if book is None:
            book = self.books[origin] = self.fetch_book(origin)
        return book

    def page(self, origin: str, index: int) -> Page | None:
        """A page of the book of this origin, if it is stored."""
        key = (origin, index)
        if key not in self.pages:
            self.pages[key] = self.fetch_page(origin, index)
        return self.pages[key]

    def id_of(self, origin: str, page: Page, item: int) -> bytes:
        """The name of a stored message."""
        return message_id(self.payloads(origin, page)[item])

    def pull(self, book: Book) -> bool:
        """Cut the next mail of this origin into pages, by the rules of enqueuing."""
        mail = self.next_mail(book.origin)
        if mail is None:
            return False
        was_ready = book.is_ready
        page = self.page(book.origin, book.end - 1) if was_ready else None
        book.message_count += mail.items
        book.size += mail.held(0, mail.items)
        while mail.cut < mail.items:
            if page is None or not page.append(mail, self.config.heap_size):
                page = self._open_page(book)
            else:
                self.changed_pages.add((book.origin, page.index))
        self.changed_books.add(book.origin)
        self.was_cut(book, mail)
        if not was_ready and book.origin not in self.circle(book.origin):
            self.knit(book, mail)
        if mail.last:
            self.tell_changed(book)
        return True

    def pull_some(self, book: Book, wanted: int) -> bool:
        """Cut mail until that many messages more lie in pages, or there is none."""
        enough = book.message_count + wanted
        pulled = False
        while book.message_count < enough and self.pull(book):
            pulled = True
        return pulled

    def was_cut(self, book: Book, mail: Mail) -> None:
        """A chance for the owner to remember which mail lies in pages now."""
        return

    def knit(self, book: Book, mail: Mail) -> None:
        """Let a book that became ready by this mail enter the ring."""
        self.circle(book.origin).knit(book.origin)

    def _open_page(self, book: Book) -> Page:
        page = Page(book.end)
        self.pages[book.origin, book.end] = page
        book.end += 1
        book.count += 1
        return page

    def unknit(self, book: Book) -> None:
        """Let a book whose window is empty leave the ring."""
        ring = self.circle(book.origin)
        if book.origin in ring:
            ring.unknit(book.origin)
        else:
            ring.unknitted.add(book.origin)
        self.changed_books.add(book.origin)

    def touch(self, book: Book, page: Page) -> None:
        """Remember that a page and its book changed."""
        self.changed_books.add(book.origin)
        self.changed_pages.add((book.origin, page.index))

    def remove_page(self, book: Book, page: Page) -> None:
        """Take a page away, with whatever it still holds."""
        key = (book.origin, page.index)
        book.count -= 1
        self.pages[key] = None
        self.changed_pages.discard(key)
        self.changed_books.add(book.origin)
        self.removed_pages[key] = page

    def set_aside(self, book: Book, page: Page, item: int, aside: Aside) -> None:
        """Keep an attempted message for a person to decide."""
        self.asides[Address(book.origin, page.index, item)] = aside
        self.touch(book, page)

    def tell_serviced(self, book: Book) -> None:
        """Note that a visit processed something; a plan has not done it yet."""
        if not self.planning:
            self.tell_changed(book)

    def tell_changed(self, book: Book) -> None:
        """Note a call of the queue-changed hook, if anybody listens."""
        if self.listening:
            footprint, (high, regular) = book.footprint, books_of(origin_of(book.origin))
            if self.config.high:
                footprint = self.book(high).footprint.plus(self.book(regular).footprint)
            self.hooks.append((regular, footprint))

    def emit(
        self, fate: Fate, origin: str, page: int, index: int, id_: bytes,
        weight: Weight | None = None, detail: str = "",
    ) -> None:  # fmt: skip
        """Tell what became of one message."""
        last = self.events[-1] if self.events else None
        if last and last.takes(fate, origin, page, index, detail) and bool(last.weights) == (weight is not None):
            last.ids.append(id_)
        else:
            last = EventRun(fate, origin, page, index, [id_], [], detail)
            self.events.append(last)
        if weight is not None:
            last.weights.append(weight)
