"""Planning: the servicing ladder with a weigher in place of the processor.

A message that fits is claimed, a message that can never fit is noted as to be set aside, and nothing else of the queue
changes until the block settles. The plan runs on a working set that is discarded. There, claimed messages look
processed, so that one ladder serves both ways of servicing.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache

from .book import Book
from .judging import Decision
from .message import Address
from .outcome import Outcome, PageStatus
from .page import ASIDE, Page
from .priority import origin_of, priority_of
from .service import Attempt, Ladder, apply_outcome, carry_out
from .weight import UNLIMITED, ZERO, Meter, Weighed, WeighPayloads, Weight, total_weight
from .working_set import WorkingSet

#: Number of messages that are weighed at once at first, a page of small ones; eight times as many as long as all fit.
FIRST_STRETCH = 512
#: Messages of all queues that a walk decides about without a processor. Decisions cost no weight, so the meter does not
#: bound them; the next walk goes on.
MOST_DECISIONS = 10_000
#: Executor of one message: takes the page, its item, and the meter to consume from.
Execute = Callable[[Book, Page, int, Meter], Outcome]


@dataclass
class ClaimRun:
    """Neighbours of one page that a block holds."""

    page: int
    first: int
    count: int = 0
    #: Whether the plan paid for the look that found no message after them.
    closed: bool = False
    decisions: dict[int, Decision] = field(default_factory=dict)
    #: Weight of each; empty if the ring's linear weigher computes it from the length.
    weights: list[Weight] = field(default_factory=list)

    def handed_out(self) -> Iterator[int]:
        """Return the items that a processor gets."""
        return (item for item in range(self.first, self.first + self.count) if item not in self.decisions)


@dataclass
class Claim:
    """Messages that one visit to a queue claimed, page by page."""

    #: Name of its book, which includes the priority.
    origin: str
    runs: list[ClaimRun] = field(default_factory=list)
    planned: Weight = Weight(0, 0)
    #: Whether its messages are processed one after the other. The plan resolves it for the life of the block.
    ordered: bool = True
    #: The *most* of its origin at the time of planning.
    most: Weight | None = None
    #: Name of the processor that gets its messages, as charges and measured weights name it; empty if none is named.
    processor: str = ""

    @property
    def whose(self) -> str:
        """Origin of the claimed messages."""
        return origin_of(self.origin)

    @property
    def priority(self) -> str:
        """`regular` or `high`."""
        return priority_of(self.origin)

    @property
    def messages(self) -> int:
        """Number of messages that a processor gets."""
        return sum(run.count - len(run.decisions) for run in self.runs)

    def places(self) -> Iterator[tuple[int, int]]:
        """Return the page and the index of each claimed message."""
        return ((run.page, item) for run in self.runs for item in range(run.first, run.first + run.count))

    def run_of(self, address: Address) -> ClaimRun | None:
        """Return the run that holds a message."""
        if self.origin != address.book:
            return None
        runs = (run for run in self.runs if run.page == address.page)
        return next((run for run in runs if run.first <= address.index < run.first + run.count), None)


class Scales:
    """Weights of the items of pages: the noted one of a message, or the weigher's."""

    def __init__(self, working_set: WorkingSet, weigh: WeighPayloads | None = None) -> None:
        self.working_set = working_set
        self.weigh = weigh
        #: Lengths repeat often.
        self._linear = cache(working_set.config.weigher.weigh)
        self._weights: dict[tuple[str, int], list[Weight]] = {}
        self._names: dict[tuple[str, int, int], bytes | None] = {}

    def weight(self, origin: str, page: Page, item: int) -> Weight:
        note = page.notes.get(item)
        if note and note.weight is not None:
            return note.weight
        if self.weigh is None:
            return self._linear(page.extent(item), note.beside if note else 0)
        return self.weights(origin, page, item, item + 1)[0]

    def weights(self, origin: str, page: Page, start: int, stop: int) -> list[Weight]:
        """Return the weights of a row of items."""
        if self.weigh is None:
            lengths = page.lengths[start:stop]
            if lengths and lengths.count(lengths[0]) == len(lengths):
                found = [self._linear(lengths[0])] * len(lengths)
            else:
                found = list(map(self._linear, lengths))
        else:
            found = self._weigh_page(origin, page)[start:stop]
        for item, note in page.notes_of(start, stop):
            if note.weight is not None:
                found[item - start] = note.weight
            elif (note.blob or note.beside) and self.weigh is None:
                found[item - start] = self._linear(page.extent(item), note.beside)
        return found

    def name(self, origin: str, page: Page, item: int) -> bytes | None:
        """Return the id that the weigher gave this message, if any."""
        return self._names.get((origin, page.index, item))

    def _weigh_page(self, origin: str, page: Page) -> list[Weight]:
        assert self.weigh is not None
        weights = self._weights.setdefault((origin, page.index), [])
        weights.extend([ZERO] * (page.gone - len(weights)))
        if len(weights) < len(page.lengths):
            fresh = self.weigh(origin, self.working_set.payloads(origin, page)[len(weights) :])
            for item, answer in enumerate(fresh, start=len(weights)):
                if isinstance(answer, Weighed):
                    self._names[origin, page.index, item] = answer.id
                weights.append(Weight.of(answer.weight if isinstance(answer, Weighed) else answer))
            if len(weights) != len(page.lengths):
                raise ValueError(
                    f"wrong number of weights from the weigher ({len(fresh)}): expected one for each of "
                    f"{len(page.lengths)} messages"
                )
        return weights


