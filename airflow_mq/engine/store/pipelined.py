"""Connection of a PostgreSQL store, with few round trips and bounded waiting.

Statements that do not wait for each other's answers take one round trip. A stopped server or a lossy network accepts a
statement and never answers. The server's own time-outs do not end that wait, nor do those of TCP while the server's
machine still acknowledges each packet.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import count
from struct import Struct
from typing import Any, TypeVar

import psycopg
from psycopg import abc, capabilities, errors
from psycopg.errors import error_from_result
from psycopg.generators import execute, fetch_many, send
from psycopg.postgres import types as postgres_types
from psycopg.pq import ConnStatus, ExecStatus, Format, TransactionStatus

from .postgres_errors import NoReply

T = TypeVar("T")
#: Seconds that an answer may come after the server's own time-out.
GRACE = 2.0
_until: ContextVar[float] = ContextVar("airflow_mq_until", default=math.inf)
_PARAMETER = re.compile(rb"%\(\w+\)[sb]")
#: Binary forms: the beginning of an array (dimensions, whether it has nulls, type, length and first index of the only
#: dimension), the length of an element, and values by type.
_ARRAY, _LENGTH = Struct("!iiIii"), Struct("!i")
_BINARY: dict[str, Callable[[Any], bytes]] = {
    "int2": Struct("!h").pack, "int4": Struct("!i").pack, "int8": Struct("!q").pack, "bool": Struct("?").pack,
    "text": str.encode, "bytea": bytes,
}  # fmt: skip


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


class PipelinedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that sends statements together with those requested before, and closes when an answer is late.

    Statements have `%(name)s` parameters. Statements that wait for each other's answers take a round trip each; those
    that were requested by `later` go with the next one, as one pipeline.
    """

    #: Seconds to wait for the answer to one request.
    patience: float = math.inf
    #: Sets what the session of a pool does not keep, for one transaction; none for a session of its own.
    carried: bytes | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        #: Statements that were requested.
        self._unsent: list[Request] = []
        #: Names of prepared INSERTs, by their text, and the numbers of these names.
        self._named: dict[bytes, bytes] = {}
        self._numbers = count()
        #: Cursors that are not in use, by the statement that each ran.
        self._cursors: dict[bytes, psycopg.Cursor[tuple[Any, ...]]] = {}

    def later(self, text: bytes, values: Mapping[str, Any] | None = None) -> Request:
        """Request a statement."""
        request = Request(self, text, values)
        self._unsent.append(request)
        return request

    def run(self, text: bytes, values: Mapping[str, Any] | None = None) -> int:
        """Run a statement, after those that were requested; return the number of rows that it read or wrote."""
        return self.later(text, values).count()

    def execute(self, *arguments: Any, **options: Any) -> psycopg.Cursor[tuple[Any, ...]]:
        """Run a statement by a cursor, after those that were requested."""
        self.flush()
        if self.carried is not None and self.pgconn.transaction_status == TransactionStatus.IDLE:
            with self.transaction():
                return super().execute(*arguments, **options)
        return super().execute(*arguments, **options)

    @contextmanager
    def transaction(self, *arguments: Any, **options: Any) -> Iterator[psycopg.Transaction]:
        """Open a transaction, with the settings that it carries."""
        with super().transaction(*arguments, **options) as opened:
            if self.carried is not None:
                super().execute(self.carried)
            yield opened

    def insert(self, text: bytes, types: Mapping[str, str], values: Sequence[Any]) -> int:
        """Run an INSERT, after the statements that were requested, without a cursor; return how many rows it wrote.

        With one, single sends take 1.4 times as long, and calls with ten rows 1.3 times.

        :param types: types of the parameters, which come in this order in the statement
        """
        self.flush()
        binary = [_encoded(kind, value) for kind, value in zip(types.values(), values)]
        return self._retried(lambda: self._insert(text, types, binary))

    def _insert(self, text: bytes, types: Mapping[str, str], values: Sequence[bytes]) -> int:
        pgconn, formats = self.pgconn, [Format.BINARY] * len(values)
        # In a transaction, nothing could be done against a statement that the session forgot.
        is_kept = self.prepare_threshold is not None and pgconn.transaction_status == TransactionStatus.IDLE
        if is_kept and text in self._named:
            pgconn.send_query_prepared(self._named[text], values, formats)
        else:
            places = iter(range(1, len(types) + 1))
            numbered = _PARAMETER.sub(lambda _: b"$%d" % next(places), text)
            oids = [_oid(kind) for kind in types.values()]
            if is_kept:
                # The session may still know the names that this connection forgot.
                name = b"airflow_mq_%d" % next(self._numbers)
                pgconn.send_prepare(name, numbered, oids)
                self._wait_for_success()
                self._named[text] = name
            pgconn.send_query_params(numbered, values, oids, formats)
        return self._wait_for_success()

    def _wait_for_success(self) -> int:
        count = 0
        for result in self.wait(execute(self.pgconn)):
            if result.status != ExecStatus.COMMAND_OK:
                raise error_from_result(result)
            count = result.command_tuples or 0
        return count

    def flush(self) -> None:
        """Run all statements that were requested."""
        requests, self._unsent = self._unsent, []
        if not requests:
            return
        if self.carried is not None and self.pgconn.transaction_status == TransactionStatus.IDLE:
            # Behind the statement that begins a transaction; without one, those of a pipeline are one.
            requests.insert(1 if requests[0].text[:5] == b"BEGIN" else 0, Request(self, self.carried, {}))
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

    def rollback(self) -> None:
        """End the transaction, drop what was not sent, and keep what is prepared: the driver drops all statements."""
        self._unsent = []
        if self.pgconn.transaction_status != TransactionStatus.IDLE:
            self.pgconn.send_query_params(b"ROLLBACK", None)
            self._wait_for_success()

    def _deallocate(self, name: bytes | None) -> abc.PQGen[None]:
        if name is None:
            # Of all statements, also of INSERTs.
            self._named.clear()
        return super()._deallocate(name)

    def wait(self, gen: abc.PQGen[T], *arguments: Any, **options: Any) -> T:
        """Wait for an answer of the server; raise `NoReply` when it is late."""
        try:
            state = next(gen)
        except StopIteration as done:
            # Nothing was sent.
            result: T = done.value
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

    def _bounded(self, gen: abc.PQGen[T], state: Any) -> Generator[Any, Any, T]:
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
            result: T = done.value
            return result

    def _give_up(self) -> None:
        with suppress(psycopg.Error, OSError):
            # Older versions of libpq would wait here without any bound.
            if capabilities.has_cancel_safe():
                self.cancel_safe(timeout=1.0)
        with suppress(psycopg.Error):
            self.close()


def _oid(kind: str) -> int:
    """Return the number of a type."""
    element = postgres_types[kind.removesuffix("[]")]
    return element.array_oid if kind.endswith("[]") else element.oid


def _encoded(kind: str, value: Any) -> bytes:
    """Return the binary form of a value, or of a list of values."""
    if not kind.endswith("[]"):
        return _BINARY[kind](value)
    found = [_ARRAY.pack(1, 0, postgres_types[kind[:-2]].oid, len(value), 1)]
    for element in map(_BINARY[kind[:-2]], value):
        found += _LENGTH.pack(len(element)), element
    return b"".join(found)
