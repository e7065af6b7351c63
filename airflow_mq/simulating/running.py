"""Running a scenario under policies: real plans and settlements, over a store that forgets."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..core.book import Standing
from ..core.config import RingConfig
from ..core.errors import ConfigRefused, InvalidInput
from ..core.fairness import Fairness, Promise, Round, judge, together
from ..core.message import Message
from ..core.orders import parts_of
from ..core.priority import HIGH, REGULAR, book_name, is_high, origin_of, priority_of, queue_name
from ..core.weight import Weight
from ..queue import ForeseenBlock, MessageQueue
from ..queue.inspect.forecast import Conditions, Foresight
from ..queue.sending.packing import Packer
from ..store import Outgoing, upgrade
from ..store.address import sqlite_address
from .scenario import Arrival, Policy, Scenario

_RING = "simulated"


@dataclass(frozen=True)
class SimulatedOrigin:
    """How an origin fared."""

    origin: str
    arrived: int
    #: Of those: processed, set aside as too heavy, and still waiting at the end.
    done: int
    set_aside: int
    left: int
    #: In blocks, from arrival to start; what is left at the end has waited until then.
    mean_wait: float
    longest_wait: int
    priority: str = REGULAR

    @property
    def name(self) -> str:
        """The origin, and that it is its high queue."""
        return queue_name(self.origin, self.priority)


@dataclass(frozen=True)
class Simulated:
    """What became of a scenario under one policy."""

    policy: Policy
    order: str
    limit: Weight
    blocks: Sequence[ForeseenBlock] = field(repr=False)
    fairness: Fairness
    origins: Sequence[SimulatedOrigin]

    @property
    def done(self) -> int:
        """How many messages were processed."""
        return sum(one.done for one in self.origins)

    @property
    def left(self) -> int:
        """How many messages still wait at the end."""
        return sum(one.left for one in self.origins)

    @property
    def longest_wait(self) -> int:
        """The longest wait of any message, in blocks."""
        return max((one.longest_wait for one in self.origins), default=0)

    @property
    def mean_wait(self) -> float:
        """The mean wait of all messages, in blocks."""
        arrived = sum(one.arrived for one in self.origins)
        return sum(one.mean_wait * one.arrived for one in self.origins) / arrived if arrived else 0.0

    @property
    def filled(self) -> float:
        """How full the blocks were, by the part of the weight that was scarcer."""
        parts = parts_of(self.limit)
        sums = [parts(block.planned.plus(block.overhead)) for block in self.blocks]
        # A full block of a limit of nothing at all is nothing.
        return sum(sums) / (len(sums) * max(parts(self.limit), 1)) if sums else 0.0

    def origin(self, name: str, priority: str = REGULAR) -> SimulatedOrigin:
        """How this origin fared."""
        found = (one for one in self.origins if (one.origin, one.priority) == (name, priority))
        return next(found, SimulatedOrigin(name, 0, 0, 0, 0, 0.0, 0, priority))

    def granted(self, block: ForeseenBlock) -> Mapping[str, float]:
        """What each origin got of a block, as parts of a full one."""
        parts = parts_of(self.limit)
        found: dict[str, float] = {}
        for one in block.queues:
            if one.granted != (0, 0):
                found[one.origin] = found.get(one.origin, 0.0) + parts(one.granted) / max(parts(self.limit), 1)
        return found


def simulate(
    scenario: Scenario, policies: Sequence[Policy] = (), tell: Callable[[str, float], None] | None = None
) -> list[Simulated]:
    """Run a scenario under each of these policies; under its own, or as its ring is set, where none is said.

    :param tell: hears which policy it is at, and how far it is in all, from 0 to 1.
    """
    chosen = list(policies) or list(scenario.policies) or [Policy(scenario.ring.order)]
    names = [one.name for one in chosen]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput(
            f"two policies are called {twice!r}; give each a name of its own, or nobody can tell them apart"
        )
    found = []
    for place, policy in enumerate(chosen):
        at = partial(_told, tell, policy.name, place, len(chosen))
        found.append(_simulate(scenario, policy, at))
    return found


def _told(tell: Callable[[str, float], None] | None, name: str, place: int, count: int, part: float) -> None:
    if tell is not None:
        tell(name, (place + part) / count)


def _simulate(scenario: Scenario, policy: Policy, told: Callable[[float], None]) -> Simulated:
    config = policy.config(scenario.ring)
    if any(one.priority == HIGH for one in scenario.arrivals):
        config = replace(config, high=True)
    limit = config.service_weight
    if limit is None:
        raise ConfigRefused("a simulation needs the limit of a block: say limit = [time, size]")
    standings = _standings(scenario, policy)
    run = _Run(scenario, config, limit)
    with _empty_ring(config, standings) as queue, queue.store.reading() as unit:
        future = Foresight(queue.session, unit, Conditions(seed=scenario.block_seed(0)))
        for number in range(1, scenario.blocks + 1):
            told((number - 1) / scenario.blocks)
            arrivals = run.arriving(number)
            if arrivals:
                future.unit.arrive(row for one in arrivals for row in rows_of(one, config))
            run.note(future.step(scenario.block_seed(number)))
    return run.simulated(policy, standings)


def _standings(scenario: Scenario, policy: Policy) -> dict[str, Standing]:
    found = dict(scenario.standings)
    for origin, share in policy.shares.items():
        found[origin] = replace(found.get(origin, Standing()), share=share)
    return found


@contextmanager
def _empty_ring(config: RingConfig, standings: Mapping[str, Standing]) -> Iterator[MessageQueue]:
    """A ring that is set like this, in a store of its own that goes afterwards."""
    with tempfile.TemporaryDirectory(prefix="airflow_mq_simulation_") as folder:
        address = sqlite_address(str(Path(folder).resolve() / "store.db"))
        upgrade(address)
        with MessageQueue(address) as first:
            first.admin.create_ring(_RING, config)
        with MessageQueue(address, _RING) as queue:
            for origin, one in standings.items():
                queue.admin.set_origin(origin, share=one.share, least=one.least, most=one.most, ordered=one.ordered)
            yield queue


def rows_of(arrival: Arrival, config: RingConfig) -> Iterator[Outgoing]:
    """The rows of mail that these messages are sent as, without their bytes."""
    size, weight = arrival.size, arrival.weight
    if size > config.max_message_len:
        # It is kept apart, and what lies in its page only refers to it; it costs what all of it costs.
        size, weight = 1, weight or config.weigher.weigh(size)
    message: bytes | Message = bytes(size)
    if weight is not None:
        message = Message(bytes(size), weight=weight)
    packed = Packer(config, {}, priority=arrival.priority).pack_one(
        arrival.origin, [message] * arrival.count, config.max_message_len
    )  # fmt: skip
    for one in packed:
        yield one.row._replace(heap=b"")


class _Run:
    """What a run adds up to."""

    def __init__(self, scenario: Scenario, config: RingConfig, limit: Weight) -> None:
        self.scenario, self.config, self.limit = scenario, config, limit
        self.parts = parts_of(limit)
        self.by_block: dict[int, list[Arrival]] = {}
        for one in scenario.arrivals:
            self.by_block.setdefault(one.block, []).append(one)
        #: What waits, by the names of books: since which block, how many, and what each costs in parts of a block.
        self.waiting: dict[str, deque[list[int]]] = {}
        self.sums: dict[str, dict[str, Any]] = {}
        self.blocks: list[ForeseenBlock] = []
        self.rounds: list[Round] = []

    def arriving(self, block: int) -> list[Arrival]:
        """What arrives before this block."""
        found = self.by_block.get(block, [])
        for one in found:
            weight = one.weight or self.config.weigher.weigh(one.size)
            name = book_name(one.origin, one.priority)
            self.waiting.setdefault(name, deque()).append([block, one.count, self.parts(weight)])
            self._sums(name)["arrived"] += one.count
        return found

    def _sums(self, origin: str) -> dict[str, Any]:
        return self.sums.setdefault(origin, {"arrived": 0, "done": 0, "set_aside": 0, "waited": 0, "longest": 0})

    def note(self, block: ForeseenBlock) -> None:
        """Remember what a block did."""
        self.blocks.append(block)
        started = set()
        for claim in block.claims:
            count = sum(run.count for run in claim.runs)
            if count:
                started.add(claim.origin)
                self._take(claim.origin, count, block.number)
        for one in block.queues:
            if one.messages or one.set_aside:
                sums = self._sums(book_name(one.origin, one.priority))
                sums["done"] += one.messages
                sums["set_aside"] += one.set_aside
        wanting = frozenset(origin for origin, rest in self.waiting.items() if rest)
        granted = {book_name(one.origin, one.priority): self.parts(one.granted) for one in block.queues}
        self.rounds.append(Round(granted, frozenset(started), wanting))

    def _take(self, origin: str, count: int, block: int) -> None:
        """So many leave a queue, the oldest first."""
        rest, sums = self.waiting[origin], self._sums(origin)
        while count:
            since, many, _ = rest[0]
            taken = min(count, many)
            sums["waited"] += taken * (block - since)
            sums["longest"] = max(sums["longest"], block - since)
            count -= taken
            rest[0][1] -= taken
            if not rest[0][1]:
                rest.popleft()

    def simulated(self, policy: Policy, standings: Mapping[str, Standing]) -> Simulated:
        """What it came to."""
        names = sorted(self.sums, key=lambda name: (origin_of(name), not is_high(name)))
        levels = {REGULAR: self._fairness(standings, REGULAR)}
        if self.config.high:
            levels[HIGH] = self._fairness(standings, HIGH)
        origins = [self._origin(name) for name in names]
        return Simulated(policy, self.config.order, self.limit, self.blocks, together(levels), origins)

    def _fairness(self, standings: Mapping[str, Standing], priority: str) -> Fairness:
        """The figures of the queues of one priority."""

        def own(names: Iterable[str]) -> frozenset[str]:
            return frozenset(origin_of(name) for name in names if priority_of(name) == priority)

        rounds = [
            Round(
                {origin_of(name): got for name, got in one.granted.items() if priority_of(name) == priority},
                own(one.started), own(one.wanting),
            )
            for one in self.rounds
        ]  # fmt: skip
        left = {
            origin_of(name): sum(count * parts for _, count, parts in rest)
            for name, rest in self.waiting.items() if priority_of(name) == priority
        }  # fmt: skip
        promises = {origin: self._promise(one, leasts=priority == REGULAR) for origin, one in standings.items()}
        return judge(rounds, promises, left=left, paths=self.config.paths and priority == REGULAR)

    def _origin(self, name: str) -> SimulatedOrigin:
        sums, last = self.sums[name], self.scenario.blocks
        rest = self.waiting.get(name, deque())
        left = sum(count for _, count, _ in rest)
        waited = sums["waited"] + sum(count * (last - since + 1) for since, count, _ in rest)
        longest = max([sums["longest"], *(last - since + 1 for since, _, _ in rest)])
        return SimulatedOrigin(
            origin_of(name), sums["arrived"], sums["done"], sums["set_aside"], left, waited / sums["arrived"],
            longest, priority_of(name),
        )  # fmt: skip

    def _promise(self, standing: Standing, *, leasts: bool) -> Promise:
        if self.config.order != "deficit":
            return Promise(standing.share)
        least = self.parts(standing.least) if standing.least and leasts else 0
        return (
            Promise(standing.share, least)
            if standing.most is None
            else Promise(standing.share, least, self.parts(standing.most))
        )
