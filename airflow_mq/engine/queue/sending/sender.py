"""Sender: messages packed into inbox rows before a transaction begins, and written by one.

All calls become a `PackedCall`. They differ only in the transaction that writes the rows: the sender's own, or one
that the caller has open.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from itertools import chain, islice, repeat
from typing import Any, NamedTuple, TypedDict

from ....observe import traces
from ...rules.blob import extent
from ...rules.characters import shown
from ...rules.config import HEADER_SIZE
from ...rules.errors import BlobMissing, Busy, InvalidInput, KeyConflict, StoreError, TooManyOrigins
from ...rules.groups import head_of, ranges_of
from ...rules.message import (
    PLAIN,
    Attributes,
    BatchesFootprints,
    BatchFootprint,
    Message,
    Posted,
    check_origin,
    check_payload,
)
from ...rules.outcome import refuse_options
from ...rules.priority import MARK, PAST_ALL, PAST_HIGH, REGULAR, book_name, books_of, check_priority, origin_of
from ...rules.weight import Weight
from ...store.rows import InboxRow
from ...store.unit import Unit
from ..context import delivery_at
from ..quota import STEP, RoomForSent, send_within_quotas
from ..session import RingSession
from ..values import Delivery, Enqueued, When, instant
from .inline import Inline, execute_inline
from .packing import KeyedRow, PackedCall, Pairs

log = logging.getLogger("airflow_mq.sending")


class SendOptions(TypedDict, total=False):
    """Properties of the messages of a call that do not set their own."""

    #: The cost of each message, if the sender knows it.
    weight: Weight | None
    #: Text sent alongside each payload without headers of its own.
    headers: Mapping[str, str] | None
    #: The messages join their queues at this time, or after this duration, such as `90s`, a `timedelta` or seconds.
    not_before: When | None
    #: The messages expire at this time, or after this duration.
    expires: When | None
    #: `high` or `regular`. High messages are serviced before regular ones, within the part of a block that is not
    #: reserved for regular ones.
    priority: str | None


class SendTerms(NamedTuple):
    """`SendOptions` as a value."""

    weight: Weight | None = None
    headers: Mapping[str, str] | None = None
    not_before: When | None = None
    expires: When | None = None
    priority: str | None = None

    @classmethod
    def of(cls, options: SendOptions) -> SendTerms:
        """Return the options of a call as terms."""
        if unknown := options.keys() - set(cls._fields):
            raise TypeError(
                f"unknown option {min(unknown)!r}: expected some of {', '.join(cls._fields)}; with many messages, each "
                "has its own key: Message(payload, key=…)"
            )
        return cls(**options)

    def checked(self, session: RingSession) -> SendTerms:
        """Return the terms, or raise the error that makes them invalid in this ring."""
        Attributes.given_by(self).checked(session.config.max_headers)
        if self.priority is not None:
            session.permit.check_priority(check_priority(self.priority))
        return self


NO_TERMS = SendTerms()


def _pairs(given: Pairs) -> Pairs:
    """Return pairs whose first one is a pair."""
    source: Iterator[Any] = iter(given)
    first = list(islice(source, 1))
    # A pair has two parts: a tuple, or a row of a driver.
    is_pair = first and isinstance(first[0], Sized) and len(first[0]) == 2
    if first and (not is_pair or isinstance(first[0], (str, bytes, bytearray, memoryview, Message))):
        raise InvalidInput(
            f"messages without origins ({type(first[0]).__name__}): expected pairs of origin and message, or "
            "enqueue_messages(origin, messages)"
        )
    return chain(first, source)


def times_of(session: RingSession, terms: SendTerms, unit: Unit | None) -> tuple[int | None, int | None]:
    """Return when messages join their queues and when they expire, in microseconds on the store's clock.

    An expiry in the past is logged and not refused: a call that is repeated later has to find its messages.
    """
    if terms.not_before is None and terms.expires is None:
        return None, None
    with nullcontext(unit) if unit is not None else session.store.loose() as reader:
        now = reader.now()
    due, expires = (None if when is None else instant(when, lambda: now) for when in (terms.not_before, terms.expires))
    if expires is not None and expires < now:
        log.warning(
            "expires (%s) is in the past: no message of this call will be processed; expected a later time",
            shown(terms.expires),
        )
    if due is not None and expires is not None and expires <= due:
        raise InvalidInput(
            f"expires ({shown(terms.expires)}) is not after not_before ({shown(terms.not_before)}): no message of "
            "the call could be processed; expected a later time"
        )
    # A stored 0 stands for none.
    return due, 1 if expires == 0 else expires


def _require_payloads(unit: Unit, hashes: Iterable[bytes]) -> None:
    """Refuse references to external payloads that are not stored, and keep stored ones until the transaction ends."""
    wanted = sorted({hash_.hex() for hash_ in hashes})
    stored = unit.payloads.shared(wanted)
    missing = next((name for name in wanted if name not in stored), None)
    if missing is not None:
        raise BlobMissing(bytes.fromhex(missing))


def key_window(session: RingSession, unit: Unit) -> tuple[int, int]:
    """Return the store's time and the current window of keys, in microseconds.

    The window may have grown after the session read it: then more keys count as used.
    """
    ring = unit.rings.named(session.ring)
    return ring.now, int(session.remember_config(ring.config).key_window * 1_000_000)


def _refused_keys(session: RingSession, unit: Unit, keys: Mapping[int, KeyedRow]) -> dict[int, int]:
    """Return the rows whose keys were used before, with their sizes.

    Keys are claimed in sorted order, so that two senders never wait for each other.
    """
    now, window = key_window(session, unit)
    refused: dict[int, int] = {}
    for place, row in sorted(keys.items(), key=lambda entry: entry[1][:2]):
        if unit.keys.claim(session.ring_id, row.key, row.origin, row.digest, now, window):
            continue
        if unit.keys.used(session.ring_id, row.origin, row.key, row.key)[0][1] != row.digest:
            raise KeyConflict(
                f"idempotency key {row.key!r} of origin {row.origin!r} was used for another message within the "
                f"last {session.config.key_window:,.0f} seconds: a key names one message of its origin; "
                "send another message with another key"
            )
        refused[place] = row.size
    return refused


def refuse_new_origins(session: RingSession, unit: Unit, origins: Iterable[str]) -> None:
    """Raise `TooManyOrigins` if these origins exceed a limit of the ring; the answer holds until the transaction ends.

    An origin counts while any of its messages is stored: waiting, in flight, set aside, or due later. A call without
    new origins reads once. Calls with new origins read one after the other, so that together they keep the limit. One
    origin for each such call may exceed it, if its queue runs empty while a message is sent to it. Messages that a
    processor enqueues are not limited: an outcome has to settle.
    """
    if not session.config.limits_origins:
        return
    ring, wanted = session.ring_id, sorted(set(map(origin_of, origins)))
    if not _unknown(unit, ring, wanted):
        return
    if not unit.rings.hold_origins(ring):
        raise InvalidInput(
            "invalid isolation level of the transaction: expected READ COMMITTED to send from a new origin to a ring "
            "with max_origins or max_origins_per_group; otherwise it would not see the origins that others added"
        )
    config = session.remember_config(unit.rings.named(session.ring).config)
    fresh = _unknown(unit, ring, wanted)
    if config.max_origins is not None:
        room = config.max_origins - _count(unit, ring, [(PAST_HIGH, PAST_ALL)], config.max_origins)
        _refuse(fresh, room, config.max_origins, "max_origins", "the ring")
    if config.max_origins_per_group is not None:
        most = config.max_origins_per_group
        members: dict[str, list[str]] = {}
        for origin in fresh:
            members.setdefault(head_of(origin), []).append(origin)
        for group, mine in sorted(members.items()):
            there = _count(unit, ring, ranges_of(group), most)
            _refuse(mine, most - there, most, "max_origins_per_group", f"the group {group!r}")


def _unknown(unit: Unit, ring: int, origins: Sequence[str]) -> list[str]:
    names = [name for origin in origins for name in books_of(origin)]
    known = set(map(origin_of, unit.books.known(ring, names)))
    return [origin for origin in origins if origin not in known]


def _count(unit: Unit, ring: int, ranges: Sequence[tuple[str, str]], most: int) -> int:
    found: set[str] = set()
    for first, below in (*ranges, *((MARK + first, MARK + below) for first, below in ranges)):
        found.update(map(origin_of, unit.books.names(ring, "", first, below, most + 1, delayed=True)))
    return len(found)


def _refuse(fresh: Sequence[str], room: int, most: int, setting: str, whose: str) -> None:
    if len(fresh) > max(room, 0):
        raise TooManyOrigins(
            f"{whose} has reached its limit of {most:,} origins: {fresh[max(room, 0)][:80]!r} would be one more, and "
            f"nothing of this call was stored; wait until other queues are empty, use fewer origins, or raise {setting}"
        )


class Sender:
    """Sends messages to the queues of a ring, in any state."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id

    def enqueue_message(
        self, origin: str, payload: bytes, key: str | None, terms: SendTerms, inline: Inline | None = None
    ) -> Enqueued:
        """Enqueue one message; see `MessageQueue.enqueue_message`."""
        if inline is not None:
            return self._execute_inline(origin, payload, key, terms, inline)
        session = self.session
        session.refresh_config()
        config = session.config
        is_plain = (
            key is None and terms == NO_TERMS and type(payload) is bytes and 0 < len(payload) <= config.max_message_len
        )
        is_plain = is_plain and not (config.limits_origins or session.traces or session.listeners)
        if not is_plain or delivery_at(session.place) is not None:
            return self._send([(origin, payload if key is None else Message(payload, key))], terms)
        # An INSERT of its row is enough. A packed call makes single sends take 1.3 times as long.
        row = InboxRow(session.check_sender(origin), 0, len(payload), 1, False, b"", b"", payload)
        with self.store.writing(at_once=True) as unit:
            if session.has_quotas:
                send_within_quotas(session, unit, [row], {row.origin: row.size}, at_once=True)
            else:
                self.store.send(unit, self.ring_id, [row])
        self.store.wake(self.ring_id)
        return Enqueued(1, row.size)

    def _execute_inline(
        self, origin: str, payload: bytes, key: str | None, terms: SendTerms, inline: Inline
    ) -> Enqueued:
        if not isinstance(inline, Inline):
            raise InvalidInput(f"invalid inline ({type(inline).__name__}): expected Inline(processor, weight)")
        sent = self.enqueue_message(origin, payload, key, terms)
        if terms.not_before is not None or delivery_at(self.session.place) is not None or not sent.count:
            return sent
        is_executed = execute_inline(self.session, inline, book_name(origin, terms.priority or REGULAR), payload)
        return replace(sent, executed=int(is_executed))

    def enqueue_messages(
        self, origin: str | Pairs, messages: Iterable[bytes | Message] | None, terms: SendTerms
    ) -> Enqueued:
        """Enqueue many messages; see `MessageQueue.enqueue_messages`."""
        if not isinstance(origin, str):
            return self._send(_pairs(origin), terms)
        if messages is None:
            raise InvalidInput("messages are missing: expected enqueue_messages(origin, messages)")
        if isinstance(messages, (str, bytes, bytearray, memoryview, Message)):
            raise InvalidInput(
                f"one message ({type(messages).__name__}) given as many: expected a list of payloads; send one "
                "with enqueue_message(origin, payload)"
            )
        return self._send(zip(repeat(self.session.check_sender(origin)), messages), terms)

    def _send(self, pairs: Pairs, terms: SendTerms) -> Enqueued:
        """Send messages by the processor that runs here, or in a transaction of their own."""
        session, delivery = self.session, delivery_at(self.session.place)
        session.refresh_config()
        if terms != NO_TERMS:
            terms.checked(session)
        if delivery is not None:
            return self._hand_over(delivery, pairs, terms)
        with closing(self.pack(pairs, terms)) as call:
            if not call.count:
                return Enqueued(0, 0)
            at_once = call.is_plain
            with self.store.writing(at_once=at_once) as unit:
                sent = self.write(unit, call, at_once=at_once)
        self.committed(call)
        return sent

    def committed(self, call: PackedCall) -> None:
        """After the commit of a call, wake services, write sums for quotas, and call the listeners."""
        self.store.wake(self.ring_id)
        if call.unsummed:
            with suppress(Busy, StoreError), self.store.writing(wait=False, patience=0.0) as unit:
                self.store.add_up(unit, self.ring_id, call.unsummed, STEP)
        if call.first_high:
            # The messages are stored: no error from here on may look as if they were not.
            with suppress(StoreError):
                self.session.reread_config()
        if self.session.listeners:
            self.session.tell_listeners()

    def pack(self, pairs: Pairs, terms: SendTerms, unit: Unit | None = None) -> PackedCall:
        """Read and check all messages of a call, and pack them into rows."""
        session, due, common = self.session, None, PLAIN
        if terms != NO_TERMS:
            due, expires = times_of(session, terms, unit)
            common = Attributes.given_by(terms)._replace(expires=expires)
        carried = traces.carrying() if session.traces else None
        priority, check_rank = terms.priority or REGULAR, session.permit.check_priority
        return PackedCall(session.config, common, session.check_sender, priority, check_rank, carried, due).pack(pairs)

    def write(self, unit: Unit, call: PackedCall, *, at_once: bool = False) -> Enqueued:
        """Write the rows of a call in a transaction: its own, or one that the caller has open.

        :param at_once: the transaction is one statement, where a store can
        """
        session, ring = self.session, self.ring_id
        refused = _refused_keys(session, unit, call.keys) if call.keys else {}
        if call.blobs:
            _require_payloads(unit, call.blobs)
        if call.config.limits_origins:
            refuse_new_origins(session, unit, call.sizes(refused))
        sizes = call.sizes(refused) if session.has_quotas else {}
        is_long = send_within_quotas(session, unit, call.rows(refused), sizes, call.due, at_once=at_once)
        # The only writer of a store that draws ids has written the sums.
        if is_long and (call.keys or call.blobs or call.is_chunk) and not unit.draws_ids:
            call.unsummed = list(sizes)
        if call.first_high:
            # From now on every service of the ring reads high messages.
            unit.rings.allow_high(ring)
        return Enqueued(call.count - len(refused), call.size - sum(refused.values()), len(refused))

    def _hand_over(self, delivery: Delivery, pairs: Pairs, terms: SendTerms) -> Enqueued:
        """Hand messages that a processor sends to its delivery, which sends them if its message is done."""
        session, size = self.session, 0
        refuse_options(weight=terms.weight, not_before=terms.not_before, expires=terms.expires)
        most = session.config.max_headers
        carried = traces.carrying() if session.traces else None
        common = Attributes.given_by(terms).checked(most, carried)
        entries: list[Posted] = []
        for sender, message in pairs:
            own = message if isinstance(message, Message) else Message(message)
            refuse_options(weight=own.weight, key=own.key)
            payload = check_payload(own.payload, session.config.max_message_len)
            priority = session.permit.check_priority(own.priority or terms.priority or REGULAR)
            attributes = Attributes.given_by(own).checked(most, carried if own.headers else None).over(common)
            entries.append(Posted(book_name(session.check_sender(sender), priority), payload, attributes))
            size += extent(payload)
        (delivery.context.require_room_for or RoomForSent(session))(delivery, entries)
        delivery.add(entries)
        return Enqueued(len(entries), size)

    def batches_footprints(self, origin: str, messages: Iterable[bytes], max_ready_pages: int) -> BatchesFootprints:
        """Return what enqueuing the first 1, 2, 3 … of these messages would add, within `max_ready_pages`.

        A sender uses this to keep a bound of its own, without a quota.
        """
        with self.session.snapshot(names=[check_origin(origin)]) as (_, working_set):
            book, heap = working_set.book(origin), working_set.config.heap_size
            working_set.pull_all(book)
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
