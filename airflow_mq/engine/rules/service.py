"""Servicing ladder: three steps that service a queue, its pages and the items of a page.

Each step charges its fixed cost to the meter before it runs. The module `orders` decides where to begin and which queue
is next. An `Attempt` decides how a message is tried: a processor executes it now, or a weigher claims it for a block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .book import BACKOFF, BUDGET, Book
from .budget import Bucket
from .changes import Aside
from .charging import Charge, charge_of, charge_of_run, excess
from .events import WRONG, EventRun, Fate, returned, with_error, with_wait
from .judging import ATTEMPTS, Bounds, Decision, bounds_of, in_words
from .message import Address, message_ids
from .outcome import Done, Outcome, Overweight, PageStatus, Transferred, Unreadable, Yield
from .page import ASIDE, Page
from .weight import ZERO, Meter, Weight, max_message_weight, total_weight
from .working_set import WorkingSet


class Credit:
    """Weight that one queue may spend in this visit, and the meters that it is charged to."""

    def __init__(self, *meters: Meter) -> None:
        self.meters = meters
        #: Meter that had no room for the next message.
        self.refused: Meter | None = None

    def covering(self, weights: Sequence[Weight]) -> int:
        """Return how many of these messages, from the first on, may start."""
        count = len(weights)
        for meter in self.meters:
            count = min(count, meter.covering(weights))
            if not count:
                self.refused = meter
                break
        return count

    def spend(self, weight: Weight) -> None:
        """Charge used weight."""
        for meter in self.meters:
            meter.charge(weight)

    def refund(self, weight: Weight) -> None:
        """Refund the weight of messages that were not tried."""
        for meter in self.meters:
            meter.refund(weight)


class Attempt(ABC):
    """A way to try the messages of a page, from its first unattempted one on."""

    def __init__(self, weigh: Callable[[str, Page, int], Weight]) -> None:
        """:param weigh: returns the weight of an item, by its queue and page."""
        self._weigh = weigh

    def begin_visit(self, book: Book) -> None:
        """Prepare to service a queue; most attempts need nothing."""
        return

    @abstractmethod
    def step(self, ladder: Ladder, book: Book, page: Page) -> tuple[int, PageStatus | None]:
        """Try one or more of the next messages.

        Return the number of processed messages, and the reason for a stop, if there is one.
        """

    def front(self, book: Book, page: Page) -> Weight:
        """Return the expected weight of the first unattempted message."""
        return self._weigh(book.origin, page, page.first_index)

    def run(self, ladder: Ladder, book: Book, page: Page) -> tuple[int, PageStatus]:
        """Take step after step; return the number of processed messages and the reason for the stop."""
        processed, look = 0, FEW
        while True:
            page.advance()
            if page.index == book.end - 1 and len(page.lengths) - page.first_index < look:
                # Inbox rows of single messages: cut several, so that they can be taken at once.
                look = min(2 * look, MOST_AHEAD) if ladder.working_set.pull_some(book, look) else 1
            if page.is_attempted:
                # A complete page has no item; in any other, the look behind the last one is paid.
                is_paid = page.is_complete or ladder.meter.consume(ladder.item_cost)
                return processed, PageStatus.NO_MORE if is_paid else PageStatus.BAILED
            done, stop = self.step(ladder, book, page)
            processed += done
            if stop:
                return processed, stop


@dataclass
class Visited:
    """Result of servicing one queue."""

    processed: int
    #: Next queue of the ring; None if the meter could not pay for the visit, or the queue left the ring.
    successor: str | None
    #: Reason why the last page stopped; None if no page was serviced.
    status: PageStatus | None = None


class Ladder:
    """One call of servicing: its working set, its meter and the bounds of message weights."""

    def __init__(self, working_set: WorkingSet, meter: Meter, attempt: Attempt, limit: Weight | None = None) -> None:
        """:param limit: the limit of a block, if the meter has another one."""
        self.working_set = working_set
        self.meter = meter
        #: Bounds of message weights by the ring alone, and for the origin being visited.
        self.ring_bounds = self.bounds = bounds_of(working_set.config, limit or meter.limit)
        self.attempt = attempt
        self.costs = working_set.config.costs
        #: Largest weight of a message that this call may start, after the fixed costs of one visit.
        self.room = max_message_weight(meter.limit, self.costs) or ZERO
        #: Requested weight of the message at which a queue stopped, by origin.
        self.asked: dict[str, Weight] = {}
        self.visit_cost = self.costs.visit
        self.page_cost = self.costs.page
        self.item_cost = self.costs.service_page_item
        self.credit: Credit | None = None
        #: Buckets that pay for messages of the queue being visited.
        self.buckets: Sequence[Bucket] = ()
        #: Parts of each bucket that this level keeps for the next one, and whether that stopped the last visit.
        self.kept_parts = 0
        self.is_kept_back = False
        self.serviced: set[str] = set()
        #: Of these, the queues that gave a message or a decision, and those that a later round comes back to.
        self.givers: set[str] = set()
        #: Whether it goes on with a call, of which an earlier walk has moved the head.
        self.is_resumed = False
        #: Whether another walk goes on with the call if this one services as many queues as it may.
        self.has_parts = False
        #: Whether to look only at queues that earlier walks of this call did not come to.
        self.looks_only = False
        #: Whether ready queues are left at which this walk did not look.
        self.is_cut_short = False
        #: Whether a queue stopped at a message about which this walk could not decide any more.
        self.is_worn = False
        #: Largest number of queues that give messages; None for no limit.
        self.most_queues: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether no further queue may be serviced: enough gave messages, or too many were visited."""
        most = self.most_queues
        return most is not None and (len(self.givers) >= most or len(self.serviced) >= most + IN_VAIN)

    def service_queue(self, origin: str) -> Visited:
        """Service one queue until it is empty, blocked, or a meter or credit is used up."""
        if not self.meter.consume(self.visit_cost):
            return Visited(0, None)
        self.asked.pop(origin, None)
        ring, book = self.working_set.circle(origin), self.working_set.book(origin)
        if origin not in ring:
            # The queue left the ring after the caller chose it; the meter was charged nevertheless.
            return Visited(0, None)
        self.buckets, self.is_kept_back = (), False
        if book.budgets:
            self.admit(book)
        if book.skipped:
            return Visited(0, ring.successor(origin))
        self.bounds = self.ring_bounds.of(book.settings.most)
        self.attempt.begin_visit(book)
        self.serviced.add(origin)
        processed, status = self._service_pages(book)
        successor = ring.successor(origin)
        if not book.is_ready:
            self.working_set.unknit(book)
        if processed and not self.working_set.planning:
            self.working_set.note_changed(book)
        self.is_cut_short |= self.is_full
        return Visited(processed, successor, status)

    def admit(self, book: Book) -> None:
        """Take the buckets of a queue; it is skipped while one of them waits, or does not cover its next message."""
        if book.skipped not in ("", BUDGET):
            return
        self.buckets = self.working_set.buckets_of(book)
        if self.working_set.waits_for(book, [one for one in self.buckets if one.wake_at > self.working_set.now]):
            return
        for bucket in self.buckets if self.kept_parts else ():
            bucket.keep(self.kept_parts)
        page = self._front_page(book)
        weight = None if page is None else self._cost(book, page)
        if page is None or not weight or self.working_set.deny(book, weight, page.index, page.first_index):
            return
        if self.keeps_back(weight):
            return
        for bucket in self.buckets:
            if bucket.needs is not None:
                bucket.wait_for(None)
                self.working_set.changes.buckets.add(bucket.path)

    def spend(self, weight: Weight) -> None:
        """Charge the visit with the weight of messages that start."""
        if self.credit:
            self.credit.spend(weight)
        if self.buckets:
            self.working_set.spend(self.buckets, weight)

    def refund(self, weight: Weight) -> None:
        """Refund the weight of messages that were not tried."""
        if self.credit:
            self.credit.refund(weight)
        for bucket in self.buckets:
            bucket.refund(weight)

    def keeps_back(self, weight: Weight) -> bool:
        """Return whether the next message, which the buckets cover, is of a level that leaves them to the next one."""
        self.is_kept_back = bool(self.kept_parts) and not all(bucket.sparing([weight]) for bucket in self.buckets)
        return self.is_kept_back

    def denies(self, book: Book, page: Page, weight: Weight) -> bool:
        """Return whether the buckets or the credit of the visit do not cover the next message."""
        if self.buckets and self.working_set.deny(book, weight, page.index, page.first_index):
            return True
        return self.credit is not None and not self.credit.covering([weight])

    def stop_at(self, book: Book, outcome: Outcome) -> PageStatus:
        """Return why a queue stops at a message that returned; record the weight that its processor requested."""
        if not isinstance(outcome, Overweight):
            return PageStatus.NO_PROGRESS
        self.asked[book.origin] = outcome.weight
        return PageStatus.BAILED

    def front_of(self, book: Book) -> Weight | None:
        """Return the weight of the next message of a queue, or None if its pages hold none."""
        page = self._front_page(book)
        return None if page is None else self.attempt.front(book, page)

    def carries(self, weight: Weight) -> bool:
        """Return whether the rest of the block carries a message of another visit."""
        costs = self.visit_cost.plus(self.page_cost).plus(self.item_cost)
        return self.meter.fits(weight.plus(costs))

    def can_service(self, book: Book) -> bool:
        """Return whether the next message of a queue fits the rest of the block, or ends without a processor."""
        page = None if book.skipped or not book.is_ready else self._front_page(book)
        if page is None:
            return False
        return self.carries(self._cost(book, page) or ZERO)

    def _cost(self, book: Book, page: Page) -> Weight | None:
        """Return the weight of the next message of a page; None if it ends without a processor."""
        expires, weight = page.note(page.first_index).expires, self.attempt.front(book, page)
        exceeded = self.ring_bounds.of(book.settings.most).exceeded(weight, page.extent(page.first_index))
        return None if exceeded is not None or (expires is not None and expires <= self.working_set.now) else weight

    def fitting(self, weights: Sequence[Weight]) -> int:
        """Return how many of these messages, from the first on, fit the meter, the credit and the bounds."""
        count = self.meter.covering(weights, self.item_cost)
        if self.credit:
            count = min(count, self.credit.covering(weights))
        for bucket in self.buckets:
            count = (bucket.sparing if self.kept_parts else bucket.covering)(weights[:count])
        bar = self.bounds.bar
        heavy = set() if bar is None else {weight for weight in set(weights) if weight.exceeds(bar)}
        return next((at for at in range(count) if weights[at] in heavy), count) if heavy else count

    def _front_page(self, book: Book) -> Page | None:
        """Return the page of the next message of a queue, at its first index."""
        for page in self.working_set.window(book):
            page.advance()
            if not page.is_attempted:
                return page
        return None

    def _service_pages(self, book: Book) -> tuple[int, PageStatus]:
        """Service page after page of the window; remove those that are complete."""
        total, status = 0, PageStatus.NO_MORE
        while book.is_ready:
            if not self.meter.consume(self.page_cost):
                return total, PageStatus.BAILED
            page = self.working_set.page(book.origin, book.begin)
            if page is None:
                skip_gone(self.working_set, book, FEW)
                continue
            processed, status = self.attempt.run(self, book, page)
            total += processed
            if status is PageStatus.NO_PROGRESS and page.is_complete and page.index == book.end - 1:
                # Its last message waits aside. Messages sent meanwhile went into this page, if they fitted.
                self.working_set.pull(book)
            if page.is_complete:
                self.working_set.remove_page(book, page)
            if status is not PageStatus.NO_MORE:
                break
            book.begin += 1
            self.working_set.changes.books.add(book.origin)
        if status is PageStatus.NO_PROGRESS:
            # A message that waits aside may have been the last one of its page.
            skip_gone(self.working_set, book)
        return total, status


