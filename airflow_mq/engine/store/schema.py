"""Schema versions: an explicit upgrade, a check by every client, and SQL to print for a DBA."""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from ..rules.config import RingConfig
from ..rules.errors import StoreCorrupt
from . import sqlite
from .address import SQLITE_PREFIX, StoreAddress
from .files import lacking, make_private, refuse_foreign_log, refuse_network_file_system
from .forks import GATE
from .statements import migrations
from .version import SchemaStatus, expected_version

#: Settings of an upgrade, which may rewrite large tables and wait for another upgrade.
_PATIENT = ("statement_timeout = 0", "idle_in_transaction_session_timeout = 0")
#: The version of a store, and the name of its first migration. No migration leads on from an unreleased one.
_APPLIED = "SELECT max(version), min(name) FROM {}migration"
_KNOWN = "SELECT version, name, checksum FROM {}migration"
_TABLE = {
    "sqlite": "CREATE TABLE IF NOT EXISTS mq_migration (version INTEGER PRIMARY KEY, name TEXT NOT NULL, "
    "checksum TEXT NOT NULL) STRICT",
    "postgres": 'CREATE SCHEMA IF NOT EXISTS "{schema}";\nCREATE TABLE IF NOT EXISTS "{schema}".migration '
    "(version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, "
    "applied_at timestamptz NOT NULL DEFAULT now())",
}
#: A version, and the name of a first migration; None without tables.
_Applied = tuple[int | None, str | None]


def schema_status(address: StoreAddress, timeout: float = 5.0) -> SchemaStatus:
    """Return the schema version of a store; create and change nothing."""
    lacks = None if address.path is None else lacking(address.path)
    version, first = (None, None) if lacks else _sqlite(address, timeout) if address.path else _postgres(address)
    return SchemaStatus(version, expected_version(), lacks, first)


def _sqlite(address: StoreAddress, timeout: float) -> _Applied:
    assert address.path is not None
    if address.path.stat().st_size:  # SQLite applies no log to an empty file.
        refuse_foreign_log(address.path)
    with sqlite.translated(address.path), GATE:
        connection = sqlite3.connect(address.file_uri("ro"), uri=True, timeout=timeout)
        try:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'mq_migration'").fetchone():
                return None, None
            applied: _Applied = connection.execute(_APPLIED.format(SQLITE_PREFIX)).fetchone()
            return applied
        finally:
            connection.close()


def _postgres(address: StoreAddress) -> _Applied:
    from . import postgres

    with postgres.translated(), postgres.connect(address) as connection:
        row = connection.execute("SELECT to_regclass(%s)", (f"{address.prefix}migration",)).fetchone()
        if row is None or row[0] is None:
            return None, None
        return connection.execute(_APPLIED.format(address.prefix).encode()).fetchone() or (None, None)


def upgrade(address: StoreAddress) -> list[str]:
    """Upgrade a store to the current schema; return the names of the applied migrations."""
    if address.driver == "sqlite":
        return _upgrade_sqlite(address)
    return _upgrade_postgres(address)


def _upgrade_sqlite(address: StoreAddress) -> list[str]:
    assert address.path is not None
    address.path.parent.mkdir(parents=True, exist_ok=True)
    refuse_network_file_system(address.path)
    refuse_foreign_log(address.path)
    make_private(address.path)
    with sqlite.translated(address.path), GATE:
        connection = sqlite3.connect(address.path, timeout=60, isolation_level=None)
        try:
            sqlite.configure(connection)
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_TABLE["sqlite"])
            applied = _missing("sqlite", connection.execute(_KNOWN.format(SQLITE_PREFIX)).fetchall())
            for version, name, text in applied:
                for statement in split_statements(text.replace("{s}", address.prefix)):
                    connection.execute(statement)
                connection.execute("INSERT INTO mq_migration VALUES (?, ?, ?)", (version, name, checksum(text)))
            _first_ring(lambda text, values: connection.execute(text, values), address.prefix, "?")
            connection.execute("COMMIT")
        finally:
            connection.close()
    return [name for _, name, _ in applied]


def _upgrade_postgres(address: StoreAddress) -> list[str]:
    prefix = address.prefix
    from . import postgres

    with (
        postgres.translated(),
        postgres.connect(address, *_PATIENT, patience=math.inf) as connection,
        connection.transaction(),
    ):
        # A second upgrade waits here, and then has nothing left to do.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"airflow_mq {address.schema}",))
        connection.execute(_TABLE["postgres"].format(schema=address.schema).encode())
        applied = _missing("postgres", connection.execute(_KNOWN.format(prefix).encode()).fetchall())
        for version, name, text in applied:
            connection.execute(text.replace("{s}", prefix).encode())
            connection.execute(
                f"INSERT INTO {prefix}migration (version, name, checksum) VALUES (%s, %s, %s)".encode(),
                (version, name, checksum(text)),
            )
        _first_ring(lambda text, values: connection.execute(text.encode(), values), prefix, "%s")
    return [name for _, name, _ in applied]


def _first_ring(execute: Callable[[str, Sequence[str]], Any], prefix: str, mark: str) -> None:
    """Create the ring `default`, unless it exists."""
    config = json.dumps(RingConfig().to_json())
    text = f"INSERT INTO {prefix}ring (name, config) VALUES ({mark}, {mark}) ON CONFLICT (name) DO NOTHING"
    execute(text, ("default", config))
    execute(
        f"INSERT INTO {prefix}ring_state (ring) SELECT r.id FROM {prefix}ring r WHERE r.name = {mark} "
        f"AND NOT EXISTS (SELECT 1 FROM {prefix}ring_state s WHERE s.ring = r.id)",
        ("default",),
    )


def _missing(dialect: str, rows: Sequence[tuple[int, str, str]]) -> list[tuple[int, str, str]]:
    ours, known = migrations(dialect), {version: text for version, _, text in rows}
    status = SchemaStatus(max(known, default=None), ours[-1][0], first=min((name for _, name, _ in rows), default=None))
    if status.state in ("newer", "unreleased"):
        status.require()
    for version, name, text in ours:
        if version in known and known[version] != checksum(text):
            raise StoreCorrupt(f"migration {name} was applied to this store in another wording; do not edit migrations")
    return [migration for migration in ours if migration[0] not in known]


def upgrade_sql(dialect: str, schema: str = "airflow_mq", since: int = 0) -> str:
    """Return the statements of an upgrade, for a DBA to read and run."""
    prefix = SQLITE_PREFIX if dialect == "sqlite" else f'"{schema}".'
    parts = ["BEGIN;"]
    if dialect == "postgres":
        from .postgres import SEARCH_PATH

        parts.append(f"SET LOCAL search_path = {SEARCH_PATH};")
    parts.append(_TABLE[dialect].format(schema=schema) + ";")
    for version, name, text in migrations(dialect):
        if version > since:
            parts.append(text.replace("{s}", prefix).strip())
            columns = "(version, name, checksum)"
            parts.append(f"INSERT INTO {prefix}migration {columns} VALUES ({version}, '{name}', '{checksum(text)}');")
    return "\n\n".join([*parts, "COMMIT;\n"])


def checksum(text: str) -> str:
    """Return the checksum of a migration."""
    return hashlib.sha256(text.encode()).hexdigest()


def split_statements(text: str) -> list[str]:
    """Return the statements of a script, because SQLite's driver runs one at a time inside a transaction."""
    statements, current = [], ""
    for line in text.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    return statements
