"""Levels of service: ready high books before regular ones, with a share of each block kept for these.

1. The high books are serviced in the ring's order among themselves, within the weight that is not kept.
2. Then the regular books, in the same order, within the rest of the block.
3. Then the high books again, within the rest that regular left.

The share is a promise over time, since a message is serviced whole or not at all. The first high message of a block may
take more than high's part, if the block carries it. Regular may be unable to use its share, because its next message
did not fit beside what high had taken. High owes it that weight: the next block keeps as much more for regular. So a
high message of any weight runs, a regular one of any weight does, and neither level starves the other.

Budgets that pay for both levels are shared in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from .config import BLOCK_PARTS
from .deficit import DeficitRounds
from .orders import MOST_LOOKS, Ledger, Order, Rotation, Shuffle, parts_of
from .paths import PathRounds
from .priority import is_high
from .service import Ladder
from .weight import Meter, Weight
from .working_set import WorkingSet


def orders_of(ladder: Ladder, ledger: Ledger, seed: bytes | None) -> list[Order]:
    """Return the order of each level of a ring, the high one first; a ring without high messages has one level."""
    working_set = ladder.working_set
    order = working_set.config.order
    mosts: dict[str, Meter] = {}
    found: list[Order] = []
    for ring in (working_set.high, working_set.ring) if working_set.config.high else (working_set.ring,):
        if order == "rotation":
            found.append(Rotation(ladder, ledger, ring))
        elif order == "shuffle":
            found.append(Shuffle(ladder, ledger, ring, seed or b""))
        elif working_set.config.paths and ring is working_set.ring:
            # Groups share weight among regular books only; high books share evenly.
            found.append(PathRounds(ladder, ledger))
        else:
            found.append(DeficitRounds(ladder, ledger, ring, mosts))
    return found


def service_levels(levels: Sequence[Order], guaranteed: Iterable[str]) -> None:
    """Service the levels of a ring within the meter."""
    *above, regular = levels
    if not above:
        regular.run(guaranteed)
        return
    (high,) = above
    ladder, working_set = regular.ladder, regular.working_set
    meter, limit, most = ladder.meter, ladder.meter.limit, ladder.most_queues
    regular_parts = int(working_set.config.kept_for_regular * BLOCK_PARTS)
    if high.ring.head() is None:
        regular.run(guaranteed)
        _pay_budgets(working_set, regular_parts)
        working_set.debt = 0
        return
    #: Number of high queues that may be serviced before regular ones.
    places = None if most is None else max(int(most * (1 - working_set.config.kept_for_regular)), 1)
    # A later part of a call divides what the first one left of its shares.
    share = 0 if ladder.is_resumed else regular_parts
    kept = share + working_set.debt
    is_first = kept < BLOCK_PARTS
    if is_first:
        meter.limit = _part(high, BLOCK_PARTS - kept)
        ladder.most_queues = places
        ladder.kept_parts = regular_parts
        high.run()
        ladder.kept_parts = 0
        meter.limit = limit
    for bucket in working_set.buckets.values():
        if bucket.kept:
            bucket.owe(regular_parts)
    before = meter.consumed
    ladder.most_queues = most if most is None or places is None or is_first else max(most - places, 1)
    regular.run(guaranteed)
    _pay_budgets(working_set, regular_parts)
    used = parts_of(limit)(meter.since(before))
    is_owed = any(True for _ in regular.stopped()) and (not ladder.is_full or ladder.has_parts or places == most)
    # Earlier parts of this call may have left regular queues that are ready.
    left_regular = any(not is_high(name) for name in working_set.left_out)
    working_set.debt = min(max(kept - used, 0), BLOCK_PARTS) if is_owed or left_regular else 0
    ladder.most_queues = most
    if any(True for _ in high.stopped()):
        (high.resume if is_first else high.run)()


def _part(high: Order, parts: int) -> Weight:
    """Return the limit of high before regular's turn: its part, or the weight of its first message if larger."""
    ladder = high.ladder
    whole = ladder.meter.limit
    part = Weight(whole[0] * parts // BLOCK_PARTS, whole[1] * parts // BLOCK_PARTS)
    need = ladder.costs.overhead
    for origin in islice(high.line(), MOST_LOOKS):
        book = ladder.working_set.book(origin)
        first = None if book.skipped else ladder.front_of(book)
        if first is None:
            need = need.plus(ladder.visit_cost)
        elif not ladder.ring_bounds.exceeded(first):
            need = need.plus(first)
            return part if need.exceeds(whole) else part.at_least(need)
    return part


def _pay_budgets(working_set: WorkingSet, regular_parts: int) -> None:
    """Reduce what budgets owe to regular messages by what these took; nothing is owed for what they do not wait for."""
    for bucket in working_set.buckets.values():
        if bucket.kept or (any(bucket.owed) and bucket.left != bucket.whole):
            bucket.owe(regular_parts - BLOCK_PARTS)
            bucket.owed = [owed if part in bucket.wanted else 0 for part, owed in enumerate(bucket.owed)]
            bucket.kept, bucket.wanted = [], set()
            working_set.changes.buckets.add(bucket.path)
