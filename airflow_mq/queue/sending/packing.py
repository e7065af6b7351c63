"""Messages of a call, packed into inbox rows before any transaction begins."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import accumulate, chain, islice
from typing import IO, Any, NamedTuple

from ...core.blob import Reference
from ...core.config import HEADER_SIZE, RingConfig
from ...core.message import (
    Message,
    check_headers,
    check_key,
    check_origin,
    check_payload,
    header_bytes,
    message_id,
)
from ...core.priority import HIGH, REGULAR, book_name, check_priority, origin_of
from ...core.weight import Weight
from ...store import Outgoing, codec
from ...store.inbox import blob_attributes

#: Bytes of a call that are held in memory; what is more waits in a temporary file.
HELD = 8 << 20
#: Messages that are looked at together, and rows that one statement sends.
STRETCH, FEW = 4096, 128


class Packer:
    """Packs messages into inbox rows, at most a page's worth each."""

    def __init__(
        self, config: RingConfig, common: Mapping[str, Any], check_sender: Callable[[object], str] = check_origin,
        priority: str = REGULAR, check_rank: Callable[[str], str] = check_priority,
        carried: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.heap_size, self.most_headers = config.heap_size, config.max_headers
        self.check_sender, self.check_rank = check_sender, check_rank
        #: Of the messages that do not say otherwise.
        self.priority = priority
        #: Whether any message so far has high priority.
        self.high = False
        self.common = {name: value for name, value in common.items() if value}
        #: Headers that also those have that say their own.
        self.carried = carried or {}
        if carried:
            self.common["headers"] = check_headers(self.common.get("headers", {}), self.most_headers, carried)
        self.count = self.size = 0
        #: The external payloads that messages refer to.
        self.blobs: set[bytes] = set()
        self._common_attributes = self._attributes(_Row())

    def pack(self, pairs: Iterable[tuple[str, bytes | Message]], most: int) -> Iterator[Packed]:
        """Rows as they fill up. Stretches of plain bytes are sorted by origin and measured together."""
        source = iter(pairs)
        rows: dict[str, list[bytes]] = {}
        used: dict[str, int] = {}
        while stretch := list(islice(source, STRETCH)):
            if not all(type(message) is bytes for _, message in stretch):
                waiting = ((origin, message) for origin, row in rows.items() for message in row)
                yield from self._pack_said(chain(waiting, stretch, source), most)
                return
            for origin, fresh in _by_origin(stretch).items():
                row = rows.get(origin)
                if row is None:
                    row, used[self.check_sender(origin)] = rows.setdefault(origin, []), 0
                row += fresh
                used[origin] += sum(map(len, fresh)) + HEADER_SIZE * len(fresh)
                if used[origin] > self.heap_size:
                    full, rows[origin] = self._split(row, most)
                    yield from (Packed(self._plain_row(origin, part, more=True)) for part in full)
                    used[origin] = sum(map(len, rows[origin])) + HEADER_SIZE * len(rows[origin])
            if sum(used.values()) > HELD:
                # Many origins, a little of each: let go of all, or memory grows with the call.
                yield from self._let_go_plain(rows, most, more=True)
                rows, used = {}, {}
        yield from self._let_go_plain(rows, most, more=False)

    def _let_go_plain(self, rows: Mapping[str, list[bytes]], most: int, *, more: bool) -> Iterator[Packed]:
        for origin, row in rows.items():
            _check(row, most)
            yield Packed(self._plain_row(origin, row, more=more))

    def _split(self, row: list[bytes], most: int) -> tuple[list[list[bytes]], list[bytes]]:
        """Check what is to go, and cut it into what fills pages and the rest."""
        lengths = _check(row, most)
        ends = list(accumulate((length + HEADER_SIZE for length in lengths), initial=0))
        full, start = [], 0
        while ends[-1] - ends[start] > self.heap_size:
            stop = bisect_right(ends, ends[start] + self.heap_size, lo=start) - 1
            full.append(row[start:stop])
            start = stop
        return full, row[start:]

    def _pack_said(self, pairs: Iterable[tuple[str, bytes | Message]], most: int) -> Iterator[Packed]:
        """The same for messages that say something of themselves; one with a key has a row to itself."""
        open_rows: dict[tuple[str, str], _Row] = {}
        total = 0
        for origin, message in pairs:
            own = message if isinstance(message, Message) else None
            payload = check_payload(own.payload if own else message, most)
            said = _said(own, self.carried, self.most_headers) if own else {}
            book = origin, self.priority if own is None or own.priority is None else own.priority
            row = open_rows.get(book)
            if row is None:
                self.check_sender(origin)
                self.check_rank(check_priority(book[1]))
                row = open_rows[book] = _Row()
            keyed = own is not None and own.key is not None
            if row.payloads and (keyed or not row.takes(payload, said, self.heap_size)):
                yield Packed(self._row(book, row, more=True))
                total -= row.used + row.headers
                row = open_rows[book] = _Row()
            if own is not None and own.key is not None:
                key = check_key(own.key)
                digest = message_id(origin.encode() + b"\0" + payload)
                yield Packed(self._row(book, _Row().add(payload, said), more=False), key, digest)
                continue
            total -= row.used + row.headers
            row.add(payload, said)
            total += row.used + row.headers
            if total > HELD:
                # Many origins, a little of each: let go of all, or memory grows with the call.
                yield from self._let_go(open_rows, more=True)
                open_rows, total = {}, 0
        yield from self._let_go(open_rows, more=False)

    def pack_one(self, origin: str, messages: Iterable[bytes | Message], most: int) -> Iterator[Packed]:
        """The same for one origin: a stretch of plain bytes is measured and joined in one go."""
        source = iter(messages)
        row: list[bytes] = []
        while stretch := list(islice(source, STRETCH)):
            if not all(type(message) is bytes for message in stretch):
                rest = ((origin, message) for message in chain(row, stretch, source))
                yield from self._pack_said(rest, most)
                return
            full, row = self._split([*row, *stretch], most)  # type: ignore[list-item]
            yield from (Packed(self._plain_row(origin, part, more=True)) for part in full)
        if row:
            yield Packed(self._plain_row(origin, row, more=False))

    def _plain_row(self, origin: str, row: list[bytes], *, more: bool) -> Outgoing:
        heap = row[0] if len(row) == 1 else b"".join(row)
        self.count += len(row)
        self.size += len(heap)
        lengths = codec.pack_lengths(list(map(len, row)))
        return Outgoing(
            self._name(origin, self.priority), len(heap), len(row), more, lengths, self._common_attributes, heap
        )

    def _let_go(self, rows: Mapping[tuple[str, str], _Row], *, more: bool) -> Iterator[Packed]:
        return (Packed(self._row(book, row, more=more)) for book, row in rows.items() if row.payloads)

    def _name(self, origin: str, priority: str) -> str:
        self.high = self.high or priority == HIGH
        return book_name(origin, priority)

    def _row(self, book: tuple[str, str], row: _Row, *, more: bool) -> Outgoing:
        payloads = row.payloads
        lengths = list(map(len, payloads))
        heap = payloads[0] if len(payloads) == 1 else b"".join(payloads)
        self.count += len(payloads)
        self.size += len(heap)
        attributes = self._attributes(row)
        return Outgoing(self._name(*book), len(heap), len(lengths), more, codec.pack_lengths(lengths), attributes, heap)

    def _attributes(self, row: _Row) -> bytes:
        each = {str(place): said for place, said in row.said.items()}
        blobs = blob_attributes(row.payloads)
        self.blobs.update(payload.hash for payload in row.payloads if isinstance(payload, Reference))
        plain = {name: value for name, value in (("all", self.common), ("each", each)) if value}
        if not plain and not blobs:
            return b""
        return json.dumps({**blobs, **plain}, separators=(",", ":"), default=dict).encode()


class _Row:
    """Messages of one book on their way into a row of mail."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        #: By place, what messages say of themselves.
        self.said: dict[int, dict[str, Any]] = {}
        #: Bytes in a page, and bytes of headers.
        self.used = self.headers = 0

    def takes(self, payload: bytes, said: Mapping[str, Any], most: int) -> bool:
        """Whether one more stays within a page's worth of messages, and as much of headers."""
        headers = header_bytes(said.get("headers", {}))
        return self.used + len(payload) + HEADER_SIZE <= most and (not headers or self.headers + headers <= most)

    def add(self, payload: bytes, said: dict[str, Any]) -> _Row:
        """Take one more."""
        if said:
            self.said[len(self.payloads)] = said
            self.headers += header_bytes(said.get("headers", {}))
        self.payloads.append(payload)
        self.used += len(payload) + HEADER_SIZE
        return self


def _check(row: list[bytes], most: int) -> list[int]:
    """The lengths of messages, if all of them may be sent."""
    lengths = list(map(len, row))
    if min(lengths) == 0 or max(lengths) > most:
        for message in row:
            check_payload(message, most)
    return lengths


def _by_origin(pairs: Iterable[tuple[str, Any]]) -> dict[str, list[bytes]]:
    """The messages of each origin, in their order; the origins in that of their first message."""
    found: dict[str, list[bytes]] = {}
    for origin, payload in pairs:
        try:
            found[origin].append(payload)
        except KeyError:
            found[origin] = [payload]
    return found


def _said(message: Message, carried: Mapping[str, str], most_headers: int) -> dict[str, Any]:
    """What a message says of itself, checked: once stored, it is met by everybody who plans."""
    said: dict[str, Any] = {}
    if message.weight is not None:
        said["weight"] = Weight.of(message.weight)
    if message.headers:
        said["headers"] = check_headers(message.headers, most_headers, carried)
    return said


class Packed(NamedTuple):
    """An inbox row, and the key under which it is accepted once."""

    row: Outgoing
    key: str | None = None
    digest: bytes = b""


class KeyedRow(NamedTuple):
    """An inbox row with an idempotency key, which belongs to its origin."""

    key: str
    origin: str
    digest: bytes
    size: int


class Spool:
    """A whole call, read from the caller before any transaction begins: it may take its time."""

    def __init__(self, entries: Iterator[Packed], file: IO[bytes]) -> None:
        self.file = file
        self.keys: dict[int, KeyedRow] = {}
        self._held: list[Outgoing] = []
        self._filed: list[tuple[Outgoing, int, int]] = []
        size = 0
        for place, (row, key, digest) in enumerate(entries):
            if key is not None:
                self.keys[place] = KeyedRow(key, origin_of(row.origin), digest, row.size)
            size += row.size + len(row.attributes)
            if size <= HELD:
                self._held.append(row)
            else:
                lengths = file.write(row.heap), file.write(row.attributes)
                self._filed.append((row._replace(heap=b"", attributes=b""), *lengths))

    def few(self) -> list[Outgoing] | None:
        """All rows, when they are so few and plain that one statement sends them."""
        return self._held if not (self.keys or self._filed) and len(self._held) <= FEW else None

    def origins(self, refused: Container[int]) -> set[str]:
        """Whose messages they are, without those that were refused."""
        rows = chain(self._held, (row for row, *_ in self._filed))
        return {row.origin for place, row in enumerate(rows) if place not in refused}

    def rows(self, refused: Container[int]) -> Iterator[Outgoing]:
        """The rows in order, without those that were refused."""
        self.file.seek(0)
        filed = (
            row._replace(heap=self.file.read(heap), attributes=self.file.read(attributes))
            for row, heap, attributes in self._filed
        )
        for place, row in enumerate(chain(self._held, filed)):
            if place not in refused:
                yield row
