"""Deficit order: weighted deficit round-robin over the ready ring, within one block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from .book import BUDGET, Book
from .orders import LOOK_PAST, MOST_LOOKS, STOPPED, Ledger, Parts, Rounds, covered
from .outcome import PageStatus
from .priority import origin_of
from .ring import Ring
from .service import Credit, Ladder
from .weight import ZERO, Meter, Weight


class Purse(Credit):
    """Weight that one queue may spend now: its deficit, and the rest of its *most* in this block if it has one."""

    def __init__(self, book: Book, parts: Parts, *most: Meter) -> None:
        super().__init__(*most)
        self.book, self.parts = book, parts

    def covering(self, weights: Sequence[Weight]) -> int:
        return min(covered(weights, self.parts, self.book.deficit), super().covering(weights))

    def spend(self, weight: Weight) -> None:
        """Charge used weight; an overrun makes the deficit negative."""
        self.book.deficit -= self.parts(weight)
        super().spend(weight)

    def refund(self, weight: Weight) -> None:
        self.book.deficit += self.parts(weight)
        super().refund(weight)


class DeficitRounds(Rounds):
    """Rounds of the deficit order within one block."""

    def __init__(
        self, ladder: Ladder, ledger: Ledger, ring: Ring | None = None, mosts: dict[str, Meter] | None = None
    ) -> None:
        super().__init__(ladder, ledger, ring)
        #: Rest of each origin's *most* in this block, shared by both of its books.
        self.mosts = {} if mosts is None else mosts
        self.purses: dict[str, Purse] = {}
        #: Queues that were visited in the first round.
        self.met: dict[str, None] = {}
        #: Queues whose next message is covered and did not fit: first in the next block.
        self.owed: dict[str, None] = {}
        #: Queues that had their owed turn in this block, and began the next one: it is owed behind the others.
        self.ahead: list[str] = []
        #: Queues whose next message does not fit the rest of the block and is not covered yet.
        self.saving: dict[str, None] = {}
        #: Queues about whose first message the walk could not decide any more: they come next.
        self.undecided: dict[str, None] = {}
        #: Credit earned beyond the rounds of the owed queues: lent, so that no weight is left over.
        self.lent: dict[str, int] = {}
        self.lending = False
        #: Whether the first round ended because enough queues give messages.
        self.is_part = False

    def run(self, guaranteed: Iterable[str] = ()) -> None:
        """Service guarantees, then a round over the ring, then rounds over the queues met there."""
        if not self.ladder.meter.consume(self.ladder.costs.bump_service_head):
            return
        for origin in guaranteed:
            self._grant(origin)
        self._go_round(self._first_round())

    def look_further(self) -> None:
        """Service queues to which earlier walks of this call did not come."""
        self._look_on(MOST_LOOKS)
        self._go_round([origin for origin in self.met if self._may_go_on(origin)])

    def resume(self) -> None:
        """Go on after the meter's limit grew, with the queues that the old limit stopped."""
        again = [origin for origin in {**self.owed, **self.purses} if self.is_stopped(origin)]
        fresh = list(islice((origin for origin in self.ring if origin not in self.met), LOOK_PAST))
        self.owed, self.saving = {}, {}
        if self.is_part:
            # The next block begins with the others, unless these leave some weight over.
            self._go_on_with(again)
            if not (self.owed or self.saving):
                self._go_on_with(fresh)
        else:
            self._go_on_with([*again, *fresh])

    def _go_on_with(self, origins: Iterable[str]) -> None:
        self.lent, self.lending = {}, False
        again = []
        for origin in origins:
            if origin in self.met or not (self.ladder.is_full or self._passes_over(origin)):
                self._meet(origin)
                again.append(origin)
        self._go_round([origin for origin in again if self._may_go_on(origin)])

    def is_stopped(self, origin: str) -> bool:
        """Return whether only the meter stopped a visited queue."""
        return super().is_stopped(origin) or (origin in self.ring and (origin in self.owed or origin in self.saving))

    def _go_round(self, rotating: list[str]) -> None:
        while rotating:
            self.lending = bool(self.owed)
            served = [origin for origin in rotating if self._visit(origin)]
            self._save_up(1)
            rotating = [origin for origin in rotating if self._may_go_on(origin)]
            if not served and not self._skip_empty_rounds(rotating):
                break
        for origin, parts in self.lent.items():
            book = self.working_set.book(origin)
            book.deficit -= parts
            self.working_set.changes.books.add(origin)
            self.ledger.entry(origin).deficit = book.deficit
        self._line_up()

    def _line_up(self) -> None:
        """Let queues whose turn was not given come before the head of the next block.

        Where a block reaches only a part of the ring, a queue that got messages of it keeps what it is owed until its
        turn comes: else it would be in the next part as well.
        """
        for origin in self.ahead:
            # All others of this round come first: else a queue whose turn is longer than a block starves them.
            if origin in self.owed:
                self.owed[origin] = self.owed.pop(origin)
        first = {**self.owed, **self.undecided}
        most = self.ladder.most_queues
        if self.is_part or (most is not None and len(self.met) > most):
            got = [origin for origin in self.met if origin in self.ring and self.ledger.entry(origin).messages]
            first = {origin: None for origin in {**first, **self.saving} if not self.ledger.entry(origin).messages}
            for origin in got:
                self.ring.bump(origin)
        self.ring.favour([origin for origin in first if origin in self.ring])

    def _first_round(self) -> list[str]:
        unfit, passed, origin = 0, None, self.ring.head()
        while origin is not None and origin not in self.met and unfit < LOOK_PAST and not self.ladder.is_full:
            if self._passes_over(origin):
                passed, unfit = origin, unfit + 1
            else:
                served = self._meet(origin)
                if self._is_fit(origin):
                    unfit = 0
                elif not served:
                    if not self.ladder.meter.fits(self.ladder.visit_cost):
                        break
                    unfit += 1
            origin = self.ring.head() if passed is None else self.ring.next_in_line(passed)
        self.is_part = self.ladder.is_full and origin is not None and origin not in self.met
        if unfit == LOOK_PAST and not self.ladder.is_worn:
            self._look_on(LOOK_PAST)
        return [origin for origin in self.met if self._may_go_on(origin)]

    def _passes_over(self, origin: str) -> bool:
        """Return whether earlier parts of this call left too little for a queue. It is first in the next call."""
        return self.ladder.is_resumed and not self.ladder.can_service(self.working_set.book(origin))

    def _meet(self, origin: str) -> bool:
        """Visit a queue for the first time in this round; return whether it was serviced."""
        self.met[origin] = None
        served = self._visit(origin)
        if self._may_go_on(origin):
            # A later round of this block services it.
            self.ladder.givers.add(origin)
        return served

    def _is_fit(self, origin: str) -> bool:
        """Return whether a visit ended for another reason than that too little of the block is left."""
        reason = self.ledger.entry(origin).reason
        if origin not in self.ring or reason not in STOPPED:
            return not (self.ladder.is_worn and reason == "yielded" and origin in self.ring)
        return reason == "spent" and self.ladder.can_service(self.working_set.book(origin))

    def _look_on(self, most: int) -> None:
        """Visit queues that the round did not come to, from where the last look ended, if that services them."""
        for origin in self.look_on(most, self.met):
            self._meet(origin)

    def _visit(self, origin: str) -> bool:
        book = self.working_set.book(origin)
        self.ring.bump(origin)
        entry = self.ledger.entry(origin)
        resumed = False
        if book.budgets:
            self.ladder.admit(book)
        if not book.skipped and origin not in self.owed:
            # The owed turn belongs to an earlier round; this round's credit comes on top.
            resumed = book.deficit >= self._front(book)
            self._earn(book)
        entry.offered = max(entry.offered, book.deficit)
        served = self._service(book, self._purse(book))
        if resumed and entry.reason == "spent":
            self._earn(book)
            served |= self._service(book, self._purse(book))
            self.ahead.append(origin)
        return served

    def _earn(self, book: Book) -> None:
        if book.deficit < self._front(book):
            self._give(book, self.quantum * book.settings.share)

    def _give(self, book: Book, parts: int) -> None:
        book.deficit += parts
        self.working_set.changes.books.add(book.origin)
        if self.lending:
            self.lent[book.origin] = self.lent.get(book.origin, 0) + parts

    def _front(self, book: Book) -> int:
        """Return what the next message of this queue takes from its deficit; at least one part."""
        weight = self.ladder.front_of(book)
        return 1 if weight is None else max(self.parts(weight), 1)

    def _grant(self, origin: str) -> None:
        book = self.working_set.book(origin)
        if not book.skipped and (book.is_ready or self.working_set.pull(book)):
            self.ring.meet(origin)
            # A *least* counts in the *most*, and not in the deficit.
            self._service(book, Credit(Meter(book.settings.least or ZERO), *self._purse(book).meters))

    def _service(self, book: Book, credit: Credit) -> bool:
        visited = self.service(book.origin, credit)
        entry = self.ledger.entry(book.origin)
        is_bailed = visited.status is PageStatus.BAILED and not self.ladder.is_kept_back
        if entry.reason == "limit" and is_bailed and book.deficit >= self._front(book):
            front = self.ladder.front_of(book)
            # A turn in a block that can never carry the message is not owed to it.
            if front is None or not front.exceeds(self.ladder.room):
                self.owed[book.origin] = None
        if self.ladder.is_worn and entry.reason == "yielded" and not visited.processed:
            self.undecided[book.origin] = None
        if not book.is_ready or book.skipped == BUDGET:
            # A queue that waits for its budget saves nothing meanwhile.
            book.deficit = min(book.deficit - self.lent.pop(book.origin, 0), 0)
        entry.deficit = book.deficit
        return visited.processed > 0

    def _purse(self, book: Book) -> Purse:
        purse = self.purses.get(book.origin)
        if purse is None:
            most = book.settings.most
            meters = [] if most is None else [self.mosts.setdefault(origin_of(book.origin), Meter(most))]
            purse = self.purses[book.origin] = Purse(book, self.parts, *meters)
        return purse

    def _may_go_on(self, origin: str) -> bool:
        """Return whether another round may service this queue: only credit was missing."""
        if origin not in self.ring or self.ledger.entry(origin).reason != "spent":
            return False
        book = self.working_set.book(origin)
        front = self.ladder.front_of(book)
        if front is None:
            return False
        if not all(meter.fits(front) for meter in self.purses[origin].meters):
            self.ledger.at_most.add(origin)
            return False
        if not self.ladder.carries(front):
            if not front.exceeds(self.ladder.room):
                self.saving[origin] = None
            return False
        return True

    def _save_up(self, rounds: int) -> None:
        """Credit rounds also to queues that can spend nothing more in this block."""
        for origin in self.saving if not self.lending else ():
            book = self.working_set.book(origin)
            quantum, missing = self.quantum * book.settings.share, self._front(book) - book.deficit
            if missing > 0:
                book.deficit += min(rounds, -(-missing // quantum)) * quantum
                self.working_set.changes.books.add(origin)
                entry = self.ledger.entry(origin)
                entry.offered, entry.deficit = max(entry.offered, book.deficit), book.deficit
            if book.deficit >= self._front(book):
                self.owed[origin] = None

    def _skip_empty_rounds(self, rotating: list[str]) -> bool:
        """Skip rounds until one of these queues is covered; each queue earns for all of them."""
        if not rotating:
            return False
        books = [self.working_set.book(origin) for origin in rotating]
        rounds = min(-(-(self._front(book) - book.deficit) // (self.quantum * book.settings.share)) for book in books)
        for book in books:
            # The next round pays the last quantum.
            self._give(book, max(rounds - 1, 0) * self.quantum * book.settings.share)
        self._save_up(max(rounds - 1, 0))
        return True
