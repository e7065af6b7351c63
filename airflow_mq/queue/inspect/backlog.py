"""How much waits, since when, and what it will cost: the backlog of a ring as figures, for metrics and totals.

The database adds everything up, so the figures of 100,000 queues cost no more memory than those of one. They are of
one moment, and the sums are right but for their age, which may be that of a message set aside until the page that
holds it is done; of a single queue, mail that arrived out of order may count twice until it is settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.config import RingConfig
from ...core.errors import InvalidInput
from ...core.message import check_number
from ...core.priority import REGULAR, origin_of, priority_of, queue_name
from ...core.weigher import PER
from ...core.weight import LARGEST, Weight
from ...store import codec
from ...store.books import TotalsRow
from ...store.unit import Unit
from ...store.working_set import StoredSet
from ..session import RingSession
from .summaries import facts


@dataclass(frozen=True)
class Depth:
    """How much of one queue waits, or is in flight."""

    origin: str
    messages: int
    size: int
    #: Seconds since the oldest of it was sent.
    age: float | None = None
    priority: str = REGULAR

    @property
    def name(self) -> str:
        """The origin, and that it is its high queue."""
        return queue_name(self.origin, self.priority)


@dataclass(frozen=True)
class Backlog:
    """How much of a ring waits, or is in flight."""

    messages: int = 0
    size: int = 0
    #: Queues that have something of it.
    queues: int = 0
    #: Seconds since the oldest of it was sent; none where nothing waits.
    age: float | None = None
    #: What the ring's weigher says of it; what senders said themselves is not looked at.
    weight: Weight = Weight(0, 0)
    #: The same in full blocks; none where the ring has no service weight.
    blocks: float | None = None
    #: Messages that are not due yet, and those that wait for a person; they count nowhere else.
    delayed: int = 0
    set_aside: int = 0
    #: Some of its queues, the deepest first.
    deepest: Sequence[Depth] = ()


class Backlogs:
    """The backlog of a ring."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id

    def backlog(self, deepest: int = 0) -> Backlog:
        """See `Inspect.backlog`."""
        check_number(deepest, "a number of queues")
        with self.session.snapshot() as (unit, working_set):
            return backlog_of(unit, working_set, deepest)

    def oldest(self, limit: int = 10) -> list[Depth]:
        """See `Inspect.oldest`."""
        if not check_number(limit, "a number of queues"):
            raise InvalidInput("the oldest are at least 1 queue")
        with self.session.snapshot() as (unit, _):
            rows, now = unit.books.totals(self.ring_id, limit, oldest=True), unit.now()
        return [_depth(row, now) for row in rows]


def backlog_of(unit: Unit, working_set: StoredSet, deepest: int = 0) -> Backlog:
    """The sums over a ring, and so many of its queues, the deepest first."""
    ring, config, now = working_set.ring_id, working_set.config, working_set.now
    delayed, set_aside = unit.set_aside.beside(ring)
    rows = unit.books.totals(ring, max(deepest, 1), oldest=False)
    if not rows:
        return Backlog(delayed=delayed, set_aside=set_aside)
    messages, size, sent, queues = rows[0].all_messages, rows[0].all_size, rows[0].all_sent, rows[0].queues
    ahead = [id_ for packed in unit.books.overtaken(ring) for id_ in codec.unpack_numbers(packed)[0]]
    for _, its_messages, its_size in facts(unit, ring, ahead):
        messages, size = messages - its_messages, size - its_size
    weight = weight_of(config, messages, size)
    return Backlog(
        messages, size, queues, _age(sent, now), weight, blocks_of(config, weight), delayed, set_aside,
        [_depth(row, now) for row in rows[:deepest]],
    )  # fmt: skip


def weight_of(config: RingConfig, messages: int, size: int) -> Weight:
    """What so many messages of so many bytes weigh together, but for rounding each up."""
    base, per_byte = config.weigher.base, config.weigher.per_byte
    return Weight(*(min(base[part] * messages + per_byte[part] * size // PER, LARGEST) for part in (0, 1)))


def blocks_of(config: RingConfig, weight: Weight) -> float | None:
    """How many full blocks a weight is, by the part of which a block has the least."""
    return None if config.service_weight is None else weight.part_of(config.service_weight)


def _depth(row: TotalsRow, now: int) -> Depth:
    return Depth(origin_of(row.origin), row.messages, row.size, _age(row.sent, now), priority_of(row.origin))


def _age(sent: int | None, now: int) -> float | None:
    return None if sent is None else max(now - sent, 0) / 1_000_000
