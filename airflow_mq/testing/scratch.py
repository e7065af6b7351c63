"""Temporary stores for tests and measurements, and assertions about a queue.

A store beside another one is removed after its use. A killed process leaves it behind; the next one removes stores that
no process holds.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from glob import escape
from pathlib import Path
from typing import Any

import psycopg
from psycopg import errors, sql

from ..engine.queue import MessageQueue
from ..engine.queue.holding import lives
from ..engine.rules.config import RingConfig
from ..engine.rules.errors import Refused
from ..engine.rules.message import MOST_PID, read_number
from ..engine.store import StoreAddress, parse, upgrade
from ..engine.store.postgres import connect, translated
from ..engine.store.sqlite import translated as translated_sqlite

_SCHEMA = "airflow_mq_scratch_"
_FILE = ".measure-"
_BESIDE = ("", "-wal", "-shm", "-journal")


def beside(address: StoreAddress) -> AbstractContextManager[StoreAddress]:
    """Open an empty store in the same place as this one."""
    return _sqlite_beside(address) if address.driver == "sqlite" else _postgres_beside(address)


@contextmanager
def _sqlite_beside(address: StoreAddress) -> Iterator[StoreAddress]:
    folder, name = address.file.parent, f"{address.file.name}{_FILE}"
    for left in folder.glob(f"{escape(name)}*"):
        pid = read_number(left.name.removeprefix(name).partition("-")[0], MOST_PID)
        if pid and not lives(pid):
            left.unlink(missing_ok=True)
    path = folder / f"{name}{os.getpid()}-{secrets.token_hex(4)}"
    made = replace(address, path=path)
    try:
        with translated_sqlite(path):
            upgrade(made)
        yield made
    finally:
        for suffix in _BESIDE:
            Path(f"{path}{suffix}").unlink(missing_ok=True)


@contextmanager
def _postgres_beside(address: StoreAddress) -> Iterator[StoreAddress]:
    made = replace(address, schema=f"{_SCHEMA}{secrets.token_hex(4)}")
    with translated(), connect(address) as connection:
        _drop_left_behind(connection)
        # This session holds a lock, so that others see that the schema is in use.
        connection.execute("SELECT pg_advisory_lock(hashtext(%s))", (made.schema,))
        try:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(made.schema)))
        except errors.InsufficientPrivilege:
            raise Refused(
                f"{address.user!r} cannot create a temporary schema beside {address.schema!r}: measuring requires one; "
                f"GRANT CREATE ON DATABASE {address.database} TO {address.user}"
            ) from None
        try:
            upgrade(made)
            yield made
        finally:
            _drop(connection, made.schema)


def _drop_left_behind(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Remove the schemas that no session holds."""
    rows = connection.execute("SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s)", (_SCHEMA,)).fetchall()
    for (name,) in rows:
        held = connection.execute("SELECT pg_try_advisory_lock(hashtext(%s))", (name,)).fetchone()
        if held and held[0]:
            with suppress(errors.InsufficientPrivilege):
                _drop(connection, str(name))
            connection.execute("SELECT pg_advisory_unlock(hashtext(%s))", (name,))


def _drop(connection: psycopg.Connection[tuple[object, ...]], schema: str) -> None:
    connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


@contextmanager
def scratch_store(uri: str | None = None) -> Iterator[str]:
    """Open an empty store and yield its address: a temporary SQLite file, or a new schema of a PostgreSQL database."""
    if uri is None or uri.startswith("sqlite:"):
        with tempfile.TemporaryDirectory(prefix="airflow_mq_") as folder:
            made = replace(parse(uri or "sqlite:///queue.db"), path=Path(folder) / "queue.db")
            upgrade(made)
            yield made.uri
        return
    with beside(parse(uri)) as address:
        yield address.uri


@contextmanager
def scratch_queue(uri: str | None = None, **settings: Any) -> Iterator[MessageQueue]:
    """Open a queue on a temporary store; `settings` are those of its ring."""
    with scratch_store(uri) as made:
        with MessageQueue(made) as first:
            first.admin.create_ring("scratch", RingConfig(**settings))
        with MessageQueue(made, "scratch") as queue:
            yield queue


def assert_sound(queue: MessageQueue) -> None:
    """Assert that all invariants hold."""
    violations = queue.check()
    assert not violations, "\n".join(map(str, violations))


def assert_ring(queue: MessageQueue, origins: Sequence[str]) -> None:
    """Assert that the ready ring holds these origins, from the head on."""
    found = queue.inspect.ring_order(limit=len(origins) + 1)
    assert found == list(origins), f"the ready ring begins with {found}, not {list(origins)}"
