"""Connection of a PostgreSQL store: statements over libpq without a cursor, several of them in one round trip."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property, partial
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg import abc, errors
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, Format, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from .bounded import LOST, RV, SUCCESSES, BoundedConnection

T = TypeVar("T")
#: Executions of a statement before it is prepared, and the most statements that stay prepared.
PREPARE_AFTER, MOST_PREPARED = 2, 200
_PARAMETER = re.compile(rb"%\((\w+)\)([sb])")
_FORMATS = {b"s": PyFormat.AUTO, b"b": PyFormat.BINARY}


class _Numbered(NamedTuple):
    """A statement with numbered parameters, as the server takes it."""

    text: bytes
    #: Names of the parameters in order, and whether each is sent in binary.
    names: tuple[str, ...]
    formats: tuple[PyFormat, ...]


@cache
def _numbered(text: bytes) -> _Numbered:
    """Return a statement with `$1` in place of `%(name)s`."""
    formats = {match[1]: _FORMATS[match[2]] for match in _PARAMETER.finditer(text)}
    places = {name: b"$%d" % place for place, name in enumerate(formats, start=1)}
    numbered = _PARAMETER.sub(lambda match: places[match[1]], text)
    return _Numbered(numbered, tuple(name.decode() for name in formats), tuple(formats.values()))


class Key(NamedTuple):
    """Identity of a prepared statement: its text, and the OIDs of the types of its parameters."""

    text: bytes
    types: tuple[int, ...]


class Request:
    """A statement for the server. It is sent together with the next one, or when its answer is wanted."""

    __slots__ = ("_connection", "data", "formats", "key", "result")

    def __init__(self, connection: DirectConnection, key: Key, data: Sequence[Any], formats: Sequence[int]) -> None:
        self._connection, self.key, self.data, self.formats = connection, key, data, formats
        self.result: PGresult | None = None

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows of the answer."""
        if self.result is None:
            self._connection.flush()
        assert self.result is not None
        return self._connection.rows_of(self.result)

    def count(self) -> int:
        """Return the number of rows that the statement read or wrote."""
        if self.result is None:
            self._connection.flush()
        assert self.result is not None
        return self.result.command_tuples or 0


def _nothing() -> None:
    """Send nothing, or take no answer."""


