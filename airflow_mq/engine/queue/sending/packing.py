"""Packing: the messages of a call as inbox rows, before any transaction begins."""

from __future__ import annotations

import json
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from itertools import accumulate, chain, islice
from typing import IO, Any, NamedTuple

from ...rules.blob import Reference
from ...rules.config import HEADER_SIZE, RingConfig
from ...rules.message import (
    Message,
    check_headers,
    check_key,
    check_origin,
    check_payload,
    header_bytes,
    key_digest,
)
from ...rules.priority import HIGH, REGULAR, book_name, check_priority
from ...rules.weight import Weight
from ...store import Outgoing, codec
from ...store.rows import blob_attributes

#: Bytes of a call that are held in memory, while the rest waits in a file; messages that are packed together.
HELD, STRETCH = 8 << 20, 4096
#: Rows that one statement writes.
FEW = 128

Pairs = Iterable[tuple[str, bytes | Message]]


class KeyedRow(NamedTuple):
    """An inbox row with an idempotency key of its origin."""

    key: str
    origin: str
    digest: bytes
    size: int


class Packed(NamedTuple):
    """An inbox row, and its idempotency key."""

    row: Outgoing
    keyed: KeyedRow | None = None


class Packer:
    """Packs messages into inbox rows, at most a page's worth each."""

    def __init__(
        self,
        config: RingConfig,
        common: Mapping[str, object],
        check_sender: Callable[[object], str] = check_origin,
        priority: str = REGULAR,
        check_rank: Callable[[str], str] = check_priority,
        carried: Mapping[str, str] | None = None,
    ) -> None:
        self.heap_size, self.max_headers, self.max_size = config.heap_size, config.max_headers, config.max_message_len
        self.check_sender, self.check_rank = check_sender, check_rank
        #: The priority of messages without their own.
        self.priority = priority
        #: Attributes of messages without their own.
        self.common = {name: value for name, value in common.items() if value}
        #: Headers of all messages, also of those with their own.
        self.carried = carried or {}
        if carried:
            self.common["headers"] = check_headers(common.get("headers") or {}, config.max_headers, carried)
        #: Whether any message so far has high priority.
        self.high = False
        self.count = self.size = 0
        #: Hashes of the external payloads that messages refer to.
        self.blobs: set[bytes] = set()
        #: The rows that are not full yet, by origin and priority, and their bytes.
        self._open: dict[tuple[str, str], _OpenRow] = {}
        self._held = 0

    def pack(self, pairs: Pairs) -> Iterator[Packed]:
        """Yield rows as they fill up. A message with a key has its own row."""
        source = iter(pairs)
        while stretch := list(islice(source, STRETCH)):
            if {(type(origin), type(message)) for origin, message in stretch} == {(str, bytes)}:
                for origin, payloads in _by_origin(stretch).items():
                    yield from self._add_plain(origin, payloads)
            else:
                for origin, message in stretch:
                    yield from self._add(origin, message)
            if self._held > HELD:
                # Many origins with few messages each: flush all, or memory grows with the call.
                yield from self._flush()
        yield from self._flush()

    def _add_plain(self, origin: str, payloads: list[bytes]) -> Iterator[Packed]:
        """Add plain messages of one origin; yield the rows that they fill."""
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
                self._fill(row, payloads[start:stop], ends[stop] - ends[start])
                yield self._packed(row, followed=True)
                start = stop
            payloads, used = payloads[start:], used - ends[start]
        self._fill(row, payloads, used)

    def _add(self, origin: str, message: bytes | Message) -> Iterator[Packed]:
        """Add one message; yield the row that it fills, and its own row if it has a key."""
        own = message if isinstance(message, Message) else Message(message)
        row = self._row(origin, own.priority or self.priority)
        payload = check_payload(own.payload, self.max_size)
        attributes = self._attributes_of(own)
        headers, used = _header_bytes(attributes), len(payload) + HEADER_SIZE
        is_full = row.used + used > self.heap_size or (headers and row.headers + headers > self.heap_size)
        if row.payloads and (own.key is not None or is_full):
            # A row with a key may be refused.
            yield self._packed(row, followed=own.key is None)
        if attributes:
            row.attributes[len(row.payloads)] = attributes
            row.headers += headers
            self._held += headers
        if isinstance(payload, Reference):
            row.has_blobs = True
            self.blobs.add(payload.hash)
        self._fill(row, [payload], used)
        if own.key is not None:
            keyed = KeyedRow(check_key(own.key), origin, key_digest(origin, payload), len(payload))
            yield Packed(self._packed(row).row, keyed)

    def _fill(self, row: _OpenRow, payloads: list[bytes], used: int) -> None:
        row.payloads += payloads
        row.used += used
        self._held += used

    def _row(self, origin: Any, priority: str) -> _OpenRow:
        """Return the row of a queue that is not full yet."""
        row = self._open.get((origin, priority)) if isinstance(origin, str) else None
        if row is None:
            self.check_sender(origin)
            self.check_rank(check_priority(priority))
            self.high = self.high or priority == HIGH
            row = self._open[origin, priority] = _OpenRow(book_name(origin, priority))
        return row

    def _flush(self) -> Iterator[Packed]:
        rows, self._open, self._held = self._open, {}, 0
        return (self._packed(row) for row in rows.values() if row.payloads)

    def _attributes_of(self, message: Message) -> dict[str, object]:
        """Return the checked attributes of a message: a stored one concerns every later plan."""
        attributes: dict[str, object] = {}
        if message.weight is not None:
            attributes["weight"] = Weight.of(message.weight)
        if message.headers:
            attributes["headers"] = check_headers(message.headers, self.max_headers, self.carried)
        return attributes

    def _packed(self, row: _OpenRow, *, followed: bool = False) -> Packed:
        """Return the inbox row with the messages of a row, and empty the row.

        :param followed: whether another row of this queue follows, whatever is refused: listeners are called for the
            last one.
        """
        payloads, attributes = row.payloads, self._attributes(row)
        heap = payloads[0] if len(payloads) == 1 else b"".join(payloads)
        lengths = codec.pack_lengths(list(map(len, payloads))) if len(payloads) > 1 else b""
        self.count += len(payloads)
        self.size += len(heap)
        self._held -= row.used + row.headers
        row.clear()
        return Packed(Outgoing(row.name, len(heap), len(payloads), followed, lengths, attributes, heap))

    def _attributes(self, row: _OpenRow) -> bytes:
        if not (self.common or row.attributes or row.has_blobs):
            return b""
        each = {str(place): attributes for place, attributes in row.attributes.items()}
        plain = {name: value for name, value in (("all", self.common), ("each", each)) if value}
        blobs = blob_attributes(row.payloads) if row.has_blobs else {}
        return json.dumps({**blobs, **plain}, separators=(",", ":"), default=dict).encode()


