"""One call of a sender: its messages packed into rows before a transaction begins, and written by one.

Every way of sending many messages goes through `packed_call`. The ways differ only in the transaction that writes the
rows: the sender's own, or one that the caller has open.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import NamedTuple

from ... import tracing
from ...core.errors import BlobMissing, InvalidInput, KeyConflict
from ...core.message import Message, check_headers
from ...core.priority import REGULAR, check_priority
from ...core.weight import Weight
from ...store import Outgoing
from ...store.unit import Unit
from .. import values
from ..session import RingSession
from ..values import Enqueued
from .limits import has_bound, refuse_new_origins
from .packing import HELD, KeyedRow, Packer, Spool

When = datetime | timedelta | float | int
Pairs = Iterable[tuple[str, bytes | Message]]


class Terms(NamedTuple):
    """Properties of all messages of a call that do not have their own."""

    weight: Weight | None = None
    headers: Mapping[str, str] | None = None
    priority: str | None = None
    #: When the messages join their queues, and when they expire.
    not_before: When | None = None
    expires: When | None = None

    def checked(self, session: RingSession) -> Terms:
        """Return the terms, or raise the error that makes them invalid in this ring."""
        weight = None if self.weight is None else Weight.of(self.weight)
        headers = check_headers(self.headers, session.config.max_headers) if self.headers else None
        priority = None if self.priority is None else session.permit.check_priority(check_priority(self.priority))
        return self._replace(weight=weight, headers=headers, priority=priority)


class PackedCall:
    """Rows of a call, ready to be written."""

    def __init__(self, session: RingSession, packer: Packer, spool: Spool, due: int | None) -> None:
        self.session, self.packer, self.spool, self.due = session, packer, spool, due
        self._is_bound = has_bound(session.config)
        #: Whether the call sends the first high messages that the session knows of.
        self.first_high = packer.high and not session.config.high

    @property
    def plain_rows(self) -> list[Outgoing] | None:
        """The rows, if one statement sends them: few, due at once, without keys, payloads and limits."""
        if self.due is not None or self.packer.blobs or self._is_bound or self.first_high:
            return None
        return self.spool.few()

    def enqueued(self, refused: Mapping[int, int]) -> Enqueued:
        """Return what was stored, without rows that were refused."""
        packer, spared = self.packer, len(refused)
        return Enqueued(packer.count - spared, packer.size - sum(refused.values()), spared)

    def write(self, unit: Unit) -> Enqueued:
        """Write the rows in a transaction, and return what was stored."""
        session = self.session
        refused = _refused_keys(session, unit, self.spool.keys)
        _require_payloads(unit, self.packer.blobs)
        if self._is_bound:
            refuse_new_origins(unit, session.ring_id, self.spool.origins(refused), session.remember_config)
        session.store.send(unit, session.ring_id, self.spool.rows(refused), self.due)
        if self.first_high:
            # From now on every service of the ring reads high messages.
            unit.rings.allow_high(session.ring_id)
        return self.enqueued(refused)


@contextmanager
def packed_call(
    session: RingSession, origin: str | None, messages: Iterable[bytes | Message] | Pairs, terms: Terms
) -> Iterator[PackedCall]:
    """Pack the messages of a call: of one origin that is checked already, or pairs of origin and message."""
    expires = None if terms.expires is None else instant(session, terms.expires)
    due = None if terms.not_before is None else instant(session, terms.not_before)
    packer = Packer(
        session.config,
        {"weight": terms.weight, "headers": terms.headers, "expires": expires},
        session.check_sender,
        terms.priority or REGULAR,
        session.permit.check_priority,
        tracing.carrying() if session.traces else None,
    )
    most = session.config.max_message_len
    rows = packer.pack(messages, most) if origin is None else packer.pack_one(origin, messages, most)  # type: ignore[arg-type]
    with tempfile.SpooledTemporaryFile(max_size=HELD) as file:
        yield PackedCall(session, packer, Spool(rows, file), due)


def instant(session: RingSession, when: When) -> int:
    """Return a time on the store's clock, in microseconds."""
    if isinstance(when, datetime):
        return values.instant(when)
    seconds = when.total_seconds() if isinstance(when, timedelta) else when
    if not _is_number(seconds) or not -1e10 < seconds < 1e10:
        raise InvalidInput(f"a time is a datetime, a timedelta or a number of seconds from now, not {when!r}")
    with session.store.loose() as unit:
        return unit.now() + int(seconds * 1_000_000)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _require_payloads(unit: Unit, hashes: Iterable[bytes]) -> None:
    """Refuse references to external payloads that are not stored; those that are stay until the transaction ends."""
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
        if unit.keys.claim(session.ring_id, row.key, row.origin, row.digest, now, window):
            continue
        if unit.keys.digest(session.ring_id, row.key, row.origin) != row.digest:
            raise KeyConflict(
                f"idempotency key {row.key!r} of origin {row.origin!r} was used for another message within the "
                f"last {session.config.key_window:,.0f} seconds: a key names one message of its origin; "
                "send another message with another key"
            )
        refused[place] = row.size
    return refused
