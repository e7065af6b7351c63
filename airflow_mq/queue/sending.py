"""Enqueuing: always possible, whatever the state of any queue."""

from __future__ import annotations

import json
import tempfile
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import accumulate, chain, islice
from typing import IO, Any, NamedTuple, overload

from ..core.config import HEADER_SIZE
from ..core.errors import Busy, InvalidInput, KeyConflict
from ..core.message import (
    BatchesFootprints,
    BatchFootprint,
    Message,
    check_headers,
    check_key,
    check_origin,
    check_payload,
    message_id,
)
from ..core.weight import Weight
from ..store import Outgoing, codec
from ..store.unit import Unit
from .base import QueueBase, current_delivery
from .values import Enqueued

When = datetime | timedelta | float | int
#: Bytes of a call that are held in memory; what is more waits in a temporary file.
HELD = 8 << 20
#: Messages that are looked at together, and rows that one statement sends.
STRETCH, FEW = 4096, 128


class Sending(QueueBase):
    """The part of the queue that senders use."""

    def enqueue_message(
        self,
        origin: str,
        payload: bytes,
        *,
        key: str | None = None,
        weight: Weight | None = None,
        headers: Mapping[str, str] | None = None,
        not_before: When | None = None,
        expires: When | None = None,
    ) -> Enqueued:
        """Enqueue one message.

        :param origin: who sends it; names its queue.
        :param payload: its bytes, at least one.
        :param key: an idempotency key: the same message sent again with it is accepted once.
        :param weight: what it will cost, where the sender knows.
        :param headers: free-form text that travels beside it.
        :param not_before: when it joins its queue: a time, or so long from now.
        :param expires: when nobody wants it any more: a time, or so long from now.
        """
        if key is None and weight is None and not headers and not_before is None and expires is None:
            return self._enqueue_plain(origin, payload)
        return self.enqueue_messages(
            [(origin, Message(payload, key, weight, headers))], not_before=not_before, expires=expires
        )

    def _enqueue_plain(self, origin: str, payload: bytes) -> Enqueued:
        origin, payload = check_origin(origin), check_payload(payload, self.config.max_message_len)
        delivery = current_delivery.get()
        if delivery is not None:
            delivery.enqueue(origin, payload)
        else:
            self.store.send_one(self.ring_id, origin, payload)
            if self.listeners:
                self.tell_listeners()
        return Enqueued(1, len(payload))

    @overload
    def enqueue_messages(
        self, origin: str, messages: Iterable[bytes | Message], *, weight: Weight | None = None,
        headers: Mapping[str, str] | None = None, not_before: When | None = None, expires: When | None = None,
    ) -> Enqueued: ...  # fmt: skip

    @overload
    def enqueue_messages(
        self, origin: Iterable[tuple[str, bytes | Message]], messages: None = None, *, weight: Weight | None = None,
        headers: Mapping[str, str] | None = None, not_before: When | None = None, expires: When | None = None,
    ) -> Enqueued: ...  # fmt: skip

    def enqueue_messages(
        self,
        origin: str | Iterable[tuple[str, bytes | Message]],
        messages: Iterable[bytes | Message] | None = None,
        *,
        weight: Weight | None = None,
        headers: Mapping[str, str] | None = None,
        not_before: When | None = None,
        expires: When | None = None,
    ) -> Enqueued:
        """Enqueue many messages, of one origin or of many; all of them or none.

        Either `enqueue_messages(origin, messages)` or `enqueue_messages(pairs)` with pairs of
        origin and message. An iterator of millions is read once and never held in memory.
        What is said by keyword holds for every message that does not say otherwise itself.
        """
        if isinstance(origin, str):
            if messages is None:
                raise InvalidInput("say which messages: enqueue_messages(origin, messages)")
            checked = check_origin(origin)
            pairs: Iterable[tuple[str, bytes | Message]] = ((checked, message) for message in messages)
        else:
            pairs = origin
        common = {"weight": Weight.of(weight) if weight is not None else None,
                  "headers": check_headers(headers) if headers else None}  # fmt: skip
        delivery = current_delivery.get()
        if delivery is not None:
            return self._send_nested(pairs, delivery.enqueue)
        expires_at = None if expires is None else self._instant(expires)
        due = None if not_before is None else self._instant(not_before)
        packer = Packer(self.config.heap_size, {**common, "expires": expires_at})
        if isinstance(origin, str) and messages is not None:
            packed = packer.pack_one(checked, messages, self.config.max_message_len)
        else:
            packed = packer.pack(pairs, self.config.max_message_len)
        with tempfile.SpooledTemporaryFile(max_size=HELD) as file:
            spool = Spool(packed, file)
            few = spool.few()
            if few is not None and due is None:
                if few:
                    self.store.send_few(self.ring_id, few)
                self.tell_listeners()
                return Enqueued(packer.count, packer.size)
            with self.store.writing() as unit:
                refused = self._refused_keys(unit, spool.keys)
                self.store.send(unit, self.ring_id, spool.rows(refused), due)
            self.store.wake(self.ring_id)
        self.tell_listeners()
        return Enqueued(packer.count - len(refused), packer.size - sum(refused.values()), len(refused))

    def _send_nested(self, pairs: Iterable[tuple[str, bytes | Message]], enqueue: Any) -> Enqueued:
        count = size = 0
        for origin, message in pairs:
            payload = message.payload if isinstance(message, Message) else message
            enqueue(check_origin(origin), check_payload(payload, self.config.max_message_len))
            count, size = count + 1, size + len(payload)
        return Enqueued(count, size)

    def _refused_keys(self, unit: Unit, keys: Mapping[int, tuple[str, bytes, int]]) -> dict[int, int]:
        """The rows whose keys were used before. In sorted order: two senders never wait for each other."""
        now = unit.now() if keys else 0
        window = int(self.config.key_window * 1_000_000)
        refused: dict[int, int] = {}
        for place, (key, digest, size) in sorted(keys.items(), key=lambda entry: entry[1][0]):
            if unit.run("claim_key", ring=self.ring_id, key=key, digest=digest, now=now, window=window):
                continue
            if bytes(unit.rows("key_digest", ring=self.ring_id, key=key)[0][0]) != digest:
                raise KeyConflict(
                    f"the idempotency key {key!r} was used for another message within the last "
                    f"{self.config.key_window:,.0f} seconds; a key names one message"
                )
            refused[place] = size
        return refused

    def _instant(self, when: When) -> int:
        """A moment on the store's clock, in microseconds."""
        if isinstance(when, datetime):
            if when.tzinfo is None:
                raise InvalidInput("a time needs a time zone; say datetime.now(timezone.utc), or how long from now")
            return int(when.timestamp() * 1_000_000)
        seconds = when.total_seconds() if isinstance(when, timedelta) else when
        if not _is_number(seconds) or not -1e10 < seconds < 1e10:
            raise InvalidInput(f"a time is a datetime, a timedelta or a number of seconds from now, not {when!r}")
        with self.store.loose() as unit:
            return unit.now() + int(seconds * 1_000_000)

    def tell_listeners(self) -> None:
        """Cut what was sent by anybody into pages, and tell the listeners of it."""
        if self.listeners:
            # Where somebody services the ring at the moment, they will cut it, and tell.
            with suppress(Busy), self._working(patience=0):
                pass

    def batches_footprints(self, origin: str, messages: Iterable[bytes], max_ready_pages: int) -> BatchesFootprints:
        """What enqueuing the first 1, 2, 3 … of these would add, within so many ready pages.

        For a sender that wants a bound: the queue itself never refuses.
        """
        with self._looking() as (_, shelf):
            book, heap = shelf.book(check_origin(origin)), shelf.config.heap_size
            while shelf.pull(book):
                pass
            page = shelf.page(origin, book.end - 1) if book.is_ready else None
            used = heap if page is None else page.used
            pages = book.end - book.begin
        position, opened, size = 0 if page is None else used, 0, 0
        found: list[BatchFootprint] = []
        for count, message in enumerate(messages, start=1):
            need = len(check_payload(message, self.config.max_message_len)) + HEADER_SIZE
            if used + need > heap:
                opened, used = opened + 1, 0
            if pages + opened > max_ready_pages:
                break
            used += need
            size += len(message)
            found.append(BatchFootprint(count, size, opened))
        return BatchesFootprints(position, found)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Packer:
    """Packs messages into rows of mail, at most a page's worth each."""

    def __init__(self, heap_size: int, common: Mapping[str, Any]) -> None:
        self.heap_size = heap_size
        self.common = {name: value for name, value in common.items() if value}
        self.count = self.size = 0
        self._common_attributes = self._attributes([])

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
                    row, used[check_origin(origin)] = rows.setdefault(origin, []), 0
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
            self._split(row, most)
            yield Packed(self._plain_row(origin, row, more=more))

    def _split(self, row: list[bytes], most: int) -> tuple[list[list[bytes]], list[bytes]]:
        """Check what is to go, and cut it into what fills pages and the rest."""
        lengths = list(map(len, row))
        if min(lengths) == 0 or max(lengths) > most:
            for message in row:
                check_payload(message, most)
        ends = list(accumulate((length + HEADER_SIZE for length in lengths), initial=0))
        full, start = [], 0
        while ends[-1] - ends[start] > self.heap_size:
            stop = bisect_right(ends, ends[start] + self.heap_size, lo=start) - 1
            full.append(row[start:stop])
            start = stop
        return full, row[start:]

    def _pack_said(self, pairs: Iterable[tuple[str, bytes | Message]], most: int) -> Iterator[Packed]:
        """The same for messages that say something of themselves; one with a key has a row to itself."""
        open_rows: dict[str, list[tuple[bytes, Message | None]]] = {}
        used: dict[str, int] = {}
        total = 0
        for origin, message in pairs:
            own = message if isinstance(message, Message) else None
            payload = check_payload(own.payload if own else message, most)
            need = len(payload) + HEADER_SIZE
            row = open_rows.get(origin)
            if row is None:
                row = open_rows[check_origin(origin)] = []
            keyed = own is not None and own.key is not None
            if row and (used[origin] + need > self.heap_size or keyed):
                yield Packed(self._row(origin, row, more=True))
                total -= used.pop(origin)
                row = open_rows[origin] = []
            if own is not None and own.key is not None:
                key = check_key(own.key)
                digest = message_id(origin.encode() + b"\0" + payload)
                yield Packed(self._row(origin, [(payload, own)], more=False), key, digest)
                continue
            row.append((payload, own))
            used[origin] = used.get(origin, 0) + need
            total += need
            if total > HELD:
                # Many origins, a little of each: let go of all, or memory grows with the call.
                yield from self._let_go(open_rows, more=True)
                open_rows, used, total = {}, {}, 0
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
        return Outgoing(origin, len(heap), len(row), more, lengths, self._common_attributes, heap)

    def _let_go(self, rows: Mapping[str, list[tuple[bytes, Message | None]]], *, more: bool) -> Iterator[Packed]:
        return (Packed(self._row(origin, row, more=more)) for origin, row in rows.items() if row)

    def _row(self, origin: str, row: list[tuple[bytes, Message | None]], *, more: bool) -> Outgoing:
        payloads = [payload for payload, _ in row]
        lengths = list(map(len, payloads))
        heap = payloads[0] if len(payloads) == 1 else b"".join(payloads)
        self.count += len(payloads)
        self.size += len(heap)
        attributes = self._attributes(row)
        return Outgoing(origin, len(heap), len(lengths), more, codec.pack_lengths(lengths), attributes, heap)

    def _attributes(self, row: list[tuple[bytes, Message | None]]) -> bytes:
        each = {str(place): said for place, (_, own) in enumerate(row) if own is not None and (said := _said(own))}
        plain = {name: value for name, value in (("all", self.common), ("each", each)) if value}
        if not plain:
            return b""
        return json.dumps(plain, separators=(",", ":"), default=dict).encode()


