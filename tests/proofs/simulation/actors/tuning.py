"""Tuners: people who change settings of the ring while others wait for it."""

from __future__ import annotations

from random import Random

from airflow_mq.engine.rules.errors import Refused

from ..registers import Register
from ..scheduler import Process
from ..world import MAX_HEADERS, ORIGINS, World
from .keeping import _enlarged
from .senders import _sending

LEAST_MAX_HEADERS = MAX_HEADERS - 50
#: Settings that they change, with the values of each.
SETTINGS = {
    "max_stale": (0, 1, 2, 3, 5),
    "backoff_most": (3_600.0, 5_000.0, 7_000.0),
    "rounds_per_block": (3, 5, 10, 20),
    "max_headers": (LEAST_MAX_HEADERS, MAX_HEADERS, MAX_HEADERS + 50),
}


def tune(world: World, process: Process, random: Random) -> object:
    """Change one setting, and leave the others as they are."""
    name = random.choice([*SETTINGS])
    return _change(world, process, name, random.choice(SETTINGS[name]))


def enlarge(world: World, process: Process, random: Random) -> object:
    """Let pages grow, and send a message that fits no page of the former size."""
    queue = world.queue(process)
    config = _enlarged(queue, random.choice((40, 100, 200)))
    if config is None:
        return None
    sent = world.messages.new(process.name, random.choice(ORIGINS), size=config.max_message_len, in_order=False)
    return _sending(world, process, [sent], lambda: queue.enqueue_message(sent.origin, sent.payload))


def _change(world: World, process: Process, name: str, value: object) -> object:
    register = world.settings.setdefault(name, Register(getattr(world.observer.config, name)))
    write = register.begin(value, world.scheduler.turn)
    try:
        world.queue(process).admin.change_ring(**{name: value})
    except Refused:
        register.undo(write)
        raise
    finally:
        write.ended = world.scheduler.turn
    register.acknowledge(write)
    return value
