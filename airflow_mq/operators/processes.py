"""Ending what a task started."""

from __future__ import annotations

from contextlib import suppress


def end_tree(pid: int, patience: float = 5.0) -> None:
    """End a process with all its descendants: asked first, then made to."""
    import psutil

    try:
        root = psutil.Process(pid)
        family = [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, left = psutil.wait_procs(family, timeout=patience)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
