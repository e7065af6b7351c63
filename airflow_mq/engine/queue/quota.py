"""Quotas: the bytes that a queue, or a group of queues, may store.

What is stored is the sum of three: the pages of the books, which the holder of the ring keeps; the inbox rows that lie
in no page; and the delayed rows. A sender adds them up within its own transaction and writes to no shared row. So a
call that is checked while another one is not committed does not count it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..rules.errors import QueueFull
from ..rules.message import Posted
from ..store.rows import Fullness
from ..store.unit import Unit
from .session import RingSession


def require_room(session: RingSession, unit: Unit, sizes: Mapping[str, int]) -> int:
    """Raise `QueueFull` if a queue or a group has no room for a call; return how many rows of one lie in no page.

    :param sizes: bytes that the call sends to each book
    """
    found = session.store.fullness(unit, session.ring_id, sizes, has_paths=session.config.paths)
    fullest = max(found, key=lambda one: one.lacks, default=None)
    if fullest is not None and fullest.lacks:
        raise QueueFull(_text(fullest), fullest.lacks)
    return max((one.uncut for one in found), default=0)


def require_room_for(session: RingSession, sent: Iterable[Posted]) -> None:
    """Raise `QueueFull` if a queue or a group has no room for messages that a processor sends."""
    if not session.has_quotas:
        return
    sizes: dict[str, int] = {}
    for posted in sent:
        sizes[posted.origin] = sizes.get(posted.origin, 0) + len(posted.payload)
    if session.has_quota(sizes):
        with session.store.loose() as unit:
            require_room(session, unit, sizes)


def _text(full: Fullness) -> str:
    if full.coming > full.quota:
        return (
            f"call of {full.coming:,} bytes too large for the quota of {full.path!r}: expected at most {full.quota:,} "
            "bytes; send fewer messages in one call, or raise the quota"
        )
    return (
        f"queue {full.path!r} is full: it stores {full.stored:,} bytes of {full.quota:,}, and {full.lacks:,} must "
        f"drain before this call of {full.coming:,}; nothing of it was stored; send it again later, or raise the quota"
    )
