"""Where it is measured: one PostgreSQL server, databases cloned from prepared ones, and what was found."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql

from lab.benchmarks.contenders import Contender, DriverFailed, Running
from lab.benchmarks.sizes import Sizes
from tests.postgres_server import Server

SETTINGS = {
    "fsync": "on",
    "max_connections": "200",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
    "autovacuum": "on",
    # Counted only in databases that ask for it.
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "none",
}
# Settings that affect a figure; the report lists them.
SHOWN = (*SETTINGS, "wal_level", "wal_compression", "data_checksums", "io_method")
OWN_TABLES = """
SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
"""


class Lab:
    """Everything that the measurements share. `note` keeps a raw sample; each is written at once."""

    def __init__(self, server: Server, sizes: Sizes, raw: Path) -> None:
        self.server = server
        self.sizes = sizes
        self.samples: list[dict[str, Any]] = []
        self.versions: dict[str, str] = {}
        self.raw = raw
        self._numbers = itertools.count(1)
        self._prepared: dict[str, str] = {}

    # -- what was found --

    def note(self, measure: str, contender: str, variant: str = "", **found: Any) -> None:
        self.samples.append({"measure": measure, "contender": contender, "variant": variant, **found})
        with self.raw.open("a") as file:
            file.write(json.dumps(self.samples[-1]) + "\n")

    @contextlib.contextmanager
    def trying(self, measure: str, contender: Contender, variant: str) -> Iterator[None]:
        """Report a contender that fails, and continue with the others."""
        try:
            yield
        except DriverFailed as error:
            why = str(error).splitlines()[0]
            self.say(f"FAILED {measure} {variant}: {error}")
            self.note("failed", contender.name, variant, of=measure, why=why)

    def say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)

    # -- databases --

    def prepared(self, name: str, prepare: Callable[[str], None]) -> str:
        """The database of this name, made by `prepare` at the first time, to be cloned and not touched."""
        if name not in self._prepared:
            self.say(f"preparing {name}")
            uri = self.server.create_database()
            with self.hurried():
                prepare(uri)
            self._execute(uri, "ANALYZE")
            self._prepared[name] = uri
        return self._prepared[name]

    @contextlib.contextmanager
    def clone(self, prepared: str, contender: Contender) -> Iterator[tuple[str, Running]]:
        """A copy of a prepared database, with a driver that is connected to it."""
        uri = self._copy(prepared)
        try:
            with Running(contender, uri) as driver:
                driver("open")
                yield uri, driver
        finally:
            self.server.drop_database(uri)

    def _copy(self, prepared: str) -> str:
        name = f"copy_{next(self._numbers)}"
        # Copying files leaves nothing in the log, and the checkpoints that it takes leave nothing to be done.
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
        self._execute(
            self.server.dsn, statement.format(sql.Identifier(name), sql.Identifier(prepared.rpartition("/")[2]))
        )
        return self.server.uri(name)

    def forget(self, name: str) -> None:
        """Drop a prepared database that is large."""
        self.server.drop_database(self._prepared.pop(name))

    # -- the server --

    @contextlib.contextmanager
    def hurried(self) -> Iterator[None]:
        """While something is prepared, and nothing measured, commits need not wait for the disk."""
        with self.altered(synchronous_commit="off"):
            yield

    @contextlib.contextmanager
    def altered(self, **settings: str) -> Iterator[None]:
        """Other settings of the server for the length of a `with`, for open connections too."""
        for name, value in settings.items():
            self._execute(
                self.server.dsn,
                sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value)),
            )
        self._reload()
        try:
            yield
        finally:
            for name in settings:
                self._execute(self.server.dsn, sql.SQL("ALTER SYSTEM RESET {}").format(sql.Identifier(name)))
            self._reload()

    def _reload(self) -> None:
        self._execute(self.server.dsn, "SELECT pg_reload_conf()")
        time.sleep(0.2)

    @contextlib.contextmanager
    def server_time(self) -> Iterator[dict[str, float]]:
        """Measure the processor time of the server and its background processes during the body, in `server`."""
        used: dict[str, float] = {}
        before = self._server_seconds()
        yield used
        used["server"] = sum(seconds - before.get(pid, 0.0) for pid, seconds in self._server_seconds().items())

    def _server_seconds(self) -> dict[int, float]:
        children = psutil.Process(self.server.pid).children()
        return {child.pid: seconds for child in children if (seconds := seconds_of(child.pid))}

    def checkpoint(self) -> None:
        self._execute(self.server.dsn, "CHECKPOINT")

    def log_position(self) -> int:
        """How many bytes of write-ahead log there have been."""
        return int(self._execute(self.server.dsn, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")[0][0])

    def full_page_images(self) -> int:
        return int(self._execute(self.server.dsn, "SELECT wal_fpi FROM pg_stat_wal")[0][0])

    def vacuum(self, uri: str) -> float:
        """Vacuum all tables but the system's; return the seconds it took."""
        with psycopg.connect(uri, autocommit=True) as connection:
            tables = ", ".join(row[0] for row in connection.execute(OWN_TABLES))
            start = time.perf_counter()
            connection.execute(f"VACUUM {tables}".encode())
            return time.perf_counter() - start

    def check_gone(self, uri: str, contender: Contender) -> None:
        """Nothing that holds a message may be left."""
        for (table,) in self._execute(uri, OWN_TABLES):
            name = table.rpartition(".")[2].removeprefix("mq_")
            if name in contender.tables and (rows := self._execute(uri, f"SELECT count(*) FROM {table}")[0][0]):
                raise DriverFailed(f"{contender.name} left {rows} rows in {table}")

    def shown(self) -> dict[str, str]:
        """The server's version and the settings that matter."""
        told = {"server_version": self._execute(self.server.dsn, "SHOW server_version")[0][0]}
        for name in SHOWN:
            with contextlib.suppress(psycopg.errors.UndefinedObject):
                told[name] = self._execute(self.server.dsn, f"SHOW {name}")[0][0]
        return told

    @staticmethod
    def _execute(uri: str, statement: str | sql.Composed) -> list[Any]:
        with psycopg.connect(uri, autocommit=True) as connection:
            if isinstance(statement, str):
                statement = sql.Composed([sql.SQL(statement)])  # type: ignore[arg-type]
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


def seconds_of(process: int) -> float:
    """Return the CPU seconds of a process by the scheduler's clock, 0 if it has ended; `ps` counts in hundredths."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0
