"""PostgreSQL store, for production: senders never wait, and each ring has one planner at a time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.abc import AdaptContext
from psycopg.pq import TransactionStatus
from psycopg.types.json import set_json_loads

from ..rules.errors import (
    Busy,
    CommitInDoubt,
    MessageQueueError,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreUnreachable,
)
from . import codec, inbox
from .address import NUMBERS, StoreAddress
from .pipelined import GRACE, PipelinedConnection, Request, seconds_left
from .postgres_errors import is_in_doubt, named, named_on_connecting
from .primitives import NO_STATE, Columns, translating
from .rows import LATEST, Fullness, InboxRow, Locked, StateRow
from .statements import statement
from .store import Sleeper, Store
from .unit import Unit
from .version import require_version

Connection = PipelinedConnection
AnyConnection = TypeVar("AnyConnection", bound=psycopg.Connection[tuple[Any, ...]])
T = TypeVar("T")
#: Seconds between two notifications by one process.
WAKE_EVERY = 0.25
#: Notifies without waiting for the disk: a commit that notifies holds up all others that do.
WAKE = b"SELECT set_config('synchronous_commit', 'off', true), pg_notify(%(channel)s, '')"
#: Limits the wait for locks, of one transaction.
PATIENCE = b"SELECT set_config('lock_timeout', %(lock_timeout)s, true)"
#: Search path of unqualified names: functions and operators that another role created are never found.
SEARCH_PATH = "pg_catalog, pg_temp"
#: A statement that waited for the ring must see what its last holder wrote; a stricter level refuses it instead.
ISOLATION = "read committed"
#: Executions of a statement before it is prepared, and the most statements that stay prepared.
PREPARE_AFTER, MOST_PREPARED = 2, 200
#: Columns of an inbox row as they are sent, and the last id until which it is written, with their types: of one row,
#: and of many.
ONE_ROW = {
    "ring": "int2", "size": "int4", "items": "int4", "more": "bool", "refers": "bool", "origin": "text",
    "lengths": "bytea", "attributes": "bytea", "heap": "bytea", "until": "int8",
}  # fmt: skip
MANY_ROWS = {name: kind if name in ("ring", "until") else f"{kind}[]" for name, kind in ONE_ROW.items()}
#: Plans that the queue's own connections do not use: their statements look up rows by keys. Old versions of rows make a
#: table look large, and the planner may then read it whole for one lookup. No statement repeats a lookup, so to memoize
#: its result takes time only.
UNUSED_PLANS = ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "enable_memoize")


def horizon_of(marks: list[list[int]], mark: list[int] | None, own: int, oldest: int) -> tuple[int, list[list[int]]]:
    """Return the id below which every row is visible or will never be, and the marks to store.

    :param marks: pairs of a transaction's number and the last id drawn before it had that number
    :param mark: this transaction's own pair; none, if it had its number before the last id was read
    :param own: this transaction's number
    :param oldest: transactions with smaller numbers have all ended
    """
    # After a restore into another cluster, transaction numbers restart; marks with larger numbers are void.
    known = [pair for pair in marks if pair[0] <= own] + ([mark] if mark else [])
    certain = [pair for pair in known if pair[0] <= oldest]
    horizon = max((last_id for _, last_id in certain), default=0) + 1
    return horizon, certain[-1:] + _thinned([pair for pair in known if pair[0] > oldest])


def _thinned(marks: list[list[int]]) -> list[list[int]]:
    """Return every other mark if there are too many, because a transaction stays open for very long."""
    # Fewer marks only delay the ring's floors.
    return marks if len(marks) <= 32 else marks[:-1:2] + marks[-1:]


class PostgresUnit(Unit):
    """One transaction on PostgreSQL."""

    draws_ids = False
    store: PostgresStore

    def __init__(self, store: PostgresStore, connection: Connection) -> None:
        self.store, self.connection = store, connection

    def soon(self, statement: str, columns: Columns | None = None, /, **values: object) -> Callable[[], list[Any]]:
        if columns is not None and not any(columns.values()):
            return list
        return self._request(statement, columns, values).rows

    def put(self, statement: str, columns: Columns | None = None, /, **values: object) -> Callable[[], int]:
        if columns is not None and not any(columns.values()):
            return int
        return self._request(statement, columns, values).count

    def _request(self, statement: str, columns: Columns | None, values: dict[str, Any]) -> Request:
        if columns is not None:
            values.update((name, list(column)) for name, column in columns.items())
        return self.connection.later(self.store.text(statement), values)

    def fresh_ids(self, count: int) -> list[int]:
        """Draw ids from the sequence."""
        return [row[0] for row in self.rows("fresh_ids", count=count)]

    def reads_reports(self) -> bool:
        """Return whether this user may read reports; ask once."""
        if self.store.reads_reports is None:
            self.store.reads_reports = bool(self.rows("may_read", table="outcome")[0][0])
        return self.store.reads_reports

    def lock(self, ring: int) -> Locked:
        """Hold the ring lock, and return the horizon below which every inbox row is visible.

        A row that is not visible yet is from a transaction that had not ended at the time of
        the snapshot. A transaction draws ids after it begins. A mark pairs a transaction with
        the last id drawn before it began: after all older transactions have ended, no smaller
        id can appear. The marked transaction is this one: it gets its number by locking the
        ring, after the id was read. (The upper bound of a snapshot does not work: it is past
        the transactions that have ended, not past those that have begun.)
        """
        locked = self._lock("lock_ring", ring)
        if locked is None:
            raise StoreCorrupt(NO_STATE)
        return locked

    def try_lock(self, ring: int) -> Locked | None:
        return self._lock("try_lock_ring", ring)

    def _lock(self, statement: str, ring: int) -> Locked | None:
        """Read the last id, the ring and the snapshot behind the lock, in one round trip."""
        last, found = self.soon("last_id"), self.soon(statement, ring=ring)
        ((oldest, own, now, version, config),) = self.rows("snapshot", ring=ring)
        if not (rows := found()):
            return None
        (last_id, began), row = last()[0], rows[0]
        state, self.last_id = StateRow(*row[:-1]), row[-1]
        require_version(version)
        horizon, kept = horizon_of(codec.read_json(state.marks), None if began else [own, last_id], own, oldest)
        return Locked(state._replace(marks=kept), horizon, config, now)

    def leased(self, ring: int) -> Callable[[], Locked]:
        """Request the state of a ring, and the horizon that its marks make certain by now."""
        return partial(self._leased, self.soon("leased_ring", ring=ring))

    @staticmethod
    def _leased(found: Callable[[], list[Any]]) -> Locked:
        rows = found()
        if not rows:
            raise StoreCorrupt(NO_STATE)
        state, (config, now, oldest, latest) = StateRow(*rows[0][:-4]), rows[0][-4:]
        return Locked(state, horizon_of(codec.read_json(state.marks), None, latest, oldest)[0], config, now)


def _sent(ring: int, row: InboxRow) -> tuple[Any, ...]:
    """Return the columns of a row."""
    origin, _, size, items, more, lengths, attributes, heap, _ = row
    return ring, size, items, more, attributes != b"", origin, lengths, attributes, heap or b""


class Notifications(Sleeper):
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


class PostgresStore(Store[Connection]):
    """A store in a schema of a PostgreSQL database."""

    def __init__(self, address: StoreAddress, busy_timeout: float) -> None:
        super().__init__(address, busy_timeout)
        #: Whether the user may read reports; None until it was asked.
        self.reads_reports: bool | None = None
        self._identity: list[Any] | None = None
        self._texts: dict[str, bytes] = {}
        #: When this process last woke the listeners of each ring.
        self._woken: dict[int, float] = {}

    def text(self, name: str) -> bytes:
        if self.probe is not None:
            self.probe(name)
        text = self._texts.get(name)
        if text is None:
            text = self._texts[name] = statement("postgres", name, self.prefix).encode()
        return text

    def identity(self, *, anew: bool = False) -> list[Any]:
        """Return the identity of the database, which changes when the server restarts."""
        if anew or self._identity is None:
            with self.loose() as unit:
                self._identity = unit.rows("database")
        return self._identity

    def _connect(self) -> Connection:
        wait = f"lock_timeout = {_milliseconds(self.busy_timeout)}"
        unused = (f"{plan} = off" for plan in UNUSED_PLANS)
        return connect(self.address, wait, "synchronous_commit = on", "jit = off", *unused)

    def _disconnect(self, connection: Connection) -> None:
        with suppress(psycopg.Error):
            connection.close()

    def _is_usable(self, connection: Connection) -> bool:
        # A closed connection has no transaction status.
        return connection.pgconn.transaction_status == TransactionStatus.IDLE

    def _version(self, connection: Connection) -> int | None:
        with suppress(psycopg.Error, MessageQueueError):
            row = connection.execute(self.text("schema_version")).fetchone()
            return row[0] if row else None
        return None

    def writing(
        self, *, wait: bool = True, patience: float | None = None, at_once: bool = False
    ) -> AbstractContextManager[Unit]:
        begin: list[tuple[bytes, dict[str, Any]]] = [] if at_once else [(b"BEGIN", {})]
        if patience is not None and patience != self.busy_timeout:
            begin.append((PATIENCE, {"lock_timeout": str(_milliseconds(patience))}))
        return self._connected(*begin, writes=True)

    def reading(self) -> AbstractContextManager[Unit]:
        return self._connected((b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", {}))

    def loose(self) -> AbstractContextManager[Unit]:
        return self._connected()

    @contextmanager
    def _connected(self, *begin: tuple[bytes, dict[str, Any]], writes: bool = False) -> Iterator[Unit]:
        """Yield a unit on this thread's connection: in a transaction that these statements begin, or outside of any.

        :param writes: a lost connection leaves in doubt whether the commit, or the statement outside of a transaction,
            was executed
        """
        # The reference keeps the connection open, even if the thread ends before the transaction.
        lent = self.lent()
        connection = lent.connection
        if connection.carried is not None and (begin or writes):
            # Behind a pooler, each transaction may run in another session, so it carries its settings with it.
            how = b"BEGIN ISOLATION LEVEL READ COMMITTED" if writes else begin[0][0]
            begin = ((how, {}), *begin[1:])
        committing = writes and not begin
        try:
            with translated():
                if begin:
                    self.point("begin")
                    connection.flush()
                    for text, values in begin:
                        connection.later(text, values)
                yield PostgresUnit(self, connection)
                if begin:
                    self.point("commit")
                    committing = writes
                    connection.run(b"COMMIT")
                    committing = False
                    self.point("committed")
                connection.flush()
        except BaseException as error:
            if committing and is_in_doubt(error.__cause__):
                self.drop(connection)
                raise CommitInDoubt() from error
            if isinstance(error, StoreUnreachable):
                self.drop(connection)
                raise
            # Otherwise the next transaction of this thread would run what was requested here.
            self._roll_back(connection)
            self._refuse_table_lock(connection, error)
            self.refuse_other_version(connection, error)
            if isinstance(error, StoreReadOnly):
                # A name that follows the primary led to a standby; by now it may lead elsewhere.
                self.drop(connection)
            raise

    def _roll_back(self, connection: Connection) -> None:
        try:
            connection.rollback()
        except (psycopg.Error, MessageQueueError):
            self.drop(connection)

    def _refuse_table_lock(self, connection: Connection, error: BaseException) -> None:
        """Raise `StoreBusy` if a call timed out on a table that another session has locked."""
        if not isinstance(error, Busy) or not isinstance(error.__cause__, errors.LockNotAvailable):
            return
        with suppress(psycopg.Error):
            rows = connection.execute(self.text("table_locks"), {"schema": self.address.schema}).fetchall()
            if rows:
                table, pid, program = rows[0]
                raise StoreBusy(
                    f"table {table!r} stayed locked by another session (server process {pid}, {program!r}) for longer "
                    "than the busy timeout; nothing was changed; try again when that session has ended"
                ) from error.__cause__

    def wake(self, ring: int) -> None:
        """Notify listeners, outside of the sender's transaction: otherwise senders would wait for each other."""
        now = time.monotonic()
        if now - self._woken.get(ring, -WAKE_EVERY) < WAKE_EVERY:
            return
        self._woken[ring] = now
        # The rows are committed. A lost notification delays a listener and costs the sender nothing.
        with suppress(psycopg.Error, MessageQueueError):
            self.lent().connection.execute(WAKE, {"channel": wake_channel(self.address.schema, ring)})

    def sleeper(self, ring: int) -> Sleeper:
        return Notifications(partial(connect, self.address), wake_channel(self.address.schema, ring))

    def send(
        self, unit: Unit, ring: int, rows: Iterable[InboxRow], due: int | None = None, *, until: int = LATEST
    ) -> bool:
        """Write inbox rows: one by values, several by arrays, with which one row takes 1.3 times as long."""
        assert isinstance(unit, PostgresUnit)
        if due is not None:
            unit.inbox.delay(ring, rows, due)
            return True
        sent = True
        for parcel in inbox.parcels(rows):
            if len(parcel) == 1:
                values = *_sent(ring, parcel[0]), until
                sent = unit.connection.insert(self.text("insert_inbox_row"), ONE_ROW, values) > 0
            else:
                _, *columns = zip(*(_sent(ring, row) for row in parcel))
                values = ring, *map(list, columns), until
                sent = unit.connection.insert(self.text("insert_inbox_rows"), MANY_ROWS, values) > 0
        return sent

    def add_up(self, unit: Unit, ring: int, names: Iterable[str], step: int) -> None:
        unit.rows("add_up", ring=ring, names=list(names), step=step)

    def fullness(self, unit: Unit, ring: int, sizes: Mapping[str, int], *, has_paths: bool) -> list[Fullness]:
        rows = unit.rows("fullness", ring=ring, names=list(sizes), sizes=list(sizes.values()))
        return [Fullness(*row) for row in rows]

    def promote_due(self, unit: Unit, ring: int, now: int) -> None:
        unit.put("promote_due", ring=ring, now=now, **inbox.MOST_DUE)


