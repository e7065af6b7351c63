"""Readers: people and programs that look at the ring in the midst of everything, and plan what was forecast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from random import Random

from airflow_mq import MessageQueue, Weight
from airflow_mq.engine.rules.claims import Claim

from ..scheduler import Process
from ..world import FILLED, ORIGINS, World
from .blocks import _planned

#: Origins that they ask about; there may be none of the last name.
ASKED = (*ORIGINS, "children", "onward", FILLED, "nowhere")


def check_beside(world: World, process: Process, random: Random) -> object:
    """Check the ring while others write: what a check reads is of one moment."""
    if found := world.queue(process).check():
        world.note("check() beside writers", "; ".join(map(str, found[:3])))
    return None


def foresee(world: World, process: Process, random: Random) -> object:
    """Plan a block after a dry run: it takes what was forecast, if nothing happened in between."""
    queue, seed = world.queue(process), random.randbytes(16)
    queue.blocks.release_dead()
    before = world.scheduler.turn, world.scheduler.blocks, world.clock.elapsed
    expected = queue.inspect.dry_run(seed=seed, limit=queue.config.service_weight)
    block = queue.blocks.plan(seed=seed)
    is_alone = before == (world.scheduler.turn, world.scheduler.blocks, world.clock.elapsed)
    if is_alone and not process.is_shaken and process.fired is None:
        world.met["blocks that were forecast"] += 1
        if _taken(block.claims) != _taken(expected.claims):
            world.note("dry run", f"{_taken(expected.claims)} was forecast, and {_taken(block.claims)} planned")
    return _planned(world, block.token)


def _taken(claims: Sequence[Claim]) -> list[tuple[str, list[tuple[int, int, int]]]]:
    return [(one.origin, [(run.page, run.first, run.count) for run in one.runs if run.count]) for one in claims]


def look_around(world: World, process: Process, random: Random) -> object:
    """Ask for everything that can be shown. Nothing of it may fail, or change anything."""
    queue, origin, seed = world.queue(process), random.choice(ASKED), random.randbytes(16)
    today = datetime.fromtimestamp(world.clock.database / 1_000_000, timezone.utc).date()
    readings: list[Callable[[MessageQueue], object]] = [
        lambda q: q.inspect.queues(limit=random.choice((2, 50))),
        lambda q: list(q.inspect.depths()),
        lambda q: q.inspect.backlog(3, 3),
        lambda q: q.inspect.ring(),
        lambda q: q.inspect.stuck(q.inspect.put_off(), q.inspect.servicing()),
        lambda q: q.inspect.ring_order(20, seed=seed),
        lambda q: (q.inspect.pulse(5), q.inspect.fullness(), q.inspect.budgets(), q.admin.paused(), len(q)),
        lambda q: [q.inspect.history(one.id) for one in q.inspect.latest_events(limit=3)[0] if one.id],
        lambda q: (q.inspect.explain(origin, seed=seed), q.inspect.peek(origin), q.inspect.origin_settings(origin)),
        lambda q: [q.inspect.explain_message(one.address, seed=seed) for one in q.inspect.peek(origin)[:2]],
        lambda q: q.inspect.forecast(random.choice((1, 4)), seed=seed, every=random.choice((None, 0, 60))),
        lambda q: q.inspect.finds_work(),
        lambda q: q.inspect.quote(
            # Time stands still while blocks are forecast, so only a quote of one block ends.
            origin, count=random.choice((1, 5)), weight=Weight(2, 10), every=60, seconds=-1.0,
            priority=random.choice(("regular", "high")),
        ),
        lambda q: (q.inspect.usage("processor"), q.inspect.usage("path"), q.inspect.bill_headers()),
        lambda q: q.inspect.bill_headers() and q.inspect.bill(origin.partition("/")[0], today.replace(day=1)),
        lambda q: (q.inspect.fairness(20), q.inspect.ledger(limit=5)),
        lambda q: q.set_aside.refusals(q.set_aside.list(limit=5)),
        lambda q: (q.blocks.list(limit=5, entries=True), q.blocks.unapplied(), q.payloads.list()),
    ]  # fmt: skip
    turn, version = world.scheduler.turn, world.rows("ring_state", "version")
    for read in random.sample(readings, random.randint(2, 6)):
        read(queue)
        process.arrive(commits=False)
    if world.scheduler.turn == turn and world.rows("ring_state", "version") != version:
        world.note("reading", "a reading has changed the ring")
    world.met["readings"] += 1
    return None
