"""SQLite store: a file on one machine, with one writer at a time and many readers."""

from __future__ import annotations

import ctypes
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from ..rules.errors import (
    CommitInDoubt,
    MessageQueueError,
    SchemaMissing,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreForked,
)
from ..rules.groups import PAST_SEPARATOR, SEPARATOR, paths_of
from ..rules.priority import books_of
from .address import SQLITE_PREFIX, StoreAddress
from .files import (
    full_disk,
    identity,
    is_mounted_read_only,
    lacking,
    mark_log,
    missing_store,
    read_only_store,
    refuse_foreign_log,
    replaced_store,
    unusable_store,
)
from .forks import GATE
from .inbox import parcels
from .primitives import Columns, translating
from .rows import LATEST, Fullness, InboxRow, Locked, StateRow
from .statements import statement
from .store import Store
from .unit import Unit
from .version import require_version

#: SQLite has no queue of waiting writers: each retries after at most a tenth of a second. A process that has held the
#: file for `KEPT` seconds in all pauses for `REST` seconds.
KEPT, REST = 1.0, 0.12


class SqliteUnit(Unit):
    """One transaction on a SQLite file."""

    draws_ids = True

    def __init__(
        self, store: SqliteStore, connection: sqlite3.Connection, gate: AbstractContextManager[object] = GATE
    ) -> None:
        self.store, self.connection, self._gate = store, connection, gate

    def soon(self, statement: str, columns: Columns | None = None, /, **values: object) -> Callable[[], list[Any]]:
        """Run a statement now, for each request: that costs microseconds in one process."""
        if columns is not None and not any(columns.values()):
            return list
        text, execute = self.store.text(statement), self.connection.execute
        rows: list[Any] = []
        with self._gate:
            if columns is None:
                rows = execute(text, values).fetchall()
            else:
                for request in zip(*columns.values()):
                    values.update(zip(columns, request))
                    rows.extend(execute(text, values))
        return lambda: rows

    def put(self, statement: str, columns: Columns | None = None, /, **values: object) -> Callable[[], int]:
        """Run a statement now."""
        if columns is not None and not any(columns.values()):
            return int
        text = self.store.text(statement)
        with self._gate:
            if columns is None:
                count = self.connection.execute(text, values).rowcount
            else:
                requests = ({**values, **dict(zip(columns, request))} for request in zip(*columns.values()))
                count = self.connection.executemany(text, requests).rowcount
        return lambda: count

    def fresh_ids(self, count: int) -> list[int]:
        """Draw ids from the counter."""
        last: int = self.soon("fresh_ids", count=count)()[0][0]
        return list(range(last - count + 1, last + 1))

    def lock(self, ring: int) -> Locked:
        """Return the ring's state: the only writing transaction sees everything, and holds every lock."""
        *state, config, self.last_id, version = self.only("lock_ring", ring=ring)
        require_version(version)
        return Locked(StateRow(*state), self.last_id + 1, config, self.now())

    def leased(self, ring: int) -> Callable[[], Locked]:
        locked = self.lock(ring)
        return lambda: locked

    def try_lock(self, ring: int) -> Locked | None:
        """Return the ring's state, like `lock`."""
        return self.lock(ring)


#: The gate of a transaction that entered `GATE` for all of its statements.
_ENTERED = nullcontext()


class FileConnection(sqlite3.Connection):
    """A connection to a file."""

    #: Whether a write transaction is open, or may be.
    writes = False


#: Files with inherited connections that cannot be closed: SQLite takes the parent's locks for those of this process.
_lost: set[tuple[int, int] | None] = set()


