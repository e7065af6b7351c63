"""Bounded waiting for PostgreSQL's answer to a statement.

A stopped server or a lossy network accepts a statement and never answers. The server's own time-outs do not end that
wait, nor do those of TCP while the server's machine still acknowledges each packet.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

import psycopg
from psycopg import capabilities
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

from .postgres_errors import NoReply

#: Seconds that an answer may come after the server's own time-out.
GRACE = 2.0
RV = TypeVar("RV")
_until: ContextVar[float] = ContextVar("airflow_mq_until", default=math.inf)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Bound the total wait of this thread for PostgreSQL; past it, statements raise `StoreUnreachable`."""
    token = _until.set(min(_until.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _until.reset(token)


def seconds_left() -> float:
    """Return the seconds that this thread may still wait."""
    return max(_until.get() - time.monotonic(), 0.0)


class BoundedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that closes itself when an answer is late."""

    #: Seconds to wait for the answer to one request.
    patience: float = math.inf

    def wait(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        """Wait for an answer of the server; raise `NoReply` when it is late."""
        try:
            state = next(gen)
        except StopIteration as done:
            # Nothing was sent.
            result: RV = done.value
            return result
        try:
            return super().wait(self._bounded(gen, state), *arguments, **options)
        except NoReply:
            self._give_up()
            raise
        except psycopg.Error:
            raise
        except BaseException:
            # After an interrupt, too: the answer to this request may not become that to the next one.
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self._give_up()
            raise

    def _bounded(self, gen: PQGen[RV], state: Any) -> Generator[Any, Any, RV]:
        until, overdue = min(time.monotonic() + self.patience, _until.get()), False
        try:
            while True:
                ready = yield state
                if (now := time.monotonic()) > until:
                    # Take an answer that came while this process was stopped; do not take one that trickles.
                    if overdue or not ready:
                        raise NoReply("no reply in time")
                    overdue, until = True, now + GRACE
                state = gen.send(ready)
        except StopIteration as done:
            result: RV = done.value
            return result

    def _give_up(self) -> None:
        with suppress(psycopg.Error, OSError):
            # Older versions of libpq would wait here without any bound.
            if capabilities.has_cancel_safe():
                self.cancel_safe(timeout=1.0)
        with suppress(psycopg.Error):
            self.close()
