"""Callers with their own connection and transaction: database drivers, and SQLAlchemy."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import sqlalchemy

from airflow_mq.engine.store import parse

#: Kinds of connections that a caller can hold.
STYLES = ("driver", "sqlalchemy")


class Caller:
    """A program that writes its own rows and calls the queue in one transaction."""

    def __init__(self, uri: str, style: str) -> None:
        self.style, address = style, parse(uri)
        self.sqlite = address.path is not None
        if style == "sqlalchemy":
            self.engine = sqlalchemy.create_engine(
                f"sqlite:///{address.path}" if self.sqlite else uri.replace("postgresql:", "postgresql+psycopg:")
            )
            self.connection: Any = self.engine.connect()
        elif self.sqlite:
            self.connection = sqlite3.connect(str(address.path), timeout=10)
        else:
            self.connection = psycopg.connect(uri)

    def run(self, text: str) -> list[Any]:
        """Execute one of the caller's statements and return its rows."""
        if self.style == "sqlalchemy":
            result = self.connection.exec_driver_sql(text)
            return [tuple(row) for row in result] if result.returns_rows else []
        cursor = self.connection.execute(text)
        return cursor.fetchall() if cursor.description else []

    def rows(self) -> list[Any]:
        """Return the caller's committed rows."""
        self.connection.rollback()
        rows = self.run("SELECT what FROM business ORDER BY what")
        self.connection.rollback()
        return [row[0] for row in rows]

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()
        if self.style == "sqlalchemy":
            self.engine.dispose()


@contextmanager
def calling(uri: str, style: str) -> Iterator[Caller]:
    """Yield a caller with a table, and close it afterwards."""
    caller = Caller(uri, style)
    try:
        caller.run("CREATE TABLE IF NOT EXISTS business (what text)")
        caller.commit()
        yield caller
    finally:
        caller.close()
