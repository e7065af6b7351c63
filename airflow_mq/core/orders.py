"""Whose turn it is: three orders of service over the same ladder.

*Rotation* is the contract's: the head moves one on per call, and each queue is drained
while weight lasts. *Deficit* is weighted deficit round-robin: each visited queue earns a
quantum per round and spends it on messages from its front, and what it could not spend is
kept from block to block. *Shuffle* services in an order that a seed decides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, islice
from typing import Any

from .book import Book
from .config import BLOCK_PARTS
from .outcome import PageStatus
from .priority import REGULAR, origin_of
from .ring import Ring
from .service import Ladder, Visited
from .weight import UNLIMITED, ZERO, Meter, Weight

#: After so many queues in a row whose next message did not fit what is left of the block,
#: a deficit walk stops looking at queues it has not met yet: a ring may hold a hundred thousand.
LOOK_PAST = 64


@dataclass
class Entry:
    """A line of the ledger: what a block did for one queue it looked at."""

    #: Within a walk, the name of the book.
    origin: str
    #: What it could spend: its deficit after earning, in parts of a block. Zero in other orders.
    offered: int = 0
    #: What its messages used, and how many of them there were.
    granted: Weight = ZERO
    messages: int = 0
    #: What it keeps for its next turn.
    deficit: int = 0
    #: Why it stopped there.
    reason: str = ""
    visits: int = 0
    priority: str = REGULAR
    #: Weight of its first message, where that is more than the whole block could carry: the queue is stuck behind it.
    needs: Weight | None = None


class Ledger:
    """What a block offered and granted, queue by queue, in the order of their first visits."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        #: What is recorded of the block as a whole.
        self.head: dict[str, Any] | None = None

    @property
    def stuck(self) -> list[Entry]:
        """The lines of queues that stopped at a message heavier than the whole block."""
        return [entry for entry in self.entries.values() if entry.needs is not None]

    def entry(self, origin: str) -> Entry:
        """The line of this queue."""
        entry = self.entries.get(origin)
        if entry is None:
            entry = self.entries[origin] = Entry(origin)
        return entry


def record_stuck(ladder: Ladder, ledger: Ledger) -> None:
    """Record which queues stopped at a message that is heavier than the whole block, and what it weighs."""
    for entry in ledger.entries.values():
        if entry.reason in ("limit", "spent") or entry.origin in ladder.asked:
            book = ladder.shelf.book(entry.origin)
            needs = needed_of(ladder, book) if book.is_ready else None
            if needs is not None and needs.exceeds(ladder.room):
                entry.reason, entry.needs = "limit", needs


def needed_of(ladder: Ladder, book: Book) -> Weight | None:
    """Return what the first message of a queue needs: what its processor asked for in this block, else its weight."""
    return ladder.asked.get(book.origin) or front_weight(ladder, book)


def reason_of(book: Book, visited: Visited) -> str:
    """Why a visit ended, in a word."""
    if book.passed_by:
        return book.passed_by
    if not book.is_ready:
        # Also where a walk comes once more to the last queue there was, which has left the ring by then.
        return "emptied"
    if visited.successor is None:
        return "limit"
    return {
        PageStatus.BAILED: "limit",
        PageStatus.SPENT: "spent",
        PageStatus.NO_PROGRESS: "yielded",
        PageStatus.NO_MORE: "emptied",
        None: "limit",
    }[visited.status]


def visit(ladder: Ladder, ledger: Ledger, origin: str) -> Visited:
    """Service a queue and keep the ledger."""
    book, before = ladder.shelf.book(origin), ladder.meter.consumed
    visited = ladder.service_queue(origin)
    after = ladder.meter.consumed
    entry = ledger.entry(origin)
    entry.granted = entry.granted.plus(Weight(after[0] - before[0], after[1] - before[1]))
    entry.messages += visited.processed
    entry.reason = reason_of(book, visited)
    entry.visits += 1
    return visited


def rotation(ladder: Ladder, ledger: Ledger, ring: Ring | None = None) -> None:
    """The contract's order. Pallet: `service_queues_impl`."""
    if not ladder.meter.consume(ladder.costs.bump_service_head):
        return
    ring = ladder.shelf.ring if ring is None else ring
    origin = ring.head()
    if origin is None:
        return
    ring.bump(origin)
    walk(ladder, ledger, ring, origin)