class DirectConnection(BoundedConnection):
    """A connection whose methods call libpq without a cursor, which takes a fifth of the client's time.

    Statements have `%(name)s` parameters. Statements that wait for each other's answers take a round trip each; those
    that were requested by `later` go with the next one, as one pipeline.
    """

    def later(self, text: bytes, values: Mapping[str, Any] | None = None) -> Request:
        """Request a statement."""
        query, transformer = _numbered(text), self._transformer
        data = transformer.dump_sequence([values[name] for name in query.names] if values else (), query.formats)
        key = Key(query.text, transformer.types or ())
        request = Request(self, key, data, transformer.formats or ())
        self._unsent.append(request)
        return request

    def rows(self, text: bytes, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a statement, after those that were requested; return its rows."""
        return self.later(text, values).rows()

    def run(self, text: bytes, values: Mapping[str, Any] | None = None) -> int:
        """Run a statement, after those that were requested; return the number of rows that it read or wrote."""
        return self.later(text, values).count()

    def copy_in(self, text: bytes, parts: Iterable[bytes]) -> None:
        """Run a COPY, after the statements that were requested. It may last as long as its data come."""
        in_transaction = bool(self._unsent) or self.pgconn.transaction_status == TransactionStatus.INTRANS
        if in_transaction:
            self.later(b"SET LOCAL statement_timeout = 0")
        self.flush()
        self.exchange(self.pgconn.send_query, text)
        try:
            for part in parts:
                super().converse(_nothing, self.pgconn.put_copy_data, part)
        except BaseException:
            # Without an end of its data, the server rolls back with the connection.
            self._give_up()
            raise
        self.exchange(self.pgconn.put_copy_end)
        if in_transaction:
            self.later(b"SET LOCAL statement_timeout = %d" % (self.statement_timeout * 1000))

    def flush(self) -> None:
        """Run all statements that were requested."""
        self.start()
        self._land()

    def start(self) -> None:
        """Let the server begin with the statements that were requested; their answers are taken when they are wanted.

        What the server sends meanwhile waits in the buffers of the socket, and the time limit of a statement goes on.
        """
        self._land()
        requests, self._unsent = self._unsent, []
        if requests:
            self._send_off(requests)

    def converse(self, take: Callable[[], T], send: Callable[..., object], *request: Any) -> T:
        """Send requests after the answers to those that were started, and return what `take` makes of the answers."""
        self._land()
        return super().converse(take, send, *request)

    def wait(self, gen: abc.PQGen[RV], *arguments: Any, **options: Any) -> RV:
        """Wait for an answer to a cursor, whose statement comes after those that were requested."""
        self.flush()
        return super().wait(gen, *arguments, **options)

    def forget(self) -> None:
        """Drop the statements that were requested and not sent."""
        self._unsent = []

    def rows_of(self, result: PGresult) -> list[tuple[Any, ...]]:
        """Return the rows of an answer."""
        transformer = self._transformer
        transformer.set_pgresult(result, format=Format.BINARY)
        rows = transformer.load_rows(0, result.ntuples, tuple)
        transformer.set_pgresult(None)
        return rows

    def _land(self) -> None:
        """Take the answers to the statements that were started."""
        requests, self._started = self._started, []
        if not requests:
            return
        try:
            self._take_answers(requests)
        except errors.InvalidSqlStatementName:
            # Another statement deallocated those of the session.
            self._names.clear()
            if self.pgconn.transaction_status != TransactionStatus.IDLE:
                if not requests[0].key.text.startswith(b"BEGIN"):
                    raise
                self.exchange(self.pgconn.send_query, b"ROLLBACK")
            self._send_off(requests)
            self._started = []
            self._take_answers(requests)

    def _send_off(self, requests: Sequence[Request]) -> None:
        """Send requests, several as a pipeline; their answers are to be taken from then on, also after an interrupt."""
        names = [self._prepared_name(request) for request in requests]
        self._started = requests
        try:
            if len(requests) == 1:
                super().converse(_nothing, self._send, requests[0], names[0])
            else:
                self.pgconn.enter_pipeline_mode()
                super().converse(_nothing, self._send_all, requests, names)
        except BaseException:
            self._started = []
            self._leave_pipeline()
            raise

    def _take_answers(self, requests: Sequence[Request]) -> None:
        if len(requests) == 1:
            requests[0].result = super().converse(self._take_answer, _nothing)
            return
        try:
            super().converse(partial(self._take_all, requests), _nothing)
        finally:
            self._leave_pipeline()

    def _leave_pipeline(self) -> None:
        with suppress(psycopg.Error):
            if self.pgconn.pipeline_status != PipelineStatus.OFF:
                self.pgconn.exit_pipeline_mode()

    def _take_all(self, requests: Sequence[Request]) -> None:
        """Give each request of a pipeline its answer; raise the first error."""
        failed, answers = None, iter(requests)
        request = next(answers)
        while (result := self.next_result(failed)) is None or result.status != ExecStatus.PIPELINE_SYNC:
            if result is not None:
                request.result = result
                if result.status not in SUCCESSES:
                    failed = failed or result
            elif self.pgconn.status != ConnStatus.OK:
                raise error_from_result(failed) if failed else psycopg.OperationalError(LOST)
            else:
                request = next(answers, request)
        if failed is not None:
            raise error_from_result(failed)

    def _send_all(self, requests: Sequence[Request], names: Sequence[bytes | None]) -> None:
        for request, name in zip(requests, names):
            self._send(request, name)
        self.pgconn.pipeline_sync()

    def _send(self, request: Request, name: bytes | None) -> None:
        if name is None:
            text, types = request.key
            self.pgconn.send_query_params(text, request.data, types, request.formats, Format.BINARY)
        else:
            self.pgconn.send_query_prepared(name, request.data, request.formats, Format.BINARY)

    def _prepared_name(self, request: Request) -> bytes | None:
        """Return the name of a prepared statement, which is prepared now if it was used before."""
        name = self._names.get(request.key)
        if name is None and self.prepares:
            self._uses[request.key] += 1
            if self._uses[request.key] > PREPARE_AFTER:
                name = self._prepare(request.key)
        return name

    def _prepare(self, key: Key) -> bytes:
        """Prepare a statement. Its name follows from it, so a name that the session knows is that of the same one."""
        if len(self._names) >= MOST_PREPARED:
            oldest = self._names.pop(next(iter(self._names)))
            self.exchange(self.pgconn.send_query, b"DEALLOCATE " + oldest)
        name = b"mq_" + blake2b(repr(key).encode(), digest_size=12).hexdigest().encode()
        self.exchange(self.pgconn.send_prepare, name, *key)
        self._names[key] = name
        return name

    @cached_property
    def _unsent(self) -> list[Request]:
        """Statements that were requested."""
        return []

    @cached_property
    def _started(self) -> Sequence[Request]:
        """Statements that the server works on, or has answered."""
        return []

    @cached_property
    def _transformer(self) -> abc.Transformer:
        """Conversion of values. It knows no connection: a cycle of references would keep that open."""
        return Transformer()

    @cached_property
    def _names(self) -> dict[Key, bytes]:
        """Names of the prepared statements."""
        return {}

    @cached_property
    def _uses(self) -> Counter[Key]:
        """Executions of statements."""
        return Counter()