def wake_channel(schema: str, ring: int) -> str:
    """Return the notification channel of a ring."""
    return f"airflow_mq.{schema}.{ring}"


def connect(address: StoreAddress, *settings: str, patience: float | None = None) -> Connection:
    """Open a connection in autocommit mode with `SEARCH_PATH`, `ISOLATION` and further settings.

    :param patience: seconds to wait for the answer to a statement; by default a little longer than the server's limit
    """
    opened = _opened(PipelinedConnection, address, autocommit=True)
    keep_json(opened)
    opened.patience = address.statement_timeout + GRACE if patience is None else patience
    try:
        with translated():
            own = (f"search_path = {SEARCH_PATH}", f"default_transaction_isolation = {ISOLATION}")
            wanted = (*own, "array_nulls = on", *limits(address), *settings)
            # A pooler may give the next transaction another session, which has other statements by the same names.
            row = opened.execute(configuring(wanted, opened.info.backend_pid)).fetchone()
            is_pooled = row is None or row[-1] != opened.info.backend_pid
            opened.prepare_threshold, opened.prepared_max = None if is_pooled else PREPARE_AFTER, MOST_PREPARED
            opened.carried = configuring(wanted) if is_pooled else None
    except BaseException:
        opened.close()
        raise
    return opened


def keep_json(context: AdaptContext) -> None:
    """Let a connection or cursor return JSON as text, as SQLite does: most is compared, or read once for many rows."""
    set_json_loads(lambda text: text.decode() if isinstance(text, bytes) else text, context)


