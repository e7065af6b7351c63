"""Sender: messages packed into inbox rows before a transaction begins, and written by one.

All calls that send many messages go through `packed_call`. They differ only in the transaction that writes the rows:
the sender's own, or one that the caller has open.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import NamedTuple, TypedDict

from ... import tracing
from ...core.blob import Reference
from ...core.config import HEADER_SIZE
from ...core.errors import BlobMissing, InvalidInput, KeyConflict, StoreError
from ...core.message import BatchesFootprints, BatchFootprint, Message, check_headers, check_origin, check_payload
from ...core.priority import REGULAR, book_name, check_priority
from ...core.weight import Weight
from ...store import Outgoing
from ...store.unit import Unit
from ..session import RingSession, current_delivery
from ..values import Delivery, Enqueued, When, instant
from .inline import Inline, execute_inline
from .limits import has_bound, refuse_new_origins
from .packing import KeyedRow, Packer, Spool
from .plain import HELD, plain_rows

Pairs = Iterable[tuple[str, bytes | Message]]


class SendOptions(TypedDict, total=False):
    """Properties of all messages of a call that do not set their own."""

    #: The cost of each message, if the sender knows it.
    weight: Weight | None
    #: Text sent alongside each payload.
    headers: Mapping[str, str] | None
    #: The messages join their queues at this time, or after this duration.
    not_before: When | None
    #: The messages expire at this time, or after this duration.
    expires: When | None
    #: `high` or `regular`.
    priority: str | None


class Terms(NamedTuple):
    """`SendOptions` as a value."""

    weight: Weight | None = None
    headers: Mapping[str, str] | None = None
    not_before: When | None = None
    expires: When | None = None
    priority: str | None = None

    def checked(self, session: RingSession) -> Terms:
        """Return the terms, or raise the error that makes them invalid in this ring."""
        return self._replace(
            weight=None if self.weight is None else Weight.of(self.weight),
            headers=check_headers(self.headers, session.config.max_headers) if self.headers else None,
            priority=None if self.priority is None else session.permit.check_priority(check_priority(self.priority)),
        )


PLAIN = Terms()


class PackedCall:
    """Rows of a call, ready to be written."""

    def __init__(self, session: RingSession, packer: Packer, spool: Spool, due: int | None) -> None:
        self.session, self.packer, self.spool, self.due = session, packer, spool, due
        self._is_bound = has_bound(session.config)
        #: Whether the call sends the first high messages that the session knows of.
        self.first_high = packer.high and not session.config.high

    @property
    def plain_rows(self) -> list[Outgoing] | None:
        """The rows, if one statement sends them: few, due at once, without keys, external payloads and limits."""
        if self.due is not None or self.packer.blobs or self._is_bound or self.first_high:
            return None
        return self.spool.few()

    def enqueued(self, refused: Mapping[int, int]) -> Enqueued:
        """Return the result of the call without the refused rows."""
        return Enqueued(self.packer.count - len(refused), self.packer.size - sum(refused.values()), len(refused))

    def write(self, unit: Unit) -> Enqueued:
        """Write the rows in a transaction."""
        session = self.session
        if session.fence is not None:
            session.fence.check(unit, self.spool.origins(()))
        refused = _refused_keys(session, unit, self.spool.keys)
        _require_payloads(unit, self.packer.blobs)
        if self._is_bound:
            refuse_new_origins(session, unit, self.spool.origins(refused))
        session.store.send(unit, session.ring_id, self.spool.rows(refused), self.due)
        if self.first_high:
            # From now on every service of the ring reads high messages.
            unit.rings.allow_high(session.ring_id)
        return self.enqueued(refused)


@contextmanager
def packed_call(
    session: RingSession, origin: str | Pairs, messages: Iterable[bytes | Message], terms: Terms
) -> Iterator[PackedCall]:
    """Pack the messages of a call: `messages` of one origin that is checked already, or pairs of origin and message."""
    packer = Packer(
        session.config,
        {"weight": terms.weight, "headers": terms.headers, "expires": instant_of(session, terms.expires)},
        session.check_sender,
        terms.priority or REGULAR,
        session.permit.check_priority,
        tracing.carrying() if session.traces else None,
    )
    due = instant_of(session, terms.not_before)
    rows = packer.pack_one(origin, messages) if isinstance(origin, str) else packer.pack(origin)
    with tempfile.SpooledTemporaryFile(max_size=HELD) as file:
        yield PackedCall(session, packer, Spool(rows, file), due)


def instant_of(session: RingSession, when: When | None) -> int | None:
    """Return a time on the store's clock, in microseconds."""
    if when is None:
        return None
    with session.store.loose() as unit:
        return instant(when, unit.now)


