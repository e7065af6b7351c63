"""Connection of a PostgreSQL store: statements that do not wait for each other's answers take one round trip."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from struct import Struct
from typing import Any, TypeVar

import psycopg
from psycopg import abc, errors
from psycopg.errors import error_from_result
from psycopg.generators import execute, fetch_many, send
from psycopg.postgres import types as postgres_types
from psycopg.pq import ConnStatus, ExecStatus, Format, TransactionStatus

from .bounded import BoundedConnection

T = TypeVar("T")
_PARAMETER = re.compile(rb"%\(\w+\)s")
#: Binary forms of values, by type.
_ENCODED: dict[str, Callable[[Any], bytes]] = {
    "int2": Struct("!h").pack, "int4": Struct("!i").pack, "bool": Struct("?").pack, "text": str.encode, "bytea": bytes,
}  # fmt: skip


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

    def insert(self, text: bytes, types: Mapping[str, str], row: Sequence[Any]) -> None:
        """Run an INSERT of one row, after the statements that were requested.

        One that commits by itself uses libpq without a cursor: a cursor makes single sends take 1.4 times as long.

        :param types: types of the columns, which are the parameters of the statement in this order
        """
        if self._unsent or self.pgconn.transaction_status != TransactionStatus.IDLE:
            self.run(text, dict(zip(types, row)))
            return
        values = [_ENCODED[kind](value) for kind, value in zip(types.values(), row)]
        self._retried(lambda: self._insert(text, types, values))

    def _insert(self, text: bytes, types: Mapping[str, str], values: Sequence[bytes]) -> None:
        """Run an INSERT with encoded values. A session that keeps its statements prepares it once."""
        pgconn, formats, name = self.pgconn, [Format.BINARY] * len(values), self._named.get(text)
        if name is None:
            oids, places = [postgres_types[kind].oid for kind in types.values()], iter(range(1, len(types) + 1))
            numbered = _PARAMETER.sub(lambda _: b"$%d" % next(places), text)
            if self.prepare_threshold is None:
                pgconn.send_query_params(numbered, values, oids, formats)
                return self._wait_for_success()
            name = b"airflow_mq_%d" % len(self._named)
            pgconn.send_prepare(name, numbered, oids)
            self._wait_for_success()
            self._named[text] = name
        pgconn.send_query_prepared(name, values, formats)
        return self._wait_for_success()

    def _wait_for_success(self) -> None:
        for result in self.wait(execute(self.pgconn)):
            if result.status != ExecStatus.COMMAND_OK:
                raise error_from_result(result)

    def copy_in(self, text: bytes, types: Mapping[str, str], rows: Iterable[Sequence[Any]]) -> None:
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
        for request, cursor in zip(requests, self._retried(lambda: self._run_all(requests))):
            request.take(cursor)
            self._cursors[request.text] = cursor

    def _retried(self, run: Callable[[], T]) -> T:
        """Run statements, once more if something else deallocated the prepared ones of the session."""
        begins = self.pgconn.transaction_status == TransactionStatus.IDLE
        try:
            return run()
        except errors.InvalidSqlStatementName:
            if not begins:
                raise
            self.rollback()
            self._prepared.clear()
            self._named.clear()
            return run()

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
    def _named(self) -> dict[bytes, bytes]:
        """Names of prepared INSERTs, by their text."""
        return {}

    @cached_property
    def _cursors(self) -> dict[bytes, psycopg.Cursor[tuple[Any, ...]]]:
        """Cursors that are not in use, by the statement that each ran."""
        return {}


class _Ended(Exception):
    """The rows of a COPY ended with an error."""


def copy_rows(
    cursor: psycopg.Cursor[tuple[Any, ...]], text: bytes, types: Mapping[str, str], rows: Iterable[Sequence[Any]]
) -> None:
    """Run a COPY of rows with columns of these types."""
    failed: BaseException | None = None
    with suppress(_Ended), cursor.copy(text) as copy:
        copy.set_types(list(types.values()))
        try:
            for row in rows:
                copy.write_row(row)
        except BaseException as error:
            # The driver sends the text of an error to the server's log. This error may be one of the caller.
            failed = error
            raise _Ended from None
    if failed is not None:
        raise failed
