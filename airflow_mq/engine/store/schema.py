"""Schema versions: an explicit upgrade, a check by every client, and SQL to print for a DBA."""

from __future__ import annotations

import hashlib
import json
import math
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from ..rules.config import RingConfig
from ..rules.errors import StoreCorrupt
from . import sqlite
from .address import SQLITE_PREFIX, StoreAddress
from .files import lacking, make_private, refuse_foreign_log, refuse_network_file_system
from .forks import GATE
from .statements import migrations, statement
from .version import SchemaStatus, expected_version

#: Settings of an upgrade, which may rewrite large tables and wait for another upgrade.
_PATIENT = ("statement_timeout = 0", "idle_in_transaction_session_timeout = 0")
_KNOWN = "SELECT version, name, checksum FROM {}migration"
_EXISTS = {
    "sqlite": "SELECT 1 FROM sqlite_master WHERE name = '{}migration'",
    "postgres": "SELECT 1 WHERE to_regclass('{}migration') IS NOT NULL",
}
#: What a migration makes or drops, and the names of what a store has: of triggers with their tables, without those that
#: are switched off and indexes that a server could not finish.
_MADE = re.compile(
    r"^(CREATE|DROP) (?:OR REPLACE |UNIQUE )?(TABLE|VIEW|INDEX|SEQUENCE|FUNCTION|TRIGGER) (?:IF EXISTS )?"
    r"(?:\{s\})?(\w+)(?:[\w, ]* ON \{s\}(\w+))?",
    re.MULTILINE,
)
_OBJECTS = {
    "sqlite": "SELECT name || CASE type WHEN 'trigger' THEN ' of ' || tbl_name ELSE '' END FROM sqlite_master",
    "postgres": """
        WITH own AS (SELECT oid, relname::text FROM pg_class WHERE relnamespace = trim('{0}', '.')::regnamespace)
        SELECT c.relname FROM own c LEFT JOIN pg_index i ON i.indexrelid = c.oid WHERE i.indisvalid IS NOT FALSE
        UNION ALL SELECT p.proname::text FROM pg_proc p WHERE p.pronamespace = trim('{0}', '.')::regnamespace
        UNION ALL SELECT t.tgname || ' of ' || c.relname FROM own c JOIN pg_trigger t ON t.tgrelid = c.oid
        WHERE t.tgenabled <> 'D'""",
}
_TABLE = {
    "sqlite": "CREATE TABLE IF NOT EXISTS mq_migration (version INTEGER PRIMARY KEY, name TEXT NOT NULL, "
    "checksum TEXT NOT NULL) STRICT",
    "postgres": 'CREATE SCHEMA IF NOT EXISTS "{schema}";\nCREATE TABLE IF NOT EXISTS "{schema}".migration '
    "(version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, "
    "applied_at timestamptz NOT NULL DEFAULT now())",
}


def schema_status(address: StoreAddress, timeout: float = 5.0) -> SchemaStatus:
    """Return the schema version of a store; create and change nothing."""
    lacks = None if address.path is None else lacking(address.path)
    version, first = None, None
    if not lacks:
        with _reading(address, timeout) as rows:
            if rows(_EXISTS[_dialect(address)]):
                version, first = rows(statement(_dialect(address), "schema_version", address.prefix))[0]
    return SchemaStatus(version, expected_version(), lacks, first)


def differences(address: StoreAddress) -> list[str]:
    """Return how a store with the current schema differs from what its migrations made; change nothing."""
    dialect, made, found = _dialect(address), dict[str, str](), []
    with _reading(address) as rows:
        there = {name.replace(SQLITE_PREFIX, "") for (name,) in rows(_OBJECTS[dialect])}
        known = {version: text for version, _, text in rows(_KNOWN)}
    for version, name, text in migrations(dialect):
        if known.get(version) != checksum(text):
            found.append(f"migration {name} was applied in another wording")
        for verb, kind, what, table in _MADE.findall(text):
            full = f"{what} of {table}" if kind == "TRIGGER" else what
            if verb == "CREATE":
                made[full] = f"{kind.lower()} {full} is missing"
            else:
                made.pop(full, None)
    return found + [made[name] for name in sorted(made.keys() - there)]


