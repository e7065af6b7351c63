"""Servicing step by step as in the contract, over the plain model: in place, and as a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from airflow_mq.testing import Script

from .plain import GONE, WAITING, Book, Claimed, Item, Page, Pair, Plain, exceeds, plus

BAILED, STUCK, NO_MORE = "bailed", "no progress", "no more"


@dataclass
class Meter:
    limit: Pair
    used: Pair = (0, 0)

    def fits(self, weight: Pair) -> bool:
        return not exceeds(plus(self.used, weight), self.limit)

    def pay(self, weight: Pair) -> bool:
        if not self.fits(weight):
            return False
        self.used = plus(self.used, weight)
        return True


@dataclass
class Rotation:
    """A call in the contract's order; subclasses define how messages are tried."""

    plain: Plain
    meter: Meter
    in_place: bool = True
    tried: list[tuple[str, bytes]] = field(default_factory=list)

    def run(self) -> None:
        plain = self.plain
        if not self.meter.pay(plain.cost("bump_service_head")) or not plain.ring:
            return
        origin = plain.ring[0]
        plain.ring = [*plain.ring[1:], origin]
        self.ring = self.my_ring()
        remembered: str | None = None
        while True:
            progress, successor = self.queue(origin)
            if successor is None:
                return
            if progress:
                remembered = None
            elif remembered == successor:
                return
            elif remembered is None and origin in self.ring:
                remembered = origin
            origin = successor

    def my_ring(self) -> list[str]:
        return self.plain.ring

    def after(self, origin: str) -> str:
        return self.ring[(self.ring.index(origin) + 1) % len(self.ring)]

    def queue(self, origin: str) -> tuple[bool, str | None]:
        if not self.meter.pay(self.plain.visit_cost) or origin not in self.ring:
            return False, None
        book = self.plain.book(origin)
        if self.plain.is_skipped(book, self.in_place):
            return False, self.after(origin)
        processed = self.pages(book)
        successor = self.after(origin)
        if not self.is_ready(book):
            self.ring.remove(origin)
        return processed > 0, successor

    def pages(self, book: Book) -> int:
        total, status = 0, NO_MORE
        while self.is_ready(book):
            if not self.meter.pay(self.plain.page_cost):
                break
            page = book.pages.get(self.begin(book))
            if page is None:
                # However many pages are missing, it is one step.
                while self.is_ready(book) and self.begin(book) not in book.pages:
                    self.move_on(book)
                continue
            processed, status = self.page(book, page)
            total += processed
            self.leave(book, page, status)
            if status != NO_MORE:
                break
            self.move_on(book)
        if status == STUCK:
            self.skip_gone(book)
        return total

    def page(self, book: Book, page: Page) -> tuple[int, str]:
        processed, item_cost = 0, self.plain.cost("service_page_item")
        while True:
            if self.complete(page):
                return processed, NO_MORE
            if not self.meter.pay(item_cost):
                return processed, BAILED
            at = next((at for at, item in enumerate(page.items) if self.untried(item)), None)
            if at is None:
                return processed, NO_MORE
            done, status = self.item(book, page, at, page.items[at])
            processed += done
            if status:
                return processed, status

    # Steps in place, which a plan overrides.

    def begin(self, book: Book) -> int:
        return book.begin

    def is_ready(self, book: Book) -> bool:
        return book.ready

    def complete(self, page: Page) -> bool:
        return not page.left

    def untried(self, item: Item) -> bool:
        return item.state == WAITING

    def leave(self, book: Book, page: Page, status: str) -> None:
        if not page.left:
            del book.pages[page.index]

    def move_on(self, book: Book) -> None:
        book.begin += 1

    def skip_gone(self, book: Book) -> None:
        """Move past a page whose last message waits aside."""
        while book.ready and book.begin not in book.pages:
            book.begin += 1

    def item(self, book: Book, page: Page, at: int, item: Item) -> tuple[int, str | None]:
        raise NotImplementedError


class InPlace(Rotation):
    """A scripted processor that meters itself, and yields for some origins."""

    yielding: frozenset[str] = frozenset()

    def item(self, book: Book, page: Page, at: int, item: Item) -> tuple[int, str | None]:
        plain = self.plain
        if item.expires is not None and item.expires <= plain.now():
            plain.gone("Expired", page.index, at, item)
            return 1, None
        barred = barred_in_place(plain, item, self.meter.limit)
        if barred:
            plain.aside("SetAside", page.index, at, item, barred, plain.weight(item))
            return 0, None
        self.tried.append((book.origin, item.payload))
        answer, sent = answered(item, self.meter, self.yielding)
        return apply(plain, page, at, item, answer, sent, self.meter.limit)


