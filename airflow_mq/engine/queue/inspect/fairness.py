"""Figures of fairness, from the ledger and the messages that wait now."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, reduce
from itertools import chain
from math import inf

from ...rules.fairness import Asks, Fairness, Promise, Takes, judge, together
from ...rules.groups import paths_of
from ...rules.orders import Entry, parts_of
from ...rules.priority import HIGH, REGULAR, book_name, origin_of, priority_of
from ...rules.weight import ZERO, Weight, total_weight
from ...store.rows import settings_of
from ...store.working_set import StoredSet
from ..values import LedgerBlock
from .waiting import Waiting

#: The most waiting queues that figures of fairness include.
MOST_WAITING = 100_000


def fairness_of(working_set: StoredSet, ledger: Sequence[LedgerBlock], most: int | None = None) -> Fairness:
    """Return the figures of pages of the ledger, latest first, and of the queues that wait.

    :param most: waiting queues to include; by default all, but at most `MOST_WAITING`
    """
    pages = [page.entries for page in reversed(ledger)]
    blocks = [page.id for page in reversed(ledger)]
    levels = (REGULAR, HIGH) if working_set.config.high else (REGULAR,)
    # A full block has the ring's service weight; without one, the largest weight that a block gave.
    given = (total_weight([entry.granted for entry in page]) for page in pages)
    limit = working_set.config.service_weight or reduce(Weight.at_least, given, ZERO)
    waiting = Waiting(working_set, parts_of(limit), blocks)
    asks, whole = waiting.of_all(MOST_WAITING if most is None else most)
    skips = _skips(ledger, {entry.origin for page in pages for entry in page}.union(asks))
    takes = [None if page.patterns is None else page.patterns.takes for page in reversed(ledger)]
    found = together(
        {
            level: _judge_level(working_set, level, pages, skips if level == REGULAR else (), waiting, asks, takes)
            for level in levels
        }
    )
    return found if whole else replace(found, partial=True)


def _skips(ledger: Sequence[LedgerBlock], origins: Collection[str]) -> list[frozenset[str]]:
    """Return the queues that each block skipped without a visit, the oldest block first; only regular ones are."""

    @cache
    def below(names: frozenset[str]) -> frozenset[str]:
        return frozenset(origin for origin in origins if not names.isdisjoint(paths_of(origin, True)))

    found = []
    for page in reversed(ledger):
        halted = frozenset(chain.from_iterable(page.halted.values()))
        own = below(halted).difference(entry.origin for entry in page.entries) if halted else ()
        found.append(frozenset(chain(own, *page.skipped.values())))
    return found


def _judge_level(
    working_set: StoredSet,
    priority: str,
    pages: Sequence[Sequence[Entry]],
    skips: Sequence[Collection[str]],
    waiting: Waiting,
    asks: Mapping[str, Asks],
    takes: Sequence[Takes],
) -> Fairness:
    """Return the figures of the queues of one priority."""
    own = [[entry for entry in page if entry.priority == priority] for page in pages]
    ready = asks
    if working_set.config.high:
        ready = {origin_of(name): ask for name, ask in asks.items() if priority_of(name) == priority}
    origins = {entry.origin for page in own for entry in page}.union(ready, *skips)
    paths = working_set.config.paths and priority == REGULAR
    promises = _promises(working_set, origins, waiting.parts, paths=paths, leasts=priority == REGULAR)

    def left(origin: str) -> float:
        return waiting.left(book_name(origin, priority))

    some = any(not accepts(origin) for accepts in set(filter(None, takes)) for origin in origins)
    return judge(
        own,
        waiting.parts,
        ready,
        promises,
        left,
        priority=priority,
        paths=paths,
        takes=takes if some else (),
        skips=skips,
    )


def _promises(
    working_set: StoredSet, origins: Iterable[str], parts: Callable[[Weight], int], *, paths: bool, leasts: bool
) -> Mapping[str, Promise]:
    """Return the settings of origins and groups; a least and a most apply in the deficit order only."""
    names = set(origins)
    promises = {}
    for name, stored in working_set.unit.origins.all_settings(working_set.ring_id):
        if name in names or paths:
            settings = settings_of(stored)
            least, most = (settings.least, settings.most) if working_set.config.order == "deficit" else (None, None)
            promises[name] = Promise(
                settings.share, parts(least) if least and leasts else 0, inf if most is None else parts(most)
            )
    return promises
