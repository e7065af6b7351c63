"""Copies of a server: a prepared data folder, a streaming replica, and the restore of a base backup."""

from __future__ import annotations

import atexit
import subprocess
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import psycopg

from tests.postgres_programs import find_bindirs
from tests.postgres_server import USER, Server

from .database import DATABASE, prepare

STANDBY = "standby"
PATIENCE = 60.0
#: Clients in a network namespace reach the server from the machine's own networks.
OWN_NETWORKS = "host all all samenet scram-sha-256\n"


class Copy(Server):
    """A server that starts from a base backup of another one."""

    #: Options of pg_basebackup beside the usual ones.
    options: tuple[str, ...] = ()

    def __init__(
        self, original: Server, settings: Mapping[str, str] | None = None, *, parent: Path | None = None
    ) -> None:
        self._original = original
        super().__init__(original.label, original.bindir, settings, parent=parent)

    def _initdb(self, password_file: Path) -> None:
        self.password = self._original.password
        place = ("-h", "127.0.0.1", "-p", str(self._original.port), "-U", USER)
        self.run("pg_basebackup", "-D", str(self.data_dir), *place, "-X", "stream", "-c", "fast", *self.options)


class Clone(Copy):
    """A server that starts from the data folder of a stopped one."""

    def _initdb(self, password_file: Path) -> None:
        self.password = self._original.password
        subprocess.run(["cp", "-a", str(self._original.data_dir), str(self.data_dir)], check=True)


class Replica(Copy):
    """A streaming replica, for which each commit of the original waits."""

    options = ("-R", "-C", "-S", STANDBY)

    def __init__(self, original: Server) -> None:
        # The standby sends this name; the original waits for it by the same name.
        super().__init__(original, {"cluster_name": STANDBY, "hot_standby_feedback": "on"})

    def follow(self) -> None:
        """Start, and return when the original's commits wait for this server."""
        self.start()
        with psycopg.connect(self._original.dsn, autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'")
            connection.execute("SELECT pg_reload_conf()")
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                if ("sync",) in connection.execute("SELECT sync_state FROM pg_stat_replication").fetchall():
                    return
                time.sleep(0.1)
        raise RuntimeError(f"the replica does not follow:\n{self.log_tail()}")

    def leave(self) -> None:
        """Make the original's commits wait for no server."""
        with psycopg.connect(self._original.dsn, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")

    def promote(self) -> None:
        self.run("pg_ctl", "-D", str(self.data_dir), "-w", "promote")


@cache
def prepared(label: str) -> Server:
    """Return a stopped server with the database of a run; it is made once for all runs of this process."""
    server = Server(label, find_bindirs()[label])
    atexit.register(server.close)
    with (server.data_dir / "pg_hba.conf").open("a") as file:
        file.write(OWN_NETWORKS)
    server.start()
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {DATABASE}")
    prepare(server.uri(DATABASE))
    server.stop()
    return server