#: Queues that a walk visits in vain, beyond the number of those that give it messages.
IN_VAIN = 512
#: Messages to cut when a page may be the last: enough to continue, without a read of the whole inbox. An attempt
#: doubles the number as it goes on, until the inbox is empty or the number is the larger one.
FEW, MOST_AHEAD = 16, 1 << 16
#: Largest length of a processor's reason in an event.
MOST_WHY = 200


def shortened(why: str) -> str:
    """Return a reason as an event keeps it; one that is too long ends in an ellipsis."""
    return why if len(why) <= MOST_WHY else f"{why[: MOST_WHY - 1]}…"


def apply_outcome(
    working_set: WorkingSet, book: Book, page: Page, item: int, outcome: Outcome, used: Weight, bounds: Bounds,
    predicted: Weight | None = None,
) -> bool | None:  # fmt: skip
    """Record a processor's outcome, and charge the queue for the attempt.

    Return True if it finishes the message, False if set aside, None if requeued. Pallet: `process_message_payload` and
    the end of `service_page_item`.

    :param predicted: its predicted weight, if `used` is what its processor metered
    """
    config, processor = working_set.config, working_set.processor
    charged = charge_of(config, page, item, outcome, used, predicted, trusted=processor in config.trusted)
    verdict = _record_outcome(working_set, book, page, item, outcome, used, bounds)
    if predicted is None and charged != used:
        working_set.overrun = working_set.overrun.plus(excess(used, charged))
    planned, attempts = used if processor is None else ZERO, int(not isinstance(outcome, Overweight))
    messages, size = (1, page.extent(item)) if verdict else (0, 0)
    working_set.charge(book.origin, Charge(planned, charged, 0, messages, size, attempts))
    return verdict


