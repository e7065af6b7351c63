"""Rows that repositories return, and their conversion to values of the rules; damaged rows raise `StoreCorrupt`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import lru_cache
from io import BytesIO
from itertools import accumulate, groupby
from typing import Any, NamedTuple, TypeAlias

from ..rules.book import BACKOFF, DEFAULT_SETTINGS, IN_FLIGHT, PAUSED, QueueSettings
from ..rules.budget import Rate
from ..rules.changes import PutOff
from ..rules.errors import StoreCorrupt
from ..rules.events import EventRun, Fate, with_arrival
from ..rules.message import Address, Posted
from ..rules.page import PROCESSED, Note, Page, Rows
from ..rules.weight import Weight
from . import codec
from .attributes import notes_of, pack_attributes

#: Above every id and time; its negative is below every one.
LATEST = 1 << 62
#: Queues that each step of a long reading returns.
AT_ONCE = 1_000
#: States of a block.
PLANNED, SETTLED, RELEASED = 0, 1, 2


class RingRow(NamedTuple):
    """A ring with its settings, and the database's clock."""

    id: int
    name: str
    config: Any
    now: int
    #: Number of recorded ends that are to be applied.
    ends: int = 0
    #: Whether any queue or group has a quota.
    has_quotas: bool = False


class Fullness(NamedTuple):
    """How full a queue or a group with a quota is, in bytes."""

    path: str
    quota: int
    #: All that it stores: waiting, in flight, set aside, or due later.
    stored: int
    #: What a call sends to it.
    coming: int = 0
    #: Rows that lie in no page yet, each of which this took a look at.
    uncut: int = 0

    @property
    def lacks(self) -> int:
        """Bytes that must drain before it has room for the call."""
        return max(self.stored + self.coming - self.quota, 0)

    @property
    def part(self) -> float:
        """The part of the quota that is stored."""
        return self.stored / self.quota


#: Where a look begins that starts at the end of the ring: above all tickets.
LAST_PLACE = (1 << 63) - 1
#: The least ticket of a book that waits for the budget of its origin: it has this one plus the time at which the budget
#: covers its next message. Such books have no turn, and come back in the order of their tickets.
ASLEEP = 1 << 62


class StateRow(NamedTuple):
    """The state of a ring, which changes with every block."""

    version: int
    ticket_floor: int
    look_floor: int
    marks: Any
    lease_token: bytes | None
    lease_until: int
    lease_holder: str
    #: Whether another process waits for the end of the lease.
    lease_wanted: bool = False
    #: Tickets of regular and of high books below which the next look beyond a walk goes on.
    look_place: int = LAST_PLACE
    high_place: int = LAST_PLACE
    #: Parts of a block that high messages owe to regular ones.
    debt: int = 0
    #: Number of recorded ends that are to be applied.
    ends: int = 0
    #: Number of blocks and rounds of the ring so far.
    blocks: int = 0
    #: Whether any origin has, or had, a budget over time.
    budgeted: bool = False
    #: Whether any origin has a guaranteed least.
    guaranteed: bool = True


class Locked(NamedTuple):
    """A ring that this process holds: by its lock in this transaction, or by a lease."""

    state: StateRow
    #: An inbox row with a smaller id is visible now, or never will be.
    horizon: int
    config: Any
    now: int


class BookRow(NamedTuple):
    """A book, with what keeps it from being serviced, and the settings of its origin."""

    origin: str
    begin_page: int
    end_page: int
    pages: int
    messages: int
    size: int
    ticket: int | None
    deficit: int
    floor: int
    ahead: bytes
    wake_at: int
    paused: bool
    in_flight: bool
    settings: Any

    def skip_reason(self, now: int, *, ordered: bool, with_group: bool = False) -> str:
        """Return the first reason of `SKIPS` for which servicing skips the queue; nothing if it does not.

        :param ordered: whether messages in flight keep it from being serviced.
        :param with_group: whether it is paused together with a group.
        """
        if self.paused or with_group:
            return PAUSED
        if self.in_flight and ordered:
            return IN_FLIGHT
        return BACKOFF if self.wake_at > now else ""


class PageRow(NamedTuple):
    """A page, packed."""

    origin: str
    page: int
    items: int
    used: int
    first_index: int
    remaining: int
    remaining_size: int
    slices: bytes
    lengths: bytes
    marks: bytes
    notes: bytes


class InboxRow(NamedTuple):
    """An inbox row, or a delayed one. Where a sender writes, it has no id and no time of sending yet."""

    origin: str
    id: int
    size: int
    items: int
    more: bool
    lengths: bytes
    attributes: bytes
    #: The bytes, where a sender writes or a statement reads them.
    heap: bytes | None = None
    #: When it was sent, where that is known.
    sent_at: int = 0

    @property
    def stored(self) -> int:
        """Bytes that count in quotas: those of the payloads, and of the attributes if there are headers in them."""
        return self.size + (len(self.attributes) if b'"headers":' in self.attributes else 0)


#: An inbox row as a statement returns it: to name the columns of thousands of rows takes as long as to read them.
PlainRow: TypeAlias = "tuple[Any, ...]"
#: The first page or inbox row of a queue with waiting messages: whether the queue backs off, the messages of its book,
#: whether later rows lie in pages, whether it has no message elsewhere, its first and last row, and the columns of
#: `PageRow`, or of `InboxRow` up to its attributes.
FirstWaiting: TypeAlias = "tuple[Any, ...]"


