"""Orders of queues: by turn, by age, by depth and by name, each read as far as it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

from ...core.priority import HIGH, LAST, MARK, PAST_HIGH, book_name, books_of, check_priority, is_high, origin_of
from ...store.rows import LATEST
from ...store.unit import Unit
from ...store.working_set import LEAST_REGULAR, StoredSet, ticket_of

#: Orders in which queues are shown.
SORTS = ("turn", "backlog", "oldest", "name")
#: Inbox rows that one step searches for queues without a place in the ring, and the number of steps.
NEWS, STEPS = 5_000, 8
#: Names that are read at once.
_BATCH = 1_000


def ready_books(working_set: StoredSet, priority: str | None = None) -> Iterable[str]:
    """Return ready books from the head of the ring, of one priority or high ones first."""
    if priority is not None:
        return working_set.high if check_priority(priority) == HIGH else working_set.ring
    return chain(working_set.high, working_set.ring) if working_set.config.high else working_set.ring


def in_order(unit: Unit, working_set: StoredSet, sort: str, limit: int, search: str = "") -> list[str]:
    """Return books in one of the orders `SORTS`; only those whose origin contains a text."""
    floor = unit.rings.floors(working_set.ring_id).look_floor
    if sort == "backlog":
        return unit.books.deepest(working_set.ring_id, search, limit)
    if sort == "oldest":
        return by_age(unit, working_set, limit, floor, search)
    if sort == "name":
        return _by_name(unit, working_set, limit, search)
    if working_set.config.paths and not search:
        return list(islice(ready_books(working_set), limit))
    return by_turn(unit, working_set, limit, floor, search)


def by_turn(
    unit: Unit,
    working_set: StoredSet,
    limit: int,
    floor: int,
    search: str = "",
    *,
    news: int = NEWS,
    steps: int = STEPS,
) -> list[str]:
    """Return books by ticket, and newcomers by their first inbox row: one counter numbers both."""
    places: dict[str, int] = dict(unit.books.turns(working_set.ring_id, search, limit))
    below = max(places.values()) if len(places) == limit else None
    for id_, name in _newcomers(unit, working_set, limit, floor, search, below, news=news, steps=steps):
        places.setdefault(name, ticket_of(name, id_))
    if working_set.config.high:
        # High queues precede all others, however late their inbox rows are.
        for name in unit.inbox.origins(working_set.ring_id, MARK, MARK, MARK + LAST, limit):
            if search in origin_of(name):
                places.setdefault(name, LEAST_REGULAR - 1)
    if len(places) < limit and not search:
        # Rows of other rings may fill the searched part of the inbox.
        for name in origins_from(unit, working_set, "", "", limit):
            places.setdefault(name, LATEST)
    return sorted(places, key=lambda name: (places[name], name))[:limit]


def by_age(unit: Unit, working_set: StoredSet, limit: int, floor: int, search: str = "") -> list[str]:
    """Return books by the oldest inbox row of which a message may wait."""
    places = [(id_, name) for name, id_ in unit.books.oldest(working_set.ring_id, search, limit)]
    places += _newcomers(unit, working_set, limit, floor, search)
    return [name for _, name in sorted(places)][:limit]


def _by_name(unit: Unit, working_set: StoredSet, limit: int, search: str) -> list[str]:
    if not search:
        return with_high(working_set, origins_from(unit, working_set, "", "", limit))
    names = [row.origin for row in unit.books.turns(working_set.ring_id, search, limit)]
    return sorted(names, key=lambda name: (origin_of(name), not is_high(name)))


def _newcomers(
    unit: Unit,
    working_set: StoredSet,
    limit: int,
    floor: int,
    search: str,
    below: int | None = None,
    *,
    news: int = NEWS,
    steps: int = STEPS,
) -> list[tuple[int, str]]:
    """Return books without a place in the ring by their first inbox row, from a bounded number of rows."""
    firsts: dict[str, int] = {}
    for _ in range(steps):
        if below is not None and floor > below:
            break
        rows = unit.inbox.newcomers(working_set.ring_id, floor, news)
        for name, first, _ in rows:
            if first is not None and search in origin_of(name) and (below is None or first < below or is_high(name)):
                firsts[name] = min(first, firsts.get(name, first))
        floor = max((row.last for row in rows), default=0) + 1
        if not rows or len(firsts) >= limit:
            break
    return sorted((id_, name) for name, id_ in firsts.items())[:limit]


def with_high(working_set: StoredSet, origins: Iterable[str]) -> list[str]:
    """Return the books of origins, the high one first."""
    return [name for origin in origins for name in books_asked(working_set, origin)]


def books_asked(working_set: StoredSet, origin: str, priority: str | None = None) -> Sequence[str]:
    """Return the books of an origin, of one priority or the high one first."""
    if priority is not None:
        return [book_name(origin, check_priority(priority))]
    return books_of(origin) if working_set.config.high else [origin]


def origins_from(unit: Unit, working_set: StoredSet, prefix: str, after: str, limit: int) -> list[str]:
    """Return origins by name that start with a prefix, after a name."""
    ring = working_set.ring_id
    names = _names(unit, ring, after or PAST_HIGH, prefix, prefix + LAST, limit)
    if working_set.config.high:
        names |= set(map(origin_of, _names(unit, ring, MARK + after, MARK + prefix, MARK + prefix + LAST, limit)))
    return sorted(names)[:limit]


def _names(unit: Unit, ring: int, after: str, first: str, below: str, limit: int) -> set[str]:
    sources: tuple[Callable[[int, str, str, str, int], list[str]], ...] = (unit.books.origins, unit.inbox.origins)
    return {name for source in sources for name in source(ring, after, first, below, limit)}


def all_origins(unit: Unit, ring: int) -> Iterator[str]:
    """Yield the names of all books of a ring, stored or not yet."""
    after = ""
    while names := {*unit.books.names(ring, after, _BATCH), *unit.inbox.origins(ring, after, "", LAST, _BATCH)}:
        batch = sorted(names)[:_BATCH]
        yield from batch
        after = batch[-1]
