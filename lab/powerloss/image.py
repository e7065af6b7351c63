"""Images of a disk after a power loss: cut a recording at random moments, and let the package open what is left."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from airflow_mq import MessageQueue
from airflow_mq.engine.rules.errors import MessageQueueError
from lab.chaos.journal import read_journals
from lab.chaos.verdict import Verdict, judge

from .disk import Disk
from .preparation import RUN, STORE, prepare, uri_of
from .recording import Change

#: Blocks of a run.
MOST_BLOCKS = 10_000


def images(folder: Path, changes: Sequence[Change], draw: random.Random, count: int, lies: bool) -> Iterator[int]:
    """Yield moments after each of which the folder has the files that a power loss left."""
    disk, done = Disk(folder / RUN, lies), 0
    for moment in sorted(_moment(changes, draw) for _ in range(count)):
        for change in changes[done:moment]:
            disk.change(change)
        done = moment
        for name in (RUN, STORE):
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).mkdir()
        for path, data in disk.after_loss(draw).items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(data)
        yield moment


def _moment(changes: Sequence[Change], draw: random.Random) -> int:
    """Return a random moment: anywhere, before a sync is done, or after a client wrote to its journal."""
    moment = draw.randint(1, len(changes))
    kinds = draw.choice(("any", "sync", "journal"))
    for number in range(moment, len(changes)):
        change = changes[number]
        if kinds == "sync" and change.kind == "S":
            return number
        if kinds == "journal" and change.path.endswith(".journal"):
            return number + 1
    return moment


def verdict_of(folder: Path) -> Verdict:
    """Open the store of an image, service everything and return the verdict."""
    began = time.monotonic()
    uri = uri_of(folder)
    try:
        prepare(folder)
        forgotten = _forgotten(folder, uri)
        verdict = judge(folder / RUN, uri, [], 0)
    except MessageQueueError as error:
        return Verdict(findings=1, examples=[f"{type(error).__name__}: {error}"])
    verdict.lost += len(forgotten)
    verdict.examples += forgotten
    verdict.recovered_in = round(time.monotonic() - began, 1)
    return verdict


def _forgotten(folder: Path, uri: str) -> list[str]:
    """Return the acknowledged plans and settlements that the store does not have."""
    with MessageQueue(uri) as queue:
        states = {block.id: block.state for block in queue.blocks.list(limit=MOST_BLOCKS)}
    forgotten = []
    for entry in read_journals(folder / RUN):
        block = entry.number("block")
        if entry.kind == "planned" and block not in states:
            forgotten.append(f"forgotten: plan of block {block}")
        if entry.kind == "settled" and states.get(block, "planned") == "planned":
            forgotten.append(f"forgotten: settlement of block {block}")
    return forgotten
