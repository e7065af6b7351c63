"""Simulated clocks: the database's, and those of its clients. No run waits for them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

SECOND = 1_000_000
#: Sunday, 31 October 2027, 00:10 in UTC: an hour before clocks in Europe are put back.
START = 1_824_941_400 * SECOND


class Clock:
    """Time of a run."""

    def __init__(self) -> None:
        #: The database's clock, in microseconds since 1970.
        self.database = START
        #: Seconds that passed.
        self.elapsed = 0.0
        #: Seconds by which the local time of all clients is moved.
        self.shift = 0.0
        #: Latest time that the database's clock showed: ever, and since the ring's lease changed.
        self.latest = self.latest_of_lease = self.database
        #: The error of the clock of the client that runs.
        self.skew: Callable[[], float] = lambda: 0.0
        #: Called with the microseconds by which the database's clock is set back.
        self._watchers: list[Callable[[int], object]] = []
        #: Called when a client sleeps.
        self.sleeping: Callable[[float], object] = self.advance

    def advance(self, seconds: float) -> None:
        """Advance all clocks."""
        if seconds:
            self.elapsed += seconds
            self.jump(seconds)

    def jump(self, seconds: float) -> None:
        """Set the database's clock, forward or back, though no time passes."""
        # SQLite's clock counts whole milliseconds.
        microseconds = round(seconds * 1_000) * 1_000
        self.database += microseconds
        if microseconds < 0:
            for watcher in self._watchers:
                watcher(-microseconds)
        self.latest = max(self.latest, self.database)
        self.latest_of_lease = max(self.latest_of_lease, self.database)

    @contextmanager
    def when_set_back(self, watcher: Callable[[int], object]) -> Iterator[None]:
        """Call the watcher whenever the database's clock is set back meanwhile."""
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)

    @property
    def client(self) -> float:
        """The wall clock of the client that runs, in seconds."""
        return self.database / SECOND + self.shift + self.skew()


class SimulatedTime(ModuleType):
    """The module `time`, as the package sees it in a run."""

    def __init__(self, clock: Clock) -> None:
        super().__init__("time")
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def time(self) -> float:
        """Return the client's wall clock."""
        return self._clock.client

    def time_ns(self) -> int:
        """Return the client's wall clock in nanoseconds."""
        return int(self._clock.client * 1e9)

    def monotonic(self) -> float:
        """Return the seconds that passed."""
        return 1_000.0 + self._clock.elapsed

    def sleep(self, seconds: float) -> None:
        """Give others a turn, while so much time passes."""
        self._clock.sleeping(seconds)


#: Modules that wait for a real server, in real time.
REAL = ("airflow_mq.engine.store.pipelined",)


@contextmanager
def simulated_time(clock: Clock) -> Iterator[None]:
    """Replace the module `time` in all loaded modules of the package."""
    simulated = SimulatedTime(clock)
    changed = [
        module for name, module in list(sys.modules.items())
        if name.startswith("airflow_mq.") and name not in REAL and getattr(module, "time", None) is time
    ]  # fmt: skip
    with mock.patch("airflow_mq.ticker.Ticker.start", lambda ticker: None):
        for module in changed:
            module.time = simulated  # type: ignore[attr-defined]
        try:
            yield
        finally:
            for module in changed:
                module.time = time  # type: ignore[attr-defined]
