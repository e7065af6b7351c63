"""A block: what a plan claimed, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from ...rules.claims import Claim
from ...rules.orders import Entry
from ...rules.weight import Weight
from ...store.rows import PLANNED, BlockRow
from ...store.unit import Unit
from ..values import Batch, moment

if TYPE_CHECKING:
    from .blocks import Blocks

#: States of a block, by the number that the store keeps.
STATES = ("planned", "settled", "released")
#: Value of `order` in the details of a block that holds one leased message (`queue.leases`).
VIEWED = "view"


@dataclass
class Block:
    """A block. It lives until it is settled or released, or its deadline passes."""

    id: int
    key: str | None
    token: str
    #: `planned`, `settled` or `released`.
    state: str
    #: Whether it executes one set-aside message.
    by_hand: bool
    #: The actor that planned it.
    by: str
    planned_at: datetime
    ended_at: datetime | None
    deadline: datetime
    #: Seconds with which it was planned, by which a renewal extends it.
    lease: float
    limit: Weight
    #: Predicted weight of its messages.
    planned: Weight
    #: Weight of servicing itself, without the messages.
    overhead: Weight
    #: Used weight; None while it lives.
    used: Weight | None
    messages: int
    #: Outcomes and their counts: `processed`, `failed`, `set_aside`, `returned`, `expired`.
    result: Mapping[str, int]
    #: Whether its workers report what they begin; what none began is requeued without an attempt.
    reports_begin: bool = False
    #: The error that keeps it from being settled; empty without one.
    problem: str = ""
    #: Whether its token was completed or given back: the next plan, view or service settles it.
    is_closed: bool = field(default=False, repr=False)
    #: The seed of a shuffled order (`Inspect.ring_order`).
    seed: bytes | None = None
    claims: Sequence[Claim] = field(default=(), repr=False)
    #: Its page of the ledger, if requested and still kept.
    entries: Sequence[Entry] = field(default=(), repr=False)
    _source: Blocks | None = field(default=None, repr=False, compare=False)

    @property
    def origins(self) -> list[str]:
        """The origins of its messages, in the order of service."""
        return list(dict.fromkeys(claim.whose for claim in self.claims if claim.messages))

    @property
    def predicted(self) -> Weight:
        """Predicted weight of its messages and of servicing itself."""
        return self.planned.plus(self.overhead)

    @property
    def cost(self) -> Weight:
        """Used weight; the predicted weight while it lives."""
        return self.predicted if self.used is None else self.used

    def state_at(self, now: datetime) -> str:
        """Return its state, or `closed` if its token was completed, or `overdue` if it lives past its deadline."""
        if self.is_closed:
            return "closed"
        return "overdue" if self.state == "planned" and self.deadline <= now else self.state

    def batches(self, origins: Iterable[str] | None = None) -> Iterator[Batch]:
        """Yield the messages to process: neighbours of one origin together, in the order of service.

        If the workers report what they begin, this records the messages as begun. With the ring's `max_attempts` it
        records each batch when it yields it, and a message with an earlier attempt is a batch of one.
        """
        assert self._source is not None
        wanted = None if origins is None else set(origins)
        claims = [claim for claim in self.claims if wanted is None or claim.whose in wanted]
        if self.reports_begin:
            yield from self._source.begun_batches(self, claims)
        else:
            yield from self._source.batches(claims, self.id)


def block_of(
    row: BlockRow, claims: Sequence[Claim] = (), entries: Sequence[Entry] = (), source: Blocks | None = None
) -> Block:
    """Return a block from its row, its claims and its page of the ledger."""
    details = row.details_json
    result = dict(details.get("result", {}))
    used = result.pop("weight", None)
    return Block(
        id=row.number,
        key=row.key,
        token=bytes(row.token).hex(),
        state=STATES[row.state],
        by_hand=bool(row.by_hand),
        by=str(details.get("by", "")),
        planned_at=moment(row.planned_at),
        ended_at=None if row.ended_at is None else moment(row.ended_at),
        # A closed block has no deadline any more.
        deadline=moment(row.deadline or row.planned_at),
        is_closed=row.state == PLANNED and row.deadline == 0,
        lease=row.seconds,
        limit=details["limit"],
        planned=details["planned"],
        overhead=details["overhead"],
        used=None if used is None else Weight(int(used[0]), int(used[1])),
        messages=details["messages"],
        result=result,
        reports_begin=bool(details.get("reports_begin")),
        problem=str(details.get("problem", "")),
        seed=bytes.fromhex(details["seed"]) if "seed" in details else None,
        claims=claims,
        entries=entries,
        _source=source,
    )


def claims_of(unit: Unit, row: BlockRow) -> list[Claim]:
    """Return the claims of a block."""
    return [claimed.claim for claimed in unit.blocks.claims(row.id)]
