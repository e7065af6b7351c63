"""Orders of service: rotation, deficit and shuffle over the same ladder.

*Rotation* is the contract's: the head moves by one per call, and each queue is drained while weight lasts. *Deficit*
(see `deficit`) is weighted deficit round-robin: each visited queue earns a quantum per round and spends it on messages
from its front; unspent credit is kept from block to block. *Shuffle* services in an order that a seed determines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate

from .book import BUDGET, PAUSED, SKIPS, Book
from .config import BLOCK_PARTS
from .groups import groups_of
from .judging import MOST
from .outcome import PageStatus
from .priority import REGULAR, origin_of
from .ring import Ring
from .service import Credit, Ladder, Visited
from .tree import charge_overrun
from .weight import ZERO, Weight

#: After this many successive queues whose next message did not fit the rest of the block, a deficit walk looks at as
#: many further ones, and visits no other new queues. A ring may hold a hundred thousand.
LOOK_PAST = 64
#: Queues at which a walk looks that does nothing else.
MOST_LOOKS = 512

#: The most parts that a message takes, however heavy it is declared.
MOST_PARTS = 1 << 61


@dataclass
class Entry:
    """A line of the ledger: service of one queue by one block."""

    #: Within a walk: the name of the book.
    origin: str
    #: Credit: its deficit after earning, in parts of a block. Zero in other orders.
    offered: int = 0
    #: Weight used by its messages, and their number.
    granted: Weight = ZERO
    messages: int = 0
    #: Credit kept for its next turn.
    deficit: int = 0
    #: Reason why the visit ended.
    reason: str = ""
    visits: int = 0
    priority: str = REGULAR
    #: Weight of its first message, if the whole block cannot carry it: the queue is stuck behind it.
    needs: Weight | None = None


class Ledger:
    """Offered and granted weight of a block, queue by queue, in the order of their first visits."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        #: Names of queues, and groups, whose *most* had no room for the next message.
        self.at_most: set[str] = set()
        #: Names of queues that were skipped without a visit, by reason.
        self.skipped: dict[str, list[str]] = {}
        #: Names of groups that were skipped with everything below them, by reason.
        self.halted: dict[str, list[str]] = {}
        #: Record of the block as a whole.
        self.head: dict[str, object] | None = None

    def entry(self, origin: str) -> Entry:
        """Return the line of a queue."""
        entry = self.entries.get(origin)
        if entry is None:
            entry = self.entries[origin] = Entry(origin)
        return entry


def record_stops(ladder: Ladder, ledger: Ledger) -> None:
    """Record which queues stopped at their *most*, or at a message heavier than the whole block, and its weight."""
    for entry in ledger.entries.values():
        if entry.reason == "spent" and not ledger.at_most.isdisjoint((entry.origin, *groups_of(entry.origin))):
            entry.reason = MOST
        # An earlier walk may have recorded it.
        if (entry.reason in STOPPED and entry.needs is None) or entry.origin in ladder.asked:
            book = ladder.working_set.book(entry.origin)
            # As its processor requested, else as predicted.
            needs = (ladder.asked.get(entry.origin) or ladder.front_of(book)) if book.is_ready else None
            if needs is not None and needs.exceeds(ladder.room):
                entry.reason, entry.needs = "limit", needs
    ledger.at_most.clear()


