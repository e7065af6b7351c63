"""Looking ahead: what the next blocks would take, and nothing of it is written.

Blocks are planned and settled by the code that does it in earnest, over a store that forgets.
So what is foreseen is what happens, if nothing changes meanwhile: nobody sends, pauses or
decides, no live block ends, and every message is done for what it was weighed at.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ...core.claims import Claim, ClaimRun, Decision, Verdict
from ...core.config import RingConfig
from ...core.errors import Busy, ConfigRefused, InvalidInput
from ...core.message import Address, check_number, check_origin
from ...core.orders import Ledger
from ...core.outcome import DONE
from ...core.page import Page
from ...core.priority import REGULAR, origin_of, priority_of
from ...core.settle import Answers
from ...core.taking import OriginPatterns
from ...core.weight import ZERO, Weight
from ...store import codec
from ...store.pretend import PretendUnit
from ...store.rows import PLANNED, BlockRow
from ...store.shelf import SqlShelf
from ...store.unit import Unit
from ..admin import check_share
from ..blocks.plan import Planner
from ..blocks.reports import answers_of
from ..blocks.settlement import BlockSettler
from ..servers import Server, servers_of
from ..session import RingSession, limit_of
from .reading import MOST_SEED

_LOOKING_AHEAD = threading.Lock()


@dataclass(frozen=True)
class ForeseenQueue:
    """What a block would do for one queue that it looks at."""

    origin: str
    #: Messages that would go to a processor, and what they weigh.
    messages: int = 0
    weight: Weight = ZERO
    #: Messages that would be set aside, as no block can carry them, or dropped, as nobody wants them any more.
    set_aside: int = 0
    expired: int = 0
    #: Deficit order: what the queue could spend, and what it would keep, in parts of a block.
    offered: int = 0
    deficit: int = 0
    #: Why the block would stop there, as in the ledger.
    reason: str = ""
    #: What it would get of the block in all, as in the ledger: what its messages and the steps around them use.
    granted: Weight = ZERO
    priority: str = REGULAR
    #: Weight of its first message, where that is more than the whole block could carry, as in the ledger.
    needs: Weight | None = None


@dataclass(frozen=True)
class ForeseenBlock:
    """A block that was not planned, as it would be."""

    #: Which of the next blocks it is, from 1.
    number: int
    limit: Weight
    planned: Weight
    #: What servicing itself costs, beside the messages.
    overhead: Weight
    order: str
    #: The queues it looks at, in the order of their first visits.
    queues: Sequence[ForeseenQueue]
    claims: Sequence[Claim] = field(default=(), repr=False)
    seed: bytes | None = None
    #: The DAG or program whose limit counts; none, where that is the ring's service weight, or the caller names one.
    server: str | None = None

    @property
    def messages(self) -> int:
        """How many messages go to a processor."""
        return sum(queue.messages for queue in self.queues)

    @property
    def origins(self) -> list[str]:
        """The queues of which it takes something, in the order of service."""
        return list(dict.fromkeys(claim.whose for claim in self.claims if claim.messages))

    def queue(self, origin: str, priority: str = REGULAR) -> ForeseenQueue:
        """What it does for this queue; nothing, if it does not look at it."""
        found = (one for one in self.queues if (one.origin, one.priority) == (origin, priority))
        return next(found, ForeseenQueue(origin, priority=priority))

    def verdict(self, address: Address) -> str | None:
        """What becomes of this message in it: `processed`, `set aside` or `expired`; nothing, if it is not taken."""
        run = self._run_of(address)
        if run is None:
            return None
        decision = run.decisions.get(address.index)
        if decision is None:
            return "processed"
        return "expired" if decision.verdict is Verdict.EXPIRED else "set aside"

    def decision(self, address: Address) -> Decision | None:
        """What it decides about this message instead of having it processed: by which weight, and which limit."""
        run = self._run_of(address)
        return run.decisions.get(address.index) if run is not None else None

    def _run_of(self, address: Address) -> ClaimRun | None:
        for claim in self.claims:
            for run in claim.runs if claim.origin == address.book else ():
                if run.page == address.page and run.first <= address.index < run.first + run.count:
                    return run
        return None


@dataclass(frozen=True)
class Conditions:
    """Under what is looked ahead; the ring's own settings where nothing is said."""

    limit: Weight | None = None
    shares: Mapping[str, int] = field(default_factory=dict)
    seed: bytes | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    mosts: Mapping[str, Weight] = field(default_factory=dict)
    #: The DAG or program whose blocks these are.
    server: str | None = None
    #: Which origins these blocks service; all, where nothing is said.
    patterns: OriginPatterns | None = None

    def __post_init__(self) -> None:
        if self.limit is not None:
            object.__setattr__(self, "limit", Weight.of(self.limit))
        if self.seed is not None and not 1 <= len(self.seed) <= MOST_SEED:
            raise InvalidInput(f"a seed is 1 to {MOST_SEED} bytes")
        for origin, share in self.shares.items():
            check_share(share)
            check_origin(origin)
        if "heap_size" in self.changes:
            raise ConfigRefused("heap_size says how messages lie in pages; what a block takes of it is not foreseen")

    def of(self, server: Server) -> Conditions:
        """Return these conditions in blocks of a server."""
        return replace(self, limit=server.limit, server=server.name, patterns=server.patterns)

    def standings(self) -> dict[str, dict[str, Any]]:
        """What is said of origins, as it would be stored."""
        said: dict[str, dict[str, Any]] = {origin: {"share": share} for origin, share in self.shares.items()}
        for origin, most in self.mosts.items():
            said.setdefault(origin, {})["most"] = list(most)
        return said


