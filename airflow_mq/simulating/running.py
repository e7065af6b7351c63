"""Runs of a scenario under policies: production plans and settlements, over a store that is discarded."""

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
from ..queue import ForecastBlock, MessageQueue
from ..queue.inspect.forecast import Conditions, Foresight
from ..queue.sending.packing import Packer
from ..store import Outgoing, upgrade
from ..store.address import sqlite_address
from .scenario import Arrival, Policy, Scenario

_RING = "simulated"


@dataclass(frozen=True)
class SimulatedOrigin:
    """Results of one origin."""

    origin: str
    arrived: int
    #: Of those: processed, set aside as too heavy, and waiting at the end.
    done: int
    set_aside: int
    left: int
    #: Waits in blocks, from arrival to start; waiting messages count until the end.
    mean_wait: float
    longest_wait: int
    priority: str = REGULAR

    @property
    def name(self) -> str:
        """Name of the queue: the origin, and its priority if that is high."""
        return queue_name(self.origin, self.priority)


@dataclass(frozen=True)
class Simulated:
    """Results of a scenario under one policy."""

    policy: Policy
    order: str
    limit: Weight
    blocks: Sequence[ForecastBlock] = field(repr=False)
    fairness: Fairness
    origins: Sequence[SimulatedOrigin]

    @property
    def done(self) -> int:
        """Number of processed messages."""
        return sum(origin.done for origin in self.origins)

    @property
    def left(self) -> int:
        """Number of messages that wait at the end."""
        return sum(origin.left for origin in self.origins)

    @property
    def longest_wait(self) -> int:
        """Longest wait of any message, in blocks."""
        return max((origin.longest_wait for origin in self.origins), default=0)

    @property
    def mean_wait(self) -> float:
        """Mean wait of all messages, in blocks."""
        arrived = sum(origin.arrived for origin in self.origins)
        return sum(origin.mean_wait * origin.arrived for origin in self.origins) / arrived if arrived else 0.0

    @property
    def filled(self) -> float:
        """Mean fill of the blocks, by the scarcer part of the weight."""
        parts = parts_of(self.limit)
        sums = [parts(block.planned.plus(block.overhead)) for block in self.blocks]
        # The limit may be zero.
        return sum(sums) / (len(sums) * max(parts(self.limit), 1)) if sums else 0.0

    def origin(self, name: str, priority: str = REGULAR) -> SimulatedOrigin:
        """Return the results of an origin; empty ones if it sent nothing."""
        found = (origin for origin in self.origins if (origin.origin, origin.priority) == (name, priority))
        return next(found, SimulatedOrigin(name, 0, 0, 0, 0, 0.0, 0, priority))

    def granted(self, block: ForecastBlock) -> Mapping[str, float]:
        """Return the granted weight of each origin in a block, as fractions of a full one."""
        parts = parts_of(self.limit)
        found: dict[str, float] = {}
        for queue in block.queues:
            if queue.granted != (0, 0):
                found[queue.origin] = found.get(queue.origin, 0.0) + parts(queue.granted) / max(parts(self.limit), 1)
        return found


def simulate(
    scenario: Scenario, policies: Sequence[Policy] = (), progress: Callable[[str, float], None] | None = None
) -> list[Simulated]:
    """Run a scenario under each of these policies; by default under its own, or with its ring's settings.

    :param progress: called with the name of the policy and the total progress from 0 to 1.
    """
    chosen = list(policies) or list(scenario.policies) or [Policy(scenario.ring.order)]
    names = [policy.name for policy in chosen]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise InvalidInput(f"duplicate name of policies {duplicate!r}: expected unique names")
    found = []
    for place, policy in enumerate(chosen):
        at = partial(_report, progress, policy.name, place, len(chosen))
        found.append(_simulate(scenario, policy, at))
    return found


def _report(progress: Callable[[str, float], None] | None, name: str, place: int, count: int, part: float) -> None:
    if progress is not None:
        progress(name, (place + part) / count)


def _simulate(scenario: Scenario, policy: Policy, report: Callable[[float], None]) -> Simulated:
    config = policy.config(scenario.ring)
    if any(arrival.priority == HIGH for arrival in scenario.arrivals):
        config = replace(config, high=True)
    limit = config.service_weight
    if limit is None:
        raise ConfigRefused("no limit of a block: a simulation requires one; set limit = [time, size]")
    standings = _standings(scenario, policy)
    run = _Run(scenario, config, limit)
    with _empty_ring(config, standings) as queue, queue.store.reading() as unit:
        future = Foresight(queue.session, unit, Conditions(seed=scenario.block_seed(0)))
        for number in range(1, scenario.blocks + 1):
            report((number - 1) / scenario.blocks)
            arrivals = run.arriving(number)
            if arrivals:
                future.overlay.arrive(row for arrival in arrivals for row in rows_of(arrival, config))
            run.note(future.step(scenario.block_seed(number)))
    return run.simulated(policy, standings)


def _standings(scenario: Scenario, policy: Policy) -> dict[str, Standing]:
    found = dict(scenario.standings)
    for origin, share in policy.shares.items():
        found[origin] = replace(found.get(origin, Standing()), share=share)
    return found


