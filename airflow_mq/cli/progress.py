"""Progress of long work, shown on a terminal after a short wait."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

#: Seconds of work without progress shown.
AFTER = 0.5


class Tell(Protocol):
    """Reports progress: a few words, and the finished part from 0 to 1, if known."""

    def __call__(self, text: str = "", part: float | None = None) -> None: ...


@contextmanager
def progress(what: str) -> Iterator[Tell]:
    """Show progress on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield silent
        return
    shown = _Shown(what)
    timer = threading.Timer(AFTER, shown.show)
    timer.daemon = True
    timer.start()
    try:
        yield shown.tell
    finally:
        timer.cancel()
        shown.end()


def silent(text: str = "", part: float | None = None) -> None:
    """Show nothing."""


class _Shown:
    """A line on the terminal: a spinner, words, a bar, and the elapsed time."""

    def __init__(self, what: str) -> None:
        self.what, self.text = what, what
        self._lock = threading.Lock()
        self._ended = False
        self._update: Callable[..., None] | None = None
        self._progress: Any = None

    def tell(self, text: str = "", part: float | None = None) -> None:
        self.text = f"{self.what}: {text}" if text else self.what
        if self._update is not None:
            self._update(description=self.text, **({} if part is None else {"completed": part, "total": 1.0}))

    def show(self) -> None:
        """Show the line."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._ended:
                return
            columns = (
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(24),
                TimeElapsedColumn(),
            )
            self._progress = Progress(*columns, console=Console(stderr=True, highlight=False), transient=True)
            task = self._progress.add_task(self.text, total=None)
            self._update = lambda **said: self._progress.update(task, **said)
            self._progress.start()

    def end(self) -> None:
        """Remove the line."""
        with self._lock:
            self._ended = True
            if self._progress is not None:
                self._progress.stop()