def _require_payloads(unit: Unit, hashes: Iterable[bytes]) -> None:
    """Refuse references to external payloads that are not stored, and keep stored ones until the transaction ends."""
    wanted = sorted({hash_.hex() for hash_ in hashes})
    stored = unit.payloads.shared(wanted) if wanted else ()
    missing = next((name for name in wanted if name not in stored), None)
    if missing is not None:
        raise BlobMissing(bytes.fromhex(missing))


def _refused_keys(session: RingSession, unit: Unit, keys: Mapping[int, KeyedRow]) -> dict[int, int]:
    """Return the rows whose keys were used before, with their sizes.

    Keys are claimed in sorted order, so that two senders never wait for each other.
    """
    now = unit.now() if keys else 0
    window = int(session.config.key_window * 1_000_000)
    refused: dict[int, int] = {}
    for place, row in sorted(keys.items(), key=lambda entry: entry[1][:2]):
        if unit.keys.claim(session.ring_id, row.key, row.origin, row.digest, row.old_digest, now, window):
            continue
        if unit.keys.digest(session.ring_id, row.key, row.origin) not in (row.digest, row.old_digest):
            raise KeyConflict(
                f"idempotency key {row.key!r} of origin {row.origin!r} was used for another message within the "
                f"last {session.config.key_window:,.0f} seconds: a key names one message of its origin; "
                "send another message with another key"
            )
        refused[place] = row.size
    return refused


