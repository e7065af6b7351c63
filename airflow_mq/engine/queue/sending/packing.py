"""Packing: the messages of a call as inbox rows, before any transaction begins."""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, chain, islice
from typing import IO, Any, NamedTuple

from typing_extensions import Self

from ...rules.blob import Reference, extent
from ...rules.config import HEADER_SIZE, RingConfig
from ...rules.message import (
    PLAIN,
    Attributes,
    Message,
    check_key,
    check_origin,
    check_payload,
    key_digest,
)
from ...rules.priority import REGULAR, book_name, check_priority
from ...store import codec
from ...store.attributes import pack_attributes
from ...store.inbox import PARCEL_BYTES, PARCEL_ROWS
from ...store.rows import InboxRow

#: Bytes of a call that are held in memory, while the rest waits in a file; messages that are packed together.
HELD, STRETCH = PARCEL_BYTES, 4096

Pairs = Iterable[tuple[str, bytes | Message]]


class KeyedRow(NamedTuple):
    """The idempotency key of an inbox row, which has a single message."""

    key: str
    origin: str
    digest: bytes
    size: int


@dataclass
class _OpenRow:
    """Messages of one queue on their way into an inbox row."""

    #: Name of the book.
    name: str
    payloads: list[bytes] = field(default_factory=list)
    #: Attributes of messages, by place.
    attributes: dict[int, Attributes] = field(default_factory=dict)
    #: Bytes in a page, and bytes beside the payloads.
    used: int = 0
    beside: int = 0
    has_blobs: bool = False


