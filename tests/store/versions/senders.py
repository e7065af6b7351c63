"""Senders of earlier versions, as the statements that their code ran.

A process that opened its store before an upgrade goes on with the statements of its version.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import psycopg

from airflow_mq.store import StoreAddress

#: Payloads of the recorded calls, by name.
PAYLOADS = {
    "plain": ["sent plainly"],
    "keyed": ["sent with a key"],
    "many": ["sent with others 1", "sent with others 2"],
}
_ID = re.compile(r"VALUES \(\d+,")


class Sender:
    """A process that was started before the upgrade, with its connection."""

    def __init__(self, address: StoreAddress) -> None:
        self.connection: Any
        if address.path is not None:
            self.connection = sqlite3.connect(address.path, timeout=60, isolation_level=None, check_same_thread=False)
        else:
            self.connection = psycopg.connect(address.uri, autocommit=True)

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.connection.close()

    def send(self, statements: Sequence[str]) -> bool:
        """Run the statements of a call; return whether the database accepted all of them."""
        try:
            self.run(statements)
        except (sqlite3.Error, psycopg.Error):
            self.connection.rollback()
            return False
        return True

    def run(self, statements: Sequence[str]) -> None:
        drawn = None
        for text in statements:
            # The text holds the id that was drawn when it was recorded.
            cursor = self.connection.execute(text if drawn is None else _ID.sub(f"VALUES ({drawn},", text))
            if "counter" in text:
                drawn = cursor.fetchone()[0]


def sent_by(name: str, statements: Sequence[str]) -> list[str]:
    """Return the payloads that a recorded call stores. Rows of a COPY were not recorded."""
    return PAYLOADS[name] if any("mail" in text for text in statements) else []
