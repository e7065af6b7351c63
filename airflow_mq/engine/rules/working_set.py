"""Working set: the books, pages and inbox rows of a ring that one operation loads and changes.

The rules read books and pages here and change them in memory. A loader fetches them when the rules first ask for
them; `changes` records what a writer must store afterwards, all at once. The rules never wait and never know where
a ring is stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

from .book import BUDGET, Book, Group, QueueSettings
from .budget import Bucket
from .changes import POSTED, Changes, PutOff
from .characters import quoted
from .charging import NO_CHARGE, Charge
from .config import RingConfig
from .errors import StoreCorrupt
from .events import EventRun, Fate
from .groups import ROOT, head_of
from .message import PLAIN, Address, Attributes, Footprint, Posted, message_id
from .page import NO_NOTE, Facts, Page, Rows
from .patterns import OPEN, OriginPatterns, Permit
from .priority import MARK, books_of, is_high, origin_of, told
from .ring import Ring
from .weight import ZERO, Meter, Weight


class Loader(Protocol):
    """The part of a working set that reads."""

    def more(self, *, high: bool) -> list[str]:
        """Return the next ready books of one priority in the ring's order; an empty list after the last."""

    def look_on(self, most: int, known: Container[str], *, high: bool) -> tuple[list[str], bool]:
        """Return books of one priority at a remembered place, and whether the look came to the head or to known ones.

        Each look goes on where the last one ended.
        """

    def load_books(self, origins: Iterable[str]) -> None:
        """Load books that are not loaded yet; an origin without a stored book gets an empty one."""

    def load_page(self, origin: str, index: int) -> None:
        """Load a page if it is stored; the loader may load others with it."""

    def load_payloads(self, origin: str, page: Page, stop: int | None = None) -> None:
        """Complete the payloads of a page, at least those before `stop`."""

    def facts(self, origin: str, page: Page, first: int, stop: int) -> Facts:
        """Return facts about the messages of a page, at least about those from `first` to before `stop`."""

    def next_rows(self, origin: str, most: int) -> Rows | None:
        """Return the next rows of an origin's inbox that lie in no page yet; None after the last.

        :param most: return no row behind those with so many messages.
        """

    def ticket_for(self, origin: str, row_id: int) -> int | None:
        """Return the place of a book that becomes ready by this row; None for the end of the ring."""

    def keep_posted(self, id_: int, posted: Posted) -> None:
        """Bring this message after all other rows of its inbox."""

    def arrival(self, address: Address) -> tuple[int, int | None]:
        """Return when a stored message was sent, and the number of the first block planned since."""

    # Used only by rings with paths.

    def load_groups(self) -> None:
        """Load all groups."""

    def line(self) -> list[tuple[str, int]]:
        """Return all ready regular books in the ring's order, with their deficits."""

    def settings(self, name: str) -> QueueSettings:
        """Return the settings of a queue or of a group."""


class Turns(Protocol):
    """Turns that a walk gives, by the deficits that it has read. An end that is applied meanwhile charges these."""

    def charge(self, name: str, parts: int, *, is_group: bool) -> int | None:
        """Charge a queue or a group; return its deficit, or None if it takes no part in the turns."""


