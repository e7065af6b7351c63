"""Pages: bounded rows of messages, cut over the inbox rows in which they arrived.

Payloads stay where the sender wrote them. A page stores only the stretches of inbox rows that its items are (*slices*),
the items' lengths, and how far they were attempted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, repeat
from types import MappingProxyType
from typing import NamedTuple

from .blob import Reference
from .config import HEADER_SIZE
from .message import PLAIN, Attributes, Posted
from .weight import Weight

#: Marks of items: not attempted yet, processed, or set aside.
WAITING, PROCESSED, ASIDE = 0, 1, 2


class Slice(NamedTuple):
    """A stretch of one inbox row: `items` messages from `start` on."""

    row_id: int
    start: int
    items: int


@dataclass
class Slices:
    """Slices, kept as columns: an object for each of thousands keeps Python's garbage collector busy."""

    row_ids: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.row_ids)

    def __iter__(self) -> Iterator[Slice]:
        return map(Slice, self.row_ids, self.starts, self.counts)

    def __getitem__(self, at: slice) -> Slices:
        return Slices(self.row_ids[at], self.starts[at], self.counts[at])

    def places(self) -> Iterator[tuple[int, int]]:
        """Iterate over the inbox row of each item, and its index there."""
        return ((part.row_id, part.start + at) for part in self for at in range(part.items))

    def extend(self, rows: Rows) -> None:
        """Append whole rows, but for the part of the first one that was cut before."""
        self.row_ids.extend(rows.row_ids)
        self.starts.append(rows.start)
        self.starts.extend(repeat(0, len(rows.row_ids) - 1))
        self.counts.extend(rows.counts)


class Note(NamedTuple):
    """Stored facts about one message beside its bytes: those of its attributes that planning needs. Most have none."""

    weight: Weight | None = None
    attempts: int = 0
    expires: int | None = None
    #: Size of an external payload, if the page holds only a reference.
    blob: int | None = None
    arrived: int | None = None
    #: Bytes of its other attributes. They are stored beside the heap, and count in the size of the message, its page
    #: and its book.
    beside: int = 0

    @classmethod
    def of(cls, attributes: Attributes, blob: int | None = None) -> Note:
        """Return the note of a message with these attributes."""
        return cls(
            attributes.weight, attributes.attempts, attributes.expires, blob, attributes.arrived, attributes.beside
        )

    def upon(self, stored: Attributes) -> Attributes:
        """Return the attributes of a message with what was noted since they were stored."""
        if stored is PLAIN:
            return Attributes(self.weight, self.expires, PLAIN.headers, self.attempts, self.arrived)
        return stored._replace(weight=self.weight, attempts=self.attempts, expires=self.expires, arrived=self.arrived)


NO_NOTE = Note()


class Facts(NamedTuple):
    """Facts about the messages of a page, by item; most have no note, and no attributes."""

    notes: Mapping[int, Note]
    #: Times of enqueuing, in microseconds of the store's clock.
    sent: Mapping[int, int]
    #: Attributes as they were stored. Notes have the present weight and attempts.
    attributes: Mapping[int, Attributes]


class Rows(NamedTuple):
    """Inbox rows of one queue that are to be cut into pages, in order of ids, as columns."""

    row_ids: list[int]
    #: The number of messages of each row.
    counts: list[int]
    #: The length of each message.
    lengths: list[int]
    #: Facts about single messages, by index.
    notes: Mapping[int, Note] = MappingProxyType({})
    #: The index in the first row of its first message here: those before it were cut.
    start: int = 0
    #: Whether the last row is the last one of its call.
    last: bool = True

    @classmethod
    def of_posted(cls, id_: int, posted: Posted) -> Rows:
        """Return a message that an operation enqueues as a row."""
        blob = posted.payload.size if isinstance(posted.payload, Reference) else None
        notes = {} if blob is None and posted.attributes is PLAIN else {0: Note.of(posted.attributes, blob)}
        return cls([id_], [1], [len(posted.payload)], notes)

    @property
    def size(self) -> int:
        """The bytes of the messages, headers included."""
        return sum(self.lengths) + sum(note.beside for note in self.notes.values())

    def divide(self, messages: int) -> tuple[Rows, Rows]:
        """Return the first messages, and all others; both have a part of the row in which the second part begins."""
        if messages >= len(self.lengths):
            return self, Rows([], [], [])
        rows, rest, start = messages, 0, 0
        if len(self.row_ids) < len(self.lengths):
            ends = list(accumulate(self.counts, initial=0))
            rows = bisect_right(ends, messages) - 1
            rest = messages - ends[rows]
            start = rest + (0 if rows else self.start) if rest else 0
        counts, left = self.counts[:rows], self.counts[rows:]
        row_ids = self.row_ids[:rows]
        if rest:
            row_ids.append(self.row_ids[rows])
            counts.append(rest)
            left[0] -= rest
        notes = {item: note for item, note in self.notes.items() if item < messages}
        behind = {item - messages: note for item, note in self.notes.items() if item >= messages}
        return (
            Rows(row_ids, counts, self.lengths[:messages], notes, self.start, self.last),
            Rows(self.row_ids[rows:], left, self.lengths[messages:], behind, start, self.last),
        )


