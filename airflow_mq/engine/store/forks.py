"""Forks of a process that has SQLite files open.

SQLite must not be within a call when the process is forked: its locks would stay locked in the child. So each call
enters a gate, and a fork waits until no other thread is inside.
"""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType
from typing import Protocol
from weakref import WeakSet

#: Seconds for which a fork waits for the transactions of other threads.
PATIENCE = 10.0


class Inherited(Protocol):
    """Object whose connections a forked child inherits."""

    def leave_to_parent(self) -> None:
        """Begin anew in the child."""


class Gate:
    """Threads that are within calls of SQLite. A thread may enter repeatedly."""

    def __init__(self) -> None:
        self._inside: dict[int, int] = {}
        self._opened = threading.Event()
        self._opened.set()
        #: The thread that closed the gate. Until it forks, it may still collect a dropped connection, and close it.
        self._closer = 0
        #: Whether no other thread was inside when this process was forked.
        self.was_quiet = True

    def __enter__(self) -> None:
        self.enter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.leave(threading.get_ident())

    def enter(self) -> int:
        """Enter, and return this thread: another one may end what it began."""
        thread = threading.get_ident()
        depth = self._inside.get(thread, 0)
        self._inside[thread] = depth + 1
        while not depth and not self._opened.is_set() and thread != self._closer:
            del self._inside[thread]
            self._opened.wait()
            self._inside[thread] = 1
        return thread

    def leave(self, thread: int) -> None:
        """Leave, on behalf of the thread that entered."""
        depth = self._inside[thread] - 1
        if depth:
            self._inside[thread] = depth
        else:
            del self._inside[thread]

    def close(self) -> None:
        """Wait until no other thread is inside, and let none enter."""
        self._closer = threading.get_ident()
        self._opened.clear()
        give_up = time.monotonic() + PATIENCE
        while self._others() and time.monotonic() < give_up:
            time.sleep(0.001)

    def open(self) -> None:
        """Let threads enter."""
        self._opened.set()

    def open_in_child(self) -> None:
        """Let this thread enter, which is the only one of the process."""
        self.was_quiet = self.was_quiet and not self._others()
        thread = threading.get_ident()
        self._inside = {thread: self._inside[thread]} if thread in self._inside else {}
        self._opened = threading.Event()
        self._opened.set()

    def _others(self) -> bool:
        return bool(self._inside.keys() - {threading.get_ident()})


#: The gate of all SQLite files of this process.
GATE = Gate()
_inherited: WeakSet[Inherited] = WeakSet()
_forking = threading.RLock()


def remember(inherited: Inherited) -> None:
    """Call `leave_to_parent` in each child that this process forks."""
    with _forking:
        _inherited.add(inherited)


def _before() -> None:
    _forking.acquire()
    GATE.close()


def _after_in_parent() -> None:
    GATE.open()
    _forking.release()


def _after_in_child() -> None:
    GATE.open_in_child()
    for inherited in list(_inherited):
        inherited.leave_to_parent()
    _forking.release()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
