"""Scheduler: exactly one actor runs at a time, and the script determines at every border which one continues.

Actors are greenlets of one thread. An actor hands over to the scheduler when its step ends, when the script cuts it
between two statements, when it sleeps, and when a lock of another actor blocks it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import greenlet

from .clock import Clock
from .script import Fault, Step

#: Turns of a run: more of them mean that actors wait for each other without end. One that waits ten seconds takes 200.
MOST_TURNS = 10_000
#: Statements of a step: more of them mean that it does not end.
MOST_STATEMENTS = 20_000


class ProcessGone(BaseException):
    """The actor's process ended. No handler of the package can catch it."""


class Stuck(AssertionError):
    """No actor can go on."""


class Blocked:
    """A wait for a lock of another actor."""

    def __init__(self, ready: Callable[[], bool], until: float | None) -> None:
        self.ready, self.until, self.timed_out = ready, until, False


class Process:
    """The process of an actor: it runs one step at a time, and may end at any statement."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.scheduler, self.name = scheduler, name
        self.kind = name.partition("-")[0]
        self.greenlet: greenlet.greenlet | None = None
        self.step = Step(name, "", 0)
        #: Number of statements of the step so far.
        self.borders = 0
        self.resume_at = 0
        self.order = 0
        self.blocked: Blocked | None = None
        self.is_gone = False
        self.fired: Fault | None = None
        #: Whether a fault of an earlier step may show in this one.
        self.is_shaken = False
        #: Error of its machine's wall clock, in seconds.
        self.skew = 0.0
        #: Closes its connections.
        self.connections: list[Callable[[], object]] = []
        #: What it remembers from step to step; gone with the process.
        self.memory: dict[str, object] = {}

    @property
    def is_busy(self) -> bool:
        """Whether it is in the middle of a step."""
        return self.greenlet is not None

    @property
    def is_current(self) -> bool:
        """Whether its actor runs, and no other thread of it."""
        return self.greenlet is not None and greenlet.getcurrent() is self.greenlet

    def arrive(self, commits: bool) -> Fault | None:
        """Pause before a statement if the script cuts here; return the fault that happens here."""
        if self.is_gone:
            raise ProcessGone()
        index = self.borders
        self.borders += 1
        if index == MOST_STATEMENTS:
            # An error could be caught: its process ends, and then the run.
            self.scheduler.endless, self.is_gone = self.step, True
            raise ProcessGone()
        turns = self.step.cuts.get(index, 0)
        if self.scheduler.cutting and turns and self.is_current:
            self.scheduler.cuts += 1
            self.pause(turns)
        fault = self.step.fault
        if not self.scheduler.cutting or fault is None or self.fired:
            return None
        if fault.at == index or (fault.at == "commit" and commits):
            return fault
        return None

    def fire(self, fault: Fault) -> None:
        """Record that a fault happens."""
        self.fired = fault
        self.scheduler.faults[fault.kind] += 1

    def pause(self, turns: int) -> None:
        """Let others have turns."""
        self.resume_at = self.scheduler.turn + turns
        self._hand_over()

    def block(self, ready: Callable[[], bool], until: float | None) -> bool:
        """Wait for a lock; return whether it was free before the deadline."""
        self.scheduler.blocks += 1
        blocked = self.blocked = Blocked(ready, until)
        self._hand_over()
        return not blocked.timed_out

    def _hand_over(self) -> None:
        self.order = self.scheduler.next_order()
        self.scheduler.hub.switch()
        if self.is_gone:
            raise ProcessGone()

    def end(self) -> None:
        """End the process at once; its connections close without a word."""
        self.is_gone = True
        if self.greenlet:
            # It has begun and has not ended.
            self.greenlet.throw(ProcessGone)
        self.greenlet = None
        self.drop()

    def drop(self) -> None:
        """Forget everything, so that the next step begins in a new process."""
        connections, self.connections = self.connections, []
        for close in connections:
            close()
        self.memory.clear()
        self.blocked, self.is_gone = None, False
        self.scheduler.released()


class Scheduler:
    """Runs the steps of a script."""

    def __init__(self, clock: Clock, act: Callable[[Process], None], *, cutting: bool = True) -> None:
        """:param act: runs the step of a process. :param cutting: pause at cuts, and let faults happen."""
        self.clock, self.act, self.cutting = clock, act, cutting
        self.processes: dict[str, Process] = {}
        self.hub = greenlet.getcurrent()
        self.turn = self.orders = self.cuts = self.blocks = self.begun = 0
        self.faults: Counter[str] = Counter()
        self._checking = False
        #: A step that does not end.
        self.endless: Step | None = None
        #: Connections of this run, open or not.
        self.kept: list[object] = []
        #: The process whose turn was the last.
        self.last: Process | None = None
        #: Grows whenever a transaction or a connection ends.
        self.releases = 0
        #: Grows whenever a transaction of an actor ends; PostgreSQL only.
        self.ended = 0
        clock.sleeping = self.sleep
        clock.skew = lambda: process.skew if (process := self.running) else 0.0

    @property
    def running(self) -> Process | None:
        """The process that runs; none while the scheduler or a check does."""
        return None if self._checking else getattr(greenlet.getcurrent(), "process", None)

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Look at the ring, though a process runs: nothing of this is a border."""
        before, self._checking = self._checking, True
        try:
            yield
        finally:
            self._checking = before

    def next_order(self) -> int:
        """Return a number for the order in which processes stopped."""
        self.orders += 1
        return self.orders

    def released(self) -> None:
        """Wake those who wait for a writer of SQLite."""
        self.releases += 1

    def has_ended(self, holder: str) -> bool:
        """Return whether a holder of the ring is in no step: its lease is left over."""
        return not any(f" by {one.name}," in holder and one.is_busy for one in self.processes.values())

    def waits_for_lock(self, holder: str) -> bool:
        """Return whether a holder of the ring waits for a lock: the server may have run its statements meanwhile."""
        return any(f" by {one.name}," in holder and one.blocked is not None for one in self.processes.values())

    def sleep(self, seconds: float) -> None:
        """Advance the clock; a process gives others a turn."""
        process = self.running
        self.clock.advance(seconds)
        if process is not None and self.cutting and process.is_current:
            process.pause(1)

    def run(self, steps: list[Step], after_turn: Callable[[], None]) -> None:
        """Run all steps to their ends."""
        waiting = deque(steps)
        while (process := self._next(waiting)) is not None:
            self.turn += 1
            if self.turn > MOST_TURNS:
                raise Stuck(f"{MOST_TURNS} turns were not enough")
            self._continue(process)
            if self.endless is not None:
                raise Stuck(f"{self.endless!r} ran {MOST_STATEMENTS} statements, and has not ended")
            after_turn()

    def close(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            process.end()

    def _next(self, waiting: deque[Step]) -> Process | None:
        """Return the process whose turn it is, with a step to run."""
        stopped = sorted((one for one in self.processes.values() if one.is_busy), key=lambda one: one.order)
        for process in stopped:
            if process.blocked is None:
                if process.resume_at <= self.turn:
                    return process
            elif self._is_awake(process.blocked):
                return process
        for place, step in enumerate(waiting):
            process = self.processes.get(step.actor) or Process(self, step.actor)
            if not process.is_busy:
                del waiting[place]
                self.processes[step.actor] = process
                self._begin(process, step)
                return process
        paused = [one for one in stopped if one.blocked is None]
        if paused:
            return min(paused, key=lambda one: (one.resume_at, one.order))
        return self._awaited(stopped)

    def _is_awake(self, blocked: Blocked) -> bool:
        if blocked.ready():
            return True
        blocked.timed_out = blocked.until is not None and self.clock.elapsed >= blocked.until
        return blocked.timed_out

    def _awaited(self, stopped: list[Process]) -> Process | None:
        """All wait for locks: time passes until the first of them is impatient."""
        if not stopped:
            return None
        process = min(
            (one for one in stopped if one.blocked and one.blocked.until is not None),
            key=lambda one: (one.blocked.until, one.order),  # type: ignore[union-attr]
            default=None,
        )
        if process is None or process.blocked is None or process.blocked.until is None:
            raise Stuck(f"{', '.join(one.name for one in stopped)} wait for each other")
        self.clock.advance(max(process.blocked.until - self.clock.elapsed, 0.0))
        process.blocked.timed_out = True
        return process

    def _begin(self, process: Process, step: Step) -> None:
        is_quiet = not any(one.is_busy for one in self.processes.values())
        # Most pauses between two statements are short; in some an hour passes.
        self.clock.advance(step.wait if is_quiet or step.seed % 8 == 0 else min(step.wait, 0.5))
        self.begun += 1
        process.step, process.borders, process.fired = step, 0, None
        process.greenlet = greenlet.greenlet(lambda: self.act(process))
        process.greenlet.process = process  # type: ignore[attr-defined]

    def _continue(self, process: Process) -> None:
        process.blocked, self.last = None, process
        assert process.greenlet is not None
        process.greenlet.switch()
        if process.greenlet.dead:
            process.greenlet = None
            if process.is_gone:
                process.drop()


def randomness(step: Step) -> Random:
    """Return the source of what an action draws."""
    return Random(step.seed)
