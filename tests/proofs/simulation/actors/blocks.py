"""Blocks: planners, reporters and settlers, who pass each other tokens as tasks of a DAG run do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from airflow_mq import Batch, Outcome, Overweight, Report, Weight, Yield

from ..scheduler import Process
from ..world import World
from .processing import answer
from .services import stall

#: Origins of blocks: some share the budget of `d`.
SELECTIONS = (None, ["d/1"], ["d/2", "a"], ["d*", "b"])
#: Tokens that actors keep in mind, dead ones included.
KEPT = 12


def plan(world: World, process: Process, random: Random) -> object:
    """Plan a block; where there are budgets, DAGs that service some origins each share them."""
    seed, origins = random.randbytes(8), random.choice(SELECTIONS) if world.budgets.settings else None
    return _planned(world, world.queue(process).blocks.plan(seed=seed, origins=origins).token)


def plan_keyed(world: World, process: Process, random: Random) -> object:
    """Plan a block under a key, twice: the second plan returns the same block while it lives."""
    queue, key = world.queue(process), f"run {random.randrange(3)}"
    block = queue.blocks.plan(key, seed=random.randbytes(8))
    return _planned(world, block.token)


def plan_weighing(world: World, process: Process, random: Random) -> object:
    """Plan with a weigher of the caller's, which runs outside of any transaction."""

    def weigh(origin: str, payloads: Sequence[bytes]) -> list[Weight]:
        stall(world, process, random, 0.15)
        return [Weight(2, len(payload)) for payload in payloads]

    return _planned(world, world.queue(process).blocks.plan(weigher=weigh, seed=random.randbytes(8)).token)


def _planned(world: World, token: str) -> str:
    if token not in world.board.blocks:
        world.board.blocks.append(token)
        del world.board.blocks[:-KEPT]
    with world.scheduler.checking():
        block = world.observer.blocks.get(token)
    world.met["planned messages"] += block.messages
    return f"block {block.id}: {block.messages} messages, {block.planned}"


def _pick(world: World, random: Random) -> str | None:
    """Return the token of a block, mostly of a late one."""
    tokens = world.board.blocks
    if not tokens:
        return None
    return tokens[-1] if random.random() < 0.7 else random.choice(tokens)


def report(world: World, process: Process, random: Random) -> object:
    """Process a block and report every outcome."""
    return _report(world, process, random, 1.0)


def report_some(world: World, process: Process, random: Random) -> object:
    """Process a part of a block."""
    return _report(world, process, random, 0.5)


def _report(world: World, process: Process, random: Random, part: float) -> object:
    token = _pick(world, random)
    return None if token is None else report_to(world, process, random, token, part)


def report_to(world: World, process: Process, random: Random, token: str, part: float = 1.0) -> int:
    """Process a part of a block, report it, and return the number of outcomes."""
    queue = world.queue(process)
    block = queue.blocks.get(token)
    count, left = 0, set()
    for batch in block.batches():
        process.arrive(commits=False)
        if batch.book in left:
            continue
        some = _answers(block.id, batch, random, part)
        if len(some) < len(batch) or isinstance(some[-1].outcome, (Yield, Overweight)):
            left.add(batch.book)
        if some and random.random() < 0.5:
            queue.blocks.report(token, some)
        else:
            for one in some:
                queue.blocks.report(token, [one])
        count += len(some)
    return count


def _answers(block: int, batch: Batch, random: Random, part: float) -> list[Report]:
    """Return what a worker reports: it stops at a message that is not done, or anywhere.

    Two workers of a block answer alike: which of them comes first is no matter.
    """
    found: list[Outcome] = []
    for payload in batch.payloads:
        if random.random() > part:
            break
        found.append(answer(Random(f"{block} {payload!r}"), payload))
        if isinstance(found[-1], (Yield, Overweight)):
            break
    return replace(batch, payloads=batch.payloads[: len(found)]).answers(found)


def renew(world: World, process: Process, random: Random) -> object:
    """Extend a block's lease."""
    token = _pick(world, random)
    return token and world.queue(process).blocks.renew(token, random.choice([None, 1.0, 120.0]))


def settle(world: World, process: Process, random: Random) -> object:
    """Settle a block."""
    token = _pick(world, random)
    world.asked.add(token or "")
    return token and world.queue(process).blocks.settle(token)


def release(world: World, process: Process, random: Random) -> object:
    """Abandon a block."""
    token = _pick(world, random)
    world.asked.add(token or "")
    return token and world.queue(process).blocks.release(token)


def release_dead(world: World, process: Process, random: Random) -> object:
    """Release the blocks whose deadlines have passed."""
    return world.queue(process).blocks.release_dead()


def settle_completed(world: World, process: Process, random: Random) -> object:
    """Settle what was completed, without waiting."""
    return world.queue(process).blocks.release_dead(wait=False)
