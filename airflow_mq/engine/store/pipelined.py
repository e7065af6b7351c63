"""Connection of a PostgreSQL store: statements that do not wait for each other's answers take one round trip."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import psycopg
from psycopg import abc, errors
from psycopg.generators import fetch_many, send
from psycopg.pq import ConnStatus, TransactionStatus

from .bounded import BoundedConnection


class Pipeline(psycopg.Pipeline):
    """A pipeline that is sent whole at its end, and raises the first error of the server.

    The driver's own pipeline sends each statement at once. A server that waits for the end of a pipeline applies none
    of its time-outs, so a stopped process would hold its locks. And the driver loses the reason with which a server
    ends the connection.
    """

    def _communicate_gen(self) -> abc.PQGen[None]:
        """Send nothing yet."""
        yield from ()

    def _exit_gen(self) -> abc.PQGen[None]:
        self._enqueue_sync()
        while self.command_queue:
            self.command_queue.popleft()()
        yield from send(self.pgconn)
        first: psycopg.Error | None = None
        while self.result_queue:
            queued = self.result_queue.popleft()
            try:
                self._process_results(queued, (yield from fetch_many(self.pgconn)))
            except psycopg.Error as error:
                first = first or error
                if self.pgconn.status != ConnStatus.OK:
                    break
        if first is not None:
            # The session lacks the statements that were to be prepared after the one that failed.
            self._conn._prepared.clear()
            raise first


class Request:
    """A statement for the server. It is sent together with the next one, or when its answer is wanted."""

    __slots__ = ("_answer", "_connection", "_count", "text", "values")

    def __init__(self, connection: PipelinedConnection, text: bytes, values: Mapping[str, Any] | None) -> None:
        self._connection, self.text, self.values = connection, text, values
        self._answer: list[tuple[Any, ...]] = []
        self._count = 0

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows of the answer."""
        self._connection.flush()
        return self._answer

    def count(self) -> int:
        """Return the number of rows that the statement read or wrote."""
        self._connection.flush()
        return self._count

    def take(self, cursor: psycopg.Cursor[tuple[Any, ...]]) -> None:
        """Take the answer from a cursor, which keeps no memory of it."""
        self._count = cursor.rowcount
        if cursor.rownumber is not None:
            self._answer = cursor.fetchall()
            assert cursor.pgresult is not None
            cursor.pgresult.clear()


class PipelinedConnection(BoundedConnection):
    """A connection that sends statements together with those that were requested before them.

    Statements have `%(name)s` parameters. Statements that wait for each other's answers take a round trip each; those
    that were requested by `later` go with the next one, as one pipeline.
    """

    #: Seconds after which the server ends a statement; 0 for no limit.
    statement_timeout = 0

    def later(self, text: bytes, values: Mapping[str, Any] | None = None) -> Request:
        """Request a statement."""
        request = Request(self, text, values)
        self._unsent.append(request)
        return request

    def rows(self, text: bytes, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a statement, after those that were requested; return its rows."""
        return self.later(text, values).rows()

    def run(self, text: bytes, values: Mapping[str, Any] | None = None) -> int:
        """Run a statement, after those that were requested; return the number of rows that it read or wrote."""
        return self.later(text, values).count()

    def execute(self, *arguments: Any, **options: Any) -> psycopg.Cursor[tuple[Any, ...]]:
        """Run a statement by a cursor, after those that were requested."""
        self.flush()
        return super().execute(*arguments, **options)

    def copy_in(self, text: bytes, types: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Run a COPY, after the statements that were requested. It may last as long as its rows come."""
        in_transaction = bool(self._unsent) or self.pgconn.transaction_status == TransactionStatus.INTRANS
        if in_transaction:
            self.later(b"SET LOCAL statement_timeout = 0")
        self.flush()
        copy_rows(self.cursor(), text, types, rows)
        if in_transaction:
            self.later(b"SET LOCAL statement_timeout = %d" % (self.statement_timeout * 1000))

    def flush(self) -> None:
        """Run all statements that were requested."""
        requests, self._unsent = self._unsent, []
        if not requests:
            return
        begins = self.pgconn.transaction_status == TransactionStatus.IDLE
        try:
            cursors = self._run_all(requests)
        except errors.InvalidSqlStatementName:
            # Something else deallocated the statements of the session.
            if not begins:
                raise
            self.rollback()
            self._prepared.clear()
            cursors = self._run_all(requests)
        for request, cursor in zip(requests, cursors):
            request.take(cursor)
            self._cursors[request.text] = cursor

    def _run_all(self, requests: Sequence[Request]) -> list[psycopg.Cursor[tuple[Any, ...]]]:
        """Run statements, several as a pipeline; return their cursors."""
        if len(requests) == 1:
            return [self._sent(requests[0])]
        self._pipeline = Pipeline(self)
        with self.pipeline():
            return [self._sent(request) for request in requests]

    def _sent(self, request: Request) -> psycopg.Cursor[tuple[Any, ...]]:
        """Run a statement, or add it to the pipeline; return its cursor."""
        # A cursor that ran the statement before knows the types of its parameters: that halves the client's time.
        cursor = self._cursors.pop(request.text, None) or self.cursor(binary=True)
        return cursor.execute(request.text, request.values)

    def forget(self) -> None:
        """Drop the statements that were requested and not sent."""
        self._unsent = []

    @cached_property
    def _unsent(self) -> list[Request]:
        """Statements that were requested."""
        return []

    @cached_property
    def _cursors(self) -> dict[bytes, psycopg.Cursor[tuple[Any, ...]]]:
        """Cursors that are not in use, by the statement that each ran."""
        return {}


class _Ended(Exception):
    """The rows of a COPY ended with an error."""


def copy_rows(
    cursor: psycopg.Cursor[tuple[Any, ...]], text: bytes, types: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """Run a COPY of rows with columns of these types."""
    failed: BaseException | None = None
    with suppress(_Ended), cursor.copy(text) as copy:
        copy.set_types(types)
        try:
            for row in rows:
                copy.write_row(row)
        except BaseException as error:
            # The driver sends the text of an error to the server's log. This error may be one of the caller.
            failed = error
            raise _Ended from None
    if failed is not None:
        raise failed
