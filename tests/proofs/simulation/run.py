"""Runs: a script on a store, and what came of it."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass, field, replace

from airflow_mq import MessageQueue
from airflow_mq.engine.rules.errors import (
    BlobMissing,
    CommitInDoubt,
    MessageQueueError,
    Refused,
    StoreBusy,
    StoreCorrupt,
    StoreError,
)

from .actors import ACTIONS
from .clock import Clock
from .invariants import check_all, check_events
from .liveness import drain
from .messages import Violation
from .scheduler import Process, ProcessGone, Scheduler, randomness
from .script import Script, draw, rings_beside
from .world import BUDGETED, Stores, World, a_world

#: Of so many turns that change the ring, one is followed by `check()` and a count of all messages; each of the others
#: by the invariants that live blocks and events show. A server takes ten times as long as a file.
ALL_EVERY = {"sqlite": 3, "postgres": 12}


@dataclass
class Figures:
    """Sums over runs."""

    runs: int = 0
    steps: int = 0
    turns: int = 0
    cuts: int = 0
    blocks: int = 0
    hours: float = 0.0
    messages: int = 0
    drained: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)

    def add(self, other: Figures) -> None:
        """Add the figures of another run."""
        for name in ("runs", "steps", "turns", "cuts", "blocks", "hours", "messages", "drained", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.faults.update(other.faults)
        self.met.update(other.met)

    def __str__(self) -> str:
        faults = ", ".join(f"{kind} {count:,}" for kind, count in self.faults.most_common())
        return (
            f"{self.runs:,} runs: {self.hours:,.0f} simulated hours, {self.steps:,} steps, {self.turns:,} turns, "
            f"{self.cuts:,} cuts between statements, {self.blocks:,} waits for locks, {self.messages:,} messages, "
            f"{self.drained:,} blocks to drain, {self.seconds:,.0f} s of processor time\n"
            f"faults: {sum(self.faults.values()):,} ({faults or 'none'})"
        )


@dataclass
class Outcome:
    """Result of a run."""

    script: Script
    figures: Figures
    #: The violated invariant.
    failure: BaseException | None = None
    #: Number of steps that had begun.
    begun: int = 0
    results: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)

    @property
    def invariant(self) -> str:
        """Name of the violated invariant."""
        if self.failure is None:
            return ""
        return getattr(self.failure, "invariant", type(self.failure).__name__)


def run(
    script: Script, stores: Stores, store: str = "sqlite", *, cutting: bool = True, observe: bool = False
) -> Outcome:
    """Run a script.

    :param cutting: pause at cuts, and let faults happen
    :param observe: return what the ring looks like at the end, to compare stores
    """
    clock, began = Clock(), time.process_time()
    scheduler = Scheduler(clock, lambda process: _act(world, process), cutting=cutting)
    outcome = Outcome(script, Figures(runs=1))
    log = logging.getLogger("airflow_mq")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with a_world(stores, store, script.setup, scheduler, clock, beside=rings_beside(script)) as world:
            try:
                scheduler.run(list(script.steps), lambda: _after_turn(world))
                outcome.figures.hours = clock.elapsed / 3_600
                for ring in world.rings:
                    check_all(ring)
                outcome.results = world.results
                if observe:
                    outcome.history = [line for ring in world.rings for line in history(ring.observer)]
                for ring in world.rings:
                    outcome.figures.drained += drain(ring)
            except (AssertionError, MessageQueueError) as failure:
                outcome.failure = failure
            figures = outcome.figures
            figures.messages, figures.met = sum(len(ring.messages.by_id) for ring in world.rings), world.met
    finally:
        log.setLevel(level)
    outcome.begun = scheduler.begun
    figures.steps, figures.turns, figures.cuts = scheduler.begun, scheduler.turn, scheduler.cuts
    figures.blocks, figures.faults = scheduler.blocks, scheduler.faults
    figures.seconds = time.process_time() - began
    return outcome


def run_seed(seed: int, stores: Stores, store: str = "sqlite") -> Outcome:
    """Run the script of a seed."""
    return run(draw(seed), stores, store)


def budgeted(seed: int) -> Script:
    """Return the script of a seed on a ring with budgets over time."""
    script = draw(seed)
    return replace(script, setup=script.setup | BUDGETED)


def run_budgeted(seed: int, stores: Stores, store: str = "sqlite") -> Outcome:
    """Run the script of a seed on a ring with budgets over time."""
    return run(budgeted(seed), stores, store)


def assert_survives(script: Script, stores: Stores, store: str = "sqlite") -> None:
    """Run a script, and raise what it finds."""
    outcome = run(script, stores, store)
    if outcome.failure is not None:
        raise outcome.failure


def history(queue: MessageQueue) -> list[str]:
    """Return what became of every message, and what the ring looks like, without what each store numbers itself."""
    events = [
        f"{one.name} {one.address} {(one.id or b'').hex()[:12]} {one.weight} {one.detail} {one.block} {one.at}"
        for one in queue.inspect.events()
    ]
    footprints = [f"{origin} {footprint}" for origin, footprint in queue.footprints(limit=1_000)]
    ledger = [
        f"{page.block} " + " ".join(f"{e.origin} {e.granted} {e.messages} {e.reason}" for e in page.entries)
        for page in queue.inspect.ledger(limit=1_000)
    ]
    return [*events, *footprints, str(queue.inspect.ring_order(100)), *ledger]


def _after_turn(world: World) -> None:
    """Check the rings, and raise what actors found inside of processors."""
    for ring in world.rings:
        if ring.found:
            raise ring.found[0]
        _check_turn(ring)


def _check_turn(world: World) -> None:
    """Check a ring that has changed since the last check: the cheap invariants, and now and then all."""
    scheduler = world.scheduler
    if scheduler.releases != world.checked and world.has_changed():
        world.checks += 1
        if world.checks % ALL_EVERY[world.store] == 0:
            check_all(world)
        else:
            check_events(world)
    world.checked = scheduler.releases


def _act(world: World, process: Process) -> None:
    """Run the step of a process, and classify what it raises."""
    step = process.step
    try:
        result: object = ACTIONS[step.action](world, process, randomness(step))
    except ProcessGone:
        result = "gone"
    except Violation:
        raise
    except Exception as error:
        if process.is_gone:
            # The driver's error for a connection that went with the process.
            result = "gone"
        else:
            is_explained = process.is_shaken or process.fired is not None
            _judge(process, error, is_explained)
            result = f"{type(error).__name__}"
    world.met[f"{step.action}: {_kind(result)}"] += 1
    world.results.append(f"{step.actor} {step.action}: {result}")


def _kind(result: object) -> str:
    return result if isinstance(result, str) and result.isidentifier() else "nothing" if result is None else "done"


def _judge(process: Process, error: Exception, is_explained: bool) -> None:
    """Raise a violation for an error that nothing explains."""
    if isinstance(error, (StoreCorrupt, BlobMissing)):
        raise Violation("unexpected error", f"{process.step!r}: {error}") from error
    if isinstance(error, (Refused, StoreBusy)):
        return
    if isinstance(error, (StoreError, CommitInDoubt)) and is_explained:
        return
    if not isinstance(error, MessageQueueError) and is_explained and type(error).__module__.split(".")[0] in (
        "psycopg", "sqlite3",
    ):  # fmt: skip
        # From the caller's own connection.
        return
    raise Violation("unexpected error", f"{process.step!r}: {type(error).__name__}: {error}") from error