class Arrival(NamedTuple):
    """When a message was sent, and the number of the first block planned after that."""

    at: int
    block: int | None


class BlockRow(NamedTuple):
    """A block. `id` is the store's; `number` counts the blocks of its ring and is for display."""

    id: int
    number: int
    key: str | None
    token: bytes
    state: int
    by_hand: bool
    seconds: float
    deadline: int
    planned_at: int
    ended_at: int | None
    details: Any

    @property
    def details_json(self) -> dict[str, Any]:
        """The details, with weights."""
        with codec.reading(f"what is stored of block {self.number}"):
            plain = codec.read_json(self.details)
            weights = {name: Weight(*map(int, plain[name])) for name in ("limit", "planned", "overhead")}
            return {**plain, **weights, "messages": int(plain["messages"])}


#: Types of settings that are stored as lists.
_READ: Mapping[str, Callable[..., Any]] = {"least": Weight, "most": Weight, "rate": Rate, "rate_bytes": Rate}


@lru_cache(4_096)
@codec.reading("what is set for an origin")
def settings_of(value: str | bytes | None) -> QueueSettings:
    """Return the settings of an origin; most are set for many."""
    plain = codec.read_json(value)
    if not plain:
        return DEFAULT_SETTINGS
    if not plain.keys() <= vars(DEFAULT_SETTINGS).keys():
        raise ValueError(f"it has {', '.join(plain)}")
    return QueueSettings(
        **{name: _READ[name](*found) if name in _READ and found else found for name, found in plain.items()}
    )


@codec.reading("a page")
def page_of(row: PageRow) -> Page:
    """Return a stored page."""
    page = Page(row.page)
    page.slices = codec.unpack_slices(row.slices, row.items)
    page.lengths = codec.unpack_numbers(row.lengths, most=row.items)[0]
    page.notes = codec.unpack_notes(row.notes)
    page.first_index, page.used = row.first_index, row.used
    page.remaining, page.remaining_size = row.remaining, row.remaining_size
    page.marks = bytearray(row.marks) or bytearray([PROCESSED]) * row.first_index + bytes(row.items - row.first_index)
    if len(page.lengths) != row.items or len(page.marks) != row.items:
        raise StoreCorrupt(f"page {row.page} of {row.origin!r} has {row.items} items, but {len(page.lengths)} lengths")
    return page


def rows_of(rows: Sequence[PlainRow]) -> Rows:
    """Return stored inbox rows of one queue, without their bytes."""
    _, ids, sizes, items, more, packed, attributes, *_ = zip(*rows)
    plain = max(items) == 1 and not any(packed)
    lengths = list(sizes) if plain else codec.unpack_lengths_of(packed, items, sizes)
    notes: dict[int, Note] = {}
    if any(attributes):
        for first, count, own in zip(accumulate(items, initial=0), items, attributes):
            if own:
                notes |= {first + item: note for item, note in notes_of(own, count).items()}
    return Rows(list(ids), list(items), lengths, notes, last=not more[-1])


def split_heap(heap: bytes, size: int, items: int, packed: bytes) -> list[bytes]:
    """Return the messages in the bytes of an inbox row."""
    lengths = codec.unpack_lengths(packed, items, size)
    if len(heap) != size:
        raise StoreCorrupt(f"an inbox row of {size} bytes has {len(heap)}")
    # Reads of a file take a third of the time of slices.
    return list(map(BytesIO(heap).read, lengths))


def posted_row(id_: int, posted: Posted) -> InboxRow:
    """Return the inbox row of a message that an operation enqueues."""
    origin, payload, own, sent_at = posted
    attributes = pack_attributes(own, [payload])
    return InboxRow(origin, id_, len(payload), 1, False, b"", attributes, bytes(payload), sent_at or 0)


def delayed_row(id_: int, put_off: PutOff, arrival: Arrival) -> tuple[int, InboxRow]:
    """Return the row of a message that waits aside, after the time when it joins its queue.

    :param arrival: when it was sent, and the first block since
    """
    (origin, payload, own, _), due, page, item = put_off
    attributes = pack_attributes(own, [payload], arrived=own.arrived or arrival.block, was=(page.index, item))
    return due, InboxRow(origin, id_, len(payload), 1, False, b"", attributes, bytes(payload), arrival.at)


def dated(runs: Iterable[EventRun], arrivals: Mapping[Address, Arrival]) -> Iterator[EventRun]:
    """Yield events; add the time of sending to those of set-aside messages, which may wait for long."""
    for run in runs:
        if run.fate not in (Fate.SET_ASIDE, Fate.ATTEMPTS_EXHAUSTED):
            yield run
            continue
        found = (arrivals.get(Address(run.origin, run.page, run.first + offset)) for offset in range(len(run.ids)))
        start = 0
        for at, alike in groupby(arrival and arrival.at for arrival in found):
            stop = start + len(list(alike))
            sent = "" if at is None else datetime.fromtimestamp(at / 1_000_000, timezone.utc).isoformat()
            detail = with_arrival(run.detail, sent) if sent else run.detail
            yield replace(run.part(start, stop), weights=[], detail=detail)
            start = stop
