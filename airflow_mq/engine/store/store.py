"""Base of stores: connections per thread, and transactions as units of work."""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeAlias, TypeVar

from ..rules.errors import SchemaMissing, StoreCorrupt
from .address import StoreAddress
from .blob_files import FileSystemOf, by_fsspec
from .forks import remember
from .rows import LATEST, Fullness, InboxRow
from .unit import Unit
from .version import require_version

Connection = TypeVar("Connection")


class Sleeper:
    """Sleep of a worker until a sender writes; a short one without notifications, which bounds the delay."""

    #: Seconds between two reads of a store without notifications.
    longest = 0.05

    def sleep(self, seconds: float) -> bool:
        """Sleep until a notification, at most so long; return whether one came."""
        time.sleep(min(seconds, self.longest))
        return False

    def close(self) -> None:
        """Close the connection, if there is one."""


class Lent(Generic[Connection]):
    """A connection of one thread."""

    def __init__(self, store: Store[Connection], connection: Connection) -> None:
        self.connection = connection
        self._store, self._pid = store, os.getpid()

    def __del__(self) -> None:
        # Otherwise each ended thread would leave a connection open until the store is closed.
        if self._pid == os.getpid():
            self._store.retire(self.connection)


class Store(ABC, Generic[Connection]):
    """A database with rings. Threads may share a store: each has its own connection."""

    def __init__(self, address: StoreAddress, busy_timeout: float) -> None:
        self.address = address
        #: Prefix of table names.
        self.prefix = address.prefix
        self.busy_timeout = busy_timeout
        #: Called with the name of each statement before it runs, and around each commit. For tests.
        self.probe: Callable[[str], None] | None = None
        #: File systems of external payloads.
        self.filesystem_of: FileSystemOf = by_fsspec
        #: Options with which a command line names this store, for texts.
        self.options = ""
        self._local = threading.local()
        self._open: list[Connection] = []
        # A thread may end, and close its connection, while this list is in use.
        self._lock = threading.RLock()
        remember(self)

    @abstractmethod
    def _connect(self) -> Connection:
        """Open a connection."""

    @abstractmethod
    def _disconnect(self, connection: Connection) -> None:
        """Close a connection; ignore errors."""

    @abstractmethod
    def _is_usable(self, connection: Connection) -> bool:
        """Return whether a connection seems usable, without a round trip.

        :raises StoreReplaced: if it leads to a file that is no longer that of the store.
        """

    @abstractmethod
    def text(self, name: str) -> Any:
        """Return a named statement as the driver takes it, and call the probe with its name."""

    @abstractmethod
    def _version(self, connection: Connection) -> int | None:
        """Return the version of the tables, or `None` if it cannot be read."""

    @abstractmethod
    def writing(
        self, *, wait: bool = True, patience: float | None = None, at_once: bool = False
    ) -> AbstractContextManager[Unit]:
        """Open a transaction; commit it at the end, roll it back on any error.

        :param wait: wait for another writer where a store has one only; else raise `StoreBusy` at once
        :param patience: seconds to wait for a lock, if not `busy_timeout`
        :param at_once: the transaction is one statement, which a server can commit in the same round trip
        """

    @abstractmethod
    def reading(self) -> AbstractContextManager[Unit]:
        """Open a transaction of reads that all see the same state."""

    @abstractmethod
    def loose(self) -> AbstractContextManager[Unit]:
        """Yield a unit outside of any transaction: for single reads, and for writes of one statement each."""

    @abstractmethod
    def send(
        self, unit: Unit, ring: int, rows: Iterable[InboxRow], due: int | None = None, *, until: int = LATEST
    ) -> bool:
        """Write inbox rows in a transaction; with a due time, rows that join their queue then.

        :param until: write nothing if a larger id was drawn before; return whether the rows were written. Such rows are
            few, so that one statement writes them.
        """

    @abstractmethod
    def fullness(self, unit: Unit, ring: int, sizes: Mapping[str, int], *, has_paths: bool) -> list[Fullness]:
        """Return how full the queues and groups with a quota are to which messages of these books and sizes go."""

    @abstractmethod
    def add_up(self, unit: Unit, ring: int, names: Iterable[str], step: int) -> None:
        """Write sums of inbox rows of these books, so that checks of quotas read few rows.

        :param step: inbox rows of one sum
        """

    @abstractmethod
    def promote_due(self, unit: Unit, ring: int, now: int) -> None:
        """Move the first due rows into their queues; requires the ring lock. The next lock moves more of them."""

    def rest(self) -> None:
        """Let other processes write, where a store has one writer at a time and this process writes repeatedly."""

    def wake(self, ring: int) -> None:
        """Notify listeners of committed rows. Listeners also poll, so a lost notification costs only time."""

    def sleeper(self, ring: int) -> Sleeper:
        """Return a way to sleep until `wake`."""
        return Sleeper()

    def lent(self) -> Lent[Connection]:
        """Return this thread's usable connection: every use of the database begins here.

        A forked child opens its own, or is refused. A connection is closed after its thread has ended and the last
        reference is gone.
        """
        lent: Lent[Connection] | None = getattr(self._local, "lent", None)
        if lent is not None and self._is_usable(lent.connection):
            return lent
        # It is closed, unless a transaction of this thread is open on it.
        lent = self._local.lent = None
        connection = self._connect()
        with self._lock:
            self._open.append(connection)
        lent = self._local.lent = Lent(self, connection)
        return lent

    def drop(self, connection: Connection) -> None:
        """Close a connection in an unknown state."""
        self._local.lent = None
        self.retire(connection)

    def retire(self, connection: Connection) -> None:
        """Close a connection, unless it is closed already."""
        with self._lock:
            others = [other for other in self._open if other is not connection]
            was_open, self._open = len(others) < len(self._open), others
        if was_open:
            self._disconnect(connection)

    def close(self) -> None:
        """Close all connections of all threads."""
        with self._lock:
            connections, self._open = self._open, []
        self._local = threading.local()
        for connection in connections:
            self._disconnect(connection)

    def leave_to_parent(self) -> None:
        """In a forked child: leave the connections to the parent, and begin anew."""
        inherited, self._open, self._local = self._open, [], threading.local()
        self._lock = threading.RLock()
        for connection in inherited:
            self._leave(connection)

    def _leave(self, connection: Connection) -> None:
        """Leave a connection to the parent: its socket is shared, so do not close it."""

    def refuse_other_version(self, connection: Connection, error: BaseException) -> None:
        """Raise the error that names both versions, if the tables changed while the store was open.

        :param error: an error that tables of another version cause, too; the transaction has ended
        """
        if isinstance(error, (SchemaMissing, StoreCorrupt)):
            version = self._version(connection)
            if version is not None:
                require_version(version)

    def point(self, name: str) -> None:
        """Call the probe, if there is one, with the name of the next step."""
        if self.probe is not None:
            self.probe(name)


#: A store on either database.
AnyStore: TypeAlias = Store[Any]