def configuring(settings: Iterable[str], backend: int = 0) -> bytes:
    """Return the statement that sets these for the session; for its transaction only if the session is another one's.

    What stays in a session of a pool meets all other clients of the pool.

    :param backend: the session's process as it was named when the connection was made
    """
    is_local = f"pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.<>) {backend}"
    pairs = (setting.split(" = ") for setting in settings)
    calls = (f"pg_catalog.set_config('{name}', '{value}', {is_local})" for name, value in pairs)
    return f"SELECT {', '.join(calls)}, pg_catalog.pg_backend_pid()".encode()


def limits(address: StoreAddress) -> list[str]:
    """Return the settings by which the server ends long statements and work for vanished clients."""
    names = ("statement_timeout", "idle_in_transaction_session_timeout", "tcp_user_timeout")
    return [
        *(f"{name} = {getattr(address, name) * 1000}" for name in names),
        *(f"tcp_{name} = {getattr(address, name)}" for name in NUMBERS if name.startswith("keepalives_")),
    ]


def plain_connection(address: StoreAddress) -> psycopg.Connection[tuple[Any, ...]]:
    """Open a connection with the server's default settings, for statements of the caller."""
    return _opened(psycopg.Connection[tuple[Any, ...]], address, autocommit=False)


def _opened(kind: type[AnyConnection], address: StoreAddress, *, autocommit: bool) -> AnyConnection:
    # Each host may take that long.
    left = seconds_left() / len(address.servers)
    if left < address.connect_timeout:
        address = replace(address, connect_timeout=max(math.ceil(left), 1))
    try:
        return kind.connect(autocommit=autocommit, **address.conninfo())
    except (psycopg.Error, UnicodeError) as error:
        raise named_on_connecting(error) from error


def _milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 1)


#: Context in which errors of the driver become errors of this package.
translated = partial(translating, psycopg.Error, named)
