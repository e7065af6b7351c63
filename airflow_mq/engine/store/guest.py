"""Units of work inside an open transaction of the caller, on the caller's connection.

A unit commits nothing, rolls nothing back and leaves no setting behind: its writes become visible by the caller's
commit. A savepoint around each unit keeps the caller's transaction usable after an error, where the database can.
"""

from __future__ import annotations

import inspect
import os
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
from psycopg import sql
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from ..rules.errors import ConnectionUnfit
from . import postgres, sqlite
from .postgres import PostgresStore, PostgresUnit
from .sqlite import SqliteStore, SqliteUnit
from .store import AnyStore
from .unit import Unit
from .version import require_version

_SAVEPOINT = "airflow_mq"
TAKEN = "a connection of psycopg 3, of sqlite3, or of SQLAlchemy over one of these two"


@contextmanager
def guest(store: AnyStore, connection: object, *, known: bool = False) -> Iterator[Unit]:
    """Yield a unit inside the open transaction of a connection to the same database.

    :param known: whether an earlier call has checked that the connection leads to this store
    """
    driver, begun = _driver_of(connection)
    if isinstance(store, PostgresStore):
        work = _on_postgres(store, driver, known)
    else:
        assert isinstance(store, SqliteStore)
        work = _on_sqlite(store, driver, begun, known)
    with work as unit:
        yield unit


def _driver_of(connection: Any) -> tuple[Any, bool]:
    """Return the driver's connection, and whether SQLAlchemy has a transaction open on it."""
    alchemy = sys.modules.get("sqlalchemy")
    if alchemy is None or isinstance(connection, (psycopg.Connection, sqlite3.Connection)):
        return connection, False
    if not isinstance(connection, alchemy.engine.Connection):
        if inspect.iscoroutinefunction(getattr(connection, "commit", None)):
            raise ConnectionUnfit(f"this is a {_name(connection)}, which is asynchronous; it takes {TAKEN}")
        if hasattr(connection, "connection") and hasattr(connection, "get_bind"):
            raise ConnectionUnfit("this is a session of SQLAlchemy; give its connection: session.connection()")
        return connection, False
    if connection.closed or connection.invalidated:
        raise ConnectionUnfit("this connection of SQLAlchemy is closed")
    if not connection.in_transaction():
        if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            raise ConnectionUnfit(
                "this connection of SQLAlchemy commits each statement by itself; take one without AUTOCOMMIT: "
                "`with engine.begin() as connection:`"
            )
        # Any first statement would begin it, too. A connection that commits each statement is refused below.
        connection.begin()
    return connection.connection.driver_connection, True


# PostgreSQL.


class _PlainConnection:
    """The caller's connection, with rows as tuples, JSON as text, and without the caller's cursor settings."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def cursor(self) -> psycopg.Cursor[tuple[Any, ...]]:
        cursor = psycopg.Cursor(self.connection, row_factory=tuple_row)
        postgres.keep_json(cursor)
        return cursor

    def execute(self, query: bytes) -> psycopg.Cursor[tuple[Any, ...]]:
        return self.cursor().execute(query)

    def later(self, query: bytes, values: Mapping[str, Any]) -> SimpleNamespace:
        """Run a statement at once; return the ways to its answer."""
        cursor = self.cursor().execute(query, values, binary=True)
        return SimpleNamespace(rows=cursor.fetchall, count=lambda: cursor.rowcount)

    def insert(self, query: bytes, types: Mapping[str, str], values: Sequence[Any]) -> int:
        return self.cursor().execute(query, dict(zip(types, values)), binary=True).rowcount


@contextmanager
def _on_postgres(store: PostgresStore, connection: object, known: bool) -> Iterator[Unit]:
    if not isinstance(connection, psycopg.Connection):
        raise ConnectionUnfit(f"the queue is on PostgreSQL, and this is a {_name(connection)}; it takes {TAKEN}")
    _refuse_state(connection)
    plain = _PlainConnection(connection)
    unit = PostgresUnit(store, plain)  # type: ignore[arg-type]
    with postgres.translated():
        store.point("savepoint")
        theirs = _enter(plain)
        try:
            if not known:
                _check_database(store, unit)
            yield unit
            store.point("release")
            _leave(plain, theirs)
        except BaseException:
            with suppress(psycopg.Error):
                plain.execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}; RELEASE SAVEPOINT {_SAVEPOINT}".encode())
            raise


def _enter(plain: _PlainConnection) -> str:
    """Begin a savepoint with our search path; return the caller's search path."""
    cursor = plain.execute(
        f"SAVEPOINT {_SAVEPOINT}; SELECT pg_catalog.current_setting('search_path'); "
        f"SET LOCAL search_path = {postgres.SEARCH_PATH}".encode()
    )
    cursor.nextset()
    (theirs,) = cursor.fetchone() or ("",)
    return str(theirs)