class Page:
    """Items in order, the index of the first item not yet attempted, and the sums over unprocessed items."""

    __slots__ = ("first_index", "index", "lengths", "marks", "notes", "payloads", "remaining",
                 "remaining_size", "resolved", "slices", "used")  # fmt: skip

    def __init__(self, index: int) -> None:
        self.index = index
        self.slices = Slices()
        self.lengths: list[int] = []
        self.marks = bytearray()
        self.notes: dict[int, Note] = {}
        self.first_index = 0
        self.remaining = 0
        self.remaining_size = 0
        #: Bytes of the heap in use, headers included.
        self.used = 0
        #: Payloads, as far as they were loaded.
        self.payloads: list[bytes] = []
        #: Number of slices whose payloads are loaded.
        self.resolved = 0

    def append(self, rows: Rows, heap_size: int) -> Rows:
        """Append as many messages of inbox rows as fit, and return the rest."""
        count, size = len(rows.lengths), sum(rows.lengths) + HEADER_SIZE * len(rows.lengths)
        if size > heap_size - self.used:
            ends = list(accumulate(map(HEADER_SIZE.__add__, rows.lengths), initial=0))
            count = bisect_right(ends, heap_size - self.used) - 1
            if count <= 0:
                return rows
            size = ends[count]
        fitting, rest = rows.divide(count)
        for item, note in fitting.notes.items():
            self.notes[len(self.lengths) + item] = note
        self.slices.extend(fitting)
        self.lengths.extend(fitting.lengths)
        self.marks.extend(bytes(count))
        self.remaining += count
        self.remaining_size += fitting.size
        self.used += size
        return rest

    @property
    def is_complete(self) -> bool:
        """Whether every message was processed."""
        return not self.remaining

    @property
    def is_attempted(self) -> bool:
        """Whether no item is left to attempt."""
        return self.first_index == len(self.lengths)

    def waiting_until(self, first: int, stop: int) -> int:
        """Return the first item of this range that was processed or set aside, or the end of the range."""
        return stop - len(self.marks[first:stop].lstrip(bytes([WAITING])))

    def note(self, item: int) -> Note:
        """Return the note of an item."""
        return self.notes.get(item, NO_NOTE)

    def notes_of(self, first: int, stop: int) -> Iterator[tuple[int, Note]]:
        """Yield the notes of the items from `first` to before `stop`; the time does not grow with the page."""
        if len(self.notes) > stop - first:
            yield from ((item, self.notes[item]) for item in range(first, stop) if item in self.notes)
        else:
            yield from ((item, note) for item, note in self.notes.items() if first <= item < stop)

    def extent(self, item: int) -> int:
        """Return the size of an item's payload, in the page or external."""
        note = self.notes.get(item)
        return note.blob if note and note.blob else self.lengths[item]

    def extents(self, start: int, stop: int) -> int:
        """Return the size of the payloads of a row of items, in the page or external."""
        outside = sum(note.blob - self.lengths[item] for item, note in self.notes_of(start, stop) if note.blob)
        return sum(self.lengths[start:stop]) + outside

    def held(self, start: int, stop: int) -> int:
        """Return the bytes of a row of items, headers included."""
        beside = sum(note.beside for _, note in self.notes_of(start, stop)) if self.notes else 0
        return sum(self.lengths[start:stop]) + beside

    def held_of(self, item: int) -> int:
        """Return the bytes of an item, headers included."""
        note = self.notes.get(item)
        return self.lengths[item] + (note.beside if note else 0)

    def row_ids_of(self, items: Iterable[int]) -> list[int]:
        """Return the inbox rows in which these items arrived."""
        ends, row_ids = list(accumulate(self.slices.counts)), self.slices.row_ids
        return [row_ids[bisect_right(ends, item)] for item in items]

    def slices_of(self, first: int, stop: int) -> Slices:
        """Return the stretches of inbox rows with the items from `first` to before `stop`."""
        if len(self.slices) == len(self.lengths):
            return self.slices[first:stop]
        ends = list(accumulate(self.slices.counts))
        return self.slices[bisect_right(ends, first) : bisect_left(ends, stop) + 1]

    def place_of(self, item: int) -> tuple[int, int]:
        """Return the inbox row in which an item arrived, and its index there."""
        ends = list(accumulate(self.slices.counts))
        at = bisect_right(ends, item)
        return self.slices.row_ids[at], self.slices.starts[at] + item - (ends[at - 1] if at else 0)

    def mark_processed(self, item: int) -> int:
        """Mark an item as processed, and return its bytes."""
        self.marks[item] = PROCESSED
        self.remaining -= 1
        size = self.held_of(item)
        self.remaining_size -= size
        return size

    def mark_all_processed(self, first: int, count: int) -> int:
        """Mark a row of items as processed, and return their bytes."""
        size = self.held(first, first + count)
        self.marks[first : first + count] = bytes([PROCESSED]) * count
        self.remaining -= count
        self.remaining_size -= size
        return size

    @property
    def gone(self) -> int:
        """The number of processed items before the first other one."""
        return len(self.marks) - len(self.marks.lstrip(bytes([PROCESSED])))

    def advance(self) -> None:
        """Advance the cursor past items that are processed or set aside."""
        first = self.marks.find(WAITING, self.first_index)
        self.first_index = max(len(self.marks), self.first_index) if first < 0 else first

    def set_aside(self, begin: int) -> int:
        """Return how many messages need a decision: set aside, or left behind the window."""
        return self.remaining if self.index < begin else self.marks.count(ASIDE)
