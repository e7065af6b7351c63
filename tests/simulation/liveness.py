"""Liveness: without faults, everything drains within a stated number of blocks."""

from __future__ import annotations

from airflow_mq import MessageQueue, Weight
from airflow_mq.core.errors import Refused

from .actors.processing import done
from .fleet import Fleet
from .invariants import check_all
from .messages import ACCEPTED, Violation
from .world import ORIGINS, World

#: Blocks beyond one for each message that is left.
SPARE = 12


def drain(fleet: Fleet) -> int:
    """End all processes, let days pass, and empty the rings; return the number of blocks that it took."""
    fleet.scheduler.close()
    check_all(fleet)
    if fleet.is_sharded:
        with fleet.opened("drain") as sharded:
            # It completes a change that was interrupted.
            sharded.apply(sharded.layout().shards)
        check_all(fleet)
    blocks = sum(_drain_ring(fleet, world) for world in fleet.rings)
    if fleet.is_sharded:
        blocks += _let_origins_leave(fleet)
    for name, sent in fleet.messages.by_id.items():
        if sent.state == ACCEPTED and fleet.messages.finals[name] != 1:
            raise Violation("I1 conservation", f"{sent.payload!r} ended {fleet.messages.finals[name]} times")
    return blocks


def _let_origins_leave(fleet: Fleet) -> int:
    """Check that origins are where the layout wants them, once nothing is left of them: new messages go there."""
    with fleet.opened("drain") as queue:
        drained = queue.drain()
        if any(drained.pinned.values()) or drained.missing or queue.layout().former:
            raise Violation("liveness", f"origins do not leave their former shards: {drained}, {queue.layout()}")
        call = fleet.messages.open([fleet.messages.new("drain", origin) for origin in ORIGINS])
        queue.enqueue_messages((sent.origin, sent.payload) for sent in call.messages)
        fleet.messages.accept(call)
        check_all(fleet)
        for sent in call.messages:
            if fleet.messages.homes[sent.id] != queue.layout().owner(sent.origin):
                raise Violation("liveness", f"{sent.origin!r} is in {fleet.messages.homes[sent.id]}: {queue.layout()}")
    return sum(_drain_ring(fleet, world) for world in fleet.rings)


def _drain_ring(fleet: Fleet, world: World) -> int:
    with MessageQueue(world.uri, world.ring, actor="drain") as queue:
        world.clock.advance(2 * 86_400)
        queue.admin.change_ring(set_aside_expires=None)
        queue.admin.housekeep()
        # What dead blocks held waits for its backoff.
        world.clock.advance(7_200)
        if left := queue.blocks.list("planned"):
            raise Violation("liveness", f"blocks {[one.id for one in left]} outlive their leases")
        for paused in queue.admin.paused():
            queue.admin.resume(paused.origin)
        bound = sum(footprint.count for _, footprint in queue.footprints(limit=1_000)) + len(world.delayed()) + SPARE
        blocks = _empty(fleet, world, queue, bound)
        check_all(fleet)
        queue.admin.housekeep()
        if rows := world.leftovers():
            raise Violation("liveness", f"an empty ring keeps rows: {rows}")
    return blocks


def _empty(fleet: Fleet, world: World, queue: MessageQueue, bound: int) -> int:
    blocks = 0
    while True:
        block = queue.blocks.plan(lease=60.0, seed=b"drain")
        for batch in block.batches():
            queue.blocks.report(block, batch.answers([done(payload) for payload in batch.payloads]))
        result = queue.blocks.settle(block)
        world.clock.advance(3_600)
        check_all(fleet)
        blocks += 1
        if blocks > bound:
            raise Violation("liveness", f"{bound} blocks did not empty the ring")
        if block.claims and (result.processed or result.failed or result.set_aside or result.expired):
            bound += result.processed  # children
            continue
        if _execute_aside(queue):
            check_all(fleet)
            continue
        if left := [(origin, one.count) for origin, one in queue.footprints(limit=1_000) if one.count]:
            raise Violation("I6 progress", f"a block without faults makes no progress, and {left} wait")
        return blocks


def _execute_aside(queue: MessageQueue) -> int:
    """Execute every set-aside message, as a person would."""
    executed = 0
    for one in queue.set_aside.list(limit=1_000):
        try:
            queue.execute_overweight(one.address, lambda delivery: done(delivery.payload), Weight(1 << 40, 1 << 40))
            executed += 1
        except Refused as error:
            raise Violation("liveness", f"{one.address} cannot be executed: {error}") from error
    return executed