@contextmanager
def _empty_ring(config: RingConfig, standings: Mapping[str, Standing]) -> Iterator[MessageQueue]:
    """Open a new ring with these settings, in a temporary store."""
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
    """Yield the inbox rows in which these messages are sent, without their bytes."""
    size, weight = arrival.size, arrival.weight
    if size > config.max_message_len:
        # An external payload: its page holds only a reference, and its weight is that of the whole payload.
        size, weight = 1, weight or config.weigher.weigh(size)
    message: bytes | Message = bytes(size)
    if weight is not None:
        message = Message(bytes(size), weight=weight)
    packed = Packer(config, {}, priority=arrival.priority).pack_one(arrival.origin, [message] * arrival.count)
    for packet in packed:
        yield packet.row._replace(heap=b"")


class _Run:
    """Sums over a run."""

    def __init__(self, scenario: Scenario, config: RingConfig, limit: Weight) -> None:
        self.scenario, self.config, self.limit = scenario, config, limit
        self.parts = parts_of(limit)
        self.by_block: dict[int, list[Arrival]] = {}
        for arrival in scenario.arrivals:
            self.by_block.setdefault(arrival.block, []).append(arrival)
        #: Waiting messages by the names of books: since which block, their number, and the weight of each in parts of a
        #: block.
        self.waiting: dict[str, deque[list[int]]] = {}
        self.sums: dict[str, dict[str, Any]] = {}
        self.blocks: list[ForecastBlock] = []
        self.rounds: list[Round] = []

    def arriving(self, block: int) -> list[Arrival]:
        """Return and count what arrives before this block."""
        found = self.by_block.get(block, [])
        for arrival in found:
            weight = arrival.weight or self.config.weigher.weigh(arrival.size)
            name = book_name(arrival.origin, arrival.priority)
            self.waiting.setdefault(name, deque()).append([block, arrival.count, self.parts(weight)])
            self._sums(name)["arrived"] += arrival.count
        return found

    def _sums(self, origin: str) -> dict[str, Any]:
        return self.sums.setdefault(origin, {"arrived": 0, "done": 0, "set_aside": 0, "waited": 0, "longest": 0})

    def note(self, block: ForecastBlock) -> None:
        """Count the results of a block."""
        self.blocks.append(block)
        started = set()
        for claim in block.claims:
            count = sum(run.count for run in claim.runs)
            if count:
                started.add(claim.origin)
                self._take(claim.origin, count, block.number)
        for queue in block.queues:
            if queue.messages or queue.set_aside:
                sums = self._sums(book_name(queue.origin, queue.priority))
                sums["done"] += queue.messages
                sums["set_aside"] += queue.set_aside
        wanting = frozenset(origin for origin, rest in self.waiting.items() if rest)
        granted = {book_name(queue.origin, queue.priority): self.parts(queue.granted) for queue in block.queues}
        self.rounds.append(Round(granted, frozenset(started), wanting))

    def _take(self, origin: str, count: int, block: int) -> None:
        """Remove the oldest messages of a queue and count their waits."""
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
        """Return the results."""
        names = sorted(self.sums, key=lambda name: (origin_of(name), not is_high(name)))
        levels = {REGULAR: self._fairness(standings, REGULAR)}
        if self.config.high:
            levels[HIGH] = self._fairness(standings, HIGH)
        origins = [self._origin(name) for name in names]
        return Simulated(policy, self.config.order, self.limit, self.blocks, together(levels), origins)

    def _fairness(self, standings: Mapping[str, Standing], priority: str) -> Fairness:
        """Return the figures of the queues of one priority."""

        def own(names: Iterable[str]) -> frozenset[str]:
            return frozenset(origin_of(name) for name in names if priority_of(name) == priority)

        rounds = [
            Round(
                {origin_of(name): got for name, got in one.granted.items() if priority_of(name) == priority},
                own(one.started),
                own(one.wanting),
            )
            for one in self.rounds
        ]
        left = {
            origin_of(name): sum(count * parts for _, count, parts in rest)
            for name, rest in self.waiting.items()
            if priority_of(name) == priority
        }
        promises = {origin: self._promise(one, leasts=priority == REGULAR) for origin, one in standings.items()}
        return judge(rounds, promises, left=left, paths=self.config.paths and priority == REGULAR)

    def _origin(self, name: str) -> SimulatedOrigin:
        sums, last = self.sums[name], self.scenario.blocks
        rest = self.waiting.get(name, deque())
        left = sum(count for _, count, _ in rest)
        waited = sums["waited"] + sum(count * (last - since + 1) for since, count, _ in rest)
        longest = max([sums["longest"], *(last - since + 1 for since, _, _ in rest)])
        return SimulatedOrigin(
            origin_of(name),
            sums["arrived"],
            sums["done"],
            sums["set_aside"],
            left,
            waited / sums["arrived"],
            longest,
            priority_of(name),
        )

    def _promise(self, standing: Standing, *, leasts: bool) -> Promise:
        if self.config.order != "deficit":
            return Promise(standing.share)
        least = self.parts(standing.least) if standing.least and leasts else 0
        return (
            Promise(standing.share, least)
            if standing.most is None
            else Promise(standing.share, least, self.parts(standing.most))
        )