class WorkingSet:
    """The part of a ring that one operation loaded, and the record of its changes."""

    def __init__(
        self, config: RingConfig, now: int, loader_of: Callable[[WorkingSet], Loader], *, planning: bool = False,
        listening: bool = False, permit: Permit = OPEN, traces: bool = False,
    ) -> None:  # fmt: skip
        """Begin without any book.

        :param now: the store's clock, in microseconds.
        :param loader_of: returns a loader that reads for a working set.
        :param planning: the operation only claims: what it does to books and pages is not written.
        :param listening: record a call of the queue-changed hook for each changed queue.
        :param permit: the origins to which processors may send.
        :param traces: whether messages that a processor sends continue the trace of its message.
        """
        self.config = config
        self.now = now
        self.planning = planning
        self.listening = listening
        self.permit = permit
        self.traces = traces
        self.books: dict[str, Book] = {}
        #: Buckets of the budgets that pay for messages of the loaded books.
        self.buckets: dict[str, Bucket] = {}
        self.pages: dict[tuple[str, int], Page | None] = {}
        #: A range of each window in which no page is stored.
        self.gaps: dict[str, range] = {}
        #: Of a ring with paths: the groups that are loaded, and the queues that come first in the next block.
        self.groups: dict[str, Group] = {}
        self.owed: list[str] = []
        self.turns: Turns | None = None
        #: Parts of a block that high messages owe to regular ones, and whether only those that this walk services do:
        #: then the ring keeps a debt of its own.
        self.debt, self.owns_debt = 0, False
        #: The origins that this walk services; None for all.
        self.patterns: OriginPatterns | None = None
        #: The meter, if it pays for each message the weight that the ring's weigher predicts.
        self.meter: Meter | None = None
        #: The processor of the claim that is being settled. The claim paid for its messages; None in place.
        self.processor: str | None = None
        #: Whether skipped books keep their places, except the first few; and the names of those that did, by reason.
        self.keeps_places = False
        self.skipped: defaultdict[str, list[str]] = defaultdict(list)
        #: Names of groups that this walk skips with everything below them, by reason.
        self.halted: defaultdict[str, set[str]] = defaultdict(set)
        #: What the present visit in place, or the claim being settled, was charged beyond the planned weight.
        self.overrun = ZERO
        #: Books that this walk does not service, because an earlier walk of the same call did.
        self.left_out: Collection[str] = ()
        self.changes = Changes()
        self._hooks: list[tuple[str, Footprint]] = []
        self._next_posted = POSTED
        self.loader = loader = loader_of(self)
        #: Regular books in the ring's order, and high books, which come first.
        self.ring = Ring(partial(loader.more, high=False))
        self.high = Ring(partial(loader.more, high=True))

    # Books and pages.

    def book(self, origin: str) -> Book:
        """Return the book of an origin."""
        book = self.books.get(origin)
        if book is None:
            self.loader.load_books([origin])
            book = self.books[origin]
        return book

    def page(self, origin: str, index: int) -> Page | None:
        """Return a page; None if it is not stored."""
        key = (origin, index)
        if key not in self.pages:
            self.loader.load_page(origin, index)
            self.pages.setdefault(key, None)
        return self.pages[key]

    def after(self, origin: str, index: int) -> int:
        """Return the next index at which a window may have a page; a known gap is one step."""
        gap = self.gaps.get(origin)
        return gap.stop if gap is not None and index in gap else index + 1

    def window(self, book: Book, *, pulls: bool = False) -> Iterator[Page]:
        """Yield the pages of a book's window, in order.

        :param pulls: go on with rows of the inbox; the last page comes again when rows were cut into it
        """
        index = book.begin
        while index < book.end or (pulls and self.pull(book)):
            page = self.page(book.origin, index)
            if page is not None:
                yield page
            following = self.after(book.origin, index)
            index = following if following < book.end or not (pulls and self.pull(book)) else index

    def page_at(self, address: Address) -> Page | None:
        """Return the page of a message, with the inbox cut up to there; None if there is no such message."""
        book, more = self.book(address.book), True
        while more and book.end <= address.page:
            more = self.pull(book)
        page = self.page(address.book, address.page)
        while more and page is not None and page.index == book.end - 1 and address.index >= len(page.lengths):
            more = self.pull(book)
        return page if page is not None and address.index < len(page.lengths) else None

    def payloads(self, origin: str, page: Page, stop: int | None = None) -> list[bytes]:
        """Return the messages of a page, in order, at least those before `stop` that are not processed."""
        if page.resolved < len(page.slices) and (stop is None or len(page.payloads) < stop):
            self.loader.load_payloads(origin, page, stop)
        return page.payloads

    def id_of(self, origin: str, page: Page, item: int) -> bytes:
        """Return the name of a stored message."""
        return message_id(self.payloads(origin, page, item + 1)[item])

    def attributes(self, origin: str, page: Page, item: int) -> Attributes:
        """Return what is set on a stored message."""
        note, stored = page.notes.get(item, NO_NOTE), PLAIN
        if note.beside:
            stored = self.loader.facts(origin, page, item, item + 1).attributes.get(item, PLAIN)
        return note.upon(stored)

    def puts_off(self, book: Book) -> bool:
        """Return whether a message that returned waits aside, and does not keep its queue waiting."""
        return bool(self.config.backoff) and not self.is_ordered(book)

    def is_ordered(self, book: Book) -> bool:
        """Return whether a queue's messages are processed one after the other, by its own setting or the ring's."""
        own = book.settings.ordered
        return self.config.ordered if own is None else own

    # Budgets over time.

    def buckets_of(self, book: Book) -> Sequence[Bucket]:
        """Return the buckets that pay for a queue's messages, refilled until now."""
        found = [self.buckets[name] for name in book.budgets]
        for bucket in found:
            bucket.refill(self.now)
        return found

    def deny(self, book: Book, weight: Weight, page: int, item: int) -> bool:
        """Let a queue wait if a bucket does not cover its next message; return whether one does not.

        All queues of such a bucket wait, so that none of them passes this message.
        """
        denying = [bucket for bucket in self.buckets_of(book) if not bucket.covering([weight])]
        for bucket in denying:
            self.changes.buckets.add(bucket.path)
            if bucket.wait_for(weight):
                why = f"the budget of {quoted(bucket.path)} is used up"
                self.changes.exhaustions.append(
                    EventRun(Fate.BUDGET_EXHAUSTED, book.origin, page, item, [b""], [], why)
                )
        return self.waits_for(book, denying)

    def waits_for(self, book: Book, buckets: Collection[Bucket]) -> bool:
        """Let a queue wait for these buckets; return whether there is one."""
        for bucket in buckets:
            book.skipped = BUDGET
            if not is_high(book.origin):
                bucket.want()
        return bool(buckets)

    def spend(self, buckets: Iterable[Bucket], weight: Weight) -> None:
        """Charge buckets with the planned weight of messages that start."""
        for bucket in buckets:
            bucket.charge(weight)
            self.changes.buckets.add(bucket.path)

    def _repay(self, book: Book, charge: Charge) -> None:
        """Correct the buckets of a queue when messages end: a plan, or a visit, took their planned weight."""
        for bucket in self.buckets_of(book):
            bucket.refund(charge.planned, charge.charged)
            if bucket.wake_at > self.now:
                bucket.wait_for(bucket.needs)
            self.changes.buckets.add(bucket.path)

    # The ring.

    def only(self, patterns: OriginPatterns | None, debt: int | None, *, but: Collection[str] = ()) -> None:
        """Service only the origins that match: for this walk, the others are in no ring.

        :param debt: what high messages of these origins owe to regular ones; None if the ring keeps that.
        :param but: books to leave out.
        """
        self.patterns, self.left_out = patterns, but
        if debt is not None:
            self.debt, self.owns_debt = debt, True
        for ring in (self.high, self.ring):
            ring.only(self.takes)

    def takes(self, name: str) -> bool:
        """Return whether this walk services a book."""
        return (self.patterns is None or self.patterns.takes(name)) and name not in self.left_out

    def circle(self, origin: str) -> Ring:
        """Return the ring in which a book has its place."""
        return self.high if origin.startswith(MARK) else self.ring

    def put_first(self, origin: str) -> None:
        """Let an origin start first in the next block."""
        self.loader.load_groups()
        head = head_of(origin)
        self.owed = [origin, *(other for other in self.owed if head_of(other) != head)]
        self.groups.setdefault(ROOT, Group(ROOT, 0, 0))
        self.changes.groups.add(ROOT)

    def unknit(self, book: Book) -> None:
        """Let a book whose window is empty leave the ring."""
        ring = self.circle(book.origin)
        if book.origin in ring:
            ring.unknit(book.origin)
        else:
            ring.unknitted.add(book.origin)
        self.changes.books.add(book.origin)

    def _knit(self, origin: str, row_id: int) -> None:
        """Let a book that became ready by this row enter the ring, at the place that the row gives it."""
        ring = self.circle(origin)
        if origin in ring:
            return
        ticket = None if origin in ring.unknitted else self.loader.ticket_for(origin, row_id)
        if ticket is None:
            ring.knit(origin)
        else:
            self.changes.tickets[origin] = ticket

    # Cutting inbox rows into pages.

    def pull(self, book: Book, most: int = 1) -> bool:
        """Cut the next inbox rows of an origin into pages; return whether there was one.

        :param most: cut no row behind those with so many messages.
        """
        rows = self.loader.next_rows(book.origin, most)
        if rows is None:
            return False
        was_ready = book.is_ready
        page = self.page(book.origin, book.end - 1) if was_ready else None
        cut, messages, size = self.changes.cut[book.origin], len(rows.lengths), rows.size
        cut.messages += messages
        cut.size += size
        book.message_count += messages
        book.size += size
        left = rows
        while left.lengths:
            rest = page.append(left, self.config.heap_size) if page else left
            if page is None or rest is left:
                page = self._open_page(book, page)
            else:
                self.changes.cut_pages.add((book.origin, page.index))
                left = rest
        if not was_ready:
            self._knit(book.origin, rows.row_ids[0])
        if rows.last:
            self.note_changed(book)
        return True

    def pull_all(self, book: Book) -> None:
        """Cut all inbox rows of an origin."""
        while self.pull(book):
            pass

    def pull_some(self, book: Book, count: int) -> bool:
        """Cut rows until that many messages more lie in pages, or there is none; return whether any was cut."""
        enough, pulled = book.message_count + count, False
        # Listeners hear of each call of a sender.
        while book.message_count < enough and self.pull(book, 1 if self.listening else enough - book.message_count):
            pulled = True
        return pulled

    def _open_page(self, book: Book, full: Page | None) -> Page:
        """Open a page behind one that has no room for the next message."""
        if full is not None and not full.lengths:
            # Each further page would stay empty as well.
            raise StoreCorrupt(
                f"a message of {told(book.origin)} does not fit an empty page of {self.config.heap_size:,} bytes: its "
                "sender knew a larger heap_size than this process; nothing was changed; try again, and report this if "
                "it repeats"
            )
        page = Page(book.end)
        self.pages[book.origin, book.end] = page
        book.end += 1
        book.count += 1
        return page

    # Messages that the operation enqueues.

    def post_all(self, sent: Iterable[Posted]) -> None:
        """Enqueue on behalf of a processor, in order: behind all that was sent before, in the same commit."""
        for message in sent:
            self._post(message if message.attributes is PLAIN else message._replace(sent_at=self.now))

    def rejoin(self, book: Book, page: Page, item: int, weight: Weight | None) -> Address:
        """Enqueue a stored message once more, behind all that was sent, with all that is known of it.

        :param weight: its weight, if that is known.
        :return: the new address; all rows of the inbox are cut, so that there is one.
        """
        origin = book.origin
        sent_at, block = self.loader.arrival(Address(origin, page.index, item))
        attributes = self.attributes(origin, page, item)._replace(weight=weight, arrived=block)
        self._post(Posted(origin, self.payloads(origin, page, item + 1)[item], attributes, sent_at))
        self.pull_all(book)
        last = self.page(origin, book.end - 1)
        assert last is not None
        return Address(origin, last.index, len(last.lengths) - 1)

    def put_off(self, book: Book, page: Page, item: int, due: int) -> None:
        """Let a stored message join its queue once more when it is due, with all that is known of it."""
        attributes = self.attributes(book.origin, page, item)
        payload = self.payloads(book.origin, page, item + 1)[item]
        self.changes.put_off.append(PutOff(Posted(book.origin, payload, attributes), due, page, item))

    def _post(self, posted: Posted) -> None:
        self.changes.posted[self._next_posted] = posted
        self.loader.keep_posted(self._next_posted, posted)
        self._next_posted += 1
        book = self.book(posted.origin)
        if self.listening:
            self.pull_all(book)
        elif not book.is_ready:
            self.pull(book)

    # Changes.

    def touch(self, book: Book, page: Page) -> None:
        """Record that a page and its book changed."""
        self.changes.books.add(book.origin)
        self.changes.pages.add((book.origin, page.index))

    def remove_page(self, book: Book, page: Page) -> None:
        """Remove a page with all that it still holds."""
        key = (book.origin, page.index)
        book.count -= 1
        self.pages[key] = None
        self.changes.pages.discard(key)
        self.changes.books.add(book.origin)
        self.changes.removed_pages[key] = page

    def charge(self, origin: str, charge: Charge) -> None:
        """Charge a book for messages of the present processor: the only way to do so."""
        if charge == NO_CHARGE:
            return
        key, charges = (origin, self.processor or ""), self.changes.charges
        known = charges.get(key)
        charges[key] = charge if known is None else known.plus(charge)
        if self.buckets and charge.planned != charge.charged:
            self._repay(self.book(origin), charge)

    def charge_measured(self) -> None:
        """Charge the measured time that exceeds the charged one, if the ring does so."""
        if not self.config.charges_time:
            return
        before = self.processor
        for (origin, processor), charge in list(self.changes.charges.items()):
            more = charge.measured // 1_000 - charge.charged.time
            if more > 0:
                self.processor = processor
                self.charge(origin, Charge(charged=Weight(more, 0)))
        self.processor = before

    def note_changed(self, book: Book) -> None:
        """Record a call of the queue-changed hook if there are listeners."""
        if self.listening:
            footprint, (high, regular) = book.footprint, books_of(origin_of(book.origin))
            if self.config.high:
                footprint = self.book(high).footprint.plus(self.book(regular).footprint)
            self._hooks.append((regular, footprint))

    def take_hooks(self) -> list[tuple[str, Footprint]]:
        """Return the recorded calls of the queue-changed hook, once."""
        hooks, self._hooks = self._hooks, []
        return hooks

    def emit(
        self, fate: Fate, origin: str, page: int, index: int, id_: bytes, weight: Weight | None = None, detail: str = ""
    ) -> None:
        """Record the event of one message."""
        events = self.changes.events
        last = events[-1] if events else None
        if last and last.takes(fate, origin, page, index, detail) and bool(last.weights) == (weight is not None):
            last.ids.append(id_)
        else:
            last = EventRun(fate, origin, page, index, [id_], [], detail)
            events.append(last)
        if weight is not None:
            last.weights.append(weight)