class Order(ABC):
    """Order in which one level of a ring is serviced."""

    def __init__(self, ladder: Ladder, ledger: Ledger, ring: Ring | None = None) -> None:
        self.ladder, self.ledger, self.working_set = ladder, ledger, ladder.working_set
        self.ring = ladder.working_set.ring if ring is None else ring

    @abstractmethod
    def run(self, guaranteed: Iterable[str] = ()) -> None:
        """Service queues within the meter.

        :param guaranteed: in the deficit order, the queues and groups with a *least*, which come first.
        """

    def resume(self) -> None:
        """Go on after the meter's limit grew, with the queues that the old limit stopped."""
        for origin in list(self.stopped()):
            if not self.ladder.is_full:
                self.service(origin)

    def service(self, origin: str, credit: Credit | None = None) -> Visited:
        """Service a queue and record it in the ledger.

        :param credit: what the queue may spend, if that is limited.
        """
        ladder, book, before = self.ladder, self.working_set.book(origin), self.ladder.meter.consumed
        ladder.credit = credit
        try:
            visited = ladder.service_queue(origin)
        finally:
            ladder.credit = None
            if self.working_set.overrun != ZERO:
                self.overdraw(book, self.working_set.overrun)
                self.working_set.overrun = ZERO
        entry = self.ledger.entry(origin)
        entry.granted = entry.granted.plus(ladder.meter.since(before))
        entry.messages += visited.processed
        entry.visits += 1
        if book.skipped or not book.is_ready:
            # Also if a walk returns to the last queue of the ring, which has left it by then.
            entry.reason = book.skipped or PageStatus.NO_MORE.value
        elif visited.successor is None or visited.status is None:
            entry.reason = PageStatus.BAILED.value
        else:
            entry.reason = visited.status.value
        return visited

    def overdraw(self, book: Book, weight: Weight) -> None:
        """Charge the deficit of a queue, in an order that has one, with what its visit was charged beyond the plan."""
        return

    def look_further(self) -> None:
        """Service queues to which earlier walks of this call did not come, because they visited too many in vain."""
        for origin in self.look_on(MOST_LOOKS):
            self.service(origin)

    def look_on(self, most: int, known: Container[str] = ()) -> Iterator[str]:
        """Yield queues that a visit services and that no walk came to, from where the last look ended.

        Many queues may wait for a weight that is not left. They keep their turns, and others do not wait for them.

        :param known: queues at which the look ends.
        """
        working_set = self.working_set
        names, ended = working_set.loader.look_on(most, known, high=self.ring is working_set.high)
        self.ladder.is_cut_short |= not ended
        for origin in names:
            if origin not in known and not self.ladder.is_full and self.ladder.can_service(working_set.book(origin)):
                self.ring.meet(origin)
                yield origin

    def line(self) -> Iterator[str]:
        """Iterate over the queues in the order of their turns."""
        return iter(self.ring)

    def stopped(self) -> Iterator[str]:
        """Yield the queues for which the meter could not pay any more."""
        return (name for name in self.line() if name not in self.ledger.entries or self.is_stopped(name))

    def is_stopped(self, origin: str) -> bool:
        """Return whether only the meter stopped a visited queue."""
        return self.ledger.entry(origin).reason == "limit" and origin in self.ring


class Rotation(Order):
    """The contract's order."""

    def run(self, guaranteed: Iterable[str] = ()) -> None:
        """Service from the head, which moves by one. Pallet: `service_queues_impl`."""
        ladder, is_second = self.ladder, self.ladder.meter.consumed != ZERO
        if not ladder.meter.consume(ladder.costs.bump_service_head):
            return
        origin = self.ring.head()
        if origin is None:
            return
        if not (ladder.is_resumed or (is_second and self._waits_for_rest(origin))):
            self.ring.bump(origin)
        self._walk(origin)

    def resume(self) -> None:
        """Go on with the first queue that the meter stopped."""
        origin = None if self.ladder.is_full else next(self.stopped(), None)
        if origin is not None:
            self._walk(origin)

    def _waits_for_rest(self, origin: str) -> bool:
        """Return whether the other level of the ring used up what the head needs. It is the head of the next block."""
        book = self.working_set.book(origin)
        front = None if book.skipped else self.ladder.front_of(book)
        return front is not None and not (self.ladder.carries(front) or front.exceeds(self.ladder.room))

    def _walk(self, origin: str) -> None:
        """Service queue after queue until a step cannot be paid, or a whole run of queues made no progress."""
        stuck: str | None = None
        while True:
            visited = self.service(origin)
            if visited.successor is None or self.ladder.is_full:
                return
            if visited.processed:
                stuck = None
            elif stuck == visited.successor:
                return
            elif stuck is None or stuck not in self.ring:
                # A queue that left the ring is not remembered: the walk would never return to it.
                stuck = origin if origin in self.ring else None
            origin = visited.successor