def _dialect(address: StoreAddress) -> str:
    return "sqlite" if address.driver == "sqlite" else "postgres"


@contextmanager
def _reading(address: StoreAddress, timeout: float = 5.0) -> Iterator[Callable[[str], list[Any]]]:
    """Yield the way to read the rows of a statement."""
    if address.path is None:
        from . import postgres

        with postgres.translated(), postgres.connect(address) as server:
            yield lambda text: server.execute(text.format(address.prefix).encode()).fetchall()
        return
    if address.file.stat().st_size:  # SQLite applies no log to an empty file.
        refuse_foreign_log(address.file)
    with (
        sqlite.translated(address.file),
        GATE,
        closing(sqlite3.connect(address.file_uri("ro"), uri=True, timeout=timeout)) as file,
    ):
        yield lambda text: file.execute(text.format(address.prefix)).fetchall()


def upgrade(address: StoreAddress) -> list[str]:
    """Upgrade a store to the current schema; return the names of the applied migrations."""
    with _upgrading_sqlite(address) if address.path else _upgrading_postgres(address) as execute:
        applied = _missing(_dialect(address), execute(_KNOWN.format(address.prefix)).fetchall())
        for text in (*_scripts(address.prefix, applied), *_first_ring(address.prefix)):
            for script in split_statements(text) if address.path else [text]:
                execute(script)
    return [name for _, name, _ in applied]


def _scripts(prefix: str, missing: Sequence[tuple[int, str, str]]) -> Iterator[str]:
    """Yield the statements of migrations."""
    for version, name, text in missing:
        yield text.replace("{s}", prefix).strip()
        row = f"{version}, '{name}', '{checksum(text)}'"
        yield f"INSERT INTO {prefix}migration (version, name, checksum) VALUES ({row});"


def _first_ring(prefix: str) -> Iterator[str]:
    """Yield the statements that create the ring `default` if there is none."""
    row = f"'default', '{json.dumps(RingConfig().to_json())}'"
    yield f"INSERT INTO {prefix}ring (name, config) VALUES ({row}) ON CONFLICT (name) DO NOTHING;"
    yield (
        f"INSERT INTO {prefix}ring_state (ring) SELECT r.id FROM {prefix}ring r WHERE r.name = 'default' "
        f"AND NOT EXISTS (SELECT 1 FROM {prefix}ring_state s WHERE s.ring = r.id);"
    )


@contextmanager
def _upgrading_sqlite(address: StoreAddress) -> Iterator[Callable[..., Any]]:
    """Yield the way to execute statements in a transaction, in which the table of migrations exists."""
    address.file.parent.mkdir(parents=True, exist_ok=True)
    refuse_network_file_system(address.file)
    refuse_foreign_log(address.file)
    make_private(address.file)
    with (
        sqlite.translated(address.file),
        GATE,
        closing(sqlite3.connect(address.file, timeout=60, isolation_level=None)) as connection,
    ):
        sqlite.configure(connection)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_TABLE["sqlite"])
        yield connection.execute
        connection.execute("COMMIT")


@contextmanager
def _upgrading_postgres(address: StoreAddress) -> Iterator[Callable[..., Any]]:
    """Yield the way to execute statements in a transaction, in which the table of migrations exists."""
    from . import postgres

    with (
        postgres.translated(),
        postgres.connect(address, *_PATIENT, patience=math.inf) as connection,
        connection.transaction(),
    ):
        # A second upgrade waits here, and then has nothing left to do.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"airflow_mq {address.schema}",))
        connection.execute(_TABLE["postgres"].format(schema=address.schema).encode())
        yield lambda text: connection.execute(text.encode())


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
    missing = [migration for migration in migrations(dialect) if migration[0] > since]
    ring = _first_ring(prefix) if missing else ()
    return "\n\n".join([*parts, *_scripts(prefix, missing), *ring, "COMMIT;\n"])


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