class SqliteStore(Store[FileConnection]):
    """A store in a SQLite file."""

    #: Seconds of write transactions since the last pause.
    _kept = 0.0
    #: Device and inode of the file that is open.
    _file: tuple[int, int] | None = None

    def __init__(self, address: StoreAddress, busy_timeout: float) -> None:
        super().__init__(address, busy_timeout)
        self.path = address.file
        self._named = partial(named, path=self.path)

    def text(self, name: str) -> str:
        if self.probe is not None:
            self.probe(name)
        return statement("sqlite", name, SQLITE_PREFIX)

    def _connect(self) -> FileConnection:
        path = self.path
        if self._file is None:
            # Check before SQLite creates an empty file.
            if lacks := lacking(path):
                raise missing_store(lacks)
            refuse_foreign_log(path)
            self._file = identity(path)
        self.refuse_replaced()
        if self._file in _lost or not GATE.was_quiet:
            raise StoreForked()
        with translated(path), GATE:
            connection = sqlite3.connect(
                path,
                timeout=self.busy_timeout,
                isolation_level=None,
                check_same_thread=False,
                factory=FileConnection,
            )
            configure(connection)
        mark_log(path)
        return connection

    def _leave(self, connection: FileConnection) -> None:
        """Close an inherited connection. Otherwise SQLite would not lock the file for this process.

        It believes that the process still has the locks of its parent. The parent would then delete the log with its
        last connection, and with it what the child commits.
        """
        if GATE.was_quiet and not connection.writes:
            connection.close()
            return
        # Closing it would change the shared index of the log, on which the parent works, or wait for a lost lock.
        # The reference keeps it open even when the interpreter ends.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        _lost.add(self._file)

    def refuse_replaced(self) -> None:
        """Raise `StoreReplaced` or `StoreMissing` if the open file is not at its path."""
        if self._file is not None and identity(self.path) != self._file:
            raise replaced_store(self.path)

    def close(self) -> None:
        super().close()
        self._file = None

    def _disconnect(self, connection: FileConnection) -> None:
        with GATE:
            connection.close()

    def _is_usable(self, connection: FileConnection) -> bool:
        if identity(self.path) != self._file:
            raise replaced_store(self.path)
        return True

    def _version(self, connection: FileConnection) -> int | None:
        with suppress(sqlite3.Error), GATE:
            version: int | None = connection.execute(statement("sqlite", "schema_version", SQLITE_PREFIX)).fetchone()[0]
            return version
        return None

    @contextmanager
    def _connected(self) -> Iterator[FileConnection]:
        """Yield this thread's connection; errors of the driver become errors of this package."""
        # The reference keeps the connection open, even if the thread ends before the transaction.
        lent = self.lent()
        try:
            with translating(sqlite3.Error, self._named):
                yield lent.connection
        except StoreError as error:
            self.refuse_other_version(lent.connection, error)
            raise

    @contextmanager
    def writing(self, *, wait: bool = True, patience: float | None = None, at_once: bool = False) -> Iterator[Unit]:
        """Open the only writing transaction."""
        with self._connected() as connection:
            self.point("begin")
            thread, connection.writes = GATE.enter(), True
            try:
                if wait and patience in (None, self.busy_timeout):
                    connection.execute("BEGIN IMMEDIATE")
                else:
                    self._begin_within(connection, (patience or 0.0) if wait else 0.0)
                began = time.monotonic()
                try:
                    yield SqliteUnit(self, connection, _ENTERED)
                    self.point("commit")
                    connection.execute("COMMIT")
                finally:
                    self._kept += time.monotonic() - began
            except BaseException:
                # An error behind BEGIN counts, too: the transaction would stay open.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            finally:
                connection.writes = False
                GATE.leave(thread)
            if identity(self.path) != self._file:
                doubt = "whether the old file has the last commit is in doubt"
                raise CommitInDoubt(f"{replaced_store(self.path)}; {doubt}")
            self.point("committed")

    def _begin_within(self, connection: FileConnection, seconds: float) -> None:
        connection.execute(f"PRAGMA busy_timeout = {max(int(seconds * 1000), 0)}")
        try:
            connection.execute("BEGIN IMMEDIATE")
        finally:
            connection.execute(f"PRAGMA busy_timeout = {int(self.busy_timeout * 1000)}")

    @contextmanager
    def reading(self) -> Iterator[Unit]:
        """Open a transaction of reads; writers continue beside it."""
        with self._connected() as connection:
            with GATE:
                connection.execute("BEGIN")
            try:
                yield SqliteUnit(self, connection)
            finally:
                self._end_reading(connection)

    def _end_reading(self, connection: FileConnection) -> None:
        try:
            with GATE:
                connection.execute("COMMIT" if connection.in_transaction else "SELECT 1")
        except sqlite3.Error:
            # Otherwise every later transaction of this thread would fail: it would be within this one.
            self.drop(connection)
            raise

    @contextmanager
    def loose(self) -> Iterator[Unit]:
        with self._connected() as connection:
            yield SqliteUnit(self, connection)

    def rest(self) -> None:
        """Pause for a moment after long use, so that waiting writers get the file."""
        if self._kept >= KEPT:
            self._kept = 0.0
            time.sleep(REST)

    def send(
        self, unit: Unit, ring: int, rows: Iterable[InboxRow], due: int | None = None, *, until: int = LATEST
    ) -> bool:
        if until < LATEST and unit.rings.latest_id() > until:
            return False
        if due is not None:
            unit.inbox.delay(ring, rows, due)
            return True
        for parcel in parcels(rows):
            columns: dict[str, Sequence[Any]] = dict(zip(InboxRow._fields[:8], map(list, zip(*parcel))))
            columns["id"] = unit.fresh_ids(len(parcel))
            unit.put("insert_inbox_row", columns, ring=ring)
        return True

    def add_up(self, unit: Unit, ring: int, names: Iterable[str], step: int) -> None:
        wanted = {"origin": list(names)}
        unit.run("add_up", wanted, ring=ring, step=step)
        unit.run("forget_sums", wanted, ring=ring)

    def fullness(self, unit: Unit, ring: int, sizes: Mapping[str, int], *, has_paths: bool) -> list[Fullness]:
        quotas = unit.origins.quotas(ring, sorted({path for name in sizes for path in paths_of(name, has_paths)}))
        found = []
        for path, quota in quotas.items():
            names = list(books_of(path))
            if has_paths:
                ends = [(f"{name}{SEPARATOR}", f"{name}{PAST_SEPARATOR}") for name in names]
                below = [unit.books.names(ring, "", *end, LATEST, delayed=True) for end in ends]
                names += chain.from_iterable(below)
            stored, uncut = unit.books.held(ring, names)
            coming = sum(size for name, size in sizes.items() if path in paths_of(name, has_paths))
            found.append(Fullness(path, quota, stored, coming, uncut))
        return found

    def promote_due(self, unit: Unit, ring: int, now: int) -> None:
        due = [row.id for row in unit.inbox.due(ring, now)]
        if due:
            unit.run("promote_due", {"id": unit.fresh_ids(len(due)), "was": due})
            unit.run("delete_due", {"id": due})


def configure(connection: sqlite3.Connection) -> None:
    """Set up a connection; an acknowledged commit survives a power failure."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    # The default cache is too small for a hundred thousand books in ring order.
    connection.execute("PRAGMA cache_size = -16384")


def named(error: sqlite3.Error, path: Path) -> MessageQueueError:
    """Return the error of this package for one of the driver, on a file."""
    code = getattr(error, "sqlite_errorname", "")
    text = str(error)
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or "locked" in text:
        return StoreBusy()
    if code.startswith("SQLITE_FULL") or "disk is full" in text:
        return full_disk(path)
    if code.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")) or "readonly" in text:
        return read_only_store(path)
    if "no such table" in text:
        return SchemaMissing()
    if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or "malformed" in text or "not a database" in text:
        return StoreCorrupt(f"the SQLite file cannot be read: {text}")
    if code.startswith("SQLITE_CANTOPEN") and is_mounted_read_only(path):
        return read_only_store(path)
    if code.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN")):
        return unusable_store(path, text)
    return StoreCorrupt(f"SQLite refuses what should be possible: {text}")


def translated(path: Path) -> AbstractContextManager[None]:
    """Return a context in which errors of the driver on a file become errors of this package."""
    return translating(sqlite3.Error, partial(named, path=path))
