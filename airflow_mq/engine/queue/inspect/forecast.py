"""Forecasts: the next blocks of a ring, planned and settled without writing anything.

The code that plans and settles real blocks works over an overlay, which keeps changed rows in memory. The next
block is therefore exact as long as nothing changes: no sender, operator or live block acts, and every message costs its
predicted weight. Later blocks assume when they come, and that blocks in progress end before them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from ...rules.book import BUDGET
from ...rules.claims import Claim, ClaimRun
from ...rules.config import RingConfig
from ...rules.errors import Busy, ConfigRefused, InvalidInput
from ...rules.groups import paths_of
from ...rules.judging import Decision
from ...rules.message import Address, check_origin
from ...rules.orders import Entry, Ledger
from ...rules.outcome import DONE
from ...rules.patterns import OriginPatterns
from ...rules.priority import REGULAR, origin_of, priority_of
from ...rules.settle import Answers
from ...rules.units import check_seconds
from ...rules.weight import ZERO, Weight, total_weight
from ...store.origins import PauseRow
from ...store.rows import LATEST, PLANNED, BlockRow
from ...store.unit import Unit
from ...store.working_set import MEET_IN_ALL, LoadOptions, Overlay, StoredSet
from ..admin import checked_share
from ..blocks.block import claims_of
from ..blocks.plan import Planner
from ..blocks.settling import Settling
from ..servers import Server, servers_of
from ..session import RingSession, limit_of
from ..values import moment
from .servicing import Servicing

#: Bytes of a seed.
MOST_SEED = 64
#: Messages of a queue whose forecast costs as much as the visit of a queue.
MESSAGES_A_VISIT = 8
_LOOKING_AHEAD = threading.Lock()


@dataclass
class ForecastQueue(Entry):
    """The part of a forecast block that concerns one queue: its line of the ledger, and the fates of its messages.

    `messages` counts those that would go to a processor.
    """

    weight: Weight = ZERO
    #: Messages that would be set aside because no block can carry them, and messages that would expire.
    set_aside: int = 0
    expired: int = 0


@dataclass(frozen=True)
class ForecastBlock:
    """A block as the next plan would make it."""

    #: Position among the next blocks, from 1.
    number: int
    limit: Weight
    planned: Weight
    #: Weight of servicing itself, without the messages.
    overhead: Weight
    order: str
    #: The queues that it visits, in the order of their first visits.
    queues: Sequence[ForecastQueue]
    claims: Sequence[Claim] = field(default=(), repr=False)
    seed: bytes | None = None
    #: The DAG or program whose limit applies; None if the limit is the ring's service weight or the caller's.
    server: str | None = None
    #: When it is planned, if the blocks come at their usual times.
    at: datetime | None = None

    @property
    def messages(self) -> int:
        """Number of messages that go to a processor."""
        return sum(queue.messages for queue in self.queues)

    @property
    def predicted(self) -> Weight:
        """Predicted weight of its messages and of servicing itself."""
        return self.planned.plus(self.overhead)

    @property
    def moves(self) -> bool:
        """Whether it takes any message, be it to set it aside or to let it expire."""
        return any(run.count for claim in self.claims for run in claim.runs)

    @property
    def visits(self) -> int:
        """Cost of its forecast: the queues that it visits, and one more for each few messages."""
        return len(self.queues) + self.messages // MESSAGES_A_VISIT

    @property
    def origins(self) -> list[str]:
        """The origins whose messages it takes, in the order of service."""
        return list(dict.fromkeys(claim.whose for claim in self.claims if claim.messages))

    def queue(self, origin: str, priority: str = REGULAR) -> ForecastQueue:
        """Return its figures for a queue; all zero if it does not visit the queue."""
        own = (queue for queue in self.queues if (queue.origin, queue.priority) == (origin, priority))
        return next(own, ForecastQueue(origin, priority=priority))

    def verdict(self, address: Address) -> str | None:
        """Return the fate of a message: `processed`, `set aside` or `expired`; None if the block does not take it."""
        run = self._run_of(address)
        if run is None:
            return None
        decision = run.decisions.get(address.index)
        if decision is None:
            return "processed"
        return "expired" if decision.exceeded is None else "set aside"

    def decision(self, address: Address) -> Decision | None:
        """Return the decision about a message that does not go to a processor, with its weight and its limit."""
        run = self._run_of(address)
        return run.decisions.get(address.index) if run is not None else None

    def _run_of(self, address: Address) -> ClaimRun | None:
        return next((run for claim in self.claims if (run := claim.run_of(address))), None)


@dataclass(frozen=True)
class Conditions:
    """Conditions of a forecast; the ring's own settings apply to the rest."""

    limit: Weight | None = None
    #: Settings of origins, instead of theirs.
    settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    seed: bytes | None = None
    changes: Mapping[str, object] = field(default_factory=dict)
    #: The DAG or program whose blocks these are, and as people read it.
    server: str | None = None
    server_title: str | None = None
    #: The origins that these blocks service; None for all.
    patterns: OriginPatterns | None = None

    def __post_init__(self) -> None:
        if self.limit is not None:
            object.__setattr__(self, "limit", Weight.of(self.limit))
        if self.seed is not None and not 1 <= len(self.seed) <= MOST_SEED:
            raise InvalidInput(f"a seed is 1 to {MOST_SEED} bytes")
        for origin, own in self.settings.items():
            checked_share(own.get("share", 1))
            check_origin(origin)
        if "heap_size" in self.changes:
            raise ConfigRefused("heap_size cannot change in a forecast: stored pages keep their size; leave it out")

    def of(self, server: Server) -> Conditions:
        """Return these conditions in blocks of a server."""
        return replace(
            self, limit=server.limit, server=server.name, patterns=server.patterns, server_title=server.title
        )