class _OpenRow:
    """Messages of one queue on their way into an inbox row."""

    def __init__(self, name: str) -> None:
        #: Name of the book.
        self.name = name
        self.clear()

    def clear(self) -> None:
        """Begin the next row."""
        self.payloads: list[bytes] = []
        #: Attributes of messages, by place.
        self.attributes: dict[int, dict[str, object]] = {}
        #: Bytes in a page, and bytes of headers.
        self.used = self.headers = 0
        self.has_blobs = False


def _by_origin(pairs: Iterable[tuple[str, Any]]) -> dict[str, list[bytes]]:
    """Return the messages of each origin in order; origins come in the order of their first message."""
    found: dict[str, list[bytes]] = {}
    for origin, payload in pairs:
        try:
            found[origin].append(payload)
        except KeyError:
            found[origin] = [payload]
    return found


def _header_bytes(attributes: Mapping[str, object]) -> int:
    headers = attributes.get("headers")
    return header_bytes(headers) if isinstance(headers, Mapping) else 0


class Spool:
    """The rows of a call, read from the caller before any transaction begins: reading may take long."""

    def __init__(self, entries: Iterable[Packed]) -> None:
        #: Rows with keys, by place.
        self.keys: dict[int, KeyedRow] = {}
        self._held: list[Outgoing] = []
        #: Rows without their bytes, which are in the file.
        self._filed: list[tuple[Outgoing, int, int]] = []
        self._file: IO[bytes] | None = None
        size = 0
        for place, (row, keyed) in enumerate(entries):
            if keyed is not None:
                self.keys[place] = keyed
            size += row.size + len(row.attributes)
            if size <= HELD:
                self._held.append(row)
                continue
            self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
            lengths = self._file.write(row.heap), self._file.write(row.attributes)
            self._filed.append((row._replace(heap=b"", attributes=b""), *lengths))

    def close(self) -> None:
        """Drop the rows that wait in a file."""
        if self._file is not None:
            self._file.close()

    def few(self) -> list[Outgoing] | None:
        """Return all rows if one statement can send them: few, and without keys."""
        return self._held if not (self.keys or self._filed) and len(self._held) <= FEW else None

    def origins(self, refused: Container[int]) -> set[str]:
        """Return the books of the rows, without refused rows."""
        rows = chain(self._held, (row for row, *_ in self._filed))
        return {row.origin for place, row in enumerate(rows) if place not in refused}

    def rows(self, refused: Collection[int]) -> Iterable[Outgoing]:
        """Return the rows in order, without refused rows."""
        if not (refused or self._file):
            return self._held
        return (row for place, row in enumerate(chain(self._held, self._read())) if place not in refused)

    def _read(self) -> Iterator[Outgoing]:
        file = self._file
        if file is not None:
            file.seek(0)
            for row, heap, attributes in self._filed:
                yield row._replace(heap=file.read(heap), attributes=file.read(attributes))
