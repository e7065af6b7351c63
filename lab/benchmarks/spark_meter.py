"""CPU time, time and memory of a piece of work: Spark's processes, the database's, and this one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil

#: Seconds between two readings of the memory.
EVERY = 0.2


def measured(work: Callable[[], Any], server: int) -> dict[str, float]:
    """Run a piece of work; return its seconds, its CPU seconds, and the largest memory of its processes.

    :param server: id of the database server's first process
    """
    peak, ended = [0.0], threading.Event()

    def watch() -> None:
        while not ended.wait(EVERY):
            peak[0] = max(peak[0], _memory(server))

    watchman = threading.Thread(target=watch, daemon=True)
    before, database, begun = _cpu(psutil.Process(), server), _cpu(psutil.Process(server)), time.monotonic()
    watchman.start()
    try:
        work()
    finally:
        ended.set()
        watchman.join()
    seconds, database = time.monotonic() - begun, _cpu(psutil.Process(server)) - database
    client = _cpu(psutil.Process(), server) - before
    return {
        "seconds": seconds,
        "cpu": client + database,
        "client_cpu": client,
        "database_cpu": database,
        "memory": peak[0],
    }


def _cpu(process: psutil.Process, left_out: int | None = None) -> float:
    """Return the CPU seconds of a process and all below it, also of those that ended."""
    total = 0.0
    with suppress(psutil.Error):
        times = process.cpu_times()
        total = times.user + times.system + times.children_user + times.children_system
        total += sum(_cpu(child) for child in process.children() if child.pid != left_out)
    return total


def _memory(server: int) -> float:
    """Return the MiB of memory that this process and its children use, without those of the server."""
    total = 0
    skipped = {server}
    with suppress(psutil.Error):
        skipped |= {child.pid for child in psutil.Process(server).children(recursive=True)}
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.Error):
            total += 0 if process.pid in skipped else process.memory_info().rss
    return total / (1 << 20)
