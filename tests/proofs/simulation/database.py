"""The seam between the package and its databases: every statement of an actor is a border of the simulation.

`sqlite3.connect` returns connections whose cursors ask the scheduler before each statement. For PostgreSQL, the
methods of psycopg's cursor do, and `Connection.wait` lets other actors run while a lock blocks a statement. Both
databases read the simulated clock. What no actor runs, for example a check, goes through unchanged.
"""

from __future__ import annotations

import re
import select
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar
from unittest import mock

import psycopg
from psycopg import waiting

from airflow_mq.engine.store.pipelined import PipelinedConnection

from .clock import SECOND, Clock
from .scheduler import Process, ProcessGone, Scheduler
from .script import Fault

Result = TypeVar("Result")
COMMITS = re.compile(r"\s*(COMMIT|RELEASE)\b", re.IGNORECASE)
ROLLS_BACK = re.compile(r"\s*ROLLBACK\b", re.IGNORECASE)
READS = re.compile(r"\s*(SELECT|PRAGMA)\b", re.IGNORECASE)
BUSY_TIMEOUT = re.compile(r"\s*PRAGMA busy_timeout\s*=\s*(\d+)", re.IGNORECASE)
#: Settings that a simulated file does not need: it survives no power failure, and its clock is a function of ours.
SKIPPED = re.compile(r"\s*PRAGMA (trusted_schema|synchronous)\b", re.IGNORECASE)
#: Statements that end the work of an actor. A database that refuses these has ended the connection, too.
HARMLESS = ("gone", "gone after", "slow", "jump", "dst", "skew")
#: Real seconds after which a statement that does not end is looked at.
PATIENCE = 0.003


class Seam:
    """Where faults happen and actors pause."""

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self.scheduler, self.clock = scheduler, clock

    def before(self, process: Process, text: str) -> Fault | None:
        """Stop at the border before a statement; return a fault that the database has to show."""
        fault = process.arrive(bool(COMMITS.match(text)))
        if fault is None or (ROLLS_BACK.match(text) and fault.kind not in HARMLESS):
            return None
        process.fire(fault)
        if fault.kind == "gone":
            process.is_gone = True
            raise ProcessGone()
        if fault.kind == "slow":
            self.clock.advance((5, 20, 45, 120)[process.step.seed % 4])
        elif fault.kind == "jump":
            self.clock.jump(3_600 if process.step.seed % 2 else -3_600)
        elif fault.kind == "dst":
            self.clock.shift = 3_600 if process.step.seed % 2 else -3_600
        elif fault.kind == "skew":
            process.skew = 300 if process.step.seed % 2 else -300
        else:
            process.is_shaken = True
            return fault
        return None

    def after(self, process: Process, fault: Fault | None) -> None:
        """End the process after a statement, if that is the fault."""
        if fault is not None and fault.kind == "gone after":
            process.is_gone = True
            raise ProcessGone()


# SQLite.


class SqliteSeam(Seam):
    """The seam of SQLite: a writer that finds the file locked is blocked until another actor's transaction ends."""

    def connect(self, path: Any, timeout: float = 5.0, **options: Any) -> sqlite3.Connection:
        """Return a simulated connection that never waits for a lock by itself."""
        process = self.scheduler.running
        kind = ObservingConnection if process is None else SimulatedConnection
        connection = REAL_CONNECT(path, timeout=0, **{**options, "factory": kind})
        connection.create_function("julianday", 1, lambda _: self.clock.database / SECOND / 86_400 + 2_440_587.5)
        if isinstance(connection, SimulatedConnection):
            assert process is not None
            connection.seam, connection.patience = self, timeout
            process.connections.append(connection.close)
        return connection

    def run(self, connection: SimulatedConnection, text: str, call: Callable[[], Result]) -> Result:
        """Run a statement for whichever process runs."""
        process = self.scheduler.running
        if process is None:
            return call()
        fault = self.before(process, text)
        self._raise(fault)
        wrote = connection.in_transaction or not READS.match(text)
        result = self._until_free(process, connection, call)
        if wrote and not connection.in_transaction:
            self.scheduler.released()
        self.after(process, fault)
        return result

    def _raise(self, fault: Fault | None) -> None:
        if fault is None or fault.kind == "gone after":
            return
        if fault.kind == "busy":
            raise _sqlite_error("database is locked", "SQLITE_BUSY")
        raise _sqlite_error("disk I/O error", "SQLITE_IOERR")

    def _until_free(self, process: Process, connection: SimulatedConnection, call: Callable[[], Result]) -> Result:
        until = self.clock.elapsed + connection.patience
        while True:
            try:
                return call()
            except sqlite3.OperationalError as error:
                # SQLite waits only to begin; a transaction that has read already fails at once.
                if "locked" not in str(error) or connection.in_transaction or connection.patience <= 0:
                    raise
                seen = self.scheduler.releases
                if not process.block(lambda seen=seen: self.scheduler.releases != seen, until):
                    raise


