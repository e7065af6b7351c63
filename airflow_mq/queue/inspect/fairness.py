"""Who got what, and who waited: the ledger's pages, and what waits now, as figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from math import inf

from ...core.clock import Asks, judge_shares
from ...core.errors import InvalidInput
from ...core.fairness import Fairness, Promise, Takes, judge, rounds_of, together
from ...core.message import check_number
from ...core.orders import Entry, parts_of
from ...core.priority import HIGH, REGULAR, book_name, origin_of, priority_of
from ...core.weight import ZERO, Weight
from ...store.rows import standing_of
from ...store.working_set import StoredSet
from ..ledger import ledger_pages
from ..session import RingSession
from ..values import LedgerBlock
from .waiting import Waiting


class FairnessReads:
    """Figures of fairness."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id

    def fairness(self, blocks: int = 100, *, most: int | None = None) -> Fairness:
        """See `Inspect.fairness`."""
        if not check_number(blocks, "a number of blocks"):
            raise InvalidInput("fairness is told over at least 1 block")
        with self.session.snapshot() as (unit, working_set):
            return fairness_of(working_set, ledger_pages(unit, self.ring_id, blocks), most)


def fairness_of(working_set: StoredSet, ledger: Sequence[LedgerBlock], most: int | None = None) -> Fairness:
    """What these pages of the ledger, the latest first, and those that wait, come to."""
    pages = [one.entries for one in reversed(ledger)]
    blocks = [one.id for one in reversed(ledger)]
    waiting = Waiting(working_set, parts_of(_limit(working_set.config.service_weight, pages)), blocks)
    if most is None:
        asks = waiting.of_all()
    else:
        rings = (working_set.high, working_set.ring) if working_set.config.high else (working_set.ring,)
        asks = waiting.of_some(name for ring in rings for name in islice(ring, most) if most)
    levels = (REGULAR, HIGH) if working_set.config.high else (REGULAR,)
    takes = [None if one.patterns is None else one.patterns.takes for one in reversed(ledger)]
    return together({level: _judge_level(working_set, level, pages, waiting, asks, takes) for level in levels})


def _judge_level(
    working_set: StoredSet,
    priority: str,
    pages: Sequence[Sequence[Entry]],
    waiting: Waiting,
    asks: Mapping[str, Asks],
    takes: Sequence[Takes],
) -> Fairness:
    """The figures of the queues of one priority."""
    own = [[entry for entry in page if entry.priority == priority] for page in pages]
    ready = {origin_of(name): its for name, its in asks.items() if priority_of(name) == priority}
    origins = {entry.origin for page in own for entry in page} | ready.keys()
    paths = working_set.config.paths and priority == REGULAR
    promises = _promises(working_set, origins, waiting.parts, paths=paths, leasts=priority == REGULAR)

    def left(origin: str) -> float:
        return waiting.left(book_name(origin, priority))

    some = any(not its(origin) for its in set(filter(None, takes)) for origin in origins)
    if not paths and not some and all(not promise.least and promise.most == inf for promise in promises.values()):
        return judge_shares(own, waiting.parts, ready, promises, left, priority)
    rounds = rounds_of(own, waiting.parts, {origin: its.since for origin, its in ready.items()},
                       takes if some else ())  # fmt: skip
    rest = {origin: its.parts if its.all else left(origin) for origin, its in ready.items()}
    return judge(rounds, promises, left=rest, paths=paths)


def _limit(service_weight: Weight | None, pages: Iterable[Sequence[Entry]]) -> Weight:
    """What a full block is; where each call says its limit, the most that any block gave."""
    if service_weight is not None:
        return service_weight
    most = ZERO
    for page in pages:
        given = ZERO
        for entry in page:
            given = given.plus(entry.granted)
        most = most.at_least(given)
    return most


def _promises(
    working_set: StoredSet, origins: Iterable[str], parts: Callable[[Weight], int], *, paths: bool, leasts: bool
) -> Mapping[str, Promise]:
    """What is set for these origins, and for groups; a least and a most are kept by the deficit order alone."""
    names = set(origins)
    found = {}
    for name, settings in working_set.unit.origins.all_settings(working_set.ring_id):
        if name in names or paths:
            standing = standing_of(settings)
            least, most = (standing.least, standing.most) if working_set.config.order == "deficit" else (None, None)
            found[name] = Promise(
                standing.share, parts(least) if least and leasts else 0, inf if most is None else parts(most)
            )
    return found
