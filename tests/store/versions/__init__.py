"""Stores as each schema version wrote them: small dumps, and how to load them.

`writer.py` filled each store with the code of its version; `python -m tests.store.versions` writes the dumps again.
Version 2 never was the newest version of any code, so its store is that of version 1 with the second migration.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from airflow_mq.store import StoreAddress
from airflow_mq.store.schema import checksum, split_statements
from airflow_mq.store.statements import migrations

FOLDER = Path(__file__).parent
FACTS, SENDERS = "-- facts: ", "-- senders: "
NEWEST = migrations("sqlite")[-1][0]
VERSIONS = range(1, NEWEST + 1)


@dataclass(frozen=True)
class Dump:
    """A dump of a store, with what its writer left in it."""

    version: int
    facts: dict[str, Any]
    #: Statements of this version's senders, which ran after the dump.
    senders: dict[str, list[str]]
    sql: str

    @property
    def expected(self) -> list[str]:
        """Payloads of the ring `default` that must be processed once, except the one that is set aside."""
        return sorted([*self.facts["expected"], *([self.facts["large"]] if "large" in self.facts else [])])


def dialect_of(address: StoreAddress) -> str:
    return "sqlite" if address.driver == "sqlite" else "postgres"


def read(version: int, dialect: str) -> Dump:
    """Return the dump of a version."""
    text = (FOLDER / dialect / f"{1 if version == 2 else version}.sql").read_text()
    facts, senders, sql = text.split("\n", 2)
    return Dump(version, json.loads(facts.removeprefix(FACTS)), json.loads(senders.removeprefix(SENDERS)), sql)


def load(version: int, address: StoreAddress) -> Dump:
    """Fill an empty store with a dump, and return the dump."""
    dump = read(version, dialect_of(address))
    run_script(address, dump.sql)
    if version == 2:
        run_script(address, second_migration(address))
    return dump


def second_migration(address: StoreAddress) -> str:
    number, name, text = migrations(dialect_of(address))[1]
    columns = "(version, name, checksum)"
    insert = f"INSERT INTO {address.prefix}migration {columns} VALUES ({number}, '{name}', '{checksum(text)}');"
    return f"BEGIN;\n{text.replace('{s}', address.prefix)}\n{insert}\nCOMMIT;"


def run_script(address: StoreAddress, script: str) -> None:
    """Run the statements of a script in a connection of its own."""
    if address.path is not None:
        with closing(sqlite3.connect(address.path, isolation_level=None)) as connection:
            # A dump does not contain this property of the file.
            connection.execute("PRAGMA journal_mode = WAL")
            for statement in split_statements(script):
                connection.execute(statement)
    else:
        with psycopg.connect(address.uri, autocommit=True) as connection:
            connection.execute(script.encode())