def _leave(plain: _PlainConnection, theirs: str) -> None:
    """Restore the caller's search path and release the savepoint. (A rollback to it restores the path, too.)"""
    text = "SELECT pg_catalog.set_config('search_path', {}, true); RELEASE SAVEPOINT {}"
    plain.execute(sql.SQL(text).format(theirs, sql.Identifier(_SAVEPOINT)).as_bytes(plain.connection))


def _refuse_state(connection: psycopg.Connection[Any]) -> None:
    status = connection.info.transaction_status
    if connection.closed or status == TransactionStatus.UNKNOWN:
        raise ConnectionUnfit("this connection is closed")
    if status == TransactionStatus.INERROR:
        raise ConnectionUnfit("the transaction of this connection has failed before; roll it back first")
    if status == TransactionStatus.ACTIVE or connection.pgconn.pipeline_status != PipelineStatus.OFF:
        raise ConnectionUnfit("this connection is in the middle of something else, a COPY or a pipeline; end it first")
    if status == TransactionStatus.IDLE and connection.autocommit:
        raise ConnectionUnfit(
            "this connection commits each statement by itself, and has no open transaction; "
            "work within `with connection.transaction():`"
        )


def _check_database(store: PostgresStore, unit: Unit) -> None:
    theirs = unit.rows("database")
    if theirs != store.identity() and theirs != store.identity(anew=True):
        raise ConnectionUnfit(
            f"this connection leads to another database than that of the queue, which is {store.address.safe}; "
            "only in one database can both be written in one transaction"
        )
    require_version(unit.rows("schema_version")[0][0])


# SQLite.


@contextmanager
def _on_sqlite(store: SqliteStore, connection: object, begun: bool, known: bool) -> Iterator[Unit]:
    if not isinstance(connection, sqlite3.Connection):
        raise ConnectionUnfit(f"the queue is on SQLite, and this is a {_name(connection)}; it takes {TAKEN}")
    # Rows as tuples, and text as such; a unit has read the answer to a statement before it runs the next one.
    plain, theirs = _cursor_of(connection), connection.text_factory
    plain.row_factory, connection.text_factory = None, str
    unit = SqliteUnit(store, plain)  # type: ignore[arg-type]
    try:
        with sqlite.translated(store.path):
            store.refuse_replaced()
            if not known:
                _check_file(store, plain)
            _refuse_no_transaction(connection, plain, begun)
            store.point("savepoint")
            plain.execute(f"SAVEPOINT {_SAVEPOINT}")
            try:
                if not known:
                    require_version(unit.rows("schema_version")[0][0])
                yield unit
                store.point("release")
                plain.execute(f"RELEASE {_SAVEPOINT}")
            except BaseException as error:
                _back_to_savepoint(connection, plain, error, store.path)
                raise
    finally:
        connection.text_factory = theirs


def _back_to_savepoint(connection: sqlite3.Connection, plain: sqlite3.Cursor, error: BaseException, path: Path) -> None:
    if connection.in_transaction:
        plain.execute(f"ROLLBACK TO {_SAVEPOINT}")
        plain.execute(f"RELEASE {_SAVEPOINT}")
    elif isinstance(error, sqlite3.Error):
        # On a full or failing disk SQLite has rolled back the whole transaction by itself.
        ours = sqlite.named(error, path)
        raise type(ours)(f"{ours}; SQLite has rolled your whole transaction back") from error


def _check_file(store: SqliteStore, plain: sqlite3.Cursor) -> None:
    path = store.path
    files = plain.execute("PRAGMA database_list")
    same = [name for _, name, file in files if file and os.path.exists(file) and os.path.samefile(file, path)]
    if "main" in same:
        return
    if same:
        raise ConnectionUnfit(
            f"the queue's file is attached to this connection as {same[0]!r}; SQLite does not commit two files as one, "
            f"so open {path} itself"
        )
    raise ConnectionUnfit(
        f"this connection leads to another file than that of the queue, which is {path}; "
        "only in one file can both be written in one transaction"
    )


def _cursor_of(connection: sqlite3.Connection) -> sqlite3.Cursor:
    try:
        # Fails if the connection is closed or belongs to another thread; reads nothing.
        return connection.cursor()
    except sqlite3.ProgrammingError as error:
        raise ConnectionUnfit(f"this connection cannot be used here: {error}") from None


def _refuse_no_transaction(connection: sqlite3.Connection, plain: sqlite3.Cursor, begun: bool) -> None:
    if connection.in_transaction:
        return
    if begun and connection.isolation_level is not None:
        # SQLAlchemy has a transaction open that the driver would begin at the first write.
        plain.execute(f"BEGIN {connection.isolation_level}")
        return
    raise ConnectionUnfit(
        "this connection has no open transaction; begin one (connection.execute('BEGIN IMMEDIATE')), or write rows of "
        "your own first where the driver begins by itself"
    )


def _name(connection: object) -> str:
    kind = type(connection)
    return f"{kind.__module__}.{kind.__qualname__}"