class Shuffle(Order):
    """Order of a seeded hash of the origins; equal seeds give equal orders."""

    def __init__(self, ladder: Ladder, ledger: Ledger, ring: Ring | None, seed: bytes) -> None:
        super().__init__(ladder, ledger, ring)
        self.seed = seed

    def run(self, guaranteed: Iterable[str] = ()) -> None:
        """Service queue after queue."""
        ladder = self.ladder
        if not ladder.meter.consume(ladder.costs.bump_service_head):
            return
        for origin in self.line():
            successor = self.service(origin).successor
            if ladder.is_full or (successor is None and not ladder.meter.fits(ladder.visit_cost)):
                return

    def line(self) -> Iterator[str]:
        """Iterate over the queues in the order of their turns."""
        return iter(shuffled(self.ring, self.seed))


def shuffled(origins: Iterable[str], seed: bytes) -> list[str]:
    """Return the origins in the order that this seed determines."""
    return sorted(origins, key=lambda origin: blake2b(origin_of(origin).encode(), key=seed, digest_size=16).digest())


#: Converts a weight to parts of a block.
Parts = Callable[[Weight], int]


def parts_of(limit: Weight) -> Parts:
    """Return a function that converts a weight to parts of a block; the dominant part of the weight counts."""
    time, size = max(limit[0], 1), max(limit[1], 1)

    def parts(weight: Weight) -> int:
        found = max(-(-weight[0] * BLOCK_PARTS // time), -(-weight[1] * BLOCK_PARTS // size))
        # Stores keep the sum of two.
        return found if found < MOST_PARTS else MOST_PARTS

    return parts


def covered(weights: Sequence[Weight], parts: Parts, left: int) -> int:
    """Return how many of these weights, from the first on, so many parts of a block cover."""
    if weights.count(weights[0]) == len(weights):
        return min(max(left // max(parts(weights[0]), 1), 0), len(weights))
    return bisect_right(list(accumulate(map(parts, weights))), left)


class Rounds(Order):
    """An order in which queues have deficits, counted in parts of a block."""

    def __init__(self, ladder: Ladder, ledger: Ledger, ring: Ring | None = None) -> None:
        super().__init__(ladder, ledger, ring)
        config = ladder.working_set.config
        self.parts = parts_of(config.service_weight or ladder.meter.limit)
        self.quantum = max(BLOCK_PARTS // config.rounds_per_block, 1)

    def overdraw(self, book: Book, weight: Weight) -> None:
        charge_overrun(self.working_set, book, self.parts(weight))


#: Reasons of a block to stop at a queue that would have taken more.
STOPPED = ("limit", "spent", MOST)
#: A line for a queue that was skipped without a visit.
_SKIP = Entry("", reason=PAUSED)


def lines_of(
    pages: Sequence[Sequence[Entry]], skips: Sequence[Collection[str]] = ()
) -> dict[str, list[tuple[int, Entry]]]:
    """Return the lines of each queue, with the index of their blocks.

    :param skips: for each block, the queues that it skipped without a visit. Of successive skips of a queue, only the
        last one counts, and gets a line.
    """
    found: dict[str, list[tuple[int, Entry]]] = {}
    sets = [frozenset(names) for names in skips] or [frozenset()] * len(pages)
    for at, (page, skipped, later) in enumerate(zip(pages, sets, [*sets[1:], frozenset()])):
        for entry in page:
            found.setdefault(entry.origin, []).append((at, entry))
        for origin in skipped - later:
            found.setdefault(origin, []).append((at, _SKIP))
    return found


def wanting_in(lines: Sequence[tuple[int, Entry]], ready: int | None, count: int) -> Iterator[range]:
    """Yield the stretches of blocks in which a queue was wanting, from its lines and since when it is ready."""
    last, stopped = -1, False
    for at, entry in lines:
        if stopped and (entry.reason not in SKIPS or (entry.reason == BUDGET and entry.messages)):
            yield range(last + 1, at)
        last, stopped = at, entry.reason in STOPPED
        if stopped:
            yield range(at, at + 1)
    if ready is not None:
        yield range(last + 1 if stopped else max(last + 1, ready), count)
