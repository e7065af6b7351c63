"""End of a process with all its descendants."""

from __future__ import annotations

import time
from contextlib import suppress
from signal import strsignal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil


def signal_of(code: int) -> str:
    """Return a text that names the signal in an exit code; a process whose child was killed adds 128."""
    number = -code if code < 0 else code - 128
    return f"it was ended by signal {number} ({strsignal(number)})" if 0 < number <= 64 else ""


def end_tree(pid: int, patience: float = 5.0) -> None:
    """Terminate a process and its descendants; kill those that still run after `patience` seconds.

    The exit code is left to the parent: only one waiter learns it, and a later one would read 0.
    """
    import psutil

    try:
        root = psutil.Process(pid)
        family = [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    deadline = time.monotonic() + patience
    while (left := [process for process in family if not _has_ended(process)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _has_ended(process: psutil.Process) -> bool:
    import psutil

    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
