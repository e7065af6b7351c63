"""Operators of a sharded queue, who change its layout and look at it; and outages of its servers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from random import Random

from airflow_mq import Delivery, MessageQueue, Outcome, Weight
from airflow_mq.core.errors import ConfigRefused, Refused, StoreBusy

from ..fleet import Fleet
from ..messages import Violation
from ..scheduler import Process
from ..script import SHARDS
from ..world import ORIGINS, World
from .processing import answer, done
from .services import stall


def apply_layout(fleet: Fleet, process: Process, random: Random) -> object:
    """Change weights, and add shards; complete a change that was interrupted."""
    queue = fleet.queue(process)
    present = queue.layout().shards
    wanted = {name: random.choice((0, 1, 1, 2)) for name in SHARDS if name in present or random.random() < 0.35}
    if random.random() < 0.25:
        wanted = dict(present)
    if not any(wanted.values()):
        return None
    try:
        return queue.apply(wanted).version
    except ConfigRefused:
        # Another operator has added a shard meanwhile.
        return "refused"


def remove_shard(fleet: Fleet, process: Process, random: Random) -> object:
    """Remove a shard of weight 0; it is refused while messages may be there."""
    queue = fleet.queue(process)
    layout = queue.layout()
    idle = [name for name, weight in layout.shards.items() if not weight]
    if not idle:
        return None
    gone = random.choice(idle)
    try:
        return queue.apply({name: weight for name, weight in layout.shards.items() if name != gone}).version
    except ConfigRefused:
        return "refused"


def drain_shards(fleet: Fleet, process: Process, random: Random) -> object:
    """Release origins that have left their former shards."""
    drained = fleet.queue(process).drain()
    _require_answers(fleet, process, drained.missing)
    fleet.met["origins released"] += sum(drained.released.values())
    return dict(drained.released), dict(drained.pinned)


def serve_shards(fleet: Fleet, process: Process, random: Random) -> object:
    """Service every shard in place; one that is down is missing, and the others are serviced."""

    def processor(delivery: Delivery) -> Outcome:
        stall(fleet, process, random)
        return answer(random, delivery.payload)

    answers = fleet.queue(process).service_queues(processor)
    _require_answers(fleet, process, answers.missing)
    return {name: serviced.processed for name, serviced in answers.found.items()}


def empty_shards(fleet: Fleet, process: Process, random: Random) -> object:
    """Work off what is in all shards, set-aside messages included, and let their origins leave."""
    if random.random() < 0.4:
        fleet.clock.advance(9_000.0)
    queue = fleet.queue(process)
    _require_answers(fleet, process, queue.each(_empty).missing)
    return drain_shards(fleet, process, random)


def empty_shard(fleet: Fleet, process: Process, random: Random) -> object:
    """Work off what is in one shard, and let its origins leave: others stay pinned, and with them the layout."""
    if random.random() < 0.4:
        fleet.clock.advance(9_000.0)
    queue, name = fleet.queue(process), random.choice(sorted(fleet.newest.shards))
    _empty(queue.shard(name))
    return drain_shards(fleet, process, random)


def _empty(shard: MessageQueue) -> None:
    shard.admin.housekeep()
    shard.service_queues(lambda delivery: done(delivery.payload), Weight(1 << 30, 1 << 30))
    for one in shard.set_aside.list(limit=100):
        with suppress(Refused):
            shard.execute_overweight(one.address, lambda delivery: done(delivery.payload), Weight(1 << 40, 1 << 40))


def look_at_shards(fleet: Fleet, process: Process, random: Random) -> object:
    """Read states and figures of all shards."""
    queue = fleet.queue(process)
    readings = queue.backlog, queue.queues, queue.fairness, lambda: queue.forecast(3, seed=b"seed")
    answers = random.choice(readings)()
    _require_answers(fleet, process, answers.missing)
    statuses = {each.name: each.error for each in queue.status()}
    _require_answers(fleet, process, {name: error for name, error in statuses.items() if error})
    return sorted(answers.found)


def _require_answers(fleet: Fleet, process: Process, missing: Mapping[str, object]) -> None:
    """Check that every shard has answered that was not down; another writer may have held the file for too long."""
    silent = {name: error for name, error in missing.items() if not isinstance(error, (StoreBusy, Refused))}
    if silent.keys() - fleet.troubled(process):
        raise Violation("held up", f"{process.step!r}: no answer: {silent!r}")


def pause_everywhere(fleet: Fleet, process: Process, random: Random) -> object:
    """Pause an origin in every shard."""
    origin = random.choice(ORIGINS)
    return len(fleet.queue(process).everywhere(lambda shard: shard.admin.pause(origin, "for now", 60.0)))


def resume_everywhere(fleet: Fleet, process: Process, random: Random) -> object:
    """Resume an origin in every shard."""
    origin = random.choice(ORIGINS)
    return len(fleet.queue(process).everywhere(lambda shard: shard.admin.resume(origin)))


def let_time_pass(fleet: Fleet, process: Process, random: Random) -> object:
    """Let hours pass: leases end, and keys are forgotten."""
    fleet.clock.advance(random.choice((3_600.0, 9_000.0)))
    return None


def stop_server(world: World, process: Process, random: Random) -> object:
    """Stop a server for a while."""
    return _stopped(world, process, random.choice((3, 10, 30)), random.choice((0.0, 1.5, 60.0)))


def restart_server(world: World, process: Process, random: Random) -> object:
    """Restart a server while statements may run there."""
    return _stopped(world, process, random.choice((0, 1)), 0.0)


def _stopped(world: World, process: Process, turns: int, seconds: float) -> object:
    if world.server.is_down or not world.scheduler.cutting:
        return None
    world.server.stop()
    world.met["servers stopped"] += 1
    try:
        if turns:
            process.pause(turns)
        world.clock.advance(seconds)
    finally:
        world.server.start()
    return world.name
