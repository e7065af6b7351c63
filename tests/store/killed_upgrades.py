"""Upgrades that end at any statement: the process is killed, and the upgrade runs again."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import psycopg

from airflow_mq.engine.store import StoreAddress, upgrade
from tests.proofs.crash.children import run_child

Probe = Callable[[str], None]
#: Comments, bodies of functions, texts and semicolons of a script.
_TOKENS = re.compile(r"--[^\n]*|\$(\w*)\$.*?\$\1\$|'(?:[^']|'')*'|;", re.DOTALL)
_CONTENTS = "SELECT t::text FROM {} t ORDER BY 1"
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY 1"
_OBJECTS = (
    "SELECT a.attrelid::regclass::text, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, "
    "pg_get_expr(d.adbin, d.adrelid), pg_get_indexdef(a.attrelid) "
    "FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
    "LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum "
    "WHERE n.nspname = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1, 2",
    "SELECT p.oid::regprocedure::text, p.prosrc, p.proconfig::text, p.proacl::text "
    "FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %s ORDER BY 1",
)


def interrupt_everywhere(address: StoreAddress) -> int:
    """Kill an upgrade before each of its statements, and after the last one; return the number of statements.

    After each, the store is as before, except after the commit.
    """
    before, statement = contents(address), 0
    while True:
        ended = run_child(partial(probed_upgrade, address), kill_at=statement)
        if not ended.killed:
            # The store was current.
            return statement
        if contents(address) != before:
            assert ended.points[-1] == "end", f"the store changed, but the upgrade had not ended: {ended.points[-1]}"
            return statement
        statement += 1


def probed_upgrade(address: StoreAddress, probe: Probe) -> None:
    """Upgrade a store; call the probe before each statement and at the end."""
    with probed_sqlite(probe) if address.driver == "sqlite" else probed_postgres(probe):
        upgrade(address)
    probe("end")


@contextmanager
def probed_sqlite(probe: Probe) -> Iterator[None]:
    class Connection(sqlite3.Connection):
        def execute(self, text: str, values: Any = ()) -> sqlite3.Cursor:
            probe(text)
            return super().execute(text, values)

    with mock.patch("sqlite3.connect", partial(sqlite3.connect, factory=Connection)):
        yield


@contextmanager
def probed_postgres(probe: Probe) -> Iterator[None]:
    """Run the statements of a migration one by one, and call the probe before each."""
    real = psycopg.Connection.execute

    def execute(connection: Any, query: Any, values: Any = None, **options: Any) -> Any:
        statements = split(query.decode() if isinstance(query, bytes) else query)
        for text in statements[:-1]:
            probe(text)
            real(connection, text.encode())
        probe(statements[-1])
        return real(connection, statements[-1].encode(), values, **options)

    with mock.patch.object(psycopg.Connection, "execute", execute):
        yield


def split(script: str) -> list[str]:
    """Return the statements of a script for PostgreSQL."""
    statements, begin = [], 0
    for token in _TOKENS.finditer(script):
        if token[0] == ";":
            statements.append(script[begin : token.end()])
            begin = token.end()
    rest = script[begin:]
    return [*statements, rest] if _TOKENS.sub("", rest).strip() or not statements else statements


def contents(address: StoreAddress) -> list[Any]:
    """Return all tables and rows of a store, without the times of migrations."""
    if address.path is not None:
        with closing(sqlite3.connect(address.path)) as file:
            return sorted(file.iterdump())
    with psycopg.connect(address.uri) as connection:
        names = [f'"{address.schema}"."{name}"' for (name,) in connection.execute(_TABLES, (address.schema,))]
        rows = {name: connection.execute(_CONTENTS.format(name).encode()).fetchall() for name in names}
        migration = f'"{address.schema}"."migration"'
        if migration in rows:
            rows[migration] = connection.execute(
                f"SELECT version, name, checksum FROM {migration} ORDER BY 1".encode()
            ).fetchall()
        return [rows, *(connection.execute(text.encode(), (address.schema,)).fetchall() for text in _OBJECTS)]
