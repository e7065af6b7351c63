"""A database clock that tests advance by hand: leases and delays without waiting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from airflow_mq.engine.store.postgres import PostgresUnit
from airflow_mq.engine.store.primitives import Primitives
from airflow_mq.engine.store.rings import Rings

SECOND = 1_000_000


class Clock:
    """Microseconds since 1970."""

    def __init__(self) -> None:
        self.now = 1_800_000_000 * SECOND

    def advance(self, seconds: float) -> None:
        """Advance the time of the database and its clients."""
        self.now += int(seconds * SECOND)


@contextmanager
def stopped_clock() -> Iterator[Clock]:
    """Replace the clocks of both databases."""
    clock, lock, ring = Clock(), PostgresUnit._lock, Rings.named

    def locked(unit: PostgresUnit, *asked: Any) -> Any:
        found = lock(unit, *asked)
        return None if found is None else found._replace(now=clock.now)

    def looked_up(rings: Rings, name: str) -> Any:
        return ring(rings, name)._replace(now=clock.now)

    with (
        mock.patch.object(Primitives, "now", lambda _: clock.now),
        mock.patch.object(PostgresUnit, "_lock", locked),
        mock.patch.object(Rings, "named", looked_up),
    ):
        yield clock
