"""Settling: apply processors' outcomes to the claims of a plan.

Claims are replayed in the order of the plan by the rules of servicing in place, so that the result is the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from io import BytesIO
from itertools import chain, repeat
from typing import Generic, NamedTuple, TypeVar

from .book import Book
from .charging import Charge
from .claims import Claim, ClaimRun, Scales
from .events import NOT_TRIED, with_untried
from .judging import bounds_of
from .message import ID_BYTES
from .orders import Parts
from .outcome import (
    DONE,
    NEVER_BEGUN,
    Begun,
    Done,
    Mark,
    NotBegun,
    Outcome,
    Overweight,
    Transferred,
    Yield,
)
from .page import Page
from .service import (
    apply_outcome,
    carry_out,
    record_done,
    record_returned,
    skip_gone,
)
from .weight import ZERO, Weight
from .working_set import WorkingSet

T = TypeVar("T")
#: Beginning of the reason of a message that returned because its processor asked for more weight than was left.
NO_ROOM = "it weighs"

#: Batch and microseconds of an outcome whose time is unknown.
UNTIMED = (0, 0)


class ReportedRun(NamedTuple):
    """The outcome of several messages of a page, with their ids if they were reported."""

    first: int
    last: int
    outcome: Outcome
    ids: bytes
    #: Number of the batch in which they were tried, and the microseconds until this outcome.
    took: tuple[int, int] = UNTIMED

    def ids_of(self, run: ClaimRun) -> list[bytes] | None:
        """Return the ids of a part of the messages, if they were reported."""
        if not self.ids:
            return None
        ids = BytesIO(self.ids)
        ids.seek((run.first - self.first) * ID_BYTES)
        return list(map(ids.read, repeat(ID_BYTES, run.count)))


class Ranges(Generic[T]):
    """Values of ranges of items; where ranges overlap, the value that was added first counts, or the latest one.

    A lookup costs a binary search, however many ranges there are. The first lookup after an addition sorts them.
    """

    def __init__(self, *, latest: bool = False) -> None:
        self.added: list[tuple[int, int, T]] = []
        self._sign = -1 if latest else 1
        #: Where another value begins to count, in ascending order, and that value; None in gaps.
        self._starts: list[int] = []
        self._values: list[T | None] = []

    def add(self, first: int, last: int, value: T) -> None:
        """Add the value of the items from first to last."""
        self.added.append((first, last, value))
        self._starts = []

    def at(self, item: int) -> T | None:
        """Return the value of an item, or None."""
        if not self._starts:
            self._sort()
        place = bisect_right(self._starts, item) - 1
        return self._values[place] if place >= 0 else None

    def spans(self) -> Iterator[tuple[int, int, T]]:
        """Return the ranges that have a value, in ascending order; they do not overlap."""
        self.at(0)
        for start, stop, value in zip(self._starts, self._starts[1:], self._values):
            if value is not None:
                yield start, stop - 1, value

    def within(self, first: int, last: int) -> Iterator[tuple[int, T]]:
        """Return the values of the items from first to last, each with the number of neighbours that have it."""
        self.at(first)
        for at in range(max(bisect_right(self._starts, first) - 1, 0), bisect_right(self._starts, last)):
            value = self._values[at]
            if value is not None:
                yield min(self._starts[at + 1] - 1, last) - max(self._starts[at], first) + 1, value

    def _sort(self) -> None:
        waiting = sorted((first, at * self._sign) for at, (first, _, _) in enumerate(self.added))
        self._starts = sorted({place for first, last, _ in self.added for place in (first, last + 1)})
        self._values, entered = [], 0
        here: list[int] = []
        for start in self._starts:
            while entered < len(waiting) and waiting[entered][0] <= start:
                heappush(here, waiting[entered][1])
                entered += 1
            while here and self.added[abs(here[0])][1] < start:
                heappop(here)
            self._values.append(self.added[abs(here[0])][2] if here else None)


class Answers:
    """Reported outcomes for the messages of one queue, in the ranges in which they were reported."""

    def __init__(self) -> None:
        self._runs: defaultdict[int, Ranges[ReportedRun]] = defaultdict(Ranges)
        self._begun: defaultdict[int, Ranges[bool]] = defaultdict(Ranges)
        self._errors: defaultdict[int, Ranges[str]] = defaultdict(partial(Ranges[str], latest=True))
        #: Largest number of an attempt that replaces earlier ones (`Report.epoch`); 0 without one.
        self.epoch = 0
        #: Whether the time of any attempt is known.
        self.is_timed = False

    def add(
        self, page: int, first: int, last: int, outcome: Outcome | Mark, ids: bytes = b"",
        took: tuple[int, int] = UNTIMED,
    ) -> None:  # fmt: skip
        """Add the outcome of a row of messages, with their ids if known; the first outcome counts."""
        self.is_timed = self.is_timed or took[0] > 0
        if isinstance(outcome, Begun):
            self._begun[page].add(first, last, True)
        elif isinstance(outcome, NotBegun):
            self._errors[page].add(first, last, outcome.error)
        else:
            self._runs[page].add(first, last, ReportedRun(first, last, outcome, ids, took))

    def get(self, page: int, item: int) -> Outcome | None:
        """Return the outcome of one message."""
        run = self._runs[page].at(item) if page in self._runs else None
        if run is None:
            return None
        return Done(id=run.ids) if run.ids and run.first == run.last else run.outcome

    def tried(self, run: ClaimRun) -> Iterator[tuple[int, ReportedRun]]:
        """Return the outcomes of a run, each with the number of neighbours that have it."""
        found = self._runs.get(run.page)
        return found.within(run.first, run.first + run.count - 1) if found else iter(())

    def was_begun(self, page: int, item: int) -> bool:
        """Return whether a worker reported that it began this message."""
        return page in self._begun and self._begun[page].at(item) is not None

    def why_not_begun(self, page: int, item: int) -> str:
        """Return the latest error that kept this message from its processor, or an empty text."""
        return (page in self._errors and self._errors[page].at(item)) or ""

    @property
    def any_begun(self) -> bool:
        """Whether a worker reported that it began any message."""
        return bool(self._begun)

    def whole(self, run: ClaimRun) -> ReportedRun | None:
        """Return the plain *done* that alone covers the whole run, if there is one."""
        runs = self._runs[run.page].added if run.page in self._runs else ()
        if len(runs) != 1:
            return None
        done = runs[0][2]
        covers = done.first <= run.first and run.first + run.count - 1 <= done.last
        return done if done.outcome == DONE and covers else None

    def knows(self, run: ClaimRun) -> bool:
        """Return whether settling a run needs no payload: each message is done and has a reported id."""
        if run.decisions:
            return False
        if (whole := self.whole(run)) is not None:
            return bool(whole.ids)
        outcomes = (self.get(run.page, item) for item in range(run.first, run.first + run.count))
        return all(isinstance(outcome, Done) and outcome.id is not None for outcome in outcomes)

    def items(self) -> set[tuple[int, int]]:
        """Return page and index of every message whose outcome settles it."""
        return {
            (page, item)
            for page, runs in self._runs.items()
            for first, last, run in runs.spans()
            if not isinstance(run.outcome, (Yield, Overweight))
            for item in range(first, last + 1)
        }


def times_of(claims: Sequence[Claim], answers: Mapping[str, Answers], parts: Parts) -> list[list[int]]:
    """Return the microseconds that each claim took, and its messages; nothing if no time is known.

    The time of a batch is divided by planned weight, that of a claim by messages. A batch none of whose outcomes count
    takes no time: its messages were tried again.
    """
    if not any(own.is_timed for own in answers.values()):
        return []
    batches: dict[int, int] = {}
    shares: defaultdict[int, defaultdict[int, int]] = defaultdict(partial(defaultdict, int))
    times = [[0, claim.messages] for claim in claims]
    for at, claim in enumerate(claims):
        each = max(parts(claim.planned) // max(times[at][1], 1), 1)
        own = answers.get(claim.origin)
        for count, found in chain.from_iterable(map(own.tried, claim.runs)) if own else ():
            batch, took = found.took
            if batch:
                batches[batch] = max(took, batches.get(batch, 0))
                shares[batch][at] += count * each
    for batch, took in batches.items():
        left = sum(shares[batch].values())
        for at, share in shares[batch].items():
            times[at][0] += took * share // left
            took, left = took - took * share // left, left - share
    return times


#: Fates of a message that went to a processor, or should have: the numbers of a tally, in their order.
FATES = ("processed", "failed", "set_aside", "returned", "expired")


@dataclass
class Tally:
    """How many messages have each fate."""

    processed: int = 0
    #: Messages that failed and are not tried again.
    failed: int = 0
    set_aside: int = 0
    #: Attempts without an outcome; in a block also the untried messages behind them.
    returned: int = 0
    expired: int = 0

    @property
    def counts(self) -> list[int]:
        """The numbers, in the order of `FATES`."""
        return [getattr(self, fate) for fate in FATES]

    @property
    def moved(self) -> int:
        """How many messages left their queues."""
        return sum(self.counts) - self.returned

    def add_counts(self, other: Tally) -> None:
        """Add the numbers of another tally."""
        for fate in FATES:
            setattr(self, fate, getattr(self, fate) + getattr(other, fate))


@dataclass
class Settlement(Tally):
    """Result of settling one queue or a whole block."""

    used: Weight = ZERO
    #: Sum of what single messages were charged beyond their planned weight.
    overrun: Weight = ZERO
    #: Measured weights as (length, used, predicted), to fit weighers.
    measured: list[tuple[int, Weight, Weight]] = field(default_factory=list)

    def add(self, other: Settlement) -> None:
        """Add the result of another queue."""
        self.add_counts(other)
        self.used = self.used.plus(other.used)
        self.overrun = self.overrun.plus(other.overrun)
        self.measured.extend(other.measured)


class ClaimSettler:
    """Settler of the claims that one block has on one ring."""

    def __init__(
        self, working_set: WorkingSet, limit: Weight, claims: Iterable[Claim] = (), *, reports_begin: bool = False
    ) -> None:
        self.working_set, self.bounds = working_set, bounds_of(working_set.config, limit)
        #: Whether the block's workers report what they begin. A message that none began was not tried.
        self.reports_begin = reports_begin
        #: Page and index of the last message that the block holds of each queue.
        self.ends = {
            claim.origin: (run.page, run.first + run.count - 1) for claim in claims for run in claim.runs if run.count
        }
        self.scales = Scales(working_set)
        #: The *most* of books when the block ended; None if it ends now.
        self.mosts: Mapping[str, Weight] | None = None
        #: Ordered queues in which a message returned. Everything behind it goes back untried.
        self.stopped: set[str] = set()
        #: Ordered queues that their processor left at a message, which may have been set aside. Messages behind it
        #: without an outcome were not tried.
        self.left: set[str] = set()
        #: Whether the claim being settled was planned as ordered.
        self.ordered = True

    def settle(
        self, claim: Claim, answers: Answers, result: Settlement | None = None, *, is_last: bool = True, took: int = 0
    ) -> Settlement:
        """Settle one claim, in the order of its runs.

        :param result: the result of the runs before these, if the claim is settled in parts; it is added to
        :param is_last: whether these are the last runs of the claim
        :param took: measured time of these runs, in microseconds
        """
        working_set, book = self.working_set, self.working_set.book(claim.origin)
        self.ordered, working_set.processor = claim.ordered, claim.processor
        # An end may be applied within a visit, which has an overrun of its own.
        before, working_set.overrun = working_set.overrun, ZERO
        result = Settlement() if result is None else result
        planned = claim.planned if is_last else ZERO
        for left, run in zip(range(len(claim.runs) - 1, -1, -1), claim.runs):
            page = working_set.page(claim.origin, run.page)
            if page is None:
                continue
            if self._settle_whole(book, page, run, answers, result, ZERO if left else planned):
                planned = planned if left else ZERO
                continue
            for item in range(run.first, run.first + run.count):
                self._settle_item(book, page, run, item, answers, result)
            self._turn_pages(book, page, run)
        if not book.is_ready and claim.origin not in working_set.circle(claim.origin).unknitted:
            working_set.unknit(book)
        if took or planned != ZERO:
            working_set.charge(claim.origin, Charge(planned, measured=took))
        if is_last and (result.processed or result.failed or result.expired):
            working_set.note_changed(book)
        result.overrun, working_set.overrun = result.overrun.plus(working_set.overrun), before
        working_set.processor = None
        return result

    def _settle_whole(
        self, book: Book, page: Page, run: ClaimRun, answers: Answers, result: Settlement, planned: Weight
    ) -> bool:
        """Settle a run at once if all of its messages are done: the common case.

        :param planned: the weight that the plan took for the claim, for its last run
        """
        start, stop = run.first, run.first + run.count
        done = answers.whole(run)
        if done is None or not run.count or run.decisions or page.waiting_until(start, stop) < stop:
            return False
        weights = run.weights or self.scales.weights(book.origin, page, start, stop)
        total = record_done(self.working_set, book, page, start, weights, done.ids_of(run), planned)
        result.processed += run.count
        result.used = result.used.plus(total)
        self._turn_pages(book, page, run)
        return True

    def _settle_item(
        self, book: Book, page: Page, run: ClaimRun, item: int, answers: Answers, result: Settlement
    ) -> None:
        if page.marks[item]:
            return
        decision, outcome = run.decisions.get(item), answers.get(page.index, item)
        if decision:
            if not (self.ordered and book.origin in self.stopped):
                expired = carry_out(self.working_set, book, page, item, decision)
                result.expired += expired
                result.set_aside += not expired
        elif outcome is not None:
            self._apply(book, page, run, item, outcome, result)
        elif self.ordered and book.origin in self.left:
            result.returned += 1
        else:
            why = answers.why_not_begun(page.index, item)
            if answers.was_begun(page.index, item) or not (self.reports_begin or why):
                self._apply(book, page, run, item, Yield("no outcome"), result)
            else:
                # It was not tried: no attempt counts.
                record_returned(self.working_set, book, page, item, f"{NOT_TRIED} {why or NEVER_BEGUN}")
                self._stop(book, page, item)
                result.returned += 1

    def _apply(self, book: Book, page: Page, run: ClaimRun, item: int, outcome: Outcome, result: Settlement) -> None:
        planned = run.weights[item - run.first] if run.weights else self.scales.weight(book.origin, page, item)
        most = book.settings.most if self.mosts is None else self.mosts.get(book.origin)
        bounds = self.bounds.of(most)
        verdict = apply_outcome(self.working_set, book, page, item, outcome, planned, bounds)
        used = ZERO if isinstance(outcome, Overweight) else getattr(outcome, "used", None) or planned
        result.used = result.used.plus(used)
        if isinstance(outcome, Yield):
            self.left.add(book.origin)
        if verdict is None:
            if isinstance(outcome, Overweight):
                page.notes[item] = page.note(item)._replace(weight=outcome.weight)
                self.working_set.touch(book, page)
                why = f"{NO_ROOM} {outcome.weight}, which did not fit any more"
                record_returned(self.working_set, book, page, item, why)
            self._stop(book, page, item)
            result.returned += 1
        elif verdict:
            done = isinstance(outcome, (Done, Transferred))
            result.processed += done
            result.failed += not done
            if isinstance(outcome, Done):
                if outcome.used:
                    result.measured.append((page.extent(item), outcome.used, planned))
                self.working_set.post_all(outcome.enqueue)
        else:
            result.set_aside += 1

    def _stop(self, book: Book, page: Page, item: int) -> None:
        """Stop an ordered queue here: messages behind it go back untried, and the event records up to where."""
        if book.origin in self.stopped:
            return
        self.stopped.add(book.origin)
        self.left.add(book.origin)
        last = self.ends.get(book.origin, (0, 0))
        if self.ordered and last > (page.index, item):
            event = self.working_set.changes.events[-1]
            event.detail = with_untried(event.detail, *last)

    def _turn_pages(self, book: Book, page: Page, run: ClaimRun) -> None:
        """Move past a page in which nothing is left to try. Pallet: `service_queue`."""
        page.advance()
        self.working_set.touch(book, page)
        if page.index == book.end - 1 and page.is_attempted:
            self.working_set.pull(book)
        if page.is_complete:
            self.working_set.remove_page(book, page)
        if page.index == book.begin and page.is_attempted and (run.closed or page.is_complete):
            book.begin += 1
        skip_gone(self.working_set, book)