def _record_outcome(
    working_set: WorkingSet, book: Book, page: Page, item: int, outcome: Outcome, used: Weight, bounds: Bounds
) -> bool | None:
    origin = book.origin
    if isinstance(outcome, Done):
        id_ = outcome.id or working_set.id_of(origin, page, item)
        fate = Fate.PROCESSED if outcome.success else Fate.DECLINED
        working_set.emit(fate, origin, page.index, item, id_, outcome.used or used)
    elif isinstance(outcome, Overweight):
        exceeded = bounds.exceeded(outcome.weight)
        if exceeded is None:
            return None
        put_aside(working_set, book, page, item, outcome.weight, exceeded, outcome.id)
        return False
    elif isinstance(outcome, Yield):
        return return_message(working_set, book, page, item, outcome.reason, for_good=isinstance(outcome, Unreadable))
    elif isinstance(outcome, Transferred):
        id_ = outcome.id or working_set.id_of(origin, page, item)
        working_set.emit(Fate.TRANSFERRED, origin, page.index, item, id_, detail=outcome.to)
    else:
        id_ = outcome.id or working_set.id_of(origin, page, item)
        working_set.emit(WRONG[type(outcome)], origin, page.index, item, id_)
    mark_gone(working_set, book, page, item)
    return True


def record_done(
    working_set: WorkingSet,
    book: Book,
    page: Page,
    first: int,
    weights: list[Weight],
    ids: list[bytes] | None = None,
    planned: Weight = ZERO,
) -> Weight:
    """Record that consecutive messages were processed successfully, and charge the queue; return their planned weight.

    :param ids: their ids, if known without their payloads.
    :param planned: the weight that a plan took for them; a visit in place takes the sum.
    """
    count = len(weights)
    if ids is None:
        ids = message_ids(working_set.payloads(book.origin, page, first + count)[first : first + count])
    working_set.changes.events.append(EventRun(Fate.PROCESSED, book.origin, page.index, first, ids, weights))
    size, total = page.mark_all_processed(first, count), total_weight(weights)
    book.message_count -= count
    book.size -= size
    charged = charge_of_run(working_set.config, page, first, weights, total)
    if charged != total:
        working_set.overrun = working_set.overrun.plus(excess(total, charged))
    planned = total if working_set.processor is None else planned
    payloads = page.extents(first, first + count) if page.notes else size
    working_set.charge(book.origin, Charge(planned, charged, 0, count, payloads, count))
    working_set.touch(book, page)
    return total


