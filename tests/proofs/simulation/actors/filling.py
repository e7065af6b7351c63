"""Fillers: senders that fill a queue up to its quota."""

from __future__ import annotations

from random import Random

from ..messages import Sent
from ..scheduler import Process
from ..world import FILLED, World
from .senders import _sending

#: The quota, and the most bytes of one call.
QUOTA, MOST_CALL = 300, 150


def fill(world: World, process: Process, random: Random) -> object:
    """Send one message."""
    queue, (sent,) = world.queue(process), _new(world, process, random, 1)
    return _sending(world, process, [sent], lambda: queue.enqueue_message(FILLED, sent.payload))


def fill_many(world: World, process: Process, random: Random) -> object:
    """Send several messages in one call, of either priority."""
    queue, some, priority = world.queue(process), _new(world, process, random, 3), random.choice(("regular", "high"))
    return _sending(
        world, process, some,
        lambda: queue.enqueue_messages(FILLED, [one.payload for one in some], priority=priority),
    )  # fmt: skip


def fill_later(world: World, process: Process, random: Random) -> object:
    """Send messages that join their queue later."""
    queue, some = world.queue(process), _new(world, process, random, 2)
    return _sending(
        world, process, some, lambda: queue.enqueue_messages(FILLED, [one.payload for one in some], not_before=90.0)
    )


def _new(world: World, process: Process, random: Random, count: int) -> list[Sent]:
    queue = world.queue(process)
    if not queue.session.has_quotas:
        # A session that is older than the quota learns of it here.
        queue.admin.set_origin(FILLED, quota=QUOTA)
        world.has_quota = True
    return [world.messages.new(process.name, FILLED, size=random.choice((0, 40)), in_order=False) for _ in range(count)]
