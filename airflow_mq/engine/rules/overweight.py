"""Messages behind the window: execution by hand, requeueing, discarding, and reaping of pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .book import Book
from .claims import Scales
from .errors import (
    AlreadyProcessed,
    InsufficientWeight,
    NoMessage,
    NoPage,
    NotReapable,
    Queued,
    QueuePaused,
    TemporarilyUnprocessable,
)
from .events import Fate, decided
from .judging import Bounds, bounds_of, in_words
from .message import Address, message_id
from .outcome import Outcome, Overweight, StackLimitReached, Yield
from .page import PROCESSED, WAITING, Page
from .priority import told as named
from .service import apply_outcome, mark_gone, skip_gone
from .weight import Weight
from .working_set import WorkingSet


@dataclass(frozen=True)
class Judged:
    """Result of requeueing a set-aside message."""

    address: Address
    #: Its new address, or None if it stays where it is.
    moved: Address | None
    #: Reason why it stays.
    why: str


def find_set_aside(working_set: WorkingSet, address: Address) -> tuple[Book, Page]:
    """Return the book and page of a message that may be executed or discarded by hand, or raise the refusal."""
    book = working_set.book(address.book)
    if book.is_paused:
        raise QueuePaused(f"the queue of {address.origin!r} is {book.skipped}; resume it first")
    page, there = working_set.page_at(address), working_set.page(address.book, address.page)
    if there is None:
        raise NoPage(f"no page {address.page} in the queue of {address.origin!r}: it was never opened, or was removed")
    if page is None:
        raise NoMessage(
            f"no index {address.index} in page {address.page} of {address.origin!r}, which has {len(there.lengths)} "
            "messages"
        )
    mark = page.marks[address.index]
    if mark == WAITING and address.page >= book.begin:
        raise Queued(f"message {address} is still queued; it will be tried in its turn")
    if mark == PROCESSED:
        raise AlreadyProcessed(f"message {address} was already processed")
    return book, page


def settle_execution(
    working_set: WorkingSet,
    book: Book,
    page: Page,
    item: int,
    outcome: Outcome,
    used: Weight,
    limit: Weight,
    actor: str,
    predicted: Weight | None = None,
) -> Weight:
    """Record the outcome of an execution by hand and return its cost. Pallet: `do_execute_overweight`.

    :param predicted: the predicted weight, if `used` was metered or reported
    """
    if isinstance(outcome, Overweight):
        raise InsufficientWeight(
            f"message {Address(book.origin, page.index, item)} needs {outcome.weight}, more than the limit {limit}; "
            "raise the limit"
        )
    if isinstance(outcome, Yield):
        raise TemporarilyUnprocessable(
            f"the processor cannot process {Address(book.origin, page.index, item)} now: "
            f"{outcome.reason or 'it yielded'}"
        )
    if isinstance(outcome, StackLimitReached):
        id_ = outcome.id or working_set.id_of(book.origin, page, item)
        working_set.emit(Fate.STACK_LIMIT, book.origin, page.index, item, id_)
        raise TemporarilyUnprocessable(
            "the processor reached its stack limit; retry from a call that is nested less deeply"
        )
    before = working_set.overrun
    apply_outcome(working_set, book, page, item, outcome, used, Bounds(), predicted)
    # What a person executes is no debt of the queue.
    working_set.overrun = before
    id_ = working_set.changes.events[-1].ids[-1]
    working_set.emit(Fate.EXECUTED, book.origin, page.index, item, id_, used, detail=actor)
    return after_removal(working_set, book, page, item)


def after_removal(working_set: WorkingSet, book: Book, page: Page, item: int) -> Weight:
    """Delete the set-aside record of a message, and its page if the message was its last one."""
    costs = working_set.config.costs
    working_set.changes.asides[Address(book.origin, page.index, item)] = None
    if page.is_complete and book.is_ready and page.index == book.end - 1:
        # Messages sent meanwhile went into this page, if they fitted.
        working_set.pull(book)
    if page.is_complete:
        working_set.remove_page(book, page)
        if page.index == book.begin and book.is_ready:
            # A window never has a hole.
            skip_gone(working_set, book)
            if book.begin == book.end:
                working_set.unknit(book)
    working_set.note_changed(book)
    return costs.execute_overweight_page_removed if page.is_complete else costs.execute_overweight_page_updated


def judge_again(
    working_set: WorkingSet,
    address: Address,
    weight: Weight | None,
    id_: bytes | None,
    limits: Sequence[Weight],
    actor: str,
    why: str,
    *,
    forget_attempts: bool,
) -> Judged:
    """Requeue a set-aside message behind all sent messages, if it fits now.

    It keeps its age. No other message is delayed, and the messages sent after it were tried long ago.

    :param weight: the weight for which it was set aside; None: that of the ring's weigher.
    :param id_: its id, if that is known without its payload.
    :param limits: the limits of blocks that may meet it.
    :param forget_attempts: reset its attempts to zero, even if it does not fit.
    """
    book, page = find_set_aside(working_set, address)
    item = address.index
    if forget_attempts:
        page.notes[item] = page.note(item)._replace(attempts=0)
        working_set.touch(book, page)
    note = page.note(item)
    current = Scales(working_set).weight(address.book, page, item)
    weight = weight or current
    refusal = why_set_aside(working_set, book, page, item, weight, limits)
    if refusal:
        return Judged(address, None, refusal)
    id_ = id_ or working_set.id_of(address.book, page, item)
    moved = working_set.rejoin(book, page, item, note.weight if weight == current else weight)
    detail = f"{why or 'it fits by now'}; goes on at {moved.page}:{moved.index}"
    working_set.emit(Fate.REQUEUED, address.book, page.index, item, id_, weight, decided(detail, actor))
    mark_gone(working_set, book, page, item)
    after_removal(working_set, book, page, item)
    return Judged(address, moved, why)


def why_set_aside(
    working_set: WorkingSet, book: Book, page: Page, item: int, weight: Weight, limits: Sequence[Weight]
) -> str:
    """Return why a message of this weight stays set aside in blocks of all these limits; empty if it fits one."""
    bounds = [bounds_of(working_set.config, limit).of(book.settings.most) for limit in limits]
    found = [exceeded for one in bounds if (exceeded := one.exceeded(weight, page.extent(item)))]
    if len(found) == len(limits):
        return in_words(found[0].reason, weight, found[0].limit, page.extent(item))
    attempts, most = page.note(item).attempts, working_set.config.max_attempts
    if most is None or attempts < most:
        return ""
    times, are = "time" if attempts == 1 else "times", "is" if most == 1 else "are"
    return f"it was tried {attempts:,} {times}, and {most:,} {are} allowed"


def discard(
    working_set: WorkingSet, address: Address, why: str, fate: Fate = Fate.DISCARDED, id_: bytes | None = None
) -> None:
    """Delete a set-aside message on the decision of a person or, if it expired, of a policy."""
    book, page = find_set_aside(working_set, address)
    name = id_ or working_set.id_of(address.book, page, address.index)
    working_set.emit(fate, address.book, page.index, address.index, name, detail=why)
    mark_gone(working_set, book, page, address.index)
    after_removal(working_set, book, page, address.index)


def reap_page(working_set: WorkingSet, origin: str, index: int, why: str, actor: str) -> None:
    """Remove an old page with the messages that it still holds. Pallet: `do_reap_page`."""
    book = working_set.book(origin)
    if index >= book.begin:
        raise NotReapable(
            f"page {index} of {named(origin)} is not behind the window, which begins at {book.begin}; service it first"
        )
    page = working_set.page(origin, index)
    if page is None:
        raise NoPage(f"no page {index} in the queue of {named(origin)}: it was never opened, or was removed")
    if page.remaining and index >= watermark(book, working_set.config.max_stale):
        raise NotReapable(
            f"page {index} of {named(origin)} still holds {page.remaining} messages, "
            "and is too recent to be culled; execute or discard them"
        )
    detail = decided(why or "page reaped", actor)
    payloads = working_set.payloads(origin, page) if page.remaining else ()
    for item, payload in enumerate(payloads):
        if page.marks[item] != PROCESSED:
            working_set.emit(Fate.DISCARDED, origin, index, item, message_id(payload), detail=detail)
            working_set.changes.asides[Address(origin, index, item)] = None
    book.message_count -= page.remaining
    book.size -= page.remaining_size
    working_set.remove_page(book, page)
    working_set.note_changed(book)
    working_set.emit(Fate.PAGE_REMOVED, origin, index, 0, b"", detail=detail)


def watermark(book: Book, max_stale: int) -> int:
    """Return the page index below which a page that still holds messages may be culled."""
    if book.stale <= max_stale:
        return 0
    # The more stale pages there are, the shorter the history that is kept. It is never shorter than max_stale, because
    # that depth already removes the overflow.
    overflow = book.stale - max_stale
    return max(0, book.begin - max(max_stale * max_stale // overflow, max_stale))