class Sender:
    """Sends messages to the queues of a ring, whatever their state."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id

    def enqueue_message(
        self, origin: str, payload: bytes, key: str | None, terms: Terms, inline: Inline | None = None
    ) -> Enqueued:
        """Enqueue one message; see `MessageQueue.enqueue_message`."""
        session, delivery = self.session, current_delivery.get()
        if inline is not None:
            return self._execute_inline(origin, payload, key, terms, inline)
        if key is not None or not self._is_plain(terms) or isinstance(payload, Reference):
            return self.enqueue_messages([(origin, Message(payload, key))], None, terms)
        origin, payload = session.check_sender(origin), check_payload(payload, session.config.max_message_len)
        if delivery is not None:
            delivery.enqueue(origin, payload)
        else:
            if session.fence is None:
                self.store.send_one(self.ring_id, origin, payload)
            elif not self._send_few([Outgoing(origin, len(payload), 1, False, b"", b"", payload)]):
                return self.enqueue_messages(origin, [payload], terms)
            if session.listeners:
                session.tell_listeners()
        return Enqueued(1, len(payload))

    def _is_plain(self, terms: Terms) -> bool:
        """Return whether one statement can send the bytes of a call as they are."""
        session = self.session
        return terms == PLAIN and not (has_bound(session.config) or (session.traces and tracing.carrying()))

    def _execute_inline(self, origin: str, payload: bytes, key: str | None, terms: Terms, inline: Inline) -> Enqueued:
        if not isinstance(inline, Inline):
            raise InvalidInput(f"invalid inline ({type(inline).__name__}): expected Inline(processor, weight)")
        sent = self.enqueue_message(origin, payload, key, terms)
        if terms.not_before is not None or current_delivery.get() is not None or not sent.count:
            return sent
        is_executed = execute_inline(self.session, inline, book_name(origin, terms.priority or REGULAR), payload)
        return replace(sent, executed=int(is_executed))

    def enqueue_messages(
        self,
        origin: str | Pairs,
        messages: Iterable[bytes | Message] | None,
        terms: Terms,
        first: Callable[[Unit], None] | None = None,
    ) -> Enqueued:
        """Enqueue many messages; see `MessageQueue.enqueue_messages`.

        :param first: called in the transaction before the rows are written; an error that it raises ends the call.
        """
        session, delivery = self.session, current_delivery.get()
        if isinstance(origin, str):
            if messages is None:
                raise InvalidInput("messages are missing: expected enqueue_messages(origin, messages)")
            origin = session.check_sender(origin)
        given = () if messages is None else messages
        if delivery is not None:
            return self._hand_over(delivery, origin, given, terms.checked(session))
        rows = None
        if first is None and self._is_plain(terms):
            rows = plain_rows(origin, given, session.check_sender, session.config.heap_size)
        if rows and self._send_few(rows):
            sent = Enqueued(sum(row.items for row in rows), sum(row.size for row in rows))
        else:
            sent = self._send_packed(origin, given, terms.checked(session), first)
        if session.listeners:
            session.tell_listeners()
        return sent

    def _send_packed(
        self,
        origin: str | Pairs,
        messages: Iterable[bytes | Message],
        terms: Terms,
        first: Callable[[Unit], None] | None,
    ) -> Enqueued:
        with packed_call(self.session, origin, messages, terms) as call:
            sent = self._send(call, first)
        if call.first_high:
            # The messages are stored: no error from here on may look as if they were not.
            with suppress(StoreError):
                self.session.reread_config()
        return sent

    def _send(self, call: PackedCall, first: Callable[[Unit], None] | None) -> Enqueued:
        """Write a call in a transaction of its own."""
        rows = call.plain_rows if first is None else None
        if rows is None or (rows and not self._send_few(rows)):
            with self.store.writing() as unit:
                if first is not None:
                    first(unit)
                sent = call.write(unit)
            self.store.wake(self.ring_id)
            return sent
        return call.enqueued({})

    def _send_few(self, rows: list[Outgoing]) -> bool:
        """Send plain rows by one statement; return whether that was possible."""
        fence = self.session.fence
        if fence is None:
            self.store.send_few(self.ring_id, rows)
            return True
        required = fence.plain(row.origin for row in rows)
        return required is not None and self.store.send_fenced(self.ring_id, rows, required)

    def _hand_over(
        self, delivery: Delivery, origin: str | Pairs, messages: Iterable[bytes | Message], terms: Terms
    ) -> Enqueued:
        """Hand messages that a processor sends to its delivery, which sends them if its message is done."""
        session, count, size = self.session, 0, 0
        _refuse_for_processors(weight=terms.weight, not_before=terms.not_before, expires=terms.expires)
        most = session.config.max_headers
        common = check_headers(terms.headers or {}, most, tracing.carrying() if session.traces else None)
        pairs = ((origin, message) for message in messages) if isinstance(origin, str) else origin
        for sender, message in pairs:
            own = message if isinstance(message, Message) else Message(message)
            _refuse_for_processors(weight=own.weight, key=own.key)
            payload = check_payload(own.payload, session.config.max_message_len)
            priority = session.permit.check_priority(own.priority or terms.priority or REGULAR)
            headers = check_headers(own.headers, most, common) if own.headers else common
            delivery.enqueue(session.check_sender(sender), payload, priority, headers)
            count, size = count + 1, size + len(payload)
        return Enqueued(count, size)

    def batches_footprints(self, origin: str, messages: Iterable[bytes], max_ready_pages: int) -> BatchesFootprints:
        """Return what enqueuing the first 1, 2, 3 … of these messages would add, within `max_ready_pages`.

        A sender uses this to keep a bound of its own: the queue itself never refuses.
        """
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


def _refuse_for_processors(**options: object) -> None:
    """Raise `InvalidInput` for options that an outcome cannot store with the messages that it enqueues."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InvalidInput(
            f"a processor cannot send with {', '.join(given)}: expected priority and headers only; the messages are "
            "enqueued with the outcome of the processed message, once"
        )