def skip_gone(working_set: WorkingSet, book: Book, most: int = 1) -> None:
    """Move the window past removed pages. Settling may remove a page before the pages in front of it.

    :param most: if the window ends there, number of messages to cut
    """
    while book.is_ready and working_set.page(book.origin, book.begin) is None:
        following = working_set.after(book.origin, book.begin)
        if following == book.end:
            # The last page of the window was removed: cut messages that arrived since into a new page.
            working_set.pull_some(book, most)
        book.begin = following
        working_set.changes.books.add(book.origin)


def mark_gone(working_set: WorkingSet, book: Book, page: Page, item: int) -> None:
    """Count a message as processed."""
    book.message_count -= 1
    book.size -= page.mark_processed(item)
    working_set.touch(book, page)


def put_aside(
    working_set: WorkingSet, book: Book, page: Page, item: int, weight: Weight | None,
    exceeded: tuple[str, Weight | None],
    id_: bytes | None = None, error: str = "",
) -> None:  # fmt: skip
    """Set a message aside until a person or a policy decides.

    :param error: error of its last attempt, if its attempts are exhausted.
    """
    reason, limit = exceeded
    id_, size = id_ or working_set.id_of(book.origin, page, item), page.extent(item)
    why = in_words(reason, weight, limit, size)
    if error:
        why = with_error(why, page.note(item).attempts, shortened(error))
    fate = Fate.ATTEMPTS_EXHAUSTED if reason == ATTEMPTS else Fate.SET_ASIDE
    working_set.emit(fate, book.origin, page.index, item, id_, detail=why)
    page.marks[item] = ASIDE
    working_set.charge(book.origin, Charge(set_aside=1))
    working_set.changes.asides[Address(book.origin, page.index, item)] = Aside(id_, size, weight, limit, reason)
    working_set.touch(book, page)


