"""Scenarios: one class for each fault of a SQLite file."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import ClassVar

import psutil

from airflow_mq.engine.queue.holding import RING_LEASE
from lab.chaos.fleet import Fleet
from lab.chaos.journal import read_journals
from lab.chaos.verdict import Fault, Verdict, judge, recovery
from tests.disk import can_mount, filled, small_disk
from tests.waiting import eventually

from .image import images, verdict_of
from .preparation import RUN, prepare, uri_of
from .recording import Recorder, can_record
from .workloads import FILE_ROLES, PRAGMAS, path_of

CREW = {"sender": 2, "service": 1, "planner": 1, "settler": 1, "holder": 1, "housekeeper": 1, "checkpointer": 1}
PROGRESS = {FILE_ROLES[role].progress for role in CREW}
#: Names of errors that clients get from each other; `OperationalError` is that of connections beside the package.
EXPECTED = frozenset({"StoreBusy", "Busy", "TokenRefused", "UnknownBlock", "InFlight", "OperationalError"})
ROOT = Path(__file__).parents[2]


class Scenario:
    """Runs of all clients on one store with faults in the middle."""

    requirement: ClassVar[str] = ""
    #: Names of the errors that the fault may cause, beside those of other clients.
    errors: ClassVar[frozenset[str]] = frozenset()
    #: Whether something has to be wrong: a control of the harness.
    is_control: ClassVar[bool] = False

    def __init__(self, folder: Path, runs: int, seed: int) -> None:
        self.folder, self.runs, self.draw = folder, runs, random.Random(seed)
        self.journals = folder / RUN
        self.faults: list[Fault] = []
        self.stack = ExitStack()

    @classmethod
    def is_possible(cls) -> bool:
        return True

    def run(self) -> list[Verdict]:
        """Run the scenario and return its verdicts, usually one for all its faults."""
        with self.stack:
            self.arm()
            stuck = self.load()
            return self.judged(stuck)

    def arm(self) -> None:
        prepare(self.folder)

    def load(self) -> int:
        """Let the clients work, cause the faults and return how many clients were stuck."""
        self.fleet = Fleet(self.journals, uri_of(self.folder), CREW)
        self.fleet.start()
        try:
            self.await_progress([])
            self.hurt()
            self.await_progress(self.faults)
            self.fleet.quiet()
        finally:
            stuck = self.fleet.stop()
        return stuck

    def hurt(self) -> None:
        """Cause the faults."""
        raise NotImplementedError

    def judged(self, stuck: int) -> list[Verdict]:
        # A killed service in place keeps the ring for its lease.
        time.sleep(RING_LEASE if self.fleet.deaths else 0.5)
        verdict = judge(self.journals, uri_of(self.folder), self.faults, stuck)
        strange = [name for name in verdict.errors if name.rpartition(" ")[2] not in EXPECTED | self.errors]
        verdict.findings += len(strange)
        verdict.examples += [f"unexpected error: {name}" for name in strange]
        return [verdict]

    def await_progress(self, faults: list[Fault]) -> None:
        """Let the clients work until each role made progress after these faults."""

        def is_recovered() -> bool:
            entries = read_journals(self.journals)
            return {entry.text("of") for entry in entries} >= PROGRESS and recovery(entries, faults) is not None

        eventually(is_recovered, 4 * RING_LEASE)

    @contextmanager
    def fault(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.faults.append(Fault(type(self).__name__, began, time.monotonic()))


class PowerLoss(Scenario):
    """Power loss at a random moment: of each sector that was not synced, any version since the last sync is there."""

    requirement = "Linux and a C compiler"
    #: Images of each recording, and seconds of load.
    images_each: ClassVar[int] = 100
    seconds: ClassVar[float] = 4.0
    pragmas: ClassVar[str] = ""
    lies: ClassVar[bool] = False

    @classmethod
    def is_possible(cls) -> bool:
        return can_record()

    def arm(self) -> None:
        self.recorder = Recorder(self.folder)
        self.environment = self.recorder.environment()
        (self.folder / "store").mkdir(parents=True, exist_ok=True)

    def run(self) -> list[Verdict]:
        verdicts: list[Verdict] = []
        while len(verdicts) < self.runs:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.arm()
            self.recorder.clear()
            with recorded(self.environment):
                self.load()
            # The lease of a service in place that lost its power ends meanwhile.
            time.sleep(RING_LEASE)
            changes = list(self.recorder.changes())
            count = min(self.images_each, self.runs - len(verdicts))
            for moment in images(self.folder, changes, self.draw, count, self.lies):
                verdict = verdict_of(self.folder)
                verdict.examples = [f"change {moment} of {len(changes)}: {text}" for text in verdict.examples]
                verdicts.append(verdict)
        return verdicts

    def load(self) -> int:
        command = [sys.executable, "-m", "lab.powerloss.preparation", str(self.folder)]
        subprocess.run(command, check=True, cwd=ROOT)
        self.fleet = Fleet(self.journals, uri_of(self.folder), CREW)
        if self.pragmas:
            (self.journals / PRAGMAS).write_text(self.pragmas)
        self.fleet.start()
        try:
            self.await_progress([])
            time.sleep(self.seconds)
        finally:
            stuck = self.fleet.stop()
        return stuck


class PowerLossWithoutSync(PowerLoss):
    """Control: power loss with `PRAGMA synchronous = OFF`, which has to lose messages or damage the file."""

    is_control = True
    pragmas = "PRAGMA synchronous = OFF"


class PowerLossWithNormalSync(PowerLoss):
    """Control: power loss with `PRAGMA synchronous = NORMAL`, which has to lose the last commits."""

    is_control = True
    pragmas = "PRAGMA synchronous = NORMAL"


class LyingDisk(PowerLoss):
    """Control: power loss of a disk that acknowledges syncs and does not do them."""

    is_control = True
    lies = True


class DiskFull(Scenario):
    """No free byte on the file system of the store, a tmpfs."""

    requirement = "the right to mount a tmpfs"
    errors = frozenset({"StoreFull"})
    megabytes: ClassVar[int] = 60

    @classmethod
    def is_possible(cls) -> bool:
        return can_mount()

    def arm(self) -> None:
        # The journals of the clients stay on a disk with space.
        self.folder = self.stack.enter_context(small_disk(self.megabytes))
        super().arm()

    def hurt(self) -> None:
        for _ in range(self.runs):
            with self.fault(), filled(self.folder):
                time.sleep(self.draw.uniform(0.3, 1.5))
            time.sleep(self.draw.uniform(0.2, 1.0))


class KilledCheckpoints(Scenario):
    """SIGKILL of a process between two writes of a WAL checkpoint to the database file; each is replaced."""

    requirement = "Linux and a C compiler"
    #: Writes of checkpoints until a kill, on average.
    writes: ClassVar[int] = 30

    @classmethod
    def is_possible(cls) -> bool:
        return can_record()

    def load(self) -> int:
        self.recorder = Recorder(self.folder, self.writes)
        with recorded(self.recorder.environment()):
            return super().load()

    def hurt(self) -> None:
        while len(self.faults) < self.runs:
            deaths = self.fleet.deaths
            with self.fault():
                eventually(lambda deaths=deaths: self.fleet.deaths > deaths, 120)


class StoppedTransactions(Scenario):
    """SIGSTOP of a process inside a SQLite transaction, for longer than busy timeout and lease."""

    seconds: ClassVar[float] = 8.0

    def hurt(self) -> None:
        for _ in range(self.runs):
            process = eventually(self._stopped)
            with self.fault():
                time.sleep(self.seconds)
                process.resume()

    def _stopped(self) -> psutil.Process | None:
        """Stop a random client; return it if it holds the file, else resume it."""
        process = self.draw.choice(self.fleet.processes())
        process.suspend()
        with closing(sqlite3.connect(path_of(uri_of(self.folder)), timeout=1.5, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return process
        process.resume()
        return None


@contextmanager
def recorded(environment: dict[str, str]) -> Iterator[None]:
    """Start programs with this environment."""
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


#: Scenarios by their names on the command line.
SCENARIOS: dict[str, type[Scenario]] = {
    "power-loss": PowerLoss,
    "power-loss-off": PowerLossWithoutSync,
    "power-loss-normal": PowerLossWithNormalSync,
    "lying-disk": LyingDisk,
    "disk-full": DiskFull,
    "killed-checkpoints": KilledCheckpoints,
    "stopped-transactions": StoppedTransactions,
}