def walk(ladder: Ladder, ledger: Ledger, ring: Ring, origin: str) -> None:
    """Service queue after queue until nothing is paid, or a whole run of them made no progress."""
    stuck: str | None = None
    while True:
        visited = visit(ladder, ledger, origin)
        if visited.successor is None or ladder.is_full:
            return
        if visited.progressed:
            stuck = None
        elif stuck == visited.successor:
            return
        elif stuck is None or stuck not in ring:
            # A queue that left the ring is not remembered: the walk would never meet it again.
            stuck = origin if origin in ring else None
        origin = visited.successor


def shuffle(ladder: Ladder, ledger: Ledger, seed: bytes, ring: Ring | None = None) -> None:
    """Service in the order of a seeded hash of the origins; the same seed gives the same order."""
    if not ladder.meter.consume(ladder.costs.bump_service_head):
        return
    for origin in shuffled(ladder.shelf.ring if ring is None else ring, seed):
        successor = visit(ladder, ledger, origin).successor
        if ladder.is_full or (successor is None and not ladder.meter.fits(ladder.visit_cost)):
            return


def shuffled(origins: Iterable[str], seed: bytes) -> list[str]:
    """The origins in the order that this seed decides."""
    return sorted(origins, key=lambda one: blake2b(origin_of(one).encode(), key=seed, digest_size=16).digest())


def front_weight(ladder: Ladder, book: Book) -> Weight | None:
    """What the next message of this queue weighs, if one lies in its pages."""
    for index in range(book.begin, book.end):
        page = ladder.shelf.page(book.origin, index)
        if page is not None:
            page.advance()
            if not page.is_attempted:
                return ladder.attempt.front(ladder, book, page)
    return None


