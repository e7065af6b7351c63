"""Handling of SIGTERM, so that a command cleans up."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def at_sigterm(act: Callable[[], object]) -> Iterator[None]:
    """Act at SIGTERM; restore the handlers of SIGTERM and SIGINT at the end. Only a main thread gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGTERM, lambda *_: act())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupt() -> NoReturn:
    """End a command as Ctrl-C does."""
    raise KeyboardInterrupt
