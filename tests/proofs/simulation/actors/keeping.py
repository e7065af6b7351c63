"""Housekeepers, sweepers, reapers and upgraders."""

from __future__ import annotations

from random import Random

from airflow_mq import MessageQueue, RingConfig, Weight
from airflow_mq.engine import store
from airflow_mq.engine.rules.errors import ConfigRefused

from ..scheduler import Process
from ..world import ORIGINS, World


def housekeep(world: World, process: Process, random: Random) -> object:
    """Release dead blocks, and delete what has expired."""
    return world.queue(process).admin.housekeep()


def sweep(world: World, process: Process, random: Random) -> object:
    """Sweep an origin."""
    return world.queue(process).sweep_queue(random.choice(ORIGINS))


def cull(world: World, process: Process, random: Random) -> object:
    """Reap pages that are old enough."""
    return world.queue(process).set_aside.cull("old")


def pause(world: World, process: Process, random: Random) -> object:
    """Pause an origin."""
    origin, until = random.choice(ORIGINS), random.choice((None, 60.0))
    return world.queue(process).admin.pause(origin, "for now", until)


def resume(world: World, process: Process, random: Random) -> object:
    """Resume an origin, which ends the waits of its messages, too."""
    origin = random.choice(ORIGINS)

    def end_waits() -> None:
        for sent in world.messages.by_id.values():
            if sent.origin == origin and sent.was_aside:
                sent.due = 0

    # Others see the end of the waits before this call returns; what returns until then may be one of them.
    end_waits()
    try:
        return world.queue(process).admin.resume(origin)
    finally:
        end_waits()


def force_head(world: World, process: Process, random: Random) -> object:
    """Make an origin the head of the ring."""
    return world.queue(process).admin.force_set_head(random.choice(ORIGINS))


def set_origin(world: World, process: Process, random: Random) -> object:
    """Set how an origin is serviced."""
    origin, ordered = random.choice(ORIGINS), random.choice((None, True, False))
    if ordered is False:
        world.relaxed.add(origin)
    share, most = random.choice((None, 1, 3)), random.choice((None, Weight(20, 2_000)))
    return world.queue(process).admin.set_origin(origin, share=share, most=most, ordered=ordered)


def grow(world: World, process: Process, random: Random) -> object:
    """Change the settings of the ring: pages may only grow."""
    config = _enlarged(world.queue(process), random.choice((0, 16, 100)))
    return config and config.heap_size


def _enlarged(queue: MessageQueue, more: int) -> RingConfig | None:
    """Enlarge pages by some bytes, and return the settings; None if others have enlarged them by more meanwhile."""
    try:
        return queue.admin.change_ring(heap_size=queue.config.heap_size + more)
    except ConfigRefused:
        queue.session.reread_config()
        return None


def reap(world: World, process: Process, random: Random) -> object:
    """Reap a page of an origin."""
    queue, origin = world.queue(process), random.choice(ORIGINS)
    pages = [page.page for page in queue.inspect.pages(origin)]
    return queue.reap_page(origin, pages[0] if pages and random.random() < 0.7 else random.randrange(4), "old")


def upgrade(world: World, process: Process, random: Random) -> object:
    """Run the migrations once more."""
    return store.upgrade(store.parse(world.uri))
