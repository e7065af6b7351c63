"""Sender: enqueue messages, whatever the state of their queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ... import tracing
from ...core.blob import Reference
from ...core.config import HEADER_SIZE
from ...core.errors import InvalidInput
from ...core.message import (
    BatchesFootprints,
    BatchFootprint,
    Message,
    check_headers,
    check_origin,
    check_payload,
)
from ...core.priority import REGULAR, book_name
from ...core.weight import Weight
from ..session import RingSession, current_delivery
from ..values import Delivery, Enqueued
from .call import PackedCall, Pairs, Terms, When, packed_call
from .inline import Inline, execute_inline
from .limits import has_bound


class Sender:
    """Senders' side of a ring: enqueue messages."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id

    def enqueue_message(
        self,
        origin: str,
        payload: bytes,
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
        session, config = self.session, self.session.config
        origin, payload = session.check_sender(origin), check_payload(payload, config.max_message_len)
        delivery = current_delivery.get()
        if delivery is not None:
            delivery.enqueue(origin, payload)
        elif isinstance(payload, Reference) or has_bound(config):
            return self.enqueue_messages(origin, [payload])
        else:
            self.store.send_one(self.ring_id, origin, payload)
            if session.listeners:
                session.tell_listeners()
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
        if isinstance(origin, str) and messages is None:
            raise InvalidInput("messages are missing: expected enqueue_messages(origin, messages)")
        sender = self.session.check_sender(origin) if isinstance(origin, str) else None
        terms = Terms(weight, headers, priority, not_before, expires).checked(self.session)
        given: Any = origin if sender is None else messages
        delivery = current_delivery.get()
        if delivery is not None:
            pairs = given if sender is None else ((sender, message) for message in given)
            return self._hand_over(delivery, pairs, terms)
        with packed_call(self.session, sender, given, terms) as call:
            sent = self._send(call)
        if call.first_high:
            with self.store.loose() as unit:
                self.session.remember_config(unit.rings.named(self.session.ring).config)
        self.session.tell_listeners()
        return sent

    def _send(self, call: PackedCall) -> Enqueued:
        """Write a call in a transaction of its own."""
        rows = call.plain_rows
        if rows is None:
            with self.store.writing() as unit:
                sent = call.write(unit)
            self.store.wake(self.ring_id)
            return sent
        if rows:
            self.store.send_few(self.ring_id, rows)
        return call.enqueued({})

    def _hand_over(self, delivery: Delivery, pairs: Pairs, terms: Terms) -> Enqueued:
        """Hand messages that a processor sends to its delivery, which sends them if its message is done."""
        session, count, size = self.session, 0, 0
        most = session.config.max_headers
        common = check_headers(terms.headers or {}, most, tracing.carrying() if session.traces else None)
        for origin, message in pairs:
            own = message if isinstance(message, Message) else Message(message)
            payload = check_payload(own.payload, session.config.max_message_len)
            priority = session.permit.check_priority(own.priority or terms.priority or REGULAR)
            headers = check_headers(own.headers, most, common) if own.headers else common
            delivery.enqueue(session.check_sender(origin), payload, priority, headers)
            count, size = count + 1, size + len(payload)
        return Enqueued(count, size)

    def batches_footprints(self, origin: str, messages: Iterable[bytes], max_ready_pages: int) -> BatchesFootprints:
        """See `MessageQueue.batches_footprints`."""
        with self.session.snapshot() as (_, working_set):
            book, heap = working_set.book(check_origin(origin)), working_set.config.heap_size
            while working_set.pull(book):
                pass
            page = working_set.page(origin, book.end - 1) if book.is_ready else None
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
