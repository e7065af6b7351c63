"""Orders of queues: by turn and by name, each read as far as it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from ...rules.priority import HIGH, LAST, MARK, PAST_HIGH, book_name, books_of, check_priority, is_high, origin_of
from ...store.rows import LATEST
from ...store.unit import Unit
from ...store.working_set import StoredSet

#: Inbox rows that one step searches for queues without a place in the ring, and the number of steps.
NEWS, STEPS = 5_000, 8
#: Names that are read at once.
_BATCH = 1_000


def ready_books(working_set: StoredSet, priority: str | None = None) -> Iterable[str]:
    """Return ready books from the head of the ring, of one priority or high ones first."""
    if priority is not None:
        return working_set.high if check_priority(priority) == HIGH else working_set.ring
    return chain(working_set.high, working_set.ring) if working_set.config.high else working_set.ring


def by_turn(
    unit: Unit,
    working_set: StoredSet,
    limit: int,
    floor: int,
    *,
    news: int = NEWS,
    steps: int = STEPS,
) -> list[str]:
    """Return books by ticket, and newcomers by their first inbox row: one counter numbers both."""
    shown = working_set.reading.shown()
    rows = unit.books.line(working_set.ring_id, limit + len(shown))
    places: dict[str, int] = {row.origin: row.ticket for row in rows if row.origin not in shown}
    places |= {name: ticket for name, ticket in shown.items() if ticket is not None}
    last = max((place for name, place in places.items() if not is_high(name)), default=0)
    below = last if len(places) >= limit else None
    for id_, name in _newcomers(unit, working_set, limit, floor, below, news=news, steps=steps):
        places.setdefault(name, id_)
    if working_set.config.high:
        # High queues precede all others, however late their inbox rows are.
        for name in unit.inbox.origins(working_set.ring_id, MARK, MARK, MARK + LAST, limit):
            places.setdefault(name, LATEST)
    for name in shown:
        # A queue that a recorded end fills stands behind all others.
        places.setdefault(name, LATEST)
    if len(places) < limit:
        # Rows of other rings may fill the searched part of the inbox.
        for name in origins_from(unit, working_set, "", "", limit):
            places.setdefault(name, LATEST)
    return sorted(places, key=lambda name: (not is_high(name), places[name], name))[:limit]


def _newcomers(
    unit: Unit,
    working_set: StoredSet,
    limit: int,
    floor: int,
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
            if first is not None and (below is None or first < below or is_high(name)):
                firsts[name] = min(first, firsts.get(name, first))
        floor = max((last for _, _, last in rows), default=0) + 1
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
    names = _names(unit, working_set, after or PAST_HIGH, prefix, prefix + LAST, limit)
    if working_set.config.high:
        high = _names(unit, working_set, MARK + after, MARK + prefix, MARK + prefix + LAST, limit)
        names |= set(map(origin_of, high))
    return sorted(names)[:limit]


def _names(unit: Unit, working_set: StoredSet, after: str, first: str, below: str, limit: int) -> set[str]:
    sources: tuple[Callable[[int, str, str, str, int], list[str]], ...] = (unit.books.origins, unit.inbox.origins)
    names = {name for source in sources for name in source(working_set.ring_id, after, first, below, limit)}
    return names | {name for name in working_set.reading.shown() if name > after and first <= name < below}


def all_origins(unit: Unit, ring: int) -> Iterator[str]:
    """Yield the names of all books of a ring, stored or not yet."""
    after = ""
    while names := {*unit.books.names(ring, after, _BATCH), *unit.inbox.origins(ring, after, "", LAST, _BATCH)}:
        batch = sorted(names)[:_BATCH]
        yield from batch
        after = batch[-1]