class Pace(NamedTuple):
    """When the next blocks are planned: seconds until the first one, and between two.

    Without time between two, no block in progress ends, and nothing becomes due.
    """

    first: float = 0.0
    every: float = 0.0


AT_ONCE = Pace()


class Foresight:
    """The future of a ring, block after block."""

    def __init__(self, session: RingSession, unit: Unit, conditions: Conditions) -> None:
        self.session, self.conditions, self.number = session, conditions, 0
        #: What high messages of these blocks owe to regular ones, once a block is planned.
        self.debt: int | None = None
        config = session.remember_config(unit.rings.named(session.ring).config)
        self.config: RingConfig = config.changed(**conditions.changes)
        self.limit = limit_of(self.config, conditions.limit)
        if self.config.order == "shuffle" and conditions.seed is None:
            raise InvalidInput(
                "a ring with order='shuffle' needs a seed for a forecast: the order is drawn with each block; "
                "pass seed=b'…', or --seed HEX on the command line"
            )
        #: Blocks in progress, until time passes.
        self._live: Sequence[BlockRow] = ()
        anew = self.config.paths != config.paths
        self.overlay = Overlay(session.store, unit, session.ring_id, conditions.settings, anew=anew)
        session.settler.foresee(self.overlay, lambda now: self.working_set(skip_in_flight=True))
        self._end_dead_blocks()

    def working_set(self, *, planning: bool = False, skip_in_flight: bool = False) -> StoredSet:
        """Return a working set of the ring as it stands by now."""
        options = LoadOptions(skip_in_flight=skip_in_flight, without_payloads=True)
        return StoredSet(self.config, self.overlay.now, self.overlay, options, planning=planning)

    def _keep(self, working_set: StoredSet) -> None:
        """Let the next operation see what this one changed."""
        self.overlay.apply(working_set.take_changes(self.overlay.fresh_ids))

    def blocks(self, most: int, pace: Pace = AT_ONCE) -> Iterator[ForecastBlock]:
        """Yield the next blocks, until the queues have nothing left for them.

        :param pace: when they come
        """
        first, every = pace
        self.pass_time(first)
        while self.number < most:
            block = self.next_block()
            if not any(claim.runs for claim in block.claims) and not self._goes_on((most - self.number) * every):
                return
            yield replace(block, at=moment(self.overlay.now)) if every else block
            if self.number < most:
                self.settle(block.claims)
                self.pass_time(every)

    def pace(self, every: float | timedelta | str | None = None, origin: str | None = None) -> Pace:
        """Return when the next blocks come: each so long after the one before, or as the latest server plans them.

        :param origin: the latest server that takes this origin
        """
        if every is not None:
            return Pace(every=check_seconds(every, "time between two blocks"))
        unit, ring = self.overlay.unit, self.session.ring_id
        servicing = Servicing.read(unit, ring, self.overlay.now, self.config)
        latest = next((one for one in servicing.servers if origin is None or one.takes(origin)), None)
        usual = servicing.usual_interval(latest) if latest else None
        if latest is None or usual is None:
            return AT_ONCE
        return Pace(max(usual - (servicing.now - latest.at).total_seconds(), 0.0), usual)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, in which the blocks in progress end."""
        if seconds:
            self.overlay.pass_time(int(seconds * 1_000_000))
            live, self._live = self._live, ()
            for row in live:
                self.settle(claims_of(self.overlay.unit, row))
            self.overlay.end_blocks({row.id for row in live})

    def next_block(self) -> ForecastBlock:
        """Plan the next block, also if it is empty."""
        self.number += 1
        working_set = self.working_set(planning=True)
        given = self.conditions
        planner = Planner(self.session, None, self.limit, 0.0, None, given.seed, given.server, given.patterns)
        planner.debt = self.debt
        planner.walk(working_set, self.overlay.unit)
        while planner.walks.goes_on:
            self._keep(working_set)
            working_set = self.working_set(planning=True)
            planner.walk(working_set, self.overlay.unit)
        self.debt = planner.debt
        claims, planned, overhead = planner.claimed()
        self._keep(working_set)
        return ForecastBlock(
            self.number, planner.meter.limit, planned, overhead, self.config.order,
            _queues(planner.ledger, claims), claims, planner.walks.seed, given.server_title or given.server,
        )  # fmt: skip

    def _goes_on(self, seconds: float) -> bool:
        """Return whether a ready queue can be serviced, now or within so many seconds."""
        working_set, until = self.working_set(), self.overlay.now + int(seconds * 1_000_000)
        if self.conditions.patterns is not None:
            working_set.only(self.conditions.patterns, None)
        # Queues that wait for a budget are in no ring.
        asleep = [name for high in (True, False) for name in self.overlay.woken(MEET_IN_ALL, until, high=high)]
        mine = filter(working_set.takes, asleep)
        for names in (working_set.high, working_set.ring, working_set.skipped[BUDGET], mine):
            for book in map(working_set.book, names):
                wakes = self.resumes_at(book.origin) if book.is_paused else working_set.wakes_at(book)
                if not book.skipped or (wakes is not None and wakes <= until):
                    return True
        return any(due <= until for due, _ in self.overlay.delayed_rows(self.overlay.now, 1))

    @cached_property
    def _pauses(self) -> dict[str, PauseRow]:
        rows = self.overlay.unit.origins.paused(self.session.ring_id, self.overlay.now)
        return {row.origin: row for row in rows}

    def resumes_at(self, name: str) -> int:
        """Return when the pauses of a book end by themselves; `LATEST` if a person ends them."""
        *above, own = map(self._pauses.get, paths_of(name, has_paths=True))
        pauses = [row for row in (*above, own) if row is not None and (row.below or row is own)]
        return max((LATEST if row.until is None else row.until for row in pauses), default=LATEST)

    def settle(self, claims: Sequence[Claim]) -> None:
        """Settle the messages of a block as done."""
        answers: dict[str, Answers] = {}
        for claim in claims:
            done = answers.setdefault(claim.origin, Answers())
            for run in claim.runs:
                if run.count:
                    done.add(run.page, run.first, run.first + run.count - 1, DONE)
        details = {"limit": self.limit, "planned": ZERO, "overhead": ZERO, "messages": 0, "order": self.config.order}
        row = BlockRow(0, 0, None, b"", PLANNED, False, 0.0, 0, 0, None, details)
        self._settle(row, claims, answers)

    def _end_dead_blocks(self) -> None:
        """Release the blocks that are past their deadline, as the next plan does: readable reports count."""
        live = self.overlay.unit.blocks.latest(self.session.ring_id, PLANNED)
        dead = sorted(row for row in live if row.deadline <= self.overlay.now)
        self._live = sorted(row for row in live if row.deadline > self.overlay.now and not row.by_hand)
        for row in dead:
            self._settle(row, None, None if self.overlay.unit.reads_reports() else {})
        if dead:
            self.overlay.end_blocks({row.id for row in dead})

    def _settle(self, row: BlockRow, claims: Sequence[Claim] | None, answers: Mapping[str, Answers] | None) -> None:
        """Settle a block, of which claims and answers are stored unless they are given."""
        working_set = self.working_set(skip_in_flight=True)
        for _ in Settling(working_set, row, self.session.actor, None, claims, answers).parts():
            pass
        self._keep(working_set)


@contextmanager
def foresight(session: RingSession, conditions: Conditions, origin: str | None = None) -> Iterator[Foresight]:
    """Yield a forecast under the limit of the latest server that takes the origin, unless the conditions contain one.

    One dry run or forecast runs at a time per process, because each holds the queues of its blocks in memory.
    """
    patience = session.busy_timeout
    if not _LOOKING_AHEAD.acquire(timeout=patience):
        raise Busy(
            f"another dry run or forecast has been running in this process for {patience:g} seconds: "
            "one runs at a time; try again later, or ask for fewer blocks"
        )
    try:
        with session.store.reading() as unit:
            servers = servers_of(unit, session.ring_id) if conditions.limit is None else []
            takers = [server for server in servers if origin is None or server.takes(origin)]
            if servers and not takers:
                raise InvalidInput(f"no DAG or program of this ring takes {origin!r}: pass the limit of such blocks")
            if takers and (takers[0].limit is not None or takers[0].patterns is not None):
                conditions = conditions.of(takers[0])
            yield Foresight(session, unit, conditions)
    finally:
        _LOOKING_AHEAD.release()


def _queues(ledger: Ledger, claims: Sequence[Claim]) -> list[ForecastQueue]:
    by_book: dict[str, list[Claim]] = {}
    for claim in claims:
        by_book.setdefault(claim.origin, []).append(claim)
    return [_queue(entry, by_book.get(entry.origin, ())) for entry in ledger.entries.values()]


def _queue(entry: Entry, claims: Sequence[Claim]) -> ForecastQueue:
    decisions = [decision for claim in claims for run in claim.runs for decision in run.decisions.values()]
    expired = sum(decision.exceeded is None for decision in decisions)
    names = {"origin": origin_of(entry.origin), "priority": priority_of(entry.origin)}
    return ForecastQueue(
        **{**vars(entry), **names, "messages": sum(claim.messages for claim in claims)},
        weight=total_weight([claim.planned for claim in claims]),
        set_aside=len(decisions) - expired,
        expired=expired,
    )
