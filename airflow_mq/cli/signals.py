"""Signals that end a command as Ctrl-C does, so that it cleans up."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Raise `KeyboardInterrupt` at SIGTERM; restore the handlers of SIGTERM and SIGINT at the end."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def event_on_sigterm() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM sets; restore the handler at the end."""
    event = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: event.set())
    try:
        yield event
    finally:
        signal.signal(signal.SIGTERM, before)