def _by_origin(pairs: Iterable[tuple[str, Any]]) -> dict[str, list[bytes]]:
    """The messages of each origin, in their order; the origins in that of their first message."""
    found: dict[str, list[bytes]] = {}
    for origin, payload in pairs:
        try:
            found[origin].append(payload)
        except KeyError:
            found[origin] = [payload]
    return found


def _said(message: Message) -> dict[str, Any]:
    """What a message says of itself, checked: once stored, it is met by everybody who plans."""
    said: dict[str, Any] = {}
    if message.weight is not None:
        said["weight"] = Weight.of(message.weight)
    if message.headers:
        said["headers"] = check_headers(message.headers)
    return said


class Packed(NamedTuple):
    """A row of mail, and the key under which it is accepted once."""

    row: Outgoing
    key: str | None = None
    digest: bytes = b""


class Spool:
    """A whole call, read from the caller before any transaction begins: it may take its time."""

    def __init__(self, entries: Iterator[Packed], file: IO[bytes]) -> None:
        self.file = file
        self.keys: dict[int, tuple[str, bytes, int]] = {}
        self._held: list[Outgoing] = []
        self._filed: list[tuple[Outgoing, int]] = []
        size = 0
        for place, (row, key, digest) in enumerate(entries):
            if key is not None:
                self.keys[place] = key, digest, row.size
            size += row.size
            if size <= HELD:
                self._held.append(row)
            else:
                self._filed.append((row._replace(heap=b""), file.write(row.heap)))

    def few(self) -> list[Outgoing] | None:
        """All rows, when they are so few and plain that one statement sends them."""
        return self._held if not (self.keys or self._filed) and len(self._held) <= FEW else None

    def rows(self, refused: Container[int]) -> Iterator[Outgoing]:
        """The rows in order, without those that were refused."""
        self.file.seek(0)
        filed = (row._replace(heap=self.file.read(length)) for row, length in self._filed)
        for place, row in enumerate(chain(self._held, filed)):
            if place not in refused:
                yield row
