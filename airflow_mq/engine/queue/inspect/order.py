"""Orders of queues: by turn and by name, each read as far as it is shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from ...rules.budget import FAR
from ...rules.priority import HIGH, MARK, PAST_ALL, PAST_HIGH, book_name, books_of, check_priority, origin_of
from ...store.rows import AT_ONCE
from ...store.unit import Unit
from ...store.working_set import StoredSet


def ready_books(working_set: StoredSet, priority: str | None = None) -> Iterable[str]:
    """Return ready books from the head of the ring, of one priority or high ones first."""
    if priority is not None:
        return working_set.high if check_priority(priority) == HIGH else working_set.ring
    return chain(working_set.high, working_set.ring) if working_set.config.high else working_set.ring


def asleep_books(working_set: StoredSet, most: int) -> list[str]:
    """Return ready books that have no turn because their budgets are used up, those that wait least first."""
    found = [working_set.reading.woken(most, FAR, high=high) for high in (True, False)]
    return [*chain.from_iterable(found)][:most]


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
    names = _names(unit, working_set, after or PAST_HIGH, prefix, prefix + PAST_ALL, limit)
    if working_set.config.high:
        high = _names(unit, working_set, MARK + after, MARK + prefix, MARK + prefix + PAST_ALL, limit)
        names |= set(map(origin_of, high))
    return sorted(names)[:limit]


def _names(unit: Unit, working_set: StoredSet, after: str, first: str, below: str, limit: int) -> set[str]:
    names = set(unit.books.names(working_set.ring_id, after, first, below, limit))
    return names | {name for name in working_set.reading.shown() if name > after and first <= name < below}


def all_origins(unit: Unit, ring: int) -> Iterator[str]:
    """Yield the names of all books of a ring, stored or not yet."""
    after = ""
    while names := unit.books.names(ring, after, "", PAST_ALL, AT_ONCE, empty=True):
        yield from names
        after = names[-1]