class OneByOne(Attempt):
    """Attempt that executes one message after the other in place, by a processor that meters itself."""

    def __init__(self, execute: Execute, scales: Scales) -> None:
        super().__init__(scales.weight)
        self.execute = execute

    def step(self, ladder: Ladder, book: Book, page: Page) -> tuple[int, PageStatus | None]:
        """Try one message."""
        item, working_set, credit = page.first_index, ladder.working_set, ladder.credit
        weight, extent, expires = self.front(book, page), page.extent(item), page.note(item).expires
        exceeded = ladder.bounds.exceeded(weight, extent)
        if credit and not (exceeded or credit.covering([weight])):
            return 0, PageStatus.SPENT
        has_expired = expires is not None and expires <= working_set.now
        # Only the processor knows whether a message fits a block; thresholds of the ring are lower than that.
        is_barred = exceeded and ladder.ring_bounds._replace(full=UNLIMITED).exceeded(weight, extent)
        if ladder.buckets and not (is_barred or has_expired):
            if working_set.deny(book, weight, page.index, item):
                return 0, PageStatus.SPENT
            if ladder.keeps_back(weight):
                return 0, PageStatus.BAILED
        if not ladder.meter.consume(ladder.item_cost):
            return 0, PageStatus.BAILED
        ladder.givers.add(book.origin)
        if has_expired or is_barred:
            decision = Decision(None if has_expired else exceeded, weight)
            page.first_index += 1
            return int(carry_out(working_set, book, page, item, decision)), None
        before = ladder.meter.consumed
        outcome = self.execute(book, page, item, ladder.meter)
        used = ladder.meter.since(before)
        ladder.spend(used)
        is_processed = apply_outcome(working_set, book, page, item, outcome, used, ladder.bounds, weight)
        if is_processed is None:
            return 0, ladder.stop_at(book, outcome)
        page.first_index += 1
        return int(is_processed), None