class PackedCall:
    """The messages of a call, packed into inbox rows of at most a page's worth each.

    They are read from the caller before any transaction begins, because reading may take long. A long call waits in a
    file.
    """

    def __init__(
        self,
        config: RingConfig,
        common: Attributes = PLAIN,
        check_sender: Callable[[object], str] = check_origin,
        priority: str = REGULAR,
        check_rank: Callable[[str], str] = check_priority,
        carried: Mapping[str, str] | None = None,
        due: int | None = None,
    ) -> None:
        self.config, self.heap_size, self.max_size = config, config.heap_size, config.max_message_len
        self.check_sender, self.check_rank = check_sender, check_rank
        #: The priority of messages without their own.
        self.priority = priority
        #: Headers of all messages, also of those with their own.
        self.carried = carried
        #: Attributes of messages without their own.
        self.common = common.checked(config.max_headers, carried)
        #: When the messages join their queues; None: at once.
        self.due = due
        #: Whether this session knows of no high message yet, and the call has one.
        self.first_high = False
        #: Whether its transaction claims a key for all of its messages.
        self.is_chunk = False
        #: Books whose sums for quotas are due: a transaction that has claimed keys cannot write them.
        self.unsummed: list[str] = []
        self.count = self.size = 0
        #: Hashes of the external payloads that messages refer to.
        self.blobs: set[bytes] = set()
        #: Keys of rows, by place.
        self.keys: dict[int, KeyedRow] = {}
        #: The rows that are not full yet, by origin and priority, and their bytes.
        self._open: dict[tuple[str, str], _OpenRow] = {}
        self._open_bytes = 0
        #: The first rows, the others without their bytes, and the file with these.
        self._held: list[InboxRow] = []
        self._filed: list[tuple[InboxRow, int, int]] = []
        self._file: IO[bytes] | None = None
        self._row_bytes = 0
        #: Bytes of each row that count in quotas.
        self._stored: list[int] = []

    def pack(self, pairs: Pairs) -> Self:
        """Pack all messages. A message with a key has its own row."""
        source = iter(pairs)
        while stretch := list(islice(source, STRETCH)):
            if {(type(origin), type(message)) for origin, message in stretch} == {(str, bytes)}:
                payloads: dict[str, list[Any]] = {}
                for origin, message in stretch:
                    payloads.setdefault(origin, []).append(message)
                for origin, own in payloads.items():
                    self._add_plain(origin, own)
            else:
                for origin, message in stretch:
                    self._add(origin, message)
            if self._open_bytes > HELD:
                # Many origins with few messages each: close all, or memory grows with the call.
                self._close_all()
        self._close_all()
        return self

    def _add_plain(self, origin: str, payloads: list[bytes]) -> None:
        """Add plain messages of one origin."""
        row = self._row(origin, self.priority)
        lengths = list(map(len, payloads))
        if min(lengths) == 0 or max(lengths) > self.max_size:
            for payload in payloads:
                check_payload(payload, self.max_size)
        used = sum(lengths) + HEADER_SIZE * len(lengths)
        if row.used + used > self.heap_size:
            ends = list(accumulate((length + HEADER_SIZE for length in lengths), initial=0))
            start = 0
            while row.used + used - ends[start] > self.heap_size:
                stop = bisect_right(ends, ends[start] + self.heap_size - row.used, lo=start) - 1
                row.payloads += payloads[start:stop]
                self._close(row, followed=True)
                start = stop
            payloads, used = payloads[start:], used - ends[start]
        row.payloads += payloads
        row.used += used
        self._open_bytes += used

    def _add(self, origin: str, message: bytes | Message) -> None:
        """Add one message."""
        own = message if isinstance(message, Message) else Message(message)
        row = self._row(origin, own.priority or self.priority)
        payload = check_payload(own.payload, self.max_size)
        attributes = Attributes.given_by(own).checked(self.config.max_headers, self.carried if own.headers else None)
        used, beside = len(payload) + HEADER_SIZE, attributes.beside
        is_full = row.used + used > self.heap_size or (beside and row.beside + beside > self.heap_size)
        if row.payloads and (own.key is not None or is_full):
            # A row with a key may be refused.
            self._close(row, followed=own.key is None)
        if attributes is not PLAIN:
            row.attributes[len(row.payloads)] = attributes
            row.beside += beside
        if isinstance(payload, Reference):
            row.has_blobs = True
            self.blobs.add(payload.hash)
        row.payloads.append(payload)
        row.used += used
        self._open_bytes += used + beside
        if own.key is not None:
            place = len(self._held) + len(self._filed)
            self.keys[place] = KeyedRow(check_key(own.key), origin, key_digest(origin, payload), extent(payload))
            self._close(row)

    def _row(self, origin: Any, priority: str) -> _OpenRow:
        """Return the row of a queue that is not full yet."""
        row = self._open.get((origin, priority)) if isinstance(origin, str) else None
        if row is None:
            self.check_sender(origin)
            if priority != REGULAR:
                self.check_rank(check_priority(priority))
                self.first_high = not self.config.high
            row = self._open[origin, priority] = _OpenRow(book_name(origin, priority))
        return row

    def _close_all(self) -> None:
        """Close all rows, so that the next message of each queue opens another one."""
        for row in self._open.values():
            if row.payloads:
                self._close(row)
        self._open = {}

    def _close(self, row: _OpenRow, *, followed: bool = False) -> None:
        """Keep the inbox row with the messages of a row, and empty the row.

        :param followed: whether another row of this queue follows, refused or not: listeners are called for the
            last one.
        """
        payloads, attributes = row.payloads, b""
        if self.common is not PLAIN or row.attributes or row.has_blobs:
            attributes = pack_attributes(self.common, payloads if row.has_blobs else (), row.attributes)
        heap = payloads[0] if len(payloads) == 1 else b"".join(payloads)
        lengths = codec.pack_lengths(list(map(len, payloads))) if len(payloads) > 1 else b""
        kept = InboxRow(row.name, 0, len(heap), len(payloads), followed, lengths, attributes, heap)
        self.count += len(payloads)
        self.size += sum(map(extent, payloads)) if row.has_blobs else len(heap)
        self._open_bytes -= row.used + row.beside
        row.payloads, row.attributes, row.used, row.beside, row.has_blobs = [], {}, 0, 0, False
        self._row_bytes += len(heap) + len(attributes)
        self._stored.append(kept.stored)
        if self._row_bytes <= HELD:
            self._held.append(kept)
        else:
            self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
            written = self._file.write(heap), self._file.write(attributes)
            self._filed.append((kept._replace(heap=b"", attributes=b""), *written))

    def close(self) -> None:
        """Drop the rows that wait in a file."""
        if self._file is not None:
            self._file.close()

    @property
    def is_plain(self) -> bool:
        """Whether one statement sends all rows: few of a page's worth, due at once, without keys, blobs and limits."""
        is_bound = self.config.limits_origins
        if self.keys or self.blobs or self._filed or self.due is not None or is_bound or self.first_high:
            return False
        return len(self._held) <= PARCEL_ROWS and max(self._stored, default=0) <= self.heap_size

    def sizes(self, refused: Collection[int] = ()) -> dict[str, int]:
        """Return the bytes of the rows of each book, without refused rows."""
        sizes: dict[str, int] = {}
        for place, row in enumerate(chain(self._held, (row for row, *_ in self._filed))):
            if place not in refused:
                sizes[row.origin] = sizes.get(row.origin, 0) + self._stored[place]
        return sizes

    def rows(self, refused: Collection[int] = ()) -> Iterable[InboxRow]:
        """Return the rows in order, without refused rows."""
        if not (refused or self._filed):
            return self._held
        return (row for place, row in enumerate(chain(self._held, self._read())) if place not in refused)

    def _read(self) -> Iterator[InboxRow]:
        if self._file is not None:
            self._file.seek(0)
            for row, heap, attributes in self._filed:
                yield row._replace(heap=self._file.read(heap), attributes=self._file.read(attributes))
