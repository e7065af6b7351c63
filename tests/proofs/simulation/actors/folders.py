"""Landing folder: senders drop files, and a receiver enqueues each of them once."""

from __future__ import annotations

import os
from random import Random

from airflow_mq.adapters import receive as receive_all
from airflow_mq.adapters.landing.folder import LocalPlace
from airflow_mq.adapters.landing.source import Landing
from airflow_mq.engine.rules.errors import MessageQueueError

from ..scheduler import Process
from ..world import World


def drop_files(world: World, process: Process, random: Random) -> object:
    """Put files into the folder."""
    for _ in range(random.randint(1, 3)):
        sent = world.messages.new(process.name, "landed", in_order=False)
        folder = world.landing / "landed"
        folder.mkdir(exist_ok=True)
        path = folder / f"{sent.serial}.txt"
        path.write_bytes(sent.payload)
        os.utime(path, ns=(sent.serial, sent.serial))
        world.messages.headers[sent.id] = [{"path": f"landed/{path.name}"}]
        # From here on it may arrive at any time.
        world.messages.open([sent])
    return None


def receive(world: World, process: Process, random: Random) -> object:
    """Enqueue the files that are there; after an error, again."""
    for _ in range(3):
        try:
            landing = Landing(LocalPlace(world.landing), "{origin}/*.txt", settle=0)
            return receive_all(world.queue(process), landing, batch=random.choice((1, 2, 10))).count
        except MessageQueueError:
            process.is_shaken = True
    return None
