"""Progress of long work, shown on a terminal after a short wait."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

#: Seconds of work without progress shown.
AFTER = 0.5


class Tell(Protocol):
    """Reports progress: a few words, and the finished part from 0 to 1, if known."""

    def __call__(self, text: str = "", part: float | None = None) -> None: ...


def silent(text: str = "", part: float | None = None) -> None:
    """Show nothing."""


@contextmanager
def progress(what: str) -> Iterator[Tell]:
    """Show progress on standard error, if that is a terminal: a spinner, words, a bar, and the elapsed time."""
    if not sys.stderr.isatty():
        yield silent
        return
    line: dict[str, Any] = {"description": what, "total": None}
    shown: Any = None

    def show() -> None:
        nonlocal shown
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(24), TimeElapsedColumn()
        bar = Progress(*columns, console=Console(stderr=True, highlight=False), transient=True)
        bar.add_task(**line)
        bar.start()
        shown = bar

    def tell(text: str = "", part: float | None = None) -> None:
        line["description"] = f"{what}: {text}" if text else what
        if part is not None:
            line.update(completed=part, total=1.0)
        if shown is not None:
            shown.update(shown.task_ids[0], **line)

    timer = threading.Timer(AFTER, show)
    timer.daemon = True
    timer.start()
    try:
        yield tell
    finally:
        timer.cancel()
        timer.join()
        if shown is not None:
            shown.stop()
