"""Liners: files whose lines are messages, and receivers that stop or die between two batches of lines."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from airflow_mq.adapters import Received
from airflow_mq.adapters import receive as receive_all
from airflow_mq.adapters.landing.folder import LocalPlace
from airflow_mq.adapters.landing.source import AFTER, Landing
from airflow_mq.engine.rules.errors import MessageQueueError

from ..messages import Sent
from ..scheduler import Process
from ..world import World
from .senders import _remembers

#: Longer than any page: such a line becomes an external payload.
LONG = 640


class Stopped(Exception):
    """The receiver ends between two batches."""


def drop_lines(world: World, process: Process, random: Random) -> object:
    """Put a file into the folder: its lines are messages, in the order of a sender of its own."""
    folder = world.landing / "lined"
    folder.mkdir(exist_ok=True)
    some: list[Sent] = []
    lines: list[bytes] = []
    sender = f"{process.name}.{len(world.board.files)}"
    path = folder / f"{sender}.ndjson"
    for _ in range(random.randint(2, 7)):
        lines += [b"\n"] * (random.random() < 0.1)
        size = random.choice((0, 0, 0, 30, LONG))
        sent = world.messages.new(sender, "lined", size=size, in_order=size < LONG)
        lines.append(sent.payload + random.choice((b"\n", b"\r\n")))
        world.messages.headers[sent.id] = [{"path": f"lined/{path.name}", "line": str(len(lines))}]
        some.append(sent)
    text = b"".join(lines)
    path.write_bytes(text if random.random() < 0.5 else text.rstrip())
    os.utime(path, ns=(some[0].serial, some[0].serial))
    world.board.files[path] = call = world.messages.open(some)
    call.began = world.clock.database
    return len(lines)


def receive_lines(world: World, process: Process, random: Random) -> object:
    """Enqueue the lines that are there; after an error or a stop between two batches, begin anew."""
    _forget_old(world)
    if random.random() < 0.5:
        drop_lines(world, process, random)
    for _ in range(3):
        try:
            return _receive(world, process, random)
        except Stopped:
            world.met["receivers that stopped between lines"] += 1
        except MessageQueueError:
            process.is_shaken = True
    return None


def _receive(world: World, process: Process, random: Random) -> int:
    files, queue = [path for path in world.board.files if path.exists()], world.queue(process)
    landing = Landing(LocalPlace(world.landing), "{origin}/*.ndjson", lines=True, settle=0, after=random.choice(AFTER))

    def progress(received: Received) -> None:
        process.arrive(commits=False)
        if random.random() < 0.3:
            raise Stopped

    try:
        received = receive_all(queue, landing, batch=random.choice((1, 2, 3)), progress=progress)
    except (Stopped, MessageQueueError):
        if random.random() < 0.6:
            # The next run need not read the lines again; a process that dies leaves no note.
            landing.close()
        raise
    finally:
        # What is out of the folder is in the queue.
        _accept(world, [path for path in files if not path.exists()])
    _accept(world, files)
    world.met["lines that came again"] += received.repeated
    return received.count


def _accept(world: World, files: list[Path]) -> None:
    """Note that all lines of files are stored."""
    for path in files:
        if not world.board.files[path].ended:
            world.messages.accept(world.board.files[path])


def _forget_old(world: World) -> None:
    """Remove files whose lines the keys may not know any more, as a person does that reads the documentation."""
    for path, call in world.board.files.items():
        if not (call.ended or _remembers(world, call.began)):
            path.unlink(missing_ok=True)
            call.ended = True