class _WordlessShelf(SqlShelf):
    """A shelf that never fetches what messages say: nothing ahead depends on it."""

    def payloads(self, origin: str, page: Page) -> list[bytes]:
        """As many messages as there are, and nothing in them."""
        return [b""] * len(page.lengths)

    def fetch_payloads(self, pages: Any) -> None:
        """Nothing to fetch."""


class Foresight:
    """A ring as it will be, block after block."""

    def __init__(self, session: RingSession, unit: Unit, conditions: Conditions) -> None:
        self.session, self.conditions, self.number = session, conditions, 0
        self.settler = BlockSettler(session)
        #: What high messages of these blocks owe to regular ones, once a block is planned.
        self.debt: int | None = None
        config = session.remember_config(unit.rings.named(session.ring).config)
        self.config: RingConfig = config.changed(**conditions.changes)
        self.limit = limit_of(self.config, conditions.limit)
        if self.config.order == "shuffle" and conditions.seed is None:
            raise InvalidInput(
                "nobody knows whose turn it is in a ring that shuffles before the block has drawn its seed; say one: "
                "seed=b'…', at a terminal --seed HEX"
            )
        self.unit = PretendUnit(unit, session.ring_id, conditions.standings(), anew=self.config.paths != config.paths)
        self._end_dead_blocks()

    def shelf(self, *, passes_in_flight: bool = False) -> SqlShelf:
        """The ring as it stands by now, as a plan sees it."""
        return _WordlessShelf(
            self.unit, self.session.ring_id, self.config, self.unit.state,
            now=self.unit.began, horizon=self.unit.horizon, passes_in_flight=passes_in_flight,
        )  # fmt: skip

    def blocks(self, most: int) -> Iterator[ForeseenBlock]:
        """The next blocks, until nothing is left that they could take."""
        while self.number < most:
            block = self._plan()
            if not any(claim.runs for claim in block.claims) and self._is_idle():
                return
            yield block
            if self.number < most:
                self._settle(block.claims, self._all_done(block.claims), self.limit)

    def next_block(self) -> ForeseenBlock:
        """The next block, whatever there is in it."""
        return self._plan()

    def step(self, seed: bytes) -> ForeseenBlock:
        """The next block, whatever there is in it; then every message of it is done."""
        block = self._plan(seed)
        self._settle(block.claims, self._all_done(block.claims), self.limit)
        return block

    def _plan(self, seed: bytes | None = None) -> ForeseenBlock:
        self.number += 1
        shelf = self.shelf()
        said = self.conditions
        planner = Planner(self.session, None, self.limit, 0.0, None, seed or said.seed, said.server, said.patterns)
        planner.debt = self.debt
        planner.walk(shelf)
        self.debt = planner.debt
        claims, planned, overhead = planner.held()
        shelf.save()
        return ForeseenBlock(
            self.number, planner.meter.limit, planned, overhead, self.config.order,
            _queues(planner.ledger, claims), claims, planner.seed, self.conditions.server,
        )  # fmt: skip

    def _is_idle(self) -> bool:
        """Whether every ready queue is passed by: then no later block will find more."""
        shelf = self.shelf()
        if self.conditions.patterns is not None:
            shelf.only(self.conditions.patterns)
        return all(shelf.book(name).passed_by for ring in (shelf.high, shelf.ring) for name in ring)

    def _all_done(self, claims: Sequence[Claim]) -> dict[str, Answers]:
        found: dict[str, Answers] = {}
        for claim in claims:
            answers = found.setdefault(claim.origin, Answers())
            for run in claim.runs:
                if run.count:
                    answers.add(run.page, run.first, run.first + run.count - 1, DONE)
        return found

    def _settle(self, claims: Sequence[Claim], answers: Mapping[str, Answers], limit: Weight | None) -> None:
        details = {"limit": limit, "planned": ZERO, "overhead": ZERO, "messages": 0, "order": self.config.order}
        row = BlockRow(0, 0, None, b"", PLANNED, False, 0.0, 0, 0, None, details)
        shelf = self.shelf(passes_in_flight=True)
        self.settler.settle_claims(self.unit, shelf, claims, answers, row)
        shelf.save()

    def _end_dead_blocks(self) -> None:
        """Whoever plans releases first what is past its deadline: what was reported counts, the rest goes back."""
        dead = self.unit.blocks.overdue(self.session.ring_id, self.unit.began)
        for row in dead:
            claims = [codec.unpack_claim(origin, bytes(data)) for origin, data in self.unit.blocks.claims(row.id)]
            answers = answers_of(self.unit.blocks.reports(row.id))
            shelf = self.shelf(passes_in_flight=True)
            if row.by_hand:
                self.settler.settle_by_hand(shelf, claims[0], answers, row.details_json["limit"])
            else:
                self.settler.settle_claims(self.unit, shelf, claims, answers, row)
            shelf.save()
        if dead:
            self.unit.end_blocks({row.id for row in dead})


