"""Plan of a block: a walk claims the messages that fit, and one short transaction stores the claims."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ...rules.claims import Claim, Claiming, Scales
from ...rules.errors import InFlight
from ...rules.orders import Ledger
from ...rules.patterns import OriginPatterns
from ...rules.service import Ladder
from ...rules.weight import ZERO, Meter, WeighPayloads, Weight, total_weight
from ...store import codec
from ...store.rows import PLANNED, BlockRow
from ...store.unit import Unit
from ...store.working_set import LoadOptions, StoredSet
from ..holding import RingLease
from ..servers import server_record, servers_of
from ..session import RingSession, limit_of
from ..walk import Walks, warn_of_stuck, write_ledger
from .block import claims_of

_CHANGED = "the ring changed while the weigher ran; plan again"


class Planned(NamedTuple):
    """Stored row of a block, and its claims."""

    row: BlockRow
    claims: Sequence[Claim]


class Planner:
    """One plan: a walk that weighs and claims messages, then one short write."""

    def __init__(
        self, session: RingSession, key: str | None, limit: Weight | None, lease: float | None,
        weigher: WeighPayloads | None, seed: bytes | None, server: str | None = None,
        patterns: OriginPatterns | None = None, reports_begin: bool = False,
        processor_of: Callable[[str], str] | None = None,
    ) -> None:  # fmt: skip
        self.reports_begin, self.processor_of = reports_begin, processor_of
        self.session, self.key, self.lease, self.weigher = session, key, lease, weigher
        self.patterns = patterns
        self.server = server_record(server, session.actor, limit, patterns)
        #: Parts of a block that high messages owe to regular ones; None until it is read.
        self.debt: int | None = None
        #: The first walk, whose settings are the newest, sets the limit of the meter.
        self.meter, self.limit = Meter(ZERO), limit
        self.ledger = Ledger()
        self.walks = Walks(self.ledger, seed)

    def plan_at_once(self) -> Planned:
        """Plan with the ring's own weigher, in one transaction."""
        while True:
            with self.session.hold.transaction(planning=True) as (unit, working_set):
                twin = planned_under(unit, self.session.ring_id, self.key)
                if twin is not None:
                    return twin
                self.walk(working_set, unit)
                if not self.walks.goes_on:
                    return self._write(unit, working_set)

    def plan_holding(self) -> Planned:
        """Plan with the caller's weigher, which runs outside of any transaction while the ring is held on lease."""
        session, options = self.session, LoadOptions(skip_in_flight=False)
        with RingLease(session.hold, "planned", partial(InFlight, _CHANGED)) as lease:
            locked = lease.take()
            with lease.reading() as unit:
                working_set = session.working_set(unit, locked, options, planning=True)
                self.walk(working_set, unit)
                while self.walks.goes_on:
                    with lease.transaction() as (held, locked, _):
                        working_set.save_in(held, locked)
                    locked = working_set.locked_after(locked)
                    working_set = session.working_set(unit, locked, options, planning=True)
                    self.walk(working_set, unit)
            with lease.transaction() as (unit, locked, _):
                twin = planned_under(unit, session.ring_id, self.key)
                if twin is not None:
                    return twin
                # The weigher may have taken longer than the lease of the block.
                working_set.now = locked.now
                planned = self._write(unit, working_set)
                working_set.save_in(unit, locked)
            session.committed(working_set)
            return planned

    def walk(self, working_set: StoredSet, unit: Unit) -> None:
        """Claim what fits, in the ring's order."""
        config = working_set.config
        self.limit = self.meter.limit = limit_of(config, self.limit)
        if self.patterns is not None:
            if config.high and self.debt is None:
                # The one that the latest block of this server recorded.
                servers = servers_of(unit, self.session.ring_id)
                self.debt = next((server.debt for server in servers if server.name == self.server["name"]), 0)
            working_set.only(self.patterns, self.debt if config.high else None)
        self.claiming = Claiming(Scales(working_set, self.weigher), merge=config.order == "deficit")
        if self.weigher is None:
            working_set.meter = self.meter
        ladder = self.ladder = Ladder(working_set, self.meter, self.claiming)
        ladder.most_queues = config.max_block_queues
        self.walks.walk(ladder, working_set, self._took)
        if working_set.owns_debt:
            self.debt = self.server["debt"] = working_set.debt

    def _took(self) -> bool:
        return any(run.count for claim in self.claiming.claims for run in claim.runs)

    def claimed(self) -> tuple[list[Claim], Weight, Weight]:
        """Return the claims of the walk, their planned weight, and the weight of servicing itself."""
        for claim in self.claiming.claims:
            claim.runs = [run for run in claim.runs if run.count or run.closed]
            claim.processor = self.processor_of(claim.whose) if self.processor_of else ""
        # A claim without runs claims no message, so its queue is not in flight.
        claims = [claim for claim in self.claiming.claims if claim.runs]
        planned = total_weight([claim.planned for claim in claims])
        consumed = self.meter.consumed
        return claims, planned, Weight(consumed[0] - planned[0], consumed[1] - planned[1])

    def _write(self, unit: Unit, working_set: StoredSet) -> Planned:
        claims, _, overhead = self.claimed()
        details: dict[str, object] = {"order": working_set.config.order, "server": self.server}
        if self.walks.seed:
            details["seed"] = self.walks.seed.hex()
        if self.reports_begin:
            details["reports_begin"] = True
        limit = self.meter.limit
        row = new_block(self.session, unit, self.key, self.lease, working_set.now, claims, limit, overhead, details)
        self.ledger.head = {"server": self.server}
        write_ledger(unit, self.session.ring_id, self.ledger, working_set.now, row)
        warn_of_stuck(self.session.ring, self.server["name"], self.ledger, self.ladder)
        return Planned(row, claims)


def planned_under(unit: Unit, ring: int, key: str | None) -> Planned | None:
    """Return the live block with this key, or None. A repeated plan with the same key returns this block."""
    row = None if key is None else unit.blocks.by_key(ring, key)
    return None if row is None else Planned(row, claims_of(unit, row))


def new_block(
    session: RingSession,
    unit: Unit,
    key: str | None,
    lease: float | None,
    now: int,
    claims: Sequence[Claim],
    limit: Weight,
    overhead: Weight = ZERO,
    details: Mapping[str, object] | None = None,
    *,
    by_hand: bool = False,
) -> BlockRow:
    """Store a block that begins now, and its claims in the order of the visits."""
    lease = session.config.lease if lease is None else lease
    token, id_ = secrets.token_bytes(16), unit.fresh_ids(1)[0]
    number = unit.blocks.next_number(session.ring_id, id_)
    stored = {
        **(details or {}),
        "limit": limit,
        "planned": total_weight([claim.planned for claim in claims]),
        "overhead": overhead,
        "messages": sum(claim.messages for claim in claims),
        "by": session.actor,
    }
    deadline = now + int(lease * 1_000_000)
    row = BlockRow(id_, number, key, token, PLANNED, by_hand, float(lease), deadline, now, None, stored)
    rows = [
        (place, claim.origin, codec.pack_claim(claim), any(run.count for run in claim.runs))
        for place, claim in enumerate(claims)
    ]
    unit.blocks.insert(session.ring_id, row, rows)
    return row