def carry_out(working_set: WorkingSet, book: Book, page: Page, item: int, decision: Decision) -> bool:
    """Delete an expired message, or set one aside; return whether it was deleted."""
    if decision.exceeded is not None:
        put_aside(working_set, book, page, item, decision.weight, decision.exceeded, decision.id)
        return False
    id_ = working_set.id_of(book.origin, page, item)
    working_set.emit(Fate.EXPIRED, book.origin, page.index, item, id_)
    mark_gone(working_set, book, page, item)
    return True


def return_message(
    working_set: WorkingSet, book: Book, page: Page, item: int, why: str = "", *, for_good: bool = False
) -> bool | None:
    """Count an attempt without an outcome. Return False if the message is set aside for its attempts, else None.

    With a backoff, an ordered queue is skipped until it ends. In a relaxed one, the message waits aside.

    :param for_good: set it aside at once, since no attempt can end otherwise.
    """
    config = working_set.config
    note = page.note(item)
    note = note._replace(attempts=note.attempts + 1)
    page.notes[item] = note
    working_set.touch(book, page)
    if for_good or (config.max_attempts is not None and note.attempts >= config.max_attempts):
        put_aside(working_set, book, page, item, note.weight, (ATTEMPTS, None), error=why)
        return False
    wait = int(min(config.backoff * 2 ** min(note.attempts - 1, 40), config.backoff_most) * 1_000_000)
    due = working_set.now + wait
    if working_set.puts_off(book):
        last = working_set.page(book.origin, book.end - 1)
        detail = with_wait(shortened(why), wait, book.end - 1, len(last.lengths) - 1 if last else 0)
        working_set.emit(
            Fate.RETURNED, book.origin, page.index, item, working_set.id_of(book.origin, page, item), detail=detail
        )
        working_set.put_off(book, page, item, due)
        mark_gone(working_set, book, page, item)
        page.advance()
        return None
    record_returned(working_set, book, page, item, why)
    if config.backoff:
        working_set.changes.waits[book.origin] = due
        book.skipped = BACKOFF
    return None


def record_returned(working_set: WorkingSet, book: Book, page: Page, item: int, why: str) -> None:
    """Record that a message was tried without an outcome and requeued."""
    id_ = working_set.id_of(book.origin, page, item)
    working_set.emit(Fate.RETURNED, book.origin, page.index, item, id_, detail=returned(shortened(why)))
