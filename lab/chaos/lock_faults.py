"""Faults by other users of the database: open snapshots, locks, maintenance and stricter isolation."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from typing import ClassVar

import psycopg

from .scenario import Scenario

SCANS = ("SELECT count(*), sum(length(heap)) FROM airflow_mq.inbox", "SELECT count(*) FROM airflow_mq.event")


class HeldSnapshot(Scenario):
    """An idle transaction that has written, and four readers that scan the tables in one snapshot each."""

    def hurt(self) -> None:
        with self.fault(), ExitStack() as stack:
            holder = stack.enter_context(self.connect())
            holder.execute("INSERT INTO orders VALUES (-1, -1)")
            readers = [stack.enter_context(self.connect()) for _ in range(4)]
            for reader in readers:
                reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            for _ in self.until():
                for reader in readers:
                    for scan in SCANS:
                        reader.execute(scan)
                time.sleep(0.2)
            holder.rollback()


class SerializableSessions(Scenario):
    """A default isolation of serializable, beside analytic queries that hold a snapshot of all tables and write."""

    settings: ClassVar[dict[str, str]] = {"default_transaction_isolation": "serializable"}

    def hurt(self) -> None:
        tables = self.tables()
        with self.fault(), self.connect() as analyst:
            for number, _ in enumerate(self.until()):
                with suppress(psycopg.errors.SerializationFailure):
                    for table in tables:
                        analyst.execute(f"SELECT count(*) FROM {table}")
                    analyst.execute("INSERT INTO orders VALUES (-2, %s)", (-number,))
                    time.sleep(0.5)
                analyst.rollback()


class HeldRing(Scenario):
    """Another session holds the ring's row for longer than the clients wait for it."""

    def hurt(self) -> None:
        with self.fault(), self.connect() as holder:
            holder.execute("SELECT 1 FROM airflow_mq.ring_state FOR UPDATE")
            time.sleep(max(self.seconds, 5.0))
            holder.rollback()


class LockedTables(Scenario):
    """`LOCK TABLE … IN ACCESS EXCLUSIVE MODE` on six tables in turn, as changes of their definitions take it."""

    def hurt(self) -> None:
        tables = [f"airflow_mq.{name}" for name in ("inbox", "book", "page", "block", "event", "sent_key")]
        with self.fault(), self.connect() as other:
            for table in tables:
                other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
                time.sleep(self.seconds / len(tables))
                other.rollback()


class Maintenance(Scenario):
    """`VACUUM FULL`, `REINDEX`, `REINDEX … CONCURRENTLY` and `ANALYZE` of each table, without a pause."""

    def hurt(self) -> None:
        tables = self.tables()
        with self.fault(), self.connect(autocommit=True) as other:
            for number, _ in enumerate(self.until()):
                table = tables[number % len(tables)]
                for command in ("VACUUM (FULL, ANALYZE)", "REINDEX TABLE", "REINDEX TABLE CONCURRENTLY"):
                    with suppress(psycopg.errors.DeadlockDetected, psycopg.errors.QueryCanceled):
                        other.execute(f"{command} {table}")
