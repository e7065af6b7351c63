"""Sleep of a worker on PostgreSQL: until a sender's notification."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg

from ..rules.errors import StoreError


class Notifications:
    """Sleeper on a PostgreSQL connection of its own, which listens on one channel."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], channel: str) -> None:
        self._connect, self._channel = connect, channel
        self._connection: psycopg.Connection[Any] | None = None

    def sleep(self, seconds: float) -> bool:
        try:
            return any(True for _ in self._listening().notifies(timeout=seconds, stop_after=1))
        except (psycopg.Error, StoreError):
            # A lost connection costs only time: the worker also reads the store.
            self.close()
            time.sleep(seconds)
            return False

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _listening(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = self._connect()
            self._connection.execute(b'LISTEN "%b"' % self._channel.encode())
        return self._connection
