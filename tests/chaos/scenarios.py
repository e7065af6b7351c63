"""Scenarios: one class for each fault, which hurts the server, the path to it or the clients."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar

import psycopg

from tests.postgres_programs import find_bindirs
from tests.postgres_server import Server

from .clocks import can_skew, skew
from .copies import Copy, Replica
from .database import prepare, run_folder
from .disk import can_mount, filled, small_disk
from .fleet import Fleet
from .journal import read_journals
from .pooler import PROGRAM, Pooler
from .proxy import FaultyProxy
from .verdict import Fault, Verdict, judge, recovery
from .workloads import ROLES

SETTINGS = {"fsync": "on", "shared_buffers": "32MB", "max_wal_senders": "5", "wal_level": "replica"}
#: Least seconds of load before the first fault and after the last.
WARMING = 2.0
#: Seconds within which each role must make progress again.
PATIENCE = 60.0
PROGRESS = {role.progress for role in ROLES.values()}
TERMINATE = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = %s AND pid <> pg_backend_pid() AND application_name <> 'idle' ORDER BY random() LIMIT %s"
)


class Scenario:
    """A run of all clients with a fault in the middle."""

    #: Settings of the server, beside the usual ones.
    settings: ClassVar[dict[str, str]] = {}
    #: Reason why a machine cannot run the scenario.
    requirement: ClassVar[str] = ""

    def __init__(self, label: str, seconds: float) -> None:
        self.label, self.seconds = label, seconds
        self.faults: list[Fault] = []
        self.forgotten: tuple[float, float] | None = None
        self.stack = ExitStack()

    @classmethod
    def is_possible(cls) -> bool:
        return True

    def run(self) -> Verdict:
        """Run the scenario on a server of its own and return the verdict."""
        with self.stack:
            self.server = self.open_server()
            self.uri = self.server.create_database()
            self.database = self.uri.rpartition("/")[2]
            prepare(self.uri)
            folder = self.stack.enter_context(run_folder())
            self.fleet = Fleet(folder, self.path(self.uri))
            self.arm(folder)
            self.fleet.start()
            try:
                self.await_progress([])
                self.hurt()
                self.await_progress(self.faults)
                self.fleet.quiet()
                time.sleep(WARMING)
            finally:
                stuck = self.fleet.stop()
            uri = self.server.uri(self.database)
            return judge(folder, uri, self.faults, stuck, self.forgotten)

    def open_server(self) -> Server:
        return self.opened(Server(self.label, find_bindirs()[self.label], {**SETTINGS, **self.settings}))

    def opened(self, server: Server) -> Server:
        self.stack.callback(server.close)
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
        deadline = time.monotonic() + PATIENCE
        time.sleep(WARMING)
        while time.monotonic() < deadline:
            entries = read_journals(self.fleet.folder)
            if {entry.text("of") for entry in entries} >= PROGRESS and recovery(entries, faults) is not None:
                return
            time.sleep(0.5)

    @contextmanager
    def fault(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.faults.append(Fault(type(self).__name__, began, time.monotonic()))

    def administer(self) -> psycopg.Connection:
        return psycopg.connect(self.server.dsn, autocommit=True)

    def until(self) -> Iterator[None]:
        """Yield until the seconds of the fault are over."""
        deadline = time.monotonic() + self.seconds
        while time.monotonic() < deadline:
            yield


class ImmediateShutdown(Scenario):
    """Immediate shutdown of the server in the middle of everything, and its restart."""

    def hurt(self) -> None:
        for _ in range(3):
            with self.fault():
                self.server.crash()
                self.server.start()
            time.sleep(self.seconds / 3)


class TerminatedBackends(Scenario):
    """`pg_terminate_backend` for a random connection, twice a second."""

    def hurt(self) -> None:
        with self.fault(), self.administer() as connection:
            for _ in self.until():
                connection.execute(TERMINATE, (self.database, 1))
                time.sleep(0.5)


class IdleConnections(Scenario):
    """300 idle connections, which leave room for three, while all clients must connect again."""

    settings: ClassVar[dict[str, str]] = {"max_connections": "304"}

    def hurt(self) -> None:
        idle: list[psycopg.Connection] = []
        with self.administer() as connection, self.fault():
            connection.execute(TERMINATE, (self.database, 1_000))
            while len(idle) < 300:
                try:
                    idle.append(psycopg.connect(self.uri, application_name="idle"))
                except psycopg.OperationalError:
                    connection.execute(TERMINATE, (self.database, 1_000))
            for _ in self.until():
                connection.execute(TERMINATE, (self.database, 1_000))
                time.sleep(1)
            for each in idle:
                each.close()


class DiskFull(Scenario):
    """No free byte on the data folder's file system, a tmpfs of 300 MB; the server is started again if it ended."""

    settings: ClassVar[dict[str, str]] = {"max_wal_size": "64MB", "min_wal_size": "32MB", "shared_buffers": "16MB"}
    requirement = "the right to mount a tmpfs"

    @classmethod
    def is_possible(cls) -> bool:
        return can_mount()

    def open_server(self) -> Server:
        self.disk = self.stack.enter_context(small_disk(300))
        settings = {**SETTINGS, **self.settings}
        return self.opened(Server(self.label, find_bindirs()[self.label], settings, parent=self.disk))

    def hurt(self) -> None:
        with self.fault():
            with filled(self.disk):
                time.sleep(self.seconds)
            self.server.start()


