"""Packing: the messages of a call as inbox rows, before any transaction begins."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import accumulate, chain, islice
from typing import IO, NamedTuple, TypeGuard

from ...core.blob import Reference
from ...core.config import HEADER_SIZE, RingConfig
from ...core.message import (
    Message,
    check_headers,
    check_key,
    check_origin,
    check_payload,
    header_bytes,
    key_digest,
    message_id,
)
from ...core.priority import HIGH, REGULAR, book_name, check_priority, origin_of
from ...core.weight import Weight
from ...store import Outgoing, codec
from ...store.rows import blob_attributes
from .plain import HELD, STRETCH, by_origin

#: Rows that one statement sends.
FEW = 128


class KeyedRow(NamedTuple):
    """An inbox row with an idempotency key of its origin."""

    key: str
    origin: str
    digest: bytes
    #: The digest as versions before 0.3 stored it.
    old_digest: bytes
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
        #: Whether any message so far has high priority.
        self.high = False
        #: Attributes of messages without their own.
        self.common = {name: value for name, value in common.items() if value}
        #: Headers of all messages, also of those with their own.
        self.carried = carried or {}
        if carried:
            self.common["headers"] = check_headers(common.get("headers") or {}, config.max_headers, carried)
        self.count = self.size = 0
        #: Hashes of the external payloads that messages refer to.
        self.blobs: set[bytes] = set()
        self._common_attributes = self._attributes(_Row())

    def pack(self, pairs: Iterable[tuple[str, bytes | Message]]) -> Iterator[Packed]:
        """Yield rows as they fill up. Plain bytes are sorted by origin and measured together."""
        source = iter(pairs)
        rows: dict[str, list[bytes]] = {}
        used: dict[str, int] = {}
        while stretch := list(islice(source, STRETCH)):
            if not all(type(message) is bytes for _, message in stretch):
                waiting = ((origin, message) for origin, row in rows.items() for message in row)
                yield from self._pack_each(chain(waiting, stretch, source))
                return
            for origin, fresh in by_origin(stretch).items():
                row = rows.get(origin)
                if row is None:
                    row, used[self.check_sender(origin)] = rows.setdefault(origin, []), 0
                row += fresh
                used[origin] += sum(map(len, fresh)) + HEADER_SIZE * len(fresh)
                if used[origin] > self.heap_size:
                    full, rows[origin] = self._split(row)
                    yield from (self._plain(origin, part, more=True) for part in full)
                    used[origin] = sum(map(len, rows[origin])) + HEADER_SIZE * len(rows[origin])
            if sum(used.values()) > HELD:
                # Many origins with few messages each: flush all, or memory grows with the call.
                yield from self._flush_plain(rows, more=True)
                rows, used = {}, {}
        yield from self._flush_plain(rows, more=False)

    def pack_one(self, origin: str, messages: Iterable[bytes | Message]) -> Iterator[Packed]:
        """Yield the rows of one origin."""
        source = iter(messages)
        row: list[bytes] = []
        while stretch := list(islice(source, STRETCH)):
            if not _is_plain(stretch):
                yield from self._pack_each((origin, message) for message in chain(row, stretch, source))
                return
            full, row = self._split(row + stretch)
            yield from (self._plain(origin, part, more=True) for part in full)
        if row:
            yield self._plain(origin, row, more=False)

    def _flush_plain(self, rows: Mapping[str, list[bytes]], *, more: bool) -> Iterator[Packed]:
        for origin, row in rows.items():
            self._lengths(row)
            yield self._plain(origin, row, more=more)

    def _split(self, row: list[bytes]) -> tuple[list[list[bytes]], list[bytes]]:
        """Check messages; return those that fill pages, page by page, and the rest."""
        ends = list(accumulate((length + HEADER_SIZE for length in self._lengths(row)), initial=0))
        full, start = [], 0
        while ends[-1] - ends[start] > self.heap_size:
            stop = bisect_right(ends, ends[start] + self.heap_size, lo=start) - 1
            full.append(row[start:stop])
            start = stop
        return full, row[start:]

    def _lengths(self, row: list[bytes]) -> list[int]:
        """Return the lengths of messages, or raise the error of the first invalid one."""
        lengths = list(map(len, row))
        if min(lengths) == 0 or max(lengths) > self.max_size:
            for message in row:
                check_payload(message, self.max_size)
        return lengths

    def _pack_each(self, pairs: Iterable[tuple[str, bytes | Message]]) -> Iterator[Packed]:
        """Yield the rows of messages with attributes of their own; a message with a key has its own row."""
        open_rows: dict[tuple[str, str], _Row] = {}
        total = 0
        for origin, message in pairs:
            own = message if isinstance(message, Message) else None
            payload = check_payload(own.payload if own else message, self.max_size)
            attributes = self._own_attributes(own) if own else {}
            book = origin, self.priority if own is None or own.priority is None else own.priority
            row = open_rows.get(book)
            if row is None:
                self.check_sender(origin)
                self.check_rank(check_priority(book[1]))
                row = open_rows[book] = _Row()
            keyed = own is not None and own.key is not None
            if row.payloads and (keyed or not row.takes(payload, attributes, self.heap_size)):
                yield self._packed(book, row, more=True)
                total -= row.used + row.headers
                row = open_rows[book] = _Row()
            if own is not None and own.key is not None:
                digests = key_digest(origin, payload), message_id(origin.encode() + b"\0" + payload)
                single = self._packed(book, _Row().add(payload, attributes), more=False).row
                yield Packed(single, KeyedRow(check_key(own.key), origin_of(single.origin), *digests, single.size))
                continue
            total -= row.used + row.headers
            row.add(payload, attributes)
            total += row.used + row.headers
            if total > HELD:
                # Many origins with few messages each: flush all, or memory grows with the call.
                yield from self._flush(open_rows, more=True)
                open_rows, total = {}, 0
        yield from self._flush(open_rows, more=False)

    def _flush(self, rows: Mapping[tuple[str, str], _Row], *, more: bool) -> Iterator[Packed]:
        return (self._packed(book, row, more=more) for book, row in rows.items() if row.payloads)

    def _own_attributes(self, message: Message) -> dict[str, object]:
        """Return the checked attributes of a message: a stored one concerns every later plan."""
        attributes: dict[str, object] = {}
        if message.weight is not None:
            attributes["weight"] = Weight.of(message.weight)
        if message.headers:
            attributes["headers"] = check_headers(message.headers, self.max_headers, self.carried)
        return attributes

    def _plain(self, origin: str, payloads: list[bytes], *, more: bool) -> Packed:
        return self._row((origin, self.priority), payloads, self._common_attributes, more=more)

    def _packed(self, book: tuple[str, str], row: _Row, *, more: bool) -> Packed:
        return self._row(book, row.payloads, self._attributes(row), more=more)

    def _row(self, book: tuple[str, str], payloads: list[bytes], attributes: bytes, *, more: bool) -> Packed:
        lengths = list(map(len, payloads))
        heap = payloads[0] if len(payloads) == 1 else b"".join(payloads)
        self.count += len(payloads)
        self.size += len(heap)
        self.high = self.high or book[1] == HIGH
        packed_lengths = codec.pack_lengths(lengths)
        return Packed(Outgoing(book_name(*book), len(heap), len(lengths), more, packed_lengths, attributes, heap))

    def _attributes(self, row: _Row) -> bytes:
        each = {str(place): attributes for place, attributes in row.attributes.items()}
        blobs = blob_attributes(row.payloads)
        self.blobs.update(payload.hash for payload in row.payloads if isinstance(payload, Reference))
        plain = {name: value for name, value in (("all", self.common), ("each", each)) if value}
        if not plain and not blobs:
            return b""
        return json.dumps({**blobs, **plain}, separators=(",", ":"), default=dict).encode()


class _Row:
    """Messages of one book on their way into an inbox row."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        #: Attributes of messages, by place.
        self.attributes: dict[int, dict[str, object]] = {}
        #: Bytes in a page, and bytes of headers.
        self.used = self.headers = 0

    def takes(self, payload: bytes, attributes: Mapping[str, object], most: int) -> bool:
        """Return whether one more stays within a page's worth of messages and of headers."""
        headers = _header_bytes(attributes)
        return self.used + len(payload) + HEADER_SIZE <= most and (not headers or self.headers + headers <= most)

    def add(self, payload: bytes, attributes: dict[str, object]) -> _Row:
        """Add a message."""
        if attributes:
            self.attributes[len(self.payloads)] = attributes
            self.headers += _header_bytes(attributes)
        self.payloads.append(payload)
        self.used += len(payload) + HEADER_SIZE
        return self


