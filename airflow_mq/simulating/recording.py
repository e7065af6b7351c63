"""Recording: arrivals of a queue as a scenario, as far as they are still known.

The store knows when a waiting message was sent. Of a processed message it knows the block and the weight. The message
arrived before that block. A queue is left with messages only by a block that could take no more. So all messages of a
row of such blocks, and of the block that emptied the queue afterwards, count as present from the first of these blocks
on. A backlog is thus replayed as if all of it had arrived at once: the worst case.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from ..core.book import DEFAULT_STANDING, Standing
from ..core.claims import Scales
from ..core.errors import InvalidInput
from ..core.events import Event, Fate
from ..core.groups import names_above
from ..core.message import Address, check_number
from ..core.orders import STOPPED, Entry
from ..core.page import WAITING, Page
from ..core.priority import MARK, book_name, origin_of, priority_of
from ..queue import MessageQueue
from ..queue.inspect.events import SEQ_BITS
from ..queue.inspect.order import all_origins
from ..queue.ledger import ledger_pages
from ..store.working_set import StoredSet
from .scenario import Arrival, Scenario

#: Fates of messages that a block had room for.
_TAKEN = {Fate.PROCESSED, Fate.DECLINED, Fate.BAD_FORMAT, Fate.CORRUPT, Fate.UNSUPPORTED, Fate.STACK_LIMIT}


@dataclass(frozen=True)
class _Page:
    """A block of the ledger: its number, and its position among the ids of inbox rows and events."""

    block: int
    id: int
    #: Lines by the names of books.
    entries: Mapping[str, Entry]
    #: Names of books that it skipped without a visit.
    skipped: frozenset[str]


def record(queue: MessageQueue, blocks: int = 100, *, name: str = "") -> Scenario:
    """Return the arrivals before each of the latest blocks and the waiting messages, with the ring's settings.

    Messages that arrived after the last block arrive before one more block, with which the scenario ends.
    """
    if not check_number(blocks, "a number of blocks"):
        raise InvalidInput("invalid number of blocks 0: expected at least 1")
    with queue.session.snapshot() as (unit, working_set):
        # One more block: the recorded ones begin behind it.
        pages = [
            _Page(
                page.block,
                page.id,
                {book_name(entry.origin, entry.priority): entry for entry in page.entries},
                frozenset(chain.from_iterable(page.skipped.values())),
            )
            for page in reversed(ledger_pages(unit, queue.session.ring_id, blocks + 1))
        ]
        begin = pages.pop(0).id if len(pages) > blocks else 0
        # The book of no origin holds no messages.
        names = [name for name in all_origins(unit, queue.session.ring_id) if name != MARK]
        waiting = [arrival for name in names for arrival in _waiting(working_set, name, pages)]
        standings = _standings(working_set, list(dict.fromkeys(map(origin_of, names))))
    found = [*_processed(queue, begin, pages), *waiting]
    # Equal neighbours become one entry. The sort is stable: it keeps the order within a block.
    found.sort(key=lambda arrival: arrival.block)
    return Scenario(list(_together(found)), len(pages) + 1, queue.config, standings, name=name or queue.ring)


def _processed(queue: MessageQueue, begin: int, pages: Sequence[_Page]) -> Iterator[Arrival]:
    """Yield the processed messages of these blocks, in the order of the blocks."""
    if not pages:
        return
    events: list[Event] = []
    by_hand: set[Address] = set()
    for event in queue.inspect.events(after=begin << SEQ_BITS):
        if event.fate in _TAKEN:
            events.append(event)
        elif event.fate is Fate.EXECUTED:
            by_hand.add(event.address)
    numbers, ids = [page.block for page in pages], [page.id for page in pages]
    for event in events:
        if event.address in by_hand:
            continue
        # A message processed in place has no block. Its page of the ledger is written last, and ids are given out in
        # order, to events and to pages of the ledger.
        after = bisect_left(ids, event.seq >> SEQ_BITS) if event.block is None else bisect_left(numbers, event.block)
        at = min(after, len(pages) - 1)
        if event.block not in (None, numbers[at]):
            continue  # A block before these, which was settled while they ran.
        size = min(max(event.weight.size, 1), queue.config.max_message_len) if event.weight else 1
        since_block = _backlog_since(pages, book_name(event.origin, event.priority), at) + 1
        yield Arrival(since_block, event.origin, 1, size, event.weight, event.priority)


def _backlog_since(pages: Sequence[_Page], origin: str, at: int) -> int:
    """Return the first block of the row that left this queue with messages, up to this one."""
    first = at
    for number in range(at - 1, -1, -1):
        entry = pages[number].entries.get(origin)
        if entry is None and origin not in pages[number].skipped:
            continue
        if entry is None or entry.reason not in STOPPED:
            break
        first = number
    return first


def _waiting(working_set: StoredSet, origin: str, pages: Sequence[_Page]) -> Iterator[Arrival]:
    """Yield the waiting and claimed messages of a queue, each before the block planned next after it was sent."""
    book = working_set.book(origin)
    while working_set.pull(book):
        pass
    scales = Scales(working_set)
    ids = [page.id for page in pages]
    for index in range(book.begin, book.end):
        page = working_set.page(origin, index)
        if page is None:
            continue
        for item, row_id in enumerate(_row_ids(page)):
            if page.marks[item] == WAITING:
                weight = scales.weight(origin, page, item)
                before = bisect_left(ids, row_id) + 1
                yield Arrival(before, origin_of(origin), 1, page.extent(item), weight, priority_of(origin))


def _row_ids(page: Page) -> Iterator[int]:
    return page.slices.rows_by_item()


def _standings(working_set: StoredSet, origins: Sequence[str]) -> dict[str, Standing]:
    if not working_set.config.paths:
        found = {origin: working_set.book(origin).standing for origin in origins}
    else:
        names = {name for origin in origins for name in (origin, *names_above(origin))}
        found = {name: working_set.loader.standing(name) for name in sorted(names)}
    return {origin: standing for origin, standing in found.items() if standing != DEFAULT_STANDING}


def _together(arrivals: Sequence[Arrival]) -> Iterator[Arrival]:
    """Merge equal neighbours."""
    last: Arrival | None = None
    count = 0
    for arrival in arrivals:
        if last is not None and replace(last, count=arrival.count) == arrival:
            count += arrival.count
            continue
        if last is not None:
            yield replace(last, count=count)
        last, count = arrival, arrival.count
    if last is not None:
        yield replace(last, count=count)
