"""Limits on the number of origins of a ring.

An origin counts while any of its messages is stored: waiting, in flight, set aside, or due later. A call without new
origins reads once. Calls with new origins read one after the other, so that together they keep the limit. One origin
for each such call may exceed it, if its queue runs empty while a message is sent to it. Messages that a processor
enqueues are not limited: an outcome has to settle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...rules.errors import TooManyOrigins
from ...rules.message import group_of
from ...rules.priority import LAST, MARK, PAST_HIGH, books_of, origin_of
from ...store.unit import Unit
from ..session import RingSession

#: Right after a group's own name, and after all names below it: `0` comes next to `/`.
_ABOVE, _BELOW = "\x01", "0"


def refuse_new_origins(session: RingSession, unit: Unit, origins: Iterable[str]) -> None:
    """Raise `TooManyOrigins` if these origins exceed a limit; the answer holds until the transaction ends."""
    if not session.config.limits_origins:
        return
    ring, wanted = session.ring_id, sorted(set(map(origin_of, origins)))
    if not _unknown(unit, ring, wanted):
        return
    config = session.remember_config(unit.rings.held_config(ring))
    fresh = _unknown(unit, ring, wanted)
    if config.max_origins is not None:
        room = config.max_origins - _count(unit, ring, [(PAST_HIGH, LAST)], config.max_origins)
        _refuse(fresh, room, config.max_origins, "max_origins", "the ring")
    if config.max_origins_per_group is not None:
        most = config.max_origins_per_group
        members: dict[str, list[str]] = {}
        for origin in fresh:
            members.setdefault(group_of(origin), []).append(origin)
        for group, mine in sorted(members.items()):
            there = _count(unit, ring, [(group, group + _ABOVE), (f"{group}/", group + _BELOW)], most)
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
