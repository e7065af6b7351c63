"""Bounded waiting for PostgreSQL's answer to a statement.

A stopped server or a lossy network accepts a statement and never answers. The server's own time-outs do not end that
wait, nor do those of TCP while the server's machine still acknowledges each packet.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cached_property
from typing import Any, TypeVar

import psycopg
from psycopg import capabilities
from psycopg.abc import PQGen
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from .postgres_errors import NoReply

#: Seconds that an answer may come after the server's own time-out.
GRACE = 2.0
#: States of a result without an error, and the error of a connection that has no further answer.
SUCCESSES = frozenset({ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.PIPELINE_ABORTED})
LOST = "the connection is lost"
RV = TypeVar("RV")
T = TypeVar("T")
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

    #: Seconds to wait for the answer to one statement.
    patience: float = math.inf
    #: Seconds after which the server ends a statement; 0 for no limit.
    statement_timeout = 0
    #: Whether statements may be prepared: the session stays the same from one transaction to the next.
    prepares = False

    def exchange(self, send: Callable[..., object], *request: Any) -> PGresult:
        """Send a request and return the last part of its answer. Raise the error that the server returned."""
        return self.converse(self._take_answer, send, *request)

    def converse(self, take: Callable[[], T], send: Callable[..., object], *request: Any) -> T:
        """Send requests, and return what `take` makes of their answers."""
        try:
            send(*request)
            while self.pgconn.flush():
                if self.await_socket(select.POLLIN | select.POLLOUT, self._deadline()) & select.POLLIN:
                    self.pgconn.consume_input()
            return take()
        except BaseException:
            # After an interrupt, too: the answer to this request may not become that to the next one.
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self._give_up()
            raise

    def _take_answer(self) -> PGresult:
        last = failed = None
        while (result := self.next_result(failed)) is not None:
            last, status = result, result.status
            if status == ExecStatus.COPY_IN:
                break
            if status not in SUCCESSES:
                failed = failed or result
        if failed is not None:
            raise error_from_result(failed)
        if last is None:
            raise psycopg.OperationalError(LOST)
        return last

    def next_result(self, failed: PGresult | None) -> PGresult | None:
        """Return the next part of an answer; None at its end.

        :param failed: an error of the server, to be raised if it is followed by the end of the connection.
        """
        pgconn = self.pgconn
        if pgconn.is_busy():
            until = self._deadline()
            try:
                while pgconn.is_busy():
                    self.await_socket(select.POLLIN, until)
                    pgconn.consume_input()
            except psycopg.OperationalError:
                # A server that ends the session returns the reason before it closes the connection.
                if failed is not None:
                    raise error_from_result(failed) from None
                raise
        return pgconn.get_result()

    def _deadline(self) -> float:
        """Return when the next answer is late."""
        return min(time.monotonic() + self.patience, _until.get())

    def await_socket(self, events: int, until: float) -> int:
        """Wait until the socket is ready, and return for what; raise `NoReply` at the deadline."""
        poll = self._poll
        poll.register(self.pgconn.socket, events)
        left = until - time.monotonic()
        found = poll.poll(None if left == math.inf else max(left, 0) * 1000)
        if not found:
            raise NoReply("no reply in time")
        return found[0][1]

    @cached_property
    def _poll(self) -> select.poll:
        """The socket's poll object."""
        return select.poll()

    def wait(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        """Wait for an answer of the server; raise `NoReply` when it is late."""
        try:
            return super().wait(self._bounded(gen), *arguments, **options)
        except NoReply:
            self._give_up()
            raise

    def _bounded(self, gen: PQGen[RV]) -> Generator[Any, Any, RV]:
        until, overdue = self._deadline(), False
        try:
            state = next(gen)
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
