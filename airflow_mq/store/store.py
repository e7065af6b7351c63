"""A store: where rings are kept. It opens transactions; what they can do is in `unit`."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar

from .address import StoreAddress
from .blob_files import FileSystemOf, by_fsspec
from .unit import Unit

Connection = TypeVar("Connection")


class Outgoing(NamedTuple):
    """A row of mail on its way in."""

    origin: str
    size: int
    items: int
    more: bool
    lengths: bytes
    attributes: bytes
    heap: bytes


class Lent(Generic[Connection]):
    """A connection of one thread."""

    def __init__(self, store: Store[Connection], connection: Connection) -> None:
        self.connection = connection
        self._store, self._pid = store, os.getpid()

    def __del__(self) -> None:
        # Threads come and go: without this each would leave a connection behind until the store is closed.
        if self._pid == os.getpid():
            self._store.retire(self.connection)


class Store(ABC, Generic[Connection]):
    """A database that holds rings. May be shared by threads: each has a connection of its own."""

    def __init__(self, address: StoreAddress, busy_timeout: float = 10.0) -> None:
        self.address = address
        #: What tables' names begin with.
        self.prefix = address.prefix
        self.busy_timeout = busy_timeout
        #: Called with the name of each statement before it runs, and around each commit. For tests.
        self.probe: Callable[[str], None] | None = None
        #: How files are reached that hold payloads kept apart.
        self.filesystem_of: FileSystemOf = by_fsspec
        self._local = threading.local()
        self._open: list[Connection] = []
        # A thread may end, and its connection be closed, while this one is being counted.
        self._lock = threading.RLock()
        self._pid = os.getpid()

    @abstractmethod
    def _connect(self) -> Connection:
        """Open a connection."""

    @abstractmethod
    def _disconnect(self, connection: Connection) -> None:
        """Close a connection, without complaint."""

    @abstractmethod
    def _is_alive(self, connection: Connection) -> bool:
        """Whether a connection can still be used, as far as can be told without asking."""

    @abstractmethod
    @contextmanager
    def writing(self, *, wait: bool = True, patience: float | None = None) -> Iterator[Unit]:
        """One transaction, committed at the end, rolled back when anything is raised.

        :param wait: for another writer, where there can only be one; else that is `StoreBusy` at once.
        :param patience: seconds to wait for a lock, if less than `busy_timeout`.
        """

    @abstractmethod
    @contextmanager
    def reading(self) -> Iterator[Unit]:
        """Reads that all see the same moment."""

    @abstractmethod
    @contextmanager
    def loose(self) -> Iterator[Unit]:
        """Reads outside of any transaction, for whoever holds the ring on lease."""

    @abstractmethod
    def send_one(self, ring: int, origin: str, payload: bytes) -> None:
        """Enqueue one plain message, in a transaction of its own."""

    def send_few(self, ring: int, rows: list[Outgoing]) -> None:
        """Enqueue a few rows of mail, in a transaction of their own."""
        with self.writing() as unit:
            self.send(unit, ring, rows)

    @abstractmethod
    def send(self, unit: Unit, ring: int, rows: Iterable[Outgoing], due: int | None = None) -> None:
        """Write mail within a transaction; with a due time, mail that joins its queue then."""

    @abstractmethod
    def promote_due(self, unit: Unit, ring: int, now: int) -> None:
        """Let mail that is due join its queue. Under the ring's lock."""

    def rest(self) -> None:
        """Let others write, for those who write again and again, where there can only be one writer at a time."""

    def wake(self, ring: int) -> None:
        """Tell those who wait for mail that there is some, after it was committed. They look now and then anyway."""

    def connection(self) -> Connection:
        """This thread's connection."""
        return self.lent().connection

    def lent(self) -> Lent[Connection]:
        """This thread's connection, which is closed when the thread has ended and nothing refers to this any more."""
        if self._pid != os.getpid():
            # A forked child must not touch its parent's connections, not even to close them.
            self._local, self._open, self._pid = threading.local(), [], os.getpid()
        lent: Lent[Connection] | None = getattr(self._local, "lent", None)
        if lent is None or not self._is_alive(lent.connection):
            if lent is not None:
                self.drop(lent.connection)
            connection = self._connect()
            with self._lock:
                self._open.append(connection)
            lent = self._local.lent = Lent(self, connection)
        return lent

    def drop(self, connection: Connection) -> None:
        """Give up a connection that cannot be trusted any more."""
        self._local.lent = None
        self.retire(connection)

    def retire(self, connection: Connection) -> None:
        """Close a connection, unless that was done before."""
        with self._lock:
            known = [one for one in self._open if one is not connection]
            was_open, self._open = len(known) < len(self._open), known
        if was_open:
            self._disconnect(connection)

    def close(self) -> None:
        """Close all connections of all threads."""
        with self._lock:
            connections, self._open = self._open, []
        self._local = threading.local()
        if self._pid == os.getpid():
            for connection in connections:
                self._disconnect(connection)

    def point(self, name: str) -> None:
        """Tell the probe, if there is one, what comes next."""
        if self.probe is not None:
            self.probe(name)