class Stretches(Attempt):
    """Attempt that weighs a stretch of messages and takes as many as fit at once."""

    #: The most messages to take at once.
    at_once = sys.maxsize

    def __init__(self, scales: Scales) -> None:
        super().__init__(scales.weight)
        self.scales, self._decisions = scales, 0

    @abstractmethod
    def take(
        self, ladder: Ladder, book: Book, page: Page, weights: list[Weight], total: Weight
    ) -> tuple[int, PageStatus | None]:
        """Take the next messages, one for each weight; they are paid for."""

    @abstractmethod
    def decide(self, ladder: Ladder, book: Book, page: Page, decision: Decision) -> int:
        """Apply a decision to the next message; return how many messages that processed."""

    def step(self, ladder: Ladder, book: Book, page: Page) -> tuple[int, PageStatus | None]:
        """Take the next stretch, and judge the message that ended it."""
        taken, stop = self._take_fitting(ladder, book, page)
        page.advance()
        if stop is None and not page.is_attempted:
            dropped, stop = self._judge(ladder, book, page)
            taken += dropped
        return taken, stop

    def _take_fitting(self, ladder: Ladder, book: Book, page: Page) -> tuple[int, PageStatus | None]:
        start, most = page.first_index, FIRST_STRETCH
        while True:
            stop = self._stretch(page, start, start + most)
            weights = self.scales.weights(book.origin, page, start, stop)
            count = ladder.fitting(weights) if weights else 0
            # Weigh more only while all fits: many messages of a page may be judged one by one.
            if count < len(weights) or stop < start + most:
                break
            most *= 8
        if not count:
            return 0, None
        count = min(count, self.at_once)
        del weights[count:]
        total = total_weight(weights)
        item = ladder.item_cost
        ladder.meter.charge(Weight(total[0] + item[0] * count, total[1] + item[1] * count))
        ladder.spend(total)
        ladder.givers.add(book.origin)
        return self.take(ladder, book, page, weights, total)

    def _stretch(self, page: Page, start: int, stop: int) -> int:
        """Return the end of the stretch of equal items: neither in flight nor expired, nor too long for the ring."""
        stop = page.waiting_until(start, min(stop, len(page.lengths)))
        now = self.scales.working_set.now
        notes = page.notes_of(start, stop) if page.notes else ()
        stop = min((item for item, note in notes if note.expires is not None and note.expires <= now), default=stop)
        longest = self.scales.working_set.config.max_message_size
        if longest is not None:
            stop = next((item for item in range(start, stop) if page.extent(item) > longest), stop)
        return stop

    def _judge(self, ladder: Ladder, book: Book, page: Page) -> tuple[int, PageStatus | None]:
        """Decide about the item that ended the stretch, or return why nothing goes on."""
        item = page.first_index
        note = page.note(item)
        weight = self.scales.weight(book.origin, page, item)
        expired = note.expires is not None and note.expires <= ladder.working_set.now
        fits = ladder.meter.fits(weight.plus(ladder.item_cost))
        exceeded = ladder.bounds.exceeded(weight, page.extent(item), fits_now=fits)
        if expired or exceeded:
            if self._decisions >= MOST_DECISIONS:
                ladder.is_worn = True
                return 0, PageStatus.NO_PROGRESS
            if not ladder.meter.consume(ladder.item_cost):
                return 0, PageStatus.BAILED
            self._decisions += 1
            ladder.givers.add(book.origin)
            id_ = self.scales.name(book.origin, page, item)
            return self.decide(ladder, book, page, Decision(None if expired else exceeded, weight, id_)), None
        if ladder.denies(book, page, weight):
            return 0, PageStatus.SPENT
        if ladder.keeps_back(weight):
            return 0, PageStatus.BAILED
        if fits:
            return 0, None
        ladder.meter.consume(ladder.item_cost)
        return 0, PageStatus.BAILED


class Claiming(Stretches):
    """Attempt that claims messages for a block."""

    def __init__(self, scales: Scales, *, merge: bool) -> None:
        super().__init__(scales)
        #: Whether later visits to a queue extend its first claim (the order across queues is lost).
        self.merge = merge
        self.claims: list[Claim] = []
        self._latest: dict[str, Claim] = {}

    def begin_visit(self, book: Book) -> None:
        """Begin a claim for each visit, or one for all visits to a queue."""
        claim = self._latest.get(book.origin) if self.merge else None
        if claim is None:
            claim = Claim(book.origin, ordered=self.scales.working_set.is_ordered(book), most=book.settings.most)
            self._latest[book.origin] = claim
            self.claims.append(claim)
        self._claim = claim

    def run(self, ladder: Ladder, book: Book, page: Page) -> tuple[int, PageStatus]:
        """Claim message after message, and record whether the walk returns to the page."""
        self._begin_run(page)
        processed, status = super().run(ladder, book, page)
        self._claim.runs[-1].closed = status is PageStatus.NO_MORE
        return processed, status

    def _begin_run(self, page: Page) -> None:
        """Continue the last run, or begin one."""
        page.advance()
        last = self._claim.runs[-1] if self._claim.runs else None
        if last and last.page == page.index and last.first + last.count == page.first_index:
            return
        self._claim.runs.append(ClaimRun(page.index, page.first_index))

    def _run_here(self, page: Page) -> ClaimRun:
        """Return the run of the next item; begin one behind items of another block."""
        run = self._claim.runs[-1]
        if run.count == 0:
            run.first = page.first_index
        self._begin_run(page)
        return self._claim.runs[-1]

    def take(
        self, ladder: Ladder, book: Book, page: Page, weights: list[Weight], total: Weight
    ) -> tuple[int, PageStatus | None]:
        """Claim the next messages."""
        run, count, first = self._run_here(page), len(weights), page.first_index
        book.message_count -= count
        book.size -= page.mark_all_processed(first, count)
        page.first_index += count
        run.count += count
        if self.scales.weigh is not None:
            run.weights.extend(weights)
        self._claim.planned = self._claim.planned.plus(total)
        return count, None

    def decide(self, ladder: Ladder, book: Book, page: Page, decision: Decision) -> int:
        """Note the decision; settling the block applies it."""
        run, item = self._run_here(page), page.first_index
        run.decisions[item] = decision
        expired = decision.exceeded is None
        if expired:
            book.message_count -= 1
            book.size -= page.mark_processed(item)
        else:
            page.marks[item] = ASIDE
        page.first_index += 1
        run.count += 1
        if self.scales.weigh is not None:
            run.weights.append(decision.weight)
        return int(expired)
