"""A plain model of the queue in memory: lists and dicts, straight from the contract.

The model uses none of the package's rules. If the model and the package disagree, one
of them is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import blake2b
from typing import Any, NamedTuple

from airflow_mq.engine.rules.groups import is_below

from .account import Sums, added

HEADER = 5
WAITING, GONE, ASIDE = "waiting", "gone", "set aside"
Pair = tuple[int, int]


def plus(*pairs: Pair) -> Pair:
    return sum(p[0] for p in pairs), sum(p[1] for p in pairs)


def exceeds(first: Pair, second: Pair) -> bool:
    return first[0] > second[0] or first[1] > second[1]


def lesser(first: Pair, second: Pair) -> Pair:
    return min(first[0], second[0]), min(first[1], second[1])


def greater(first: Pair, second: Pair) -> Pair:
    return max(first[0], second[0]), max(first[1], second[1])


@dataclass(eq=False)
class Item:
    """A message, compared by identity."""

    payload: bytes
    origin: str
    declared: Pair | None = None
    expires: int | None = None
    attempts: int = 0
    state: str = WAITING
    #: The block that claims it.
    held: int | None = None
    reported: bool = False
    finals: int = 0
    #: Reasons to set it aside, with their limits; then the weight that was compared.
    reasons: dict[str, Any] = field(default_factory=dict)
    weighed: Pair | None = None

    @property
    def id(self) -> bytes:
        return blake2b(self.payload, digest_size=32).digest()


@dataclass(eq=False)
class Page:
    index: int
    items: list[Item] = field(default_factory=list)

    @property
    def used(self) -> int:
        return sum(len(item.payload) + HEADER for item in self.items)

    @property
    def left(self) -> list[Item]:
        return [item for item in self.items if item.state != GONE]

    @property
    def first(self) -> int:
        return next((at for at, item in enumerate(self.items) if item.state == WAITING), len(self.items))


@dataclass(eq=False)
class Book:
    origin: str
    begin: int = 0
    end: int = 0
    pages: dict[int, Page] = field(default_factory=dict)
    paused: bool = False
    until: int | None = None
    wake_at: int = 0
    share: int = 1
    least: Pair | None = None
    most: Pair | None = None
    ordered: bool | None = None

    @property
    def ready(self) -> bool:
        return self.end > self.begin

    def items(self) -> list[tuple[int, int, Item]]:
        return [(p.index, at, item) for _, p in sorted(self.pages.items()) for at, item in enumerate(p.items)]

    def window(self) -> list[tuple[int, int, Item]]:
        return [entry for entry in self.items() if entry[0] >= self.begin]


class Event(NamedTuple):
    name: str
    origin: str
    page: int
    index: int


@dataclass(eq=False)
class Claimed:
    """Claims of one visit, in order: page, index, item and decision."""

    origin: str
    items: list[tuple[int, int, Item, str]] = field(default_factory=list)


class Refusal(Exception):
    """A refusal of the contract, by name."""


FINAL = {"Processed", "ProcessingFailed", "Discarded", "Expired"}


class Plain:
    """A ring."""

    def __init__(self, config: Any, now: Callable[[], int]) -> None:
        self.config, self.now = config, now
        self.books: dict[str, Book] = {}
        #: Ready origins, from the head.
        self.ring: list[str] = []
        self.events: list[Event] = []
        self.keys: dict[tuple[str, str], tuple[int, bytes]] = {}
        self.delayed: list[tuple[int, int, list[Item]]] = []
        #: Paused groups, and the end of their pause.
        self.groups: dict[str, int | None] = {}
        self.all: list[Item] = []
        self.sent = 0
        #: The block that is settled, None in place, and what each block and origin was charged.
        self.block: int | None = None
        self.charges: dict[tuple[int | None, str], Sums] = {}
        #: Number of messages that waited aside so far.
        self.waited = 0
        #: Returns whether a window moved past its last page before the next message; only the store knows.
        self.was_left: Callable[[Book, Page], bool] = lambda book, page: False

    # Settings, as plain numbers.

    def cost(self, name: str) -> Pair:
        return tuple(getattr(self.config.costs, name))

    @property
    def visit_cost(self) -> Pair:
        return plus(self.cost("service_queue_base"), self.cost("ready_ring_unknit"))

    @property
    def page_cost(self) -> Pair:
        bases = (self.cost("service_page_base_completion"), self.cost("service_page_base_no_completion"))
        return max(b[0] for b in bases), max(b[1] for b in bases)

    @property
    def overhead(self) -> Pair:
        return plus(self.cost("bump_service_head"), self.visit_cost, self.page_cost, self.cost("service_page_item"))

    def reasons(self, origin: str, weight: Pair, limit: Pair, length: int = 0) -> dict[str, Any]:
        """Return each reason to set a message aside, and the exceeded limit."""
        return self.reasons_under(self.book(origin).most, weight, limit, length)

    def reasons_under(self, own: Pair | None, weight: Pair, limit: Pair, length: int = 0) -> dict[str, Any]:
        """Return the same reasons for an origin with this *most*."""
        config = self.config
        parts = [a - b for a, b in zip(config.service_weight or limit, self.overhead)]
        full = (0, 0) if min(parts) < 0 else (parts[0], parts[1])
        reasons: dict[str, Any] = {}
        if exceeds(weight, full):
            reasons["overweight"] = lesser(full, own or full)
        if own and exceeds(weight, own):
            reasons["most"] = lesser(full, own)
        if config.most_of_limit is not None:
            share = Fraction(str(config.most_of_limit))
            part = int(full[0] * share), int(full[1] * share)
            if exceeds(weight, part):
                reasons["fraction"] = part
        if config.max_message_size is not None and length > config.max_message_size:
            reasons["size"] = config.max_message_size
        return reasons

    def reasons_now(self, item: Item, weight: Pair, limit: Pair, fits: bool) -> dict[str, Any]:
        """Return the reasons for a message that is tried; a call with a larger limit may take more."""
        reasons = self.reasons(item.origin, weight, limit, len(item.payload))
        if fits and "most" not in reasons:
            reasons.pop("overweight", None)
        return reasons

    def weight(self, item: Item) -> Pair:
        """Return the declared weight, or the weigher's."""
        return item.declared or self.predicted(item)

    def predicted(self, item: Item) -> Pair:
        """Return the weigher's weight."""
        weigher, length = self.config.weigher, len(item.payload)
        return tuple(b - (-p * length // 1000) for b, p in zip(weigher.base, weigher.per_byte))  # type: ignore[return-value]

    def is_ordered(self, origin: str) -> bool:
        own = self.book(origin).ordered
        return self.config.ordered if own is None else own

    def book(self, origin: str) -> Book:
        return self.books.setdefault(origin, Book(origin))

    def emit(self, name: str, origin: str, page: int, index: int, item: Item | None = None) -> None:
        self.events.append(Event(name, origin, page, index))
        if item is not None and name in FINAL:
            item.finals += 1

    # Enqueue.

    def enqueue(
        self, entries: Iterable[tuple[str, bytes, str | None, Pair | None]], *,
        weight: Pair | None = None, due: int | None = None, expires: int | None = None,
    ) -> tuple[int, int, int]:  # fmt: skip
        entries = list(entries)
        for _, payload, _, _ in entries:
            if len(payload) > self.config.heap_size - HEADER:
                raise Refusal("MessageTooLong")
        keys, items, repeated = dict(self.keys), [], 0
        for origin, payload, key, declared in entries:
            if key is not None:
                known = keys.get((origin, key))
                if known and known[0] > self.now() - int(self.config.key_window * 1_000_000):
                    if known[1] != payload:
                        raise Refusal("KeyConflict")
                    repeated += 1
                    continue
                keys[origin, key] = self.now(), payload
            items.append(Item(payload, origin, declared or weight, expires))
        self.keys = keys
        self.all += items
        if due is not None:
            self.sent += 1
            self.delayed.append((due, self.sent, items))
            self.join_due()
        else:
            for item in items:
                self.append(item)
        return len(items), sum(len(item.payload) for item in items), repeated

    def append(self, item: Item) -> None:
        book = self.book(item.origin)
        page = book.pages.get(book.end - 1) if book.ready else None
        if page is not None and self.was_left(book, page):
            book.begin, page = book.end, None
            self.unknit_if_empty(book)
        if page is None or page.used + len(item.payload) + HEADER > self.config.heap_size:
            if not book.ready:
                self.ring.append(item.origin)
            page = book.pages[book.end] = Page(book.end)
            book.end += 1
        page.items.append(item)

    def join_due(self) -> None:
        """Append delayed messages that are due, as if sent now."""
        for entry in sorted(self.delayed, key=lambda delayed: delayed[:2]):
            if entry[0] <= self.now():
                self.delayed.remove(entry)
                for item in entry[2]:
                    self.append(item)

    # Skipping.

    def is_paused(self, book: Book) -> bool:
        untils = (until for name, until in self.groups.items() if is_below(book.origin, name))
        if any(until is None or until > self.now() for until in untils):
            return True
        return book.paused and (book.until is None or book.until > self.now())

    def is_skipped(self, book: Book, in_place: bool) -> bool:
        flying = any(item.held is not None and item.state == WAITING for _, _, item in book.window())
        return (
            self.is_paused(book) or (flying and (in_place or self.is_ordered(book.origin))) or book.wake_at > self.now()
        )

    # Charges.

    def charge(self, item: Item, **more: Any) -> None:
        """Charge the origin of a message, for the block that is settled."""
        key = self.block, item.origin
        self.charges[key] = self.charges.get(key, Sums()).plus(**more)

    def charge_attempt(self, item: Item, planned: Pair, used: Pair = (0, 0), *, finished: bool) -> None:
        """Charge an attempt that counts: never less than the weigher predicts, also if the sender declared less."""
        least = greater(planned, self.predicted(item)) if item.declared else planned
        self.charge(item, charged=greater(least, used), attempts=1)
        if finished:
            self.charge(item, messages=1, size=len(item.payload))

    def charged(self) -> dict[tuple[int | None, str], Sums]:
        """Return what each block and origin was charged."""
        return added(self.charges.items())

    # Ends of messages.

    def gone(self, name: str, page: int, index: int, item: Item) -> None:
        self.emit(name, item.origin, page, index, item)
        item.state = GONE

    def aside(
        self, name: str, page: int, index: int, item: Item, reasons: dict[str, Any], weighed: Pair | None
    ) -> None:
        self.emit(name, item.origin, page, index)
        self.charge(item, aside=1)
        item.state, item.reasons, item.weighed = ASIDE, reasons, weighed

    def gives_back(self, page: int, index: int, item: Item) -> bool:
        """Count an attempt without an outcome; return whether the message is requeued."""
        item.attempts += 1
        config = self.config
        if config.max_attempts is not None and item.attempts >= config.max_attempts:
            self.aside("AttemptsExhausted", page, index, item, {"attempts": None}, item.declared)
            return False
        self.emit("Returned", item.origin, page, index)
        if config.backoff:
            wait = min(config.backoff * 2 ** (item.attempts - 1), config.backoff_most)
            due = self.now() + int(wait * 1_000_000)
            if self.is_ordered(item.origin):
                self.book(item.origin).wake_at = due
            else:
                self.wait_aside(page, index, item, due)
        return True

    def puts_off(self, origin: str) -> bool:
        """Return whether a message that returned waits aside."""
        return bool(self.config.backoff) and not self.is_ordered(origin)

    def wait_aside(self, page: int, index: int, item: Item, due: int) -> None:
        """Let a message leave its place, and join its queue again when it is due, as if it were sent then."""
        self.book(item.origin).pages[page].items[index] = Item(item.payload, item.origin, state=GONE)
        self.sent += 1
        self.delayed.append((due, self.sent, [item]))
        self.waited += 1

    def waiting_aside(self, origin: str) -> list[tuple[int, int, list[Item]]]:
        """Return the delayed messages of an origin that returned, and are not due."""
        return [
            one for one in self.delayed if one[0] > self.now() and one[2][0].origin == origin and one[2][0].attempts
        ]

    def waits(self, origin: str) -> bool:
        """Return whether an origin or some of its messages wait for a backoff."""
        return self.book(origin).wake_at > self.now() or bool(self.waiting_aside(origin))

    def end_backoff(self, origin: str) -> None:
        self.book(origin).wake_at = 0
        for late in self.waiting_aside(origin):
            self.delayed[self.delayed.index(late)] = (self.now(), *late[1:])

    def close_page(self, book: Book, page: int, *, for_good: bool = True) -> None:
        """Remove an empty page, and move the window past tried messages."""
        stored_page = book.pages.get(page)
        if stored_page is not None and not stored_page.left:
            del book.pages[page]
            for_good = True
        if (
            page == book.begin
            and book.ready
            and for_good
            and (stored_page is None or stored_page.first == len(stored_page.items))
        ):
            book.begin += 1
        while book.ready and book.begin not in book.pages:
            book.begin += 1
        self.unknit_if_empty(book)

    def unknit_if_empty(self, book: Book) -> None:
        if not book.ready and book.origin in self.ring:
            self.ring.remove(book.origin)

    # Overweight messages, reaping and operator decisions.

    def find(self, origin: str, page: int, index: int) -> Item:
        book = self.book(origin)
        if self.is_paused(book):
            raise Refusal("QueuePaused")
        stored_page = book.pages.get(page)
        if stored_page is None:
            raise Refusal("NoPage")
        if index >= len(stored_page.items):
            raise Refusal("NoMessage")
        item = stored_page.items[index]
        if item.state == WAITING and page >= book.begin:
            raise Refusal("Queued")
        if item.state == GONE:
            raise Refusal("AlreadyProcessed")
        return item

    def take_away(self, item: Item, page: int) -> Pair:
        """Remove an ended message behind the window; return the bookkeeping cost."""
        book = self.book(item.origin)
        removed = not book.pages[page].left
        if removed:
            del book.pages[page]
            if page == book.begin:
                while book.ready and book.begin not in book.pages:
                    book.begin += 1
                self.unknit_if_empty(book)
        return self.cost(f"execute_overweight_page_{'removed' if removed else 'updated'}")

    def reap(self, origin: str, index: int) -> None:
        book = self.book(origin)
        if index in book.pages and any(item.held is not None for item in book.pages[index].items):
            raise Refusal("InFlight")
        if index >= book.begin:
            raise Refusal("NotReapable")
        if index not in book.pages:
            raise Refusal("NoPage")
        stale, most = len(book.pages) - (book.end - book.begin), self.config.max_stale
        overflow = stale - most
        if overflow <= 0 or index >= max(0, book.begin - max(most * most // overflow, most)):
            raise Refusal("NotReapable")
        for at, item in enumerate(book.pages[index].items):
            if item.state != GONE:
                self.gone("Discarded", index, at, item)
        del book.pages[index]
        self.emit("PageRemoved", origin, index, 0)

    def sweep(self, origin: str) -> int:
        book = self.book(origin)
        if any(item.held is not None for _, _, item in book.window() if item.state == WAITING):
            raise Refusal("InFlight")
        if not book.ready:
            return 0
        self.emit("Swept", origin, book.begin, 0)
        book.begin = book.end
        self.unknit_if_empty(book)
        return sum(len(page.left) for page in book.pages.values())

    def force_head(self, origin: str) -> bool:
        if origin not in self.ring:
            return False
        at = self.ring.index(origin)
        self.ring = self.ring[at:] + self.ring[:at]
        return True

    # Observed state.

    def state(self) -> dict[str, Any]:
        books = {}
        for origin, book in self.books.items():
            if not book.end:
                continue
            remaining = [item for page in book.pages.values() for item in page.left]
            books[origin] = {
                "begin": book.begin, "end": book.end, "count": len(book.pages), "ready": book.ready,
                "message_count": len(remaining), "size": sum(len(item.payload) for item in remaining),
                "pages": {
                    index: (page.first if index >= book.begin else None,
                            [(len(item.payload), item.state == GONE) for item in page.items])
                    for index, page in sorted(book.pages.items())
                },
            }  # fmt: skip
        return books

    def footprint(self, origin: str) -> tuple[int, int, int, int]:
        """Return the footprint, in which reported outcomes count at once."""
        book = self.book(origin)
        visible = [item for page in book.pages.values() for item in page.left if not item.reported]
        return len(book.pages), book.end - book.begin, len(visible), sum(len(item.payload) for item in visible)

    def set_aside(self) -> list[tuple[str, int, int]]:
        return sorted(
            (origin, page, at)
            for origin, book in self.books.items()
            for page, at, item in book.items()
            if item.state == ASIDE or (item.state == WAITING and page < book.begin)
        )

    def reasons_aside(self) -> dict[tuple[str, int, int], dict[str, Any]]:
        """Return the reasons of each set-aside message."""
        reasons = {}
        for origin, page, at in self.set_aside():
            item = self.book(origin).pages[page].items[at]
            reasons[origin, page, at] = item.reasons if item.state == ASIDE else {"swept": None}
        return reasons

    def looks(self, origin: str) -> list[tuple[int, int, bytes, str, int]]:
        """Return the window as a reader sees it."""
        visible = []
        for page, at, item in self.book(origin).window():
            if item.state != GONE:
                state = "reported" if item.reported else "in flight" if item.held is not None else item.state
                visible.append((page, at, item.payload, state, item.attempts))
        return visible