def _sqlite_error(text: str, name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorname = name
    return error


class SimulatedCursor(sqlite3.Cursor):
    """A cursor whose statements are borders."""

    def execute(self, text: str, values: Any = ()) -> SimulatedCursor:
        """Run a statement."""
        connection: Any = self.connection
        if found := BUSY_TIMEOUT.match(text):
            connection.patience = int(found[1]) / 1000
            text = "SELECT 1"
        elif SKIPPED.match(text):
            text = "SELECT 1"
        connection.seam.run(connection, text, lambda: super(SimulatedCursor, self).execute(text, values))
        return self

    def executemany(self, text: str, values: Any) -> SimulatedCursor:
        """Run a statement for many rows."""
        rows, connection = list(values), self.connection
        connection.seam.run(connection, text, lambda: super(SimulatedCursor, self).executemany(text, rows))  # type: ignore[attr-defined]
        return self


class SimulatedConnection(sqlite3.Connection):
    """A connection whose statements are borders."""

    seam: SqliteSeam
    #: Simulated seconds to wait for another writer.
    patience = 5.0

    def cursor(self, factory: Any = None) -> Any:
        """Return a cursor; `execute` of a connection makes one, too."""
        return super().cursor(SimulatedCursor)

    def execute(self, text: str, values: Any = ()) -> Any:
        """Run a statement."""
        return self.cursor().execute(text, values)

    def executemany(self, text: str, values: Any) -> Any:
        """Run a statement for many rows."""
        return self.cursor().executemany(text, values)

    def close(self) -> None:
        """Close; a transaction that is open is rolled back.

        SQLite keeps a closed connection, and its lock, until its last cursor is gone. An ended process leaves none.
        """
        with suppress(sqlite3.ProgrammingError):
            self.rollback()
        super().close()
        self.seam.scheduler.released()


class ObservingConnection(sqlite3.Connection):
    """A connection of the observer, which is no actor."""

    def execute(self, text: str, values: Any = ()) -> Any:
        """Run a statement, unless it is a setting that a simulated file does not need."""
        return super().execute("SELECT 1" if SKIPPED.match(text) else text, values)


REAL_CONNECT = sqlite3.connect


@contextmanager
def simulated_sqlite(scheduler: Scheduler, clock: Clock) -> Iterator[None]:
    """Simulate every connection of SQLite that is opened meanwhile."""
    seam = SqliteSeam(scheduler, clock)
    with mock.patch("sqlite3.connect", seam.connect):
        yield


# PostgreSQL.

REAL_EXECUTE, REAL_WAIT = psycopg.Cursor.execute, psycopg.Connection.wait
REAL_LATER, REAL_FLUSH, REAL_INSERT = PipelinedConnection.later, PipelinedConnection.flush, PipelinedConnection.insert
REAL_ROLLBACK = PipelinedConnection.rollback


class Monitor:
    """A second connection that watches the others, and sets the database's clock."""

    def __init__(self, uri: str, clock: Clock) -> None:
        self.connection, self.clock = psycopg.connect(uri.partition("?")[0], autocommit=True), clock
        self._time: int | None = None

    def ask(self, text: str, *values: object) -> Any:
        """Return the first value that a query finds."""
        cursor = psycopg.Cursor(self.connection)
        row = REAL_EXECUTE(cursor, text, values).fetchone()
        return row and row[0]

    def set_clock(self) -> None:
        """Set the database's clock, if it changed."""
        if self._time != self.clock.database:
            self._time = self.clock.database
            self.ask("SELECT setval('sim.clock', %s)", self._time)

    def is_blocked(self, pid: int) -> bool:
        """Return whether a session waits for a lock of another one."""
        return bool(self.ask("SELECT cardinality(pg_blocking_pids(%s)) > 0", pid))

    def end(self, pid: int) -> None:
        """End a session of the server, and with it its transaction; wait until it has ended."""
        self.ask("SELECT pg_terminate_backend(%s)", pid)
        for _ in range(5_000):
            if not self.ask("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)", pid):
                return
            time.sleep(0.001)
        raise AssertionError(f"session {pid} does not end")

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class PostgresSeam(Seam):
    """The seam of PostgreSQL: an actor whose statement waits for a lock is blocked until it has its answer."""

    def __init__(self, scheduler: Scheduler, clock: Clock, monitor: Monitor) -> None:
        super().__init__(scheduler, clock)
        self.monitor = monitor
        #: Ids of the connections that are open, or were.
        self._known = {id(monitor.connection)}
        #: Ids of the connections that send what was requested.
        self._flushing: set[int] = set()

    def execute(self, cursor: Any, query: Any, values: Any = None, **options: Any) -> Any:
        """Run a statement for whichever process runs."""
        if cursor.connection is self.monitor.connection or id(cursor.connection) in self._flushing:
            return REAL_EXECUTE(cursor, query, values, **options)
        return self.run(cursor.connection, query, lambda timed: REAL_EXECUTE(cursor, timed, values, **options))

    def run(self, connection: Any, query: Any, real: Callable[[Any], Any]) -> Any:
        """Run a statement by a call that is given its text."""
        query = self.timed(query)
        process = self.scheduler.running
        if process is None:
            self.monitor.set_clock()
            return real(query)
        self._know(process, connection)
        fault = self.before(process, query.decode() if isinstance(query, bytes) else str(query))
        self._raise(fault, connection)
        self.monitor.set_clock()
        result = real(query)
        if connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            self.scheduler.released()
            self.scheduler.ended += 1
            self._let_waiters_go_on()
        self._lose(fault, connection)
        self.after(process, fault)
        return result

    def later(self, connection: Any, query: bytes, values: Any = None) -> Any:
        """Request a statement: the border is before the one with which it is sent."""
        return REAL_LATER(connection, self.timed(query), values)

    def flush(self, connection: Any) -> None:
        """Run all statements that were requested: the border is before the last one."""
        if connection._unsent:
            self.run(connection, connection._unsent[-1].text, lambda _: self._flush(connection))

    def insert(self, connection: Any, text: bytes, types: Any, values: Any) -> bytes | None:
        """Run an INSERT without a cursor."""
        connection.flush()
        return self.run(connection, text, lambda timed: REAL_INSERT(connection, timed, types, values))

    def _flush(self, connection: Any) -> None:
        self._flushing.add(id(connection))
        try:
            REAL_FLUSH(connection)
        finally:
            self._flushing.discard(id(connection))

    def rollback(self, connection: Any) -> None:
        """Roll back: without a transaction, that only drops what was requested."""
        if connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            REAL_ROLLBACK(connection)
        else:
            self.run(connection, b"ROLLBACK", lambda _: REAL_ROLLBACK(connection))

    def timed(self, query: Any) -> Any:
        """Return a statement that reads the simulated clock, and the transactions of this run alone."""
        for real, simulated in SIMULATED.items():
            if isinstance(query, bytes):
                query = query.replace(real.encode(), simulated.encode())
            elif isinstance(query, str):
                query = query.replace(real, simulated)
        return query

    def _know(self, process: Process, connection: Any) -> None:
        if id(connection) not in self._known:
            self._known.add(id(connection))
            process.connections.append(lambda: self.finish(connection))
            # It lives as long as the run: another connection may not get its id.
            process.scheduler.kept.append(connection)

    def _raise(self, fault: Fault | None, connection: Any) -> None:
        if fault is None:
            return
        if fault.kind == "error":
            raise psycopg.errors.DiskFull("could not extend file: No space left on device")
        if fault.kind == "busy":
            raise psycopg.errors.LockNotAvailable("canceling statement due to lock timeout")
        if fault.kind == "cut":
            self.finish(connection)

    def _lose(self, fault: Fault | None, connection: Any) -> None:
        if fault is not None and fault.kind == "lost":
            self.finish(connection)
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    def finish(self, connection: Any) -> None:
        """Cut a connection, and wait until the server has noticed."""
        if connection.pgconn.status == psycopg.pq.ConnStatus.OK:
            pid = connection.pgconn.backend_pid
            connection.pgconn.finish()
            self.monitor.end(pid)
            self.scheduler.ended += 1
            self._let_waiters_go_on()
        # Otherwise psycopg would warn of it.
        connection.close()

    def _let_waiters_go_on(self) -> None:
        """Wait until the server has given freed locks to those who wait: the next statement would race with them.

        Who gets a row lets the next one in its queue move on to the row's new version, and wait there.
        """
        waiting = [one for one in self.scheduler.processes.values() if one.blocked is not None and not one.is_gone]
        free = -1
        while free < (now_free := sum(one.blocked.ready() for one in waiting if one.blocked is not None)):
            free = now_free

    def wait(self, connection: Any, gen: Any, *arguments: Any, **options: Any) -> Any:
        """Wait for an answer of the server, while other actors run if a lock is in the way."""
        process = self.scheduler.running
        if process is None or connection is self.monitor.connection:
            return REAL_WAIT(connection, gen, *arguments, **options)
        try:
            wanted = next(gen)
            while True:
                wanted = gen.send(self._ready(process, connection, wanted))
        except StopIteration as done:
            return done.value

    def _ready(self, process: Process, connection: Any, wanted: int) -> int:
        if id(connection) not in self._known:
            # It is being opened.
            return _poll(connection.pgconn.socket, wanted, 10.0)
        socket, pid = connection.pgconn.socket, connection.pgconn.backend_pid
        while not (ready := _poll(socket, wanted, PATIENCE)):
            # A thread of the process cannot let others run: it waits until the server gives up.
            if process.is_current and self.monitor.is_blocked(pid):
                process.block(lambda: self._is_free(connection, wanted), None)
                if connection.pgconn.status != psycopg.pq.ConnStatus.OK:
                    raise psycopg.OperationalError("server closed the connection unexpectedly")
        return ready

    def _is_free(self, connection: Any, wanted: int) -> bool:
        """Return whether the answer is there, once that is certain: the lock may have been freed just now."""
        while connection.pgconn.status == psycopg.pq.ConnStatus.OK:
            socket = connection.pgconn.socket
            if _poll(socket, wanted, 0):
                return True
            if self.monitor.is_blocked(connection.pgconn.backend_pid):
                return False
            _poll(socket, wanted, PATIENCE)
        return True


def _poll(socket: int, wanted: int, seconds: float) -> int:
    reads, writes = wanted & waiting.WAIT_R, wanted & waiting.WAIT_W
    readable, writable, _ = select.select([socket] if reads else [], [socket] if writes else [], [], seconds)
    return (waiting.READY_R if readable else 0) | (waiting.READY_W if writable else 0)


@contextmanager
def simulated_postgres(scheduler: Scheduler, clock: Clock, uri: str) -> Iterator[None]:
    """Simulate every statement on a database of PostgreSQL meanwhile."""
    monitor = Monitor(uri, clock)
    seam = PostgresSeam(scheduler, clock, monitor)
    with ExitStack() as stack:
        stack.callback(monitor.close)
        stack.enter_context(mock.patch.object(psycopg.Cursor, "execute", lambda *a, **o: seam.execute(*a, **o)))
        stack.enter_context(mock.patch.object(psycopg.Connection, "wait", lambda *a, **o: seam.wait(*a, **o)))
        stack.enter_context(mock.patch.object(PipelinedConnection, "later", lambda *a: seam.later(*a)))
        stack.enter_context(mock.patch.object(PipelinedConnection, "flush", lambda *a: seam.flush(*a)))
        stack.enter_context(mock.patch.object(PipelinedConnection, "insert", lambda *a: seam.insert(*a)))
        stack.enter_context(mock.patch.object(PipelinedConnection, "rollback", lambda *a: seam.rollback(*a)))
        yield


#: What the statements of the package ask the server, and what is asked instead.
SIMULATED = {
    "clock_timestamp()": "sim.now()",
    "date_part('epoch', now())": "date_part('epoch', sim.now())",
    "pg_snapshot_xmin(pg_current_snapshot())": "sim.oldest()",
}
#: Makes the server's clock a value that the monitor sets, and knows transactions of this database only: what else runs
#: on the server changes no run. A sequence is not transactional: all see it at once.
POSTGRES_CLOCK = """
CREATE SCHEMA sim;
CREATE SEQUENCE sim.clock;
CREATE FUNCTION sim.now() RETURNS timestamptz LANGUAGE sql VOLATILE
AS $$ SELECT 'epoch'::timestamptz + (SELECT c.last_value FROM sim.clock c) * interval '1 microsecond' $$;
CREATE FUNCTION sim.oldest() RETURNS bigint LANGUAGE sql VOLATILE
AS $$
    SELECT coalesce(min(a.backend_xid::text::bigint), pg_snapshot_xmax(pg_current_snapshot())::text::bigint)
    FROM pg_stat_activity a WHERE a.datname = current_database()
$$;
ALTER TABLE airflow_mq.inbox ALTER sent_at SET DEFAULT CAST(date_part('epoch', sim.now()) * 1000000 AS bigint);
ALTER TABLE airflow_mq.ring ALTER created_at SET DEFAULT sim.now();
"""
