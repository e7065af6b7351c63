"""Enqueuing: always possible, whatever the state of any queue."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from ... import tracing
from ...core.blob import Reference
from ...core.config import HEADER_SIZE
from ...core.errors import BlobMissing, InvalidInput, KeyConflict
from ...core.message import (
    BatchesFootprints,
    BatchFootprint,
    Message,
    check_headers,
    check_origin,
    check_payload,
)
from ...core.priority import REGULAR, book_name, check_priority
from ...core.weight import Weight
from ...store.unit import Unit
from .. import values
from ..session import RingSession, current_delivery
from ..values import Enqueued
from .inline import Inline, execute_inline
from .limits import has_bound, refuse_new_origins
from .packing import HELD, KeyedRow, Packer, Spool

When = datetime | timedelta | float | int


class Sender:
    """Senders' side of a ring: enqueue messages."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id

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
        priority: str | None = None,
        inline: Inline | None = None,
    ) -> Enqueued:
        """See `MessageQueue.enqueue_message`."""
        if inline is not None and not isinstance(inline, Inline):
            raise InvalidInput(f"what executes it at once is an Inline(processor, weight), not {type(inline).__name__}")
        if inline is not None and not_before is None and current_delivery.get() is None:
            how = {"key": key, "weight": weight, "headers": headers, "expires": expires, "priority": priority}
            sent = self.enqueue_message(origin, payload, **how)  # type: ignore[arg-type]
            name = book_name(origin, priority or REGULAR)
            return replace(sent, executed=int(sent.count and execute_inline(self.session, inline, name, payload)))
        plain = key is None and weight is None and not headers and not_before is None and expires is None
        if plain and not priority and not (self.session.traces and tracing.carrying()):
            return self._enqueue_plain(origin, payload)
        return self.enqueue_messages(
            [(origin, Message(payload, key, weight, headers, priority))], not_before=not_before, expires=expires
        )

    def _enqueue_plain(self, origin: str, payload: bytes) -> Enqueued:
        origin, payload = self.session.check_sender(origin), check_payload(payload, self.session.config.max_message_len)
        delivery = current_delivery.get()
        if delivery is not None:
            delivery.enqueue(origin, payload)
        elif isinstance(payload, Reference) or has_bound(self.session.config):
            return self.enqueue_messages(origin, [payload])
        else:
            self.store.send_one(self.ring_id, origin, payload)
            if self.session.listeners:
                self.session.tell_listeners()
        return Enqueued(1, len(payload))

    def enqueue_messages(
        self,
        origin: str | Iterable[tuple[str, bytes | Message]],
        messages: Iterable[bytes | Message] | None = None,
        *,
        weight: Weight | None = None,
        headers: Mapping[str, str] | None = None,
        not_before: When | None = None,
        expires: When | None = None,
        priority: str = REGULAR,
    ) -> Enqueued:
        """See `MessageQueue.enqueue_messages`."""
        if isinstance(origin, str):
            if messages is None:
                raise InvalidInput("say which messages: enqueue_messages(origin, messages)")
            checked = self.session.check_sender(origin)
            pairs: Iterable[tuple[str, bytes | Message]] = ((checked, message) for message in messages)
        else:
            pairs = origin
        common = {"weight": Weight.of(weight) if weight is not None else None,
                  "headers": check_headers(headers, self.session.config.max_headers) if headers else None}  # fmt: skip
        self.session.permit.check_priority(check_priority(priority))
        delivery = current_delivery.get()
        if delivery is not None:
            return self._send_nested(pairs, priority, headers, delivery.enqueue)
        expires_at = None if expires is None else self.instant(expires)
        due = None if not_before is None else self.instant(not_before)
        packer = Packer(
            self.session.config,
            {**common, "expires": expires_at},
            self.session.check_sender,
            priority,
            self.session.permit.check_priority,
            tracing.carrying() if self.session.traces else None,
        )
        if isinstance(origin, str) and messages is not None:
            packed = packer.pack_one(checked, messages, self.session.config.max_message_len)
        else:
            packed = packer.pack(pairs, self.session.config.max_message_len)
        with tempfile.SpooledTemporaryFile(max_size=HELD) as file:
            spool = Spool(packed, file)
            few = spool.few()
            bound, first_high = has_bound(self.session.config), packer.high and not self.session.config.high
            if few is not None and due is None and not (packer.blobs or bound or first_high):
                if few:
                    self.store.send_few(self.ring_id, few)
                self.session.tell_listeners()
                return Enqueued(packer.count, packer.size)
            with self.store.writing() as unit:
                refused = self.refused_keys(unit, spool.keys)
                self.require_blobs(unit, packer.blobs)
                if bound:
                    refuse_new_origins(unit, self.ring_id, spool.origins(refused), self.session.remember_config)
                self.store.send(unit, self.ring_id, spool.rows(refused), due)
                if first_high:
                    # Whoever services the ring looks for high messages from now on.
                    unit.rings.allow_high(self.ring_id)
            self.store.wake(self.ring_id)
        if first_high:
            with self.store.loose() as unit:
                self.session.remember_config(unit.rings.named(self.session.ring).config)
        self.session.tell_listeners()
        return Enqueued(packer.count - len(refused), packer.size - sum(refused.values()), len(refused))

    def _send_nested(
        self, pairs: Iterable[tuple[str, bytes | Message]], priority: str, headers: Mapping[str, str] | None,
        enqueue: Any,
    ) -> Enqueued:  # fmt: skip
        count = size = 0
        most = self.session.config.max_headers
        common = check_headers(headers or {}, most, tracing.carrying() if self.session.traces else None)
        for origin, message in pairs:
            own = message if isinstance(message, Message) else None
            payload = check_payload(own.payload if own else message, self.session.config.max_message_len)
            said = self.session.permit.check_priority(own.priority if own and own.priority else priority)
            beside = check_headers(own.headers, most, common) if own and own.headers else common
            enqueue(self.session.check_sender(origin), payload, said, beside)
            count, size = count + 1, size + len(payload)
        return Enqueued(count, size)

    def require_blobs(self, unit: Unit, blobs: Iterable[bytes]) -> None:
        """Refuse references to what is not there; what is there stays until this transaction ends."""
        wanted = sorted({hash_.hex() for hash_ in blobs})
        known = unit.payloads.shared(wanted)
        missing = next((name for name in wanted if name not in known), None)
        if missing is not None:
            raise BlobMissing(bytes.fromhex(missing))

    def refused_keys(self, unit: Unit, keys: Mapping[int, KeyedRow]) -> dict[int, int]:
        """Return the rows whose keys were used before, with their sizes.

        Keys are claimed in sorted order, so that two senders never wait for each other.
        """
        now = unit.now() if keys else 0
        window = int(self.session.config.key_window * 1_000_000)
        refused: dict[int, int] = {}
        for place, row in sorted(keys.items(), key=lambda entry: entry[1][:2]):
            if unit.keys.claim(self.ring_id, row.key, row.origin, row.digest, now, window):
                continue
            if unit.keys.digest(self.ring_id, row.key, row.origin) != row.digest:
                raise KeyConflict(
                    f"idempotency key {row.key!r} of origin {row.origin!r} was used for another message within the "
                    f"last {self.session.config.key_window:,.0f} seconds: a key names one message of its origin; "
                    "send another message with another key"
                )
            refused[place] = row.size
        return refused

    def instant(self, when: When) -> int:
        """A moment on the store's clock, in microseconds."""
        if isinstance(when, datetime):
            return values.instant(when)
        seconds = when.total_seconds() if isinstance(when, timedelta) else when
        if not _is_number(seconds) or not -1e10 < seconds < 1e10:
            raise InvalidInput(f"a time is a datetime, a timedelta or a number of seconds from now, not {when!r}")
        with self.store.loose() as unit:
            return unit.now() + int(seconds * 1_000_000)

    def batches_footprints(self, origin: str, messages: Iterable[bytes], max_ready_pages: int) -> BatchesFootprints:
        """See `MessageQueue.batches_footprints`."""
        with self.session.snapshot() as (_, shelf):
            book, heap = shelf.book(check_origin(origin)), shelf.config.heap_size
            while shelf.pull(book):
                pass
            page = shelf.page(origin, book.end - 1) if book.is_ready else None
            used = heap if page is None else page.used
            pages = book.end - book.begin
        position, opened, size = 0 if page is None else used, 0, 0
        found: list[BatchFootprint] = []
        for count, message in enumerate(messages, start=1):
            need = len(check_payload(message, self.session.config.max_message_len)) + HEADER_SIZE
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
