"""States of queues, and totals of a ring: exact, or bounded however much is stored."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial, reduce

from ...rules.book import PAUSED, Book, QueueSettings
from ...rules.budget import GRAINS, Bucket, Rate, amount_text
from ...rules.claims import Scales
from ...rules.config import RingConfig
from ...rules.groups import SEPARATOR, paths_of
from ...rules.judging import bounds_of
from ...rules.message import MOST_ORIGIN_BYTES, Footprint, check_number, check_origin, check_text
from ...rules.page import ASIDE, PROCESSED, Page
from ...rules.priority import REGULAR, book_name, books_of, origin_of, priority_of, queue_name
from ...rules.weight import LARGEST, PER, ZERO, Weight
from ...store import codec
from ...store.books import QueueDepth
from ...store.inbox import RowIds
from ...store.rows import AT_ONCE, LATEST, PLANNED, page_of, settings_of
from ...store.unit import Unit
from ...store.working_set import StoredSet
from ...store.working_set.buckets import balance_of
from ..blocks.block import Block, block_of
from ..blocks.reports import answers_of
from ..session import RingSession
from ..values import microseconds, moment
from .messages import claimed_by, first_free
from .order import books_asked, origins_from, with_high

#: Inbox rows of a queue that a bounded reading adds up.
MOST_ROWS = 1_000
#: Seconds within which messages are recent.
RECENT = 600.0


@dataclass(frozen=True)
class QueueState:
    """State of a queue."""

    origin: str
    priority: str = REGULAR
    #: Messages that wait, are in flight (reported or not) or are set aside, and their bytes.
    messages: int = 0
    size: int = 0
    #: Whether these are lower bounds, because the reading was bounded.
    more: bool = False
    in_flight: int = 0
    set_aside: int = 0
    #: Time at which the first waiting message was sent, and seconds since then.
    oldest: datetime | None = None
    age: float | None = field(default=None, compare=False)
    #: Reason for which blocks skip it (`rules.book.SKIPS`); when a backoff ends, or when its budget covers its first
    #: message.
    skipped: str = ""
    wakes_at: datetime | None = None
    share: int = 1
    #: Messages sent within the last `recent` seconds that are still stored; 0 unless requested.
    recent: int = 0
    #: Attempts of the first waiting message, none of which gave an outcome; 0 where the reading is not exact.
    attempts: int = 0
    #: Weight of the first waiting message, if blocks that cannot carry it leave it in the queue; None if they set it
    #: aside, or where the reading is not exact.
    needs: Weight | None = None

    @property
    def name(self) -> str:
        """The origin, marked if this is its high queue."""
        return queue_name(self.origin, self.priority)

    @property
    def ready(self) -> int:
        """Messages that a block may take."""
        return max(self.messages - self.in_flight - self.set_aside, 0)

    @property
    def in_ring(self) -> bool:
        """Whether it has a turn: some message is not set aside."""
        return self.messages > self.set_aside

    @property
    def paused(self) -> bool:
        """Whether it is paused, by itself or with a group above it."""
        return self.skipped == PAUSED


@dataclass(frozen=True)
class PageState:
    """A stored page of a queue."""

    page: int
    #: Index of its first message without an attempt.
    first: int
    messages: int
    size: int
    #: Its set-aside messages.
    kept: int
    #: `head` (serviced next), `waiting`, or `stale` (behind the window, for set-aside messages).
    state: str


@dataclass(frozen=True)
class Backlog:
    """Totals of a ring: messages that wait or are in flight."""

    messages: int = 0
    size: int = 0
    #: Queues that hold some of these messages.
    queues: int = 0
    #: Seconds since the oldest of them was sent; None without messages.
    age: float | None = None
    #: Their weight by the ring's weigher, without weights that senders set.
    weight: Weight = Weight(0, 0)
    #: Their weight in full blocks; None without a service weight.
    blocks: float | None = None
    #: Messages that are not due yet, and set-aside messages; these count nowhere else.
    delayed: int = 0
    set_aside: int = 0
    #: Messages of live blocks, except those executed by hand.
    in_flight: int = 0
    #: Some of its queues: the deepest first, and those first whose first message was sent longest ago.
    deepest: Sequence[QueueState] = ()
    oldest: Sequence[QueueState] = ()

    @property
    def waiting(self) -> int:
        """Messages that are not in flight."""
        return max(self.messages - self.in_flight, 0)


@dataclass(frozen=True)
class RingState:
    """A ring from its head on, from a bounded reading."""

    now: datetime
    version: int
    #: The first queues, high ones first.
    queues: Sequence[QueueState]
    #: Messages of live blocks.
    in_flight: int
    #: When the first delayed message is due; None if there is none.
    due: datetime | None


def queue_states(
    unit: Unit,
    working_set: StoredSet,
    names: Sequence[str],
    *,
    recent: float = 0.0,
    most: int | None = None,
    exact: bool = True,
) -> list[QueueState]:
    """Return the states of books, without empty ones.

    :param recent: seconds within which messages count as recent
    :param most: inbox rows of a queue to add up
    :param exact: read the first waiting message: its time, not that of the first message in its page, which may be
        gone, its attempts and its weight
    """
    most = MOST_ROWS if most is None else most
    ring, now, stored = working_set.ring_id, working_set.now, working_set.stored
    working_set.loader.load_books(names)
    requests = [(name, stored[name].cut.floor, stored[name].row.begin_page) for name in names]
    since = now - int(recent * 1_000_000)
    rows = unit.books.depths(ring, requests, most=most, latest=MOST_ROWS if recent else 0, since=since)
    claims = working_set.reading.claims_of(names)
    in_flight = _sums((row.origin, row.claim.messages) for row in claims)
    first = _first_waiting(unit, working_set, names) if exact else {}
    cut_items, cut_sizes = _counted_twice(unit, ring, {name: sorted(stored[name].cut.ahead) for name in names})
    states = []
    for name, rows_read, items, size, oldest, new, set_aside in rows:
        book, row, shift = working_set.book(name), stored[name].row, working_set.reading.shift(name)
        messages = row.messages + items - cut_items.get(name, 0) + shift.uncut
        if messages <= 0:
            continue
        sent, attempts, needs = first.get(name, (None, 0, None))
        sent = oldest if sent is None else sent
        states.append(
            QueueState(
                origin_of(name),
                priority_of(name),
                messages,
                row.size + size - cut_sizes.get(name, 0) + shift.uncut_size,
                more=rows_read == most,
                in_flight=in_flight.get(name, 0),
                set_aside=set_aside + shift.set_aside,
                oldest=None if sent is None else moment(sent),
                age=_age(sent, now),
                skipped=book.skipped,
                wakes_at=None if (wakes := working_set.wakes_at(book)) is None else moment(wakes),
                share=book.settings.share,
                recent=new,
                attempts=attempts,
                needs=None if name in in_flight else needs,
            )
        )
    return states


@dataclass(frozen=True)
class BudgetState:
    """Budget over time of an origin or a path, with its balance now."""

    path: str
    rate: Rate | None
    rate_bytes: Rate | None
    #: Largest balance and present one of each part, in milliseconds and bytes; None for a part without a limit.
    burst: int | None
    burst_bytes: int | None
    left: int | None
    left_bytes: int | None
    #: Until when it was refilled. A later time than now means that the store's clock was set back.
    refilled_to: datetime
    #: Since when it is exhausted, until it is full again; and when it covers the message that waits for it.
    exhausted_at: datetime | None
    wakes_at: datetime | None

    @classmethod
    def of(cls, bucket: Bucket, settings: QueueSettings, now: int) -> BudgetState:
        """Return the state of a bucket."""
        bursts = [None if part is None else part.burst // GRAINS for part in bucket.budget]
        left = [None if part is None else grains // GRAINS for part, grains in zip(bucket.budget, bucket.left)]
        return cls(
            bucket.path, settings.rate, settings.rate_bytes, bursts[0], bursts[1], left[0], left[1],
            refilled_to=moment(bucket.refilled_to),
            exhausted_at=moment(bucket.exhausted_at) if bucket.exhausted_at else None,
            wakes_at=moment(bucket.wake_at) if bucket.wake_at > now else None,
        )  # fmt: skip

    @property
    def level(self) -> float:
        """The smallest balance as a part of its burst; negative for a debt."""
        pairs = ((self.left, self.burst), (self.left_bytes, self.burst_bytes))
        return min(left / max(burst, 1) for left, burst in pairs if left is not None and burst is not None)

    def __str__(self) -> str:
        """Return what is left of each part: `10min of 30min`."""
        rows = ((0, self.left, self.burst), (1, self.left_bytes, self.burst_bytes))
        return ", ".join(
            f"{'-' * (left < 0)}{amount_text(part, abs(left))} of {amount_text(part, burst)}"
            for part, left, burst in rows
            if left is not None and burst is not None
        )


def budget_states(unit: Unit, working_set: StoredSet, origin: str | None) -> list[BudgetState]:
    """Return the budgets of a ring by name, or those that pay for messages of an origin."""
    ring, now = working_set.ring_id, working_set.now
    if origin is None:
        rows = unit.origins.all_settings(ring)
    else:
        rows = unit.origins.settings(ring, paths_of(origin, working_set.config.paths))
    known = {name: settings_of(value) for name, value in sorted(rows)}
    budgets = {name: budget for name, settings in known.items() if (budget := settings.budget) is not None}
    stored = {row.path: balance_of(row) for row in working_set.reading.buckets(list(budgets))} if budgets else {}
    buckets = [Bucket(name, budget, now, stored.get(name)) for name, budget in budgets.items()]
    return [BudgetState.of(bucket, known[bucket.path], now) for bucket in buckets]


def _counted_twice(unit: Unit, ring: int, ahead: RowIds) -> tuple[dict[str, int], dict[str, int]]:
    """Return the messages and the bytes of the rows that were cut before rows with smaller ids, by book."""
    rows = unit.inbox.heads(ring, {name: ids for name, ids in ahead.items() if ids})
    return _sums((row.origin, row.items) for row in rows), _sums((row.origin, row.size) for row in rows)


def _sums(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for name, count in pairs:
        sums[name] = sums.get(name, 0) + count
    return sums


def _age(sent: int | None, now: int) -> float | None:
    return None if sent is None else max(now - sent, 0) / 1_000_000


def _first_waiting(
    unit: Unit, working_set: StoredSet, names: Sequence[str]
) -> dict[str, tuple[int | None, int, Weight | None]]:
    """Return of each book's first waiting message the time of sending, the attempts and what it needs.

    Messages that a recorded end sends have no time yet.
    """
    books = [working_set.book(name) for name in names]
    working_set.loader.inboxes.look_at((book.origin for book in books if not book.is_ready), len(books))
    working_set.loader.pages.fetch((book.origin, book.begin) for book in books if book.is_ready)
    firsts = {book.origin: found for book in books if (found := first_free(working_set, book, ())) is not None}
    row_ids = {name: [page.place_of(item)[0]] for name, (page, item) in firsts.items()}
    sent = {row.origin: row.sent_at for row in unit.inbox.heads(working_set.ring_id, row_ids)}
    return {name: (sent.get(name), *_front(working_set, working_set.book(name), *firsts[name])) for name in firsts}


def _front(working_set: StoredSet, book: Book, page: Page, item: int) -> tuple[int, Weight | None]:
    """Return the attempts of the first waiting message of a queue, and its weight if blocks do not set it aside."""
    config = working_set.config
    weight = Scales(working_set).weight(book.origin, page, item)
    # Without a limit of the ring, each block sets aside what it cannot carry.
    bounds = bounds_of(config, ZERO).of(book.settings.most)
    return page.note(item).attempts, None if bounds.exceeded(weight, page.extent(item)) else weight


def live_blocks(unit: Unit, ring: int) -> Iterator[Block]:
    """Return live blocks, latest first: each leased message is one of them."""
    return map(block_of, unit.blocks.latest(ring, PLANNED))


def depths_of(unit: Unit, working_set: StoredSet) -> Iterator[QueueDepth]:
    """Yield what each queue holds, with recorded ends applied: those that are stored by name, then new ones.

    The database adds up, some queues at a time.
    """
    names = list(working_set.reading.shown())
    shown: dict[str, QueueState | None] = dict.fromkeys(names)
    if names:
        states = queue_states(unit, working_set, names, most=LATEST, exact=False)
        shown |= {book_name(state.origin, state.priority): state for state in states}
    after = ""
    while rows := unit.books.counts(working_set.ring_id, after):
        after = rows[-1].name
        ahead = {row.name: codec.unpack_numbers(bytes(row.ahead))[0] for row in rows if row.ahead}
        items, sizes = _counted_twice(unit, working_set.ring_id, ahead)
        for row in rows:
            if row.name in items:
                row = row._replace(messages=row.messages - items[row.name], size=row.size - sizes[row.name])
            if row.name in shown:
                row = _shown_depth(working_set, row, shown.pop(row.name))
            if row.messages:
                yield row
    yield from (_shown_depth(working_set, QueueDepth(name), state) for name, state in shown.items() if state)


def _shown_depth(working_set: StoredSet, stored: QueueDepth, state: QueueState | None) -> QueueDepth:
    """Return what a queue holds that recorded ends change; they are not applied yet."""
    if state is None:
        return QueueDepth(stored.name)
    shift = working_set.reading.shift(stored.name)
    aside_size = min(max(stored.set_aside_size + shift.set_aside_size, 0), state.size) if state.set_aside else 0
    sent = None if state.oldest is None else microseconds(state.oldest)
    return QueueDepth(stored.name, state.messages, state.size, sent, state.set_aside, aside_size)


def backlog_of(unit: Unit, working_set: StoredSet, deepest: int = 0, oldest: int = 0) -> Backlog:
    """Return the totals of a ring, and some of its queues.

    The age may be that of a set-aside message, until its page is processed.
    """
    ring, config, now = working_set.ring_id, working_set.config, working_set.now
    messages = size = queues = set_aside = 0
    first = LATEST
    deep: list[tuple[int, str]] = []
    old: list[tuple[int, str]] = []
    for depth in depths_of(unit, working_set):
        set_aside += depth.set_aside
        if not depth.waiting:
            continue
        queues, messages = queues + 1, messages + depth.waiting
        size += depth.size - depth.set_aside_size
        sent = LATEST if depth.sent is None else depth.sent
        first = min(first, sent)
        _keep_first(deep, deepest, -depth.waiting, depth.name)
        _keep_first(old, oldest, sent, depth.name)
    weight = _weight(config, messages, size)
    reading = partial(queue_states, unit, working_set, most=LATEST)
    return Backlog(
        messages,
        size,
        queues,
        None if first == LATEST else _age(first, now),
        weight,
        None if config.service_weight is None else weight.part_of(config.service_weight),
        unit.inbox.delayed_of(ring, None, 0)[0] + working_set.reading.shift().delayed,
        set_aside,
        sum(block.messages for block in live_blocks(unit, ring) if not block.by_hand),
        reading([name for _, name in deep]),
        reading([name for _, name in old]),
    )


def _keep_first(first: list[tuple[int, str]], most: int, rank: int, name: str) -> None:
    """Add a name to the first names by rank, if it is one of so many."""
    if len(first) < most or (first and (rank, name) < first[-1]):
        insort(first, (rank, name))
        del first[most:]


def _weight(config: RingConfig, messages: int, size: int) -> Weight:
    """Return the weight of messages together, without rounding each up."""
    base, per_byte = config.weigher.base, config.weigher.per_byte
    return Weight(*(min(base[part] * messages + per_byte[part] * size // PER, LARGEST) for part in (0, 1)))


def page_states(working_set: StoredSet, name: str, limit: int) -> list[PageState]:
    """Return the first stored pages of a book."""
    begin = working_set.book(name).begin
    pages = [page_of(row) for row in working_set.reading.pages([(name, 0, LATEST)], limit)]
    head = next((page.index for page in pages if page.index >= begin), None)
    return [
        PageState(
            page.index,
            page.first_index,
            page.remaining,
            page.remaining_size,
            sum(mark == ASIDE for mark in page.marks),
            "stale" if page.index < begin else "head" if page.index == head else "waiting",
        )
        for page in pages
    ]


# Footprints.


def footprint(session: RingSession, origin: str, priority: str | None = None, *, below: bool = False) -> Footprint:
    """See `MessageQueue.footprint`."""
    check_origin(origin)
    with session.snapshot(names=None if below else books_of(origin)) as (unit, working_set):
        return reduce(Footprint.plus, _footprints_below(unit, working_set, origin, priority, below))


def footprints(
    session: RingSession, prefix: str = "", after: str = "", limit: int = 100
) -> list[tuple[str, Footprint]]:
    """See `MessageQueue.footprints`."""
    for text in (prefix, after):
        check_text(text, "the beginning of an origin", MOST_ORIGIN_BYTES)
    check_number(limit, "a limit")
    with session.snapshot() as (unit, working_set):
        shown = working_set.reading.shown()
        while True:
            origins = origins_from(unit, working_set, prefix, after, limit)
            found = dict(_footprints(unit, working_set, with_high(working_set, origins)))
            pairs = [
                (origin, reduce(Footprint.plus, (found[name] for name in books_asked(working_set, origin))))
                for origin in origins
            ]
            # A queue that a recorded end has emptied is gone. Callers take an empty list for the end.
            there = [(origin, one) for origin, one in pairs if one.count or one.pages or origin not in shown]
            if there or len(origins) < max(limit, 1):
                return there
            after = origins[-1]


def _footprints_below(
    unit: Unit, working_set: StoredSet, origin: str, priority: str | None, below: bool
) -> Iterator[Footprint]:
    batch = [origin]
    while batch:
        names = [name for origin_ in batch for name in books_asked(working_set, origin_, priority)]
        yield from (footprint for _, footprint in _footprints(unit, working_set, names))
        batch = origins_from(unit, working_set, origin + SEPARATOR, batch[-1], AT_ONCE) if below else []


def _footprints(unit: Unit, working_set: StoredSet, names: Sequence[str]) -> list[tuple[str, Footprint]]:
    working_set.loader.inboxes.look_at(names)
    reports: dict[str, list[bytes]] = {}
    for name, data in unit.blocks.reports_on(working_set.ring_id, names):
        reports.setdefault(name, []).append(data)
    claimed = claimed_by(working_set, list(reports)) if reports else {}
    found: list[tuple[str, Footprint]] = []
    for name in names:
        book = working_set.book(name)
        working_set.pull_all(book)
        answers = answers_of(reports.get(name, ())).get(name)
        # A report may contain messages that its block does not hold; they do not count.
        items = answers.items() & claimed.get(name, set()) if answers else set()
        found.append((name, _without(working_set, name, book.footprint, items)))
    return found


def _without(working_set: StoredSet, name: str, footprint: Footprint, items: set[tuple[int, int]]) -> Footprint:
    """Return a footprint without reported messages, which are gone for every reader."""
    if not items:
        return footprint
    working_set.loader.pages.fetch((name, page) for page, _ in items)
    pages = ((working_set.page(name, index), item) for index, item in items)
    there = ((page, item) for page, item in pages if page and item < len(page.marks) and page.marks[item] != PROCESSED)
    sizes = [page.held_of(item) for page, item in there]
    return Footprint(footprint.pages, footprint.ready_pages, footprint.count - len(sizes), footprint.size - sum(sizes))