def parts_of(limit: Weight) -> Callable[[Weight], int]:
    """How much of a block a weight is, in parts: its dominant half counts."""
    time, size = max(limit[0], 1), max(limit[1], 1)

    def parts(weight: Weight) -> int:
        return max(-(-weight[0] * BLOCK_PARTS // time), -(-weight[1] * BLOCK_PARTS // size))

    return parts


class Purse:
    """What one queue may spend now: its deficit, and what its *most* leaves of this block."""

    def __init__(self, book: Book, parts: Callable[[Weight], int], most: Meter) -> None:
        self.book, self.parts, self.most = book, parts, most

    def covering(self, weights: Sequence[Weight]) -> int:
        """How many of these messages, from the first on, the deficit pays for."""
        weight, most = weights[0], self.most.left
        if weights.count(weight) == len(weights):
            count = min(len(weights), self.book.deficit // max(self.parts(weight), 1))
            for part in (0, 1):
                if weight[part]:
                    count = min(count, most[part] // weight[part])
            return max(count, 0)
        count = bisect_right(list(accumulate(map(self.parts, weights))), self.book.deficit)
        for part in (0, 1):
            sums = list(accumulate(weight[part] for weight in weights))
            count = min(count, bisect_right(sums, most[part]))
        return count

    def spend(self, weight: Weight) -> None:
        """Charge what was used; an overrun makes the deficit negative."""
        self.book.deficit -= self.parts(weight)
        self.most.time += weight[0]
        self.most.size += weight[1]

    def refund(self, weight: Weight) -> None:
        """Give back what was charged for messages that were not tried."""
        self.book.deficit += self.parts(weight)
        self.most.time -= weight[0]
        self.most.size -= weight[1]


class Grant:
    """What a queue gets of its *least*, before the rounds begin; its deficit is not asked."""

    def __init__(self, least: Weight, purse: Purse) -> None:
        self.left, self.purse = Meter(least), purse

    def covering(self, weights: Sequence[Weight]) -> int:
        """How many of these messages, from the first on, stay within the least and the most."""
        counts = [len(weights)]
        for part in (0, 1):
            sums = list(accumulate(weight[part] for weight in weights))
            counts.append(bisect_right(sums, min(self.left.left[part], self.purse.most.left[part])))
        return min(counts)

    def spend(self, weight: Weight) -> None:
        """What was guaranteed is not taken from the deficit."""
        for meter in (self.left, self.purse.most):
            meter.time += weight[0]
            meter.size += weight[1]

    def refund(self, weight: Weight) -> None:
        """Give back what was charged for messages that were not tried."""
        for meter in (self.left, self.purse.most):
            meter.time -= weight[0]
            meter.size -= weight[1]


class DeficitRounds:
    """Weighted deficit round-robin over the ready ring, within one block."""

    def __init__(
        self, ladder: Ladder, ledger: Ledger, ring: Ring | None = None, mosts: dict[str, Meter] | None = None
    ) -> None:
        self.ladder, self.ledger = ladder, ledger
        self.ring = ladder.shelf.ring if ring is None else ring
        #: What is left of each origin's *most* in this block, whichever of its books it is taken from.
        self.mosts = {} if mosts is None else mosts
        config = ladder.shelf.config
        self.parts = parts_of(config.service_weight or ladder.meter.limit)
        self.quantum = max(BLOCK_PARTS // config.rounds_per_block, 1)
        self.purses: dict[str, Purse] = {}
        #: Queues that were met in the first round.
        self.met: dict[str, None] = {}
        #: Queues whose next message is paid for and did not fit: first in the next block.
        self.owed: dict[str, None] = {}
        #: Queues whose next message does not fit what is left of the block, and is not paid for yet.
        self.saving: dict[str, None] = {}
        #: What was earned beyond the rounds of those who are owed: lent, so that no weight is left over.
        self.lent: dict[str, int] = {}
        self.lending = False

    def run(self, guaranteed: Iterable[str] = ()) -> None:
        """Guarantees first, then a round over the ring, then rounds over those met there."""
        if not self.ladder.meter.consume(self.ladder.costs.bump_service_head):
            return
        for origin in guaranteed:
            self._grant(origin)
        self._go_round(self._first_round())

    def resume(self) -> None:
        """More of the block is there than was said: go on with those for whom it was too little."""
        again = [origin for origin in self.purses if self.stopped_by_limit(origin)]
        self.owed, self.saving, self.lent, self.lending = {}, {}, {}, False
        again += islice((origin for origin in self.ring if origin not in self.met), LOOK_PAST)
        for origin in again:
            if origin in self.met or not self.ladder.is_full:
                self.met[origin] = None
                self._visit(origin)
        self._go_round([origin for origin in again if self._may_go_on(origin)])

    def stopped_by_limit(self, origin: str) -> bool:
        """Whether a queue that was visited has more that is only too much for what was left."""
        said = self.ledger.entry(origin).reason == "limit" or origin in self.owed or origin in self.saving
        return said and origin in self.ring

    def _go_round(self, rotating: list[str]) -> None:
        while rotating:
            self.lending = bool(self.owed)
            served = [origin for origin in rotating if self._visit(origin)]
            self._save_up(1)
            rotating = [origin for origin in rotating if self._may_go_on(origin)]
            if not served and not self._skip_empty_rounds(rotating):
                break
        for origin, parts in self.lent.items():
            book = self.ladder.shelf.book(origin)
            book.deficit -= parts
            self.ladder.shelf.changed_books.add(origin)
            self.ledger.entry(origin).deficit = book.deficit
        self.ring.favour([origin for origin in self.owed if origin in self.ring])

    def _first_round(self) -> list[str]:
        unfit = 0
        while unfit < LOOK_PAST and not self.ladder.is_full:
            origin = self.ring.head()
            if origin is None or origin in self.met:
                break
            self.met[origin] = None
            served = self._visit(origin)
            if origin not in self.ring or self.ledger.entry(origin).reason != "limit":
                unfit = 0
            elif not served:
                if not self.ladder.meter.fits(self.ladder.visit_cost):
                    break
                unfit += 1
        return [origin for origin in self.met if self._may_go_on(origin)]

    def _visit(self, origin: str) -> bool:
        book = self.ladder.shelf.book(origin)
        self.ring.bump(origin)
        entry = self.ledger.entry(origin)
        resumed = False
        if not book.passed_by and origin not in self.owed:
            # What it was owed is of a round before; this round's turn comes on top.
            resumed = book.deficit >= self._front(book)
            self._earn(book)
        entry.offered = max(entry.offered, book.deficit)
        served = self._service(book, self._purse(book))
        if resumed and entry.reason == "spent":
            self._earn(book)
            served |= self._service(book, self._purse(book))
        return served

    def _earn(self, book: Book) -> None:
        if book.deficit < self._front(book):
            self._give(book, self.quantum * book.standing.share)

    def _give(self, book: Book, parts: int) -> None:
        book.deficit += parts
        self.ladder.shelf.changed_books.add(book.origin)
        if self.lending:
            self.lent[book.origin] = self.lent.get(book.origin, 0) + parts

    def _front(self, book: Book) -> int:
        """What the next message of this queue takes from its deficit; at least something."""
        weight = self._front_weight(book)
        return 1 if weight is None else max(self.parts(weight), 1)

    def _front_weight(self, book: Book) -> Weight | None:
        return front_weight(self.ladder, book)

    def _is_stuck(self, book: Book) -> bool:
        """Whether the next message is heavier than the whole block: no turn in a block like this one is owed to it."""
        weight = self._front_weight(book)
        return weight is not None and weight.exceeds(self.ladder.room)

    def _grant(self, origin: str) -> None:
        book = self.ladder.shelf.book(origin)
        if not book.passed_by and (book.is_ready or self.ladder.shelf.pull(book)):
            self.ring.meet(origin)
            self._service(book, Grant(book.standing.least or ZERO, self._purse(book)))

    def _service(self, book: Book, purse: Purse | Grant) -> bool:
        self.ladder.credit = purse
        visited = visit(self.ladder, self.ledger, book.origin)
        self.ladder.credit = None
        entry = self.ledger.entry(book.origin)
        bailed = entry.reason == "limit" and visited.status is PageStatus.BAILED
        if bailed and book.deficit >= self._front(book) and not self._is_stuck(book):
            self.owed[book.origin] = None
        if not book.is_ready:
            book.deficit = min(book.deficit - self.lent.pop(book.origin, 0), 0)
        entry.deficit = book.deficit
        return visited.progressed

    def _purse(self, book: Book) -> Purse:
        purse = self.purses.get(book.origin)
        if purse is None:
            most = self.mosts.setdefault(origin_of(book.origin), Meter(book.standing.most or UNLIMITED))
            purse = self.purses[book.origin] = Purse(book, self.parts, most)
        return purse

    def _may_go_on(self, origin: str) -> bool:
        """Whether another round may bring this queue anything: only its credit was missing."""
        if origin not in self.ring or self.ledger.entry(origin).reason != "spent":
            return False
        book = self.ladder.shelf.book(origin)
        front = self._front_weight(book)
        if front is None or not self.purses[origin].most.fits(front):
            return False
        if not self._fits(front):
            if not front.exceeds(self.ladder.room):
                self.saving[origin] = None
            return False
        return True

    def _save_up(self, rounds: int) -> None:
        """A round is a round for those, too, who can spend nothing more in this block."""
        for origin in self.saving if not self.lending else ():
            book = self.ladder.shelf.book(origin)
            quantum, missing = self.quantum * book.standing.share, self._front(book) - book.deficit
            if missing > 0:
                book.deficit += min(rounds, -(-missing // quantum)) * quantum
                self.ladder.shelf.changed_books.add(origin)
                entry = self.ledger.entry(origin)
                entry.offered, entry.deficit = max(entry.offered, book.deficit), book.deficit
            if book.deficit >= self._front(book):
                self.owed[origin] = None

    def _fits(self, weight: Weight) -> bool:
        costs = self.ladder.visit_cost.plus(self.ladder.page_cost).plus(self.ladder.item_cost)
        return self.ladder.meter.fits(weight.plus(costs))

    def _skip_empty_rounds(self, rotating: list[str]) -> bool:
        """Let everybody earn as often as it takes until one of them is covered."""
        if not rotating:
            return False
        books = [self.ladder.shelf.book(origin) for origin in rotating]
        rounds = min(-(-(self._front(book) - book.deficit) // (self.quantum * book.standing.share)) for book in books)
        for book in books:
            # The round that follows pays the last quantum.
            self._give(book, max(rounds - 1, 0) * self.quantum * book.standing.share)
        self._save_up(max(rounds - 1, 0))
        return True
