"""Executors: people and programs that decide about set-aside messages."""

from __future__ import annotations

from random import Random

from airflow_mq import Address, Weight

from ..scheduler import Process
from ..world import World
from .processing import answer, done

ENOUGH = Weight(1 << 30, 1 << 30)


def _pick(world: World, process: Process, random: Random, most: int = 1) -> list[Address]:
    """Return addresses of set-aside messages, mostly the first: executors meet there."""
    seen = world.board.aside
    if seen and random.random() < 0.3:
        # From a list that was read a while ago.
        return random.sample(seen, min(most, len(seen)))
    found = [one.address for one in world.queue(process).set_aside.list(limit=20)]
    seen += [address for address in found if address not in seen]
    return found[:most] if random.random() < 0.6 else random.sample(found, min(most, len(found)))


def execute(world: World, process: Process, random: Random) -> object:
    """Execute a set-aside message here and now."""
    for address in _pick(world, process, random):

        def processor(delivery: object) -> object:
            process.arrive(commits=False)
            return answer(random, delivery.payload)  # type: ignore[attr-defined]

        world.met["executed by hand"] += 1
        return world.queue(process).execute_overweight(address, processor, ENOUGH)  # type: ignore[arg-type]
    return None


def execute_as_block(world: World, process: Process, random: Random) -> object:
    """Execute a set-aside message by a block of its own."""
    queue = world.queue(process)
    for address in _pick(world, process, random):
        block = queue.blocks.plan_overweight(address, ENOUGH, lease=random.choice((10.0, 900.0, 3_600.0)))
        for batch in block.batches():
            process.arrive(commits=False)
            queue.blocks.report(block, batch.answers([done(payload) for payload in batch.payloads]))
        if random.random() < 0.4:
            world.board.blocks.append(block.token)
            return block.id
        world.asked.add(block.token)
        return queue.blocks.settle(block)
    return None


def requeue(world: World, process: Process, random: Random) -> object:
    """Requeue set-aside messages."""
    chosen = _pick(world, process, random, 3)
    limit = random.choice((None, ENOUGH))
    if not chosen:
        return None
    judged = world.queue(process).set_aside.requeue(chosen, "again", limit=limit, forget_attempts=True)
    return len(judged.moved), len(judged.stayed)


def requeue_all(world: World, process: Process, random: Random) -> object:
    """Requeue all set-aside messages."""
    judged = world.queue(process).set_aside.requeue_all("again", weigh=random.random() < 0.5)
    return len(judged.moved), len(judged.stayed)


def discard(world: World, process: Process, random: Random) -> object:
    """Discard set-aside messages."""
    chosen = _pick(world, process, random, 2)
    return world.queue(process).set_aside.discard(chosen, "not wanted") if chosen else None
