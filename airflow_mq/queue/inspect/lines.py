"""Which queues come first: by turn, by the oldest message, by name. Each line is looked at as far as somebody sees."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.priority import LAST, MARK, books_of, is_high, origin_of
from ...store.rows import LATEST
from ...store.unit import Unit
from ...store.working_set import LEAST_REGULAR, StoredSet, ticket_of
from .reading import origins_from

#: How many inbox rows one look goes through for those that have no place in the ring yet, and in how many steps.
NEWS, STEPS = 5_000, 8


def in_turn(
    unit: Unit,
    working_set: StoredSet,
    limit: int,
    floor: int,
    search: str = "",
    *,
    news: int = NEWS,
    steps: int = STEPS,
) -> list[str]:
    """Books by their tickets, and newcomers by their first mail: one counter gives out both."""
    places: dict[str, int] = dict(unit.books.turns(working_set.ring_id, search, limit))
    below = max(places.values()) if len(places) == limit else None
    for id_, name in newcomers(unit, working_set, limit, floor, search, below, news=news, steps=steps):
        places.setdefault(name, ticket_of(name, id_))
    if working_set.config.high:
        # However far behind their mail lies, they come before all others.
        for name in unit.inbox.origins(working_set.ring_id, MARK, MARK, MARK + LAST, limit):
            if search in origin_of(name):
                places.setdefault(name, LEAST_REGULAR - 1)
    if len(places) < limit and not search:
        # What was sent to other rings of the store may lie between.
        for name in origins_from(unit, working_set, "", "", limit):
            places.setdefault(name, LATEST)
    return sorted(places, key=lambda name: (places[name], name))[:limit]


def newcomers(
    unit: Unit, working_set: StoredSet, limit: int, floor: int, search: str = "", below: int | None = None, *,
    news: int = NEWS, steps: int = STEPS,
) -> list[tuple[int, str]]:  # fmt: skip
    """Books that have no place in the ring yet, by their first mail; as far as a bounded look goes."""
    found: dict[str, int] = {}
    for _ in range(steps):
        if below is not None and floor > below:
            break
        rows = unit.inbox.newcomers(working_set.ring_id, floor, news)
        for name, first, _ in rows:
            if first is not None and search in origin_of(name) and (below is None or first < below or is_high(name)):
                found[name] = min(first, found.get(name, first))
        floor = max((row.last for row in rows), default=0) + 1
        if not rows or len(found) >= limit:
            break
    return sorted((id_, name) for name, id_ in found.items())[:limit]


def longest(unit: Unit, working_set: StoredSet, limit: int, floor: int, search: str = "") -> list[str]:
    """Books by the oldest mail that they may still wait with."""
    found = [(id_, name) for name, id_ in unit.books.oldest(working_set.ring_id, search, limit)]
    found += newcomers(unit, working_set, limit, floor, search)
    return [name for _, name in sorted(found)][:limit]


def by_name(unit: Unit, working_set: StoredSet, limit: int, search: str = "") -> list[str]:
    """Books by their names, the high one of an origin first."""
    if not search:
        return with_high(working_set, origins_from(unit, working_set, "", "", limit))
    found = [row.origin for row in unit.books.turns(working_set.ring_id, search, limit)]
    return sorted(found, key=lambda name: (origin_of(name), not is_high(name)))


def with_high(working_set: StoredSet, origins: Sequence[str]) -> list[str]:
    """The books of these origins."""
    return [name for origin in origins for name in books_of(origin)] if working_set.config.high else list(origins)
