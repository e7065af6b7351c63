"""Levels of service: ready high books before regular ones, with a share of each block kept for these.

1. The high books are serviced in the ring's order among themselves, within the weight that is not kept.
2. Then the regular books, in the same order, within the rest of the block.
3. Then the high books again, within the rest that regular left.

The share is a promise over time, since a message is serviced whole or not at all. The first high message of a block may
take more than high's part, if the block carries it. Regular may be unable to use its share, because its next message
did not fit beside what high had taken. High owes it that weight: the next block keeps as much more for regular. So a
high message of any weight runs, a regular one of any weight does, and neither level starves the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from .config import BLOCK_PARTS
from .deficit import DeficitRounds
from .orders import MOST_LOOKS, Ledger, front_weight, parts_of, rotation, shuffle, shuffled, visit, walk
from .paths import PathRounds
from .priority import is_high
from .ring import Ring
from .service import Ladder
from .weight import Meter, Weight
from .working_set import WorkingSet


class Turns:
    """Service of one level in the ring's order; it can be resumed with more weight."""

    def __init__(
        self, ladder: Ladder, ledger: Ledger, ring: Ring, order: str, seed: bytes | None,
        guaranteed: Iterable[str], mosts: dict[str, Meter],
    ) -> None:  # fmt: skip
        self.ladder, self.ring, self.order = ladder, ring, order
        self.seed, self.guaranteed = seed or b"", guaranteed
        #: Groups share weight among regular books only; high books share evenly.
        self.paths = order == "deficit" and ladder.working_set.config.paths and ring is ladder.working_set.ring
        self.whole_ledger, self.ledger = ledger, Ledger() if self.paths else ledger
        self.rounds = DeficitRounds(ladder, self.ledger, ring, mosts)
        self.started = False

    def start(self) -> None:
        """Service the queues of this level within the meter."""
        self.started = True
        if self.paths:
            try:
                PathRounds(self.ladder, self.ledger).run(self.guaranteed)
            finally:
                self.whole_ledger.entries.update(self.ledger.entries)
        elif self.order == "deficit":
            self.rounds.run(self.guaranteed)
        elif self.order == "rotation":
            rotation(self.ladder, self.ledger, self.ring)
        else:
            shuffle(self.ladder, self.ledger, self.seed, self.ring)

    def go_on(self) -> None:
        """Service the queues that the meter stopped before."""
        if not self.started:
            self.start()
        elif self.order == "deficit":
            self.rounds.resume()
        elif self.order == "rotation":
            for origin in islice(self._stopped(), 0 if self.ladder.is_full else 1):
                walk(self.ladder, self.ledger, self.ring, origin)
        else:
            for origin in list(self._stopped()):
                if not self.ladder.is_full:
                    visit(self.ladder, self.ledger, origin)

    def is_stopped(self) -> bool:
        """Return whether more was ready than the meter could pay."""
        return any(True for _ in self._stopped())

    def line(self) -> Iterator[str]:
        """Yield the queues in the order of their turns."""
        yield from shuffled(self.ring, self.seed) if self.order == "shuffle" else self.ring

    def _stopped(self) -> Iterator[str]:
        entries = self.ledger.entries
        for origin in self.line():
            if origin not in entries or self.rounds.stopped_by_limit(origin):
                yield origin


def service_levels(ladder: Ladder, ledger: Ledger, order: str, seed: bytes | None, guaranteed: Iterable[str]) -> None:
    """Service both levels of a ring within the meter."""
    working_set, meter, limit = ladder.working_set, ladder.meter, ladder.meter.limit
    mosts: dict[str, Meter] = {}
    most = ladder.most_queues
    #: Number of high queues that may be serviced before regular ones.
    places = None if most is None else max(int(most * (1 - working_set.config.kept_for_regular)), 1)
    regular = Turns(ladder, ledger, working_set.ring, order, seed, guaranteed, mosts)
    high = Turns(ladder, ledger, working_set.high, order, seed, (), mosts)
    if working_set.high.head() is None:
        regular.start()
        _owe(working_set, 0)
        return
    # A later part of a call divides what the first one left of its shares.
    share = 0 if ladder.is_resumed else int(working_set.config.kept_for_regular * BLOCK_PARTS)
    kept = share + _owed(working_set)
    if kept < BLOCK_PARTS:
        meter.limit = _part(ladder, high, BLOCK_PARTS - kept)
        ladder.most_queues = places
        high.start()
        meter.limit = limit
    time, size = meter.consumed
    ladder.most_queues = most if most is None or places is None or high.started else max(most - places, 1)
    regular.start()
    used = parts_of(limit)(Weight(meter.time - time, meter.size - size))
    is_owed = regular.is_stopped() and (not ladder.is_full or ladder.has_parts or places == most)
    _owe(working_set, min(max(kept - used, 0), BLOCK_PARTS) if is_owed or _left_regular(working_set) else 0)
    ladder.most_queues = most
    if high.is_stopped():
        high.go_on()


def _left_regular(working_set: WorkingSet) -> bool:
    """Return whether earlier parts of this call left regular queues that are ready."""
    return any(not is_high(name) for name in working_set.left_out)


def _part(ladder: Ladder, high: Turns, parts: int) -> Weight:
    """Return the limit of high before regular's turn: its part, or the weight of its first message if larger."""
    whole = ladder.meter.limit
    part = Weight(whole[0] * parts // BLOCK_PARTS, whole[1] * parts // BLOCK_PARTS)
    need = ladder.costs.overhead
    for origin in islice(high.line(), MOST_LOOKS):
        book = ladder.working_set.book(origin)
        first = None if book.skipped else front_weight(ladder, book)
        if first is None:
            need = need.plus(ladder.visit_cost)
        elif not ladder.ring_bounds.exceeded(first):
            need = need.plus(first)
            return part if need.exceeds(whole) else part.at_least(need)
    return part


def _owed(working_set: WorkingSet) -> int:
    """Return the parts that high owes to regular."""
    return working_set.debt if working_set.own_debt is None else working_set.own_debt


def _owe(working_set: WorkingSet, parts: int) -> None:
    """Store the parts that high owes to regular."""
    if working_set.own_debt is None:
        working_set.debt = parts
    else:
        working_set.own_debt = parts
