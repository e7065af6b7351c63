"""Scenario: a run of all clients on a server of its own, with a fault in the middle."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar

import psycopg

from tests.postgres_server import Server

from .copies import Clone, prepared
from .database import DATABASE, run_folder
from .fleet import CREW, Fleet
from .journal import read_journals
from .verdict import Fault, Verdict, judge, recovery
from .workloads import ROLES

SETTINGS = {"fsync": "on", "shared_buffers": "32MB", "max_wal_senders": "5", "wal_level": "replica"}
#: Seconds of load before the first fault, and after the senders have stopped.
WARMING = 1.0
TERMINATE = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = %s AND pid <> pg_backend_pid() AND application_name <> 'idle' ORDER BY random() LIMIT %s"
)
TABLES = "SELECT format('airflow_mq.%I', tablename) FROM pg_tables WHERE schemaname = 'airflow_mq' ORDER BY tablename"


class Scenario:
    """A run of all clients with a fault in the middle."""

    #: Settings of the server, beside the usual ones.
    settings: ClassVar[dict[str, str]] = {}
    #: Parameters of the clients' address.
    parameters: ClassVar[str] = ""
    #: Clients, and how many of each role.
    crew: ClassVar[Mapping[str, int]] = CREW
    #: How often a run in `make soak` has the fault.
    rounds: ClassVar[int] = 1
    #: Whether a run can have the fault more than once.
    is_repeatable: ClassVar[bool] = True
    #: Seconds within which each role must make progress, first and after each fault.
    patience: ClassVar[float] = 60.0
    #: Reason why a machine cannot run the scenario.
    requirement: ClassVar[str] = ""

    def __init__(self, label: str, seconds: float) -> None:
        self.label, self.seconds = label, seconds
        self.faults: list[Fault] = []
        self.forgotten: tuple[float, float] | None = None
        #: What the scenario itself found wrong.
        self.complaints: list[str] = []
        self.stack = ExitStack()

    @classmethod
    def is_possible(cls) -> bool:
        return True

    def run(self, rounds: int = 1, keep: Path | None = None) -> Verdict:
        """Run the scenario on a server of its own and return the verdict.

        :param rounds: how often to cause the fault
        :param keep: a new folder for the journals of a run that is not clean
        """
        with self.stack:
            self.server = self.open_server()
            self.uri = self.server.uri(DATABASE)
            folder = self.stack.enter_context(run_folder())
            self.fleet = Fleet(folder, self.path(self.uri) + self.parameters, self.crew)
            self.arm(folder)
            self.fleet.start()
            try:
                self.await_progress([])
                for _ in range(rounds if self.is_repeatable else 1):
                    self.hurt()
                    self.await_progress(self.faults)
                self.fleet.quiet()
                time.sleep(WARMING)
            finally:
                stuck = self.fleet.stop()
            uri = self.server.uri(DATABASE)
            verdict = judge(folder, uri, self.faults, stuck + len(self.complaints), self.forgotten)
            verdict.examples += self.complaints
            if keep is not None and not verdict.is_clean:
                shutil.copytree(folder, keep)
            return verdict

    def open_server(self) -> Server:
        return self.opened(self.clone())

    def clone(self, parent: Path | None = None) -> Server:
        server = Clone(prepared(self.label), {**SETTINGS, **self.settings}, parent=parent)
        self.stack.callback(server.close)
        return server

    def opened(self, server: Server) -> Server:
        server.start()
        return server

    def path(self, uri: str) -> str:
        """Return the address by which the clients reach the database."""
        return uri

    def arm(self, folder: Path) -> None:
        """Prepare the clients before they start."""

    def hurt(self) -> None:
        """Cause the fault for about `seconds`."""
        raise NotImplementedError

    def await_progress(self, faults: Sequence[Fault]) -> None:
        """Let the clients work until each role made progress after these faults."""
        wanted = {ROLES[role].progress for role in self.crew}
        deadline = time.monotonic() + self.patience
        time.sleep(WARMING)
        while time.monotonic() < deadline:
            entries = read_journals(self.fleet.folder)
            if {entry.text("of") for entry in entries} >= wanted and recovery(entries, faults) is not None:
                return
            time.sleep(0.2)

    @contextmanager
    def fault(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.faults.append(Fault(type(self).__name__, began, time.monotonic()))

    def administer(self) -> psycopg.Connection:
        """Return a connection to the database `postgres`."""
        return psycopg.connect(self.server.dsn, autocommit=True)

    def connect(self, *, autocommit: bool = False) -> psycopg.Connection:
        """Return another client's connection to the database of the run."""
        return psycopg.connect(self.uri, autocommit=autocommit, application_name="other")

    def tables(self) -> list[str]:
        with self.connect() as connection:
            return [name for (name,) in connection.execute(TABLES)]

    def until(self) -> Iterator[None]:
        """Yield until the seconds of the fault are over."""
        deadline = time.monotonic() + self.seconds
        while time.monotonic() < deadline:
            yield