Answer = tuple[str, Pair]


Sent = list[tuple[str, bytes]]


def answered(item: Item, meter: Meter, yielding: frozenset[str] = frozenset()) -> tuple[Answer, Sent]:
    """Return the answer of the scripted processor: a word, and the weight if it is overweight."""
    if item.origin in yielding:
        return ("yield", (0, 0)), []
    script = Script.read(item.payload)
    acts = [(act[1].partition("/")[0], act[1].partition("/")[2].replace("+", ";").encode()) for act in script.acts]
    words = item.payload.decode().partition("#")[0].split(";")
    for word in words:
        name, _, value = word.partition("=")
        if name == "over":
            time, _, size = value.partition(",")
            return ("over", (int(time), int(size))), []
        if name == "yield":
            return ("yield", (0, 0)), []
        if name in ("bad", "corrupt", "unsupported", "stack"):
            return ("wrong", (0, 0)), []
    if not meter.pay(tuple(script.weight)):  # type: ignore[arg-type]
        return ("over", tuple(script.weight)), []  # type: ignore[return-value]
    return ("done", (0, 0)), acts


def barred_in_place(plain: Plain, item: Item, limit: Pair) -> dict[str, Any]:
    """Return the ring's limits that set a message aside before a self-metering processor is called."""
    reasons = plain.reasons(item.origin, plain.weight(item), limit, len(item.payload))
    return reasons if reasons.keys() & {"fraction", "size"} else {}


def apply(
    plain: Plain, page: Page, at: int, item: Item, answer: Answer, sent: list[tuple[str, bytes]], limit: Pair
) -> tuple[int, str | None]:
    """Apply an answer to a message that is tried in place."""
    word, weight = answer
    # It meters itself, and consumes the weight of a message that is done.
    used: Pair = tuple(Script.read(item.payload).weight) if word == "done" else (0, 0)  # type: ignore[assignment]
    plain.charge(item, planned=used)
    if word != "over":
        plain.charge_attempt(item, plain.weight(item), used, finished=word != "yield")
    if word == "over":
        reasons = plain.reasons(item.origin, weight, limit)
        if not reasons:
            return 0, BAILED
        plain.aside("SetAside", page.index, at, item, reasons, weight)
        return 0, None
    if word == "yield":
        return 0, STUCK if plain.gives_back(page.index, at, item) else None
    plain.gone("Processed" if word == "done" else "ProcessingFailed", page.index, at, item)
    for origin, payload in sent:
        fresh = Item(payload, origin)
        plain.all.append(fresh)
        plain.append(fresh)
    return 1, None


class OnPaper(Rotation):
    """A plan: only the head moves; messages are claimed or decided."""

    def __init__(self, plain: Plain, meter: Meter, weigh: Callable[[Item], Pair]) -> None:
        super().__init__(plain, meter, in_place=False)
        self.weigh = weigh
        self.claims: list[Claimed] = []
        self.planned: Pair = (0, 0)
        self.taken: dict[Item, str] = {}
        self.begins: dict[str, int] = {}

    def my_ring(self) -> list[str]:
        return list(self.plain.ring)

    def begin(self, book: Book) -> int:
        at = self.begins.setdefault(book.origin, book.begin)
        return at

    def is_ready(self, book: Book) -> bool:
        return book.end > self.begin(book)

    def complete(self, page: Page) -> bool:
        return all(
            item.state == GONE or (item.held is not None and item.state == WAITING)
            or self.taken.get(item) in ("process", "expired")
            for item in page.items
        )  # fmt: skip

    def untried(self, item: Item) -> bool:
        return item.state == WAITING and item.held is None and item not in self.taken

    def leave(self, book: Book, page: Page, status: str) -> None:
        """Move nothing."""

    def move_on(self, book: Book) -> None:
        self.begins[book.origin] += 1

    def pages(self, book: Book) -> int:
        self.claims.append(Claimed(book.origin))
        return super().pages(book)

    def item(self, book: Book, page: Page, at: int, item: Item) -> tuple[int, str | None]:
        weight = self.weigh(item)
        if item.expires is not None and item.expires <= self.plain.now():
            return self.take(page, at, item, "expired", 1)
        if self.plain.reasons_now(item, weight, self.meter.limit, self.meter.fits(weight)):
            return self.take(page, at, item, "aside", 0)
        if not self.meter.pay(weight):
            return 0, BAILED
        self.planned = plus(self.planned, weight)
        return self.take(page, at, item, "process", 1)

    def take(self, page: Page, at: int, item: Item, decision: str, processed: int) -> tuple[int, None]:
        self.taken[item] = decision
        self.claims[-1].items.append((page.index, at, item, decision))
        return processed, None