class Forecasts:
    """The next blocks of a ring; nothing is written."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id

    def dry_run(
        self, limit: Weight | None = None, *, shares: Mapping[str, int] | None = None, order: str | None = None,
        seed: bytes | None = None, **changes: Any,
    ) -> ForeseenBlock:  # fmt: skip
        """See `Inspect.dry_run`."""
        conditions = _conditions(limit, shares, order, seed, changes)
        with self._alone(), self.store.reading() as unit:
            return Foresight(self.session, unit, self._served(unit, conditions)).next_block()

    def forecast(
        self, blocks: int = 10, *, limit: Weight | None = None, shares: Mapping[str, int] | None = None,
        order: str | None = None, seed: bytes | None = None, **changes: Any,
    ) -> list[ForeseenBlock]:  # fmt: skip
        """See `Inspect.forecast`."""
        check_number(blocks, "a number of blocks")
        conditions = _conditions(limit, shares, order, seed, changes)
        with self._alone(), self.store.reading() as unit:
            return list(Foresight(self.session, unit, self._served(unit, conditions)).blocks(blocks))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One dry run or forecast at a time in a process: each has the queues of its blocks in memory."""
        patience = self.session.busy_timeout
        if not _LOOKING_AHEAD.acquire(timeout=patience):
            raise Busy(
                f"another dry run or forecast has been running in this process for {patience:g} seconds: "
                "one runs at a time; try again later, or ask for fewer blocks"
            )
        try:
            yield
        finally:
            _LOOKING_AHEAD.release()

    def _served(self, unit: Unit, conditions: Conditions) -> Conditions:
        """Return the conditions, under the limit that blocks of this ring really have where the caller names none."""
        servers = servers_of(unit, self.ring_id) if conditions.limit is None else []
        if not servers or (servers[0].limit is None and servers[0].patterns is None):
            return conditions
        return conditions.of(servers[0])


def _conditions(
    limit: Weight | None, shares: Mapping[str, int] | None, order: str | None, seed: bytes | None,
    changes: Mapping[str, Any],
) -> Conditions:  # fmt: skip
    ordered = {} if order is None else {"order": order}
    return Conditions(limit, dict(shares or {}), seed, {**changes, **ordered})


def _queues(ledger: Ledger, claims: Sequence[Claim]) -> list[ForeseenQueue]:
    by_origin: dict[str, list[Claim]] = {}
    for claim in claims:
        by_origin.setdefault(claim.origin, []).append(claim)
    found = []
    for entry in ledger.entries.values():
        own = by_origin.get(entry.origin, ())
        weight = ZERO
        for claim in own:
            weight = weight.plus(claim.planned)
        verdicts = [decision.verdict for claim in own for run in claim.runs for decision in run.decisions.values()]
        found.append(ForeseenQueue(
            origin_of(entry.origin), sum(claim.messages for claim in own), weight, verdicts.count(Verdict.SET_ASIDE),
            verdicts.count(Verdict.EXPIRED), entry.offered, entry.deficit, entry.reason, entry.granted,
            priority_of(entry.origin), entry.needs,
        ))  # fmt: skip
    return found
