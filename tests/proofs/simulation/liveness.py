"""Liveness: without faults, everything drains within a stated number of blocks."""

from __future__ import annotations

from airflow_mq import MessageQueue, Weight
from airflow_mq.engine.rules.errors import Refused

from .actors.ending import mended
from .actors.processing import done
from .invariants import check_all
from .messages import ACCEPTED, Violation
from .world import World

#: Blocks beyond one for each message that is left.
SPARE = 12


def drain(world: World) -> int:
    """End all processes, let days pass, and empty the ring; return the number of blocks that it took."""
    world.scheduler.close()
    check_all(world)
    blocks = _drain_ring(world)
    for name, sent in world.messages.by_id.items():
        if sent.state == ACCEPTED and world.messages.finals[name] != 1:
            raise Violation("I1 conservation", f"{sent.payload!r} ended {world.messages.finals[name]} times")
    return blocks


def _drain_ring(world: World) -> int:
    with MessageQueue(world.uri, world.ring, actor="drain") as queue:
        world.clock.advance(2 * 86_400)
        queue.session.settler.apply_ends()
        mended(queue)
        queue.admin.change_ring(set_aside_expires=None)
        queue.admin.housekeep()
        # What dead blocks held waits for its backoff.
        world.clock.advance(7_200)
        if left := queue.blocks.list("planned"):
            raise Violation("liveness", f"blocks {[one.id for one in left]} outlive their leases")
        for path, settings in world.budgets.settings.items():
            queue.admin.set_origin(path, unset=settings)
        world.budgets.settings = {}
        for paused in queue.admin.paused():
            queue.admin.resume(paused.origin)
        bound = sum(footprint.count for _, footprint in queue.footprints(limit=1_000)) + len(world.delayed()) + SPARE
        blocks = _empty(world, queue, bound)
        check_all(world)
        queue.admin.housekeep()
        if rows := world.leftovers():
            raise Violation("liveness", f"an empty ring keeps rows: {rows}")
        if left := [blob.hash for blob in queue.payloads.list(limit=1_000) if blob.hash in world.messages.by_id]:
            raise Violation("liveness", f"an empty ring keeps {len(left)} external payloads")
    return blocks


def _empty(world: World, queue: MessageQueue, bound: int) -> int:
    blocks = 0
    while True:
        block = queue.blocks.plan(lease=60.0, seed=b"drain")
        for batch in block.batches():
            queue.blocks.report(block, batch.answers([done(payload) for payload in batch.payloads]))
        result = queue.blocks.settle(block)
        world.clock.advance(3_600)
        check_all(world)
        blocks += 1
        if blocks > bound:
            raise Violation("liveness", f"{bound} blocks did not empty the ring")
        if block.claims and (result.processed or result.failed or result.set_aside or result.expired):
            bound += result.processed  # children
            continue
        if _execute_aside(queue):
            check_all(world)
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
