"""Faults of the server: shutdowns, terminated connections, full disks, replicas, backups and its clock."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import psycopg

from tests.disk import can_mount, filled, small_disk
from tests.postgres_server import Server

from .clocks import Clock, can_skew
from .copies import Copy, Replica
from .database import DATABASE
from .path_faults import Proxied
from .scenario import TERMINATE, Scenario

HOUR = 3_600


class RestartedServer(Scenario):
    """Orderly restart of the server, which ends all connections."""

    def hurt(self) -> None:
        for _ in range(3):
            with self.fault():
                self.server.restart()
            time.sleep(self.seconds / 3)


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
                connection.execute(TERMINATE, (DATABASE, 1))
                time.sleep(0.5)


class IdleConnections(Scenario):
    """300 idle connections, which leave room for three, while all clients must connect again."""

    settings: ClassVar[dict[str, str]] = {"max_connections": "304"}

    def hurt(self) -> None:
        idle: list[psycopg.Connection] = []
        with self.administer() as connection, self.fault():
            connection.execute(TERMINATE, (DATABASE, 1_000))
            while len(idle) < 300:
                try:
                    idle.append(psycopg.connect(self.uri, application_name="idle"))
                except psycopg.OperationalError:
                    connection.execute(TERMINATE, (DATABASE, 1_000))
            for _ in self.until():
                connection.execute(TERMINATE, (DATABASE, 1_000))
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
        return self.opened(self.clone(self.disk))

    def hurt(self) -> None:
        with self.fault():
            with filled(self.disk):
                time.sleep(self.seconds)
            self.server.start()


class FullLog(DiskFull):
    """No free byte for the write-ahead log, on a file system of its own, until the server ends; then its restart."""

    settings: ClassVar[dict[str, str]] = {
        "max_wal_size": "1GB",
        "min_wal_size": "32MB",
        "wal_recycle": "off",
        # Else the server would try to recover while its log has no room.
        "restart_after_crash": "off",
    }

    def open_server(self) -> Server:
        server = self.clone()
        self.disk = self.stack.enter_context(small_disk(96))
        log = server.data_dir / "pg_wal"
        shutil.copytree(log, self.disk / "log")
        owner = log.stat()
        for path in (self.disk, *self.disk.rglob("*")):
            shutil.chown(path, owner.st_uid, owner.st_gid)
        shutil.rmtree(log)
        log.symlink_to(self.disk / "log")
        return self.opened(server)

    def hurt(self) -> None:
        with self.fault():
            with filled(self.disk):
                deadline = time.monotonic() + 10 * self.seconds
                while self.server.is_running and time.monotonic() < deadline:
                    self._fill_segment()
            if self.server.is_running:
                self.complaints.append("the server did not end though its log had no room")
            self.server.start()

    def _fill_segment(self) -> None:
        with suppress(psycopg.Error), self.administer() as connection:
            connection.execute("SELECT pg_switch_wal()")
        time.sleep(0.1)


class Failover(Proxied):
    """Crash of the server and promotion of its replica, for which each commit waited."""

    is_repeatable = False

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


class StandbyGone(Scenario):
    """The only synchronous replica ends: each commit waits until the settings no longer name it."""

    is_repeatable = False

    def hurt(self) -> None:
        replica = Replica(self.server)
        self.stack.callback(replica.close)
        replica.follow()
        with self.fault():
            replica.crash()
            time.sleep(self.seconds)
            replica.leave()


class FeedbackReplica(Scenario):
    """A query on a replica with hot-standby feedback, which keeps the server from removing dead rows."""

    is_repeatable = False

    def hurt(self) -> None:
        replica = Replica(self.server)
        self.stack.callback(replica.close)
        replica.follow()
        with self.fault(), psycopg.connect(replica.uri(DATABASE)) as reader:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            for _ in self.until():
                reader.execute("SELECT count(*) FROM airflow_mq.page")
                time.sleep(0.2)
        replica.leave()


class RestoredBackup(Proxied):
    """Restore of a base backup that was taken with blocks in flight; later acknowledgements are forgotten with it."""

    is_repeatable = False

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


class ServerClock(Scenario):
    """The server's clock jumps an hour ahead, back, an hour behind and back."""

    requirement = "a C compiler"

    @classmethod
    def is_possible(cls) -> bool:
        return can_skew()

    def open_server(self) -> Server:
        server = self.clone()
        self.clock = Clock(Path(server.data_dir.parent))
        server.environment = self.clock.environment
        return self.opened(server)

    def hurt(self) -> None:
        for ahead in (HOUR, 0, -HOUR, 0):
            with self.fault():
                self.clock.set(ahead)
                time.sleep(self.seconds / 2)
