"""Callers with a connection and a transaction of their own: the drivers, and SQLAlchemy over them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import sqlalchemy

from airflow_mq.store import parse

#: How a caller may hold a connection.
STYLES = ("driver", "sqlalchemy")


class Caller:
    """Somebody who writes rows of their own, and commands, in one transaction."""

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
        """A statement of the caller's own."""
        if self.style == "sqlalchemy":
            done = self.connection.exec_driver_sql(text)
            return [tuple(row) for row in done] if done.returns_rows else []
        cursor = self.connection.execute(text)
        return cursor.fetchall() if cursor.description else []

    def rows(self) -> list[Any]:
        """The caller's rows, as everybody sees them."""
        self.connection.rollback()
        found = self.run("SELECT what FROM business ORDER BY what")
        self.connection.rollback()
        return [row[0] for row in found]

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
    """A caller with a table, for a while."""
    caller = Caller(uri, style)
    try:
        caller.run("CREATE TABLE IF NOT EXISTS business (what text)")
        caller.commit()
        yield caller
    finally:
        caller.close()