def _header_bytes(attributes: Mapping[str, object]) -> int:
    headers = attributes.get("headers")
    return header_bytes(headers) if isinstance(headers, Mapping) else 0


def _is_plain(messages: list[bytes | Message]) -> TypeGuard[list[bytes]]:
    return all(type(message) is bytes for message in messages)


class Spool:
    """The rows of a call, read from the caller before any transaction begins: reading may take long."""

    def __init__(self, entries: Iterator[Packed], file: IO[bytes]) -> None:
        self.file = file
        self.keys: dict[int, KeyedRow] = {}
        self._held: list[Outgoing] = []
        self._filed: list[tuple[Outgoing, int, int]] = []
        size = 0
        for place, (row, keyed) in enumerate(entries):
            if keyed is not None:
                self.keys[place] = keyed
            size += row.size + len(row.attributes)
            if size <= HELD:
                self._held.append(row)
            else:
                lengths = file.write(row.heap), file.write(row.attributes)
                self._filed.append((row._replace(heap=b"", attributes=b""), *lengths))

    def few(self) -> list[Outgoing] | None:
        """Return all rows if one statement can send them: few, and without keys."""
        return self._held if not (self.keys or self._filed) and len(self._held) <= FEW else None

    def origins(self, refused: Container[int]) -> set[str]:
        """Return the books of the rows, without refused rows."""
        rows = chain(self._held, (row for row, *_ in self._filed))
        return {row.origin for place, row in enumerate(rows) if place not in refused}

    def rows(self, refused: Container[int]) -> Iterator[Outgoing]:
        """Yield the rows in order, without refused rows."""
        self.file.seek(0)
        filed = (
            row._replace(heap=self.file.read(heap), attributes=self.file.read(attributes))
            for row, heap, attributes in self._filed
        )
        for place, row in enumerate(chain(self._held, filed)):
            if place not in refused:
                yield row