class Proxied(Scenario):
    """A proxy between the clients and the server."""

    mode: ClassVar[str]

    def path(self, uri: str) -> str:
        self.proxy = FaultyProxy(self.server.port)
        self.stack.callback(self.proxy.close)
        return uri.replace(f":{self.server.port}/", f":{self.proxy.own_port}/")

    def hurt(self) -> None:
        with self.fault():
            self.proxy.mode = self.mode
            time.sleep(self.seconds)
            self.proxy.mode = "pass"


class DelayedPath(Proxied):
    """50 to 150 ms of delay in each direction."""

    mode = "delay"


class ResetPath(Proxied):
    """Connections reset at random, most often in the middle of a commit, whose answer is lost."""

    mode = "reset"


class BlackHole(Proxied):
    """No byte in either direction for 30 seconds, then all of them."""

    mode = "black hole"

    def hurt(self) -> None:
        self.seconds = max(self.seconds, 30.0)
        super().hurt()


class SlowClose(Proxied):
    """Ends of connections that arrive seconds late, while the server ends connections."""

    def hurt(self) -> None:
        with self.fault(), self.administer() as connection:
            self.proxy.mode = "slow close"
            for _ in self.until():
                connection.execute(TERMINATE, (self.database, 1_000))
                time.sleep(3)
            self.proxy.mode = "pass"


class Failover(Proxied):
    """Crash of the server and promotion of its replica, for which each commit waited."""

    def hurt(self) -> None:
        replica = Replica(self.server)
        self.stack.callback(replica.close)
        replica.follow()
        time.sleep(self.seconds)
        with self.fault():
            self.server.crash()
            replica.promote()
            self.proxy.port, self.server = replica.port, replica
        time.sleep(self.seconds / 2)


class RestoredBackup(Proxied):
    """Restore of a base backup that was taken with blocks in flight; later acknowledgements are forgotten with it."""

    def hurt(self) -> None:
        began = time.monotonic()
        copy = Copy(self.server)
        self.stack.callback(copy.close)
        time.sleep(self.seconds)
        with self.fault():
            self.server.crash()
            copy.start()
            self.proxy.port, self.server = copy.port, copy
            self.forgotten = (began, time.monotonic())
        time.sleep(self.seconds / 2)


class PooledTransactions(Scenario):
    """PgBouncer in transaction mode, killed and started again, and server connections terminated behind it."""

    requirement = "pgbouncer on the PATH"

    @classmethod
    def is_possible(cls) -> bool:
        return shutil.which(PROGRAM) is not None

    def path(self, uri: str) -> str:
        self.pooler = Pooler(self.server)
        self.stack.callback(self.pooler.close)
        self.pooler.start()
        return uri.replace(f":{self.server.port}/", f":{self.pooler.own_port}/")

    def hurt(self) -> None:
        with self.fault(), self.administer() as connection:
            for _ in self.until():
                connection.execute(TERMINATE, (self.database, 1))
                time.sleep(0.5)
        with self.fault():
            self.pooler.kill()
            self.pooler.start()


class SkewedClocks(Scenario):
    """Clients whose clocks are an hour ahead or an hour behind, half of them each."""

    requirement = "a C compiler"

    @classmethod
    def is_possible(cls) -> bool:
        return can_skew()

    def arm(self, folder: Path) -> None:
        for number, name in enumerate(self.fleet.names):
            self.fleet.environments[name] = skew(folder, 3_600 if number % 2 else -3_600)

    def hurt(self) -> None:
        with self.fault():
            time.sleep(self.seconds)


class KilledClients(Scenario):
    """SIGKILL of a random client, twice a second; each is replaced."""

    def hurt(self) -> None:
        with self.fault():
            for _ in self.until():
                self.fleet.kill_one()
                time.sleep(random.uniform(0.3, 0.7))


class StoppedClients(Scenario):
    """SIGSTOP of the service, settlers and lease holders for longer than their leases."""

    def hurt(self) -> None:
        roles = ("service", "settler", "holder")
        with self.fault():
            self.fleet.send_signal(roles, signal.SIGSTOP)
            time.sleep(max(self.seconds, 13.0))
            self.fleet.send_signal(roles, signal.SIGCONT)


#: Scenarios by their names on the command line.
SCENARIOS: dict[str, type[Scenario]] = {
    "immediate-shutdown": ImmediateShutdown,
    "terminated-backends": TerminatedBackends,
    "idle-connections": IdleConnections,
    "disk-full": DiskFull,
    "delayed-path": DelayedPath,
    "reset-path": ResetPath,
    "black-hole": BlackHole,
    "slow-close": SlowClose,
    "failover": Failover,
    "restored-backup": RestoredBackup,
    "pgbouncer": PooledTransactions,
    "skewed-clocks": SkewedClocks,
    "killed-clients": KilledClients,
    "stopped-clients": StoppedClients,
}
