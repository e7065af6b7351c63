"""Members: the queues of the shards, opened when they are first used, and calls to all of them at once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, TypeVar

from ..core.errors import InvalidInput, MessageQueueError, ShardsFailed, ShardUnavailable, StoreUnreachable
from ..queue import MessageQueue
from ..store import Store, StoreAddress, parse

T = TypeVar("T")
#: Seconds for which a shard that did not answer is not asked again: calls fail at once instead of waiting.
REST = 1.0
#: Most threads of a shard. A second one starts only while a call, for example a long service, occupies the first.
THREADS = 4
#: Whether this thread is one of a shard.
_thread = threading.local()


@dataclass(frozen=True)
class Gathered(Generic[T]):
    """Answers of shards by name, and the errors of shards that have not answered."""

    found: Mapping[str, T]
    missing: Mapping[str, Exception] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether every shard has answered."""
        return not self.missing

    def all(self) -> Mapping[str, T]:
        """Return the answers of all shards; raise `ShardsFailed` if some have not answered."""
        if self.missing:
            raise ShardsFailed(dict(self.missing), self.found)
        return self.found


class Member:
    """One shard: its queue, and threads that work on it beside other shards. As a context, it yields the queue."""

    def __init__(
        self, name: str, store: str | StoreAddress | Store[Any], ring: str, options: Mapping[str, Any]
    ) -> None:
        self.name, self.ring, self._options = name, ring, options
        self._store = parse(store) if isinstance(store, str) else store
        self._lock = threading.Lock()
        self._queue: MessageQueue | None = None
        self._worker: ThreadPoolExecutor | None = None
        self._pid = os.getpid()
        self._resting_until, self._cause = 0.0, StoreUnreachable()
        #: Called with each queue that is opened.
        self.on_open: Callable[[MessageQueue], None] = lambda queue: None

    @property
    def where(self) -> str:
        """The address of the store, without its password."""
        return (self._store.address if isinstance(self._store, Store) else self._store).safe

    def __enter__(self) -> MessageQueue:
        """Return the queue of the shard; raise `ShardUnavailable` if the store does not answer, also at the end."""
        if time.monotonic() < self._resting_until:
            raise ShardUnavailable(self.name, self.where, self._cause)
        try:
            queue = self._queue
            return self._open() if queue is None else queue
        except StoreUnreachable as error:
            raise self._rest(error) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, StoreUnreachable):
            raise self._rest(error) from error

    def _rest(self, error: StoreUnreachable) -> ShardUnavailable:
        """Return the error of a shard that did not answer, and do not ask it again for a moment."""
        self._resting_until, self._cause = time.monotonic() + REST, error
        return ShardUnavailable(self.name, self.where, error)

    def _open(self) -> MessageQueue:
        with self._lock:
            if self._queue is None:
                queue = MessageQueue(self._store, self.ring, **self._options)
                self.on_open(queue)
                self._queue = queue
            return self._queue

    def call(self, function: Callable[[MessageQueue], T]) -> T:
        """Call a function with the queue of the shard."""
        with self as queue:
            return function(queue)

    def submit(self, function: Callable[[MessageQueue], T]) -> Future[T]:
        """Call a function with the queue of the shard, in a thread of the shard."""
        with self._lock:
            if self._pid != os.getpid():
                # A forked child has none of its parent's threads.
                self._worker, self._pid = None, os.getpid()
            if self._worker is None:
                self._worker = ThreadPoolExecutor(THREADS, f"airflow-mq-{self.name}", _note_thread)
        return self._worker.submit(copy_context().run, self.call, function)

    def close(self) -> None:
        """Close the connections."""
        if self._worker is not None:
            self._worker.shutdown(wait=False, cancel_futures=True)
            self._worker = None
        if self._queue is not None:
            self._queue.close()
            self._queue = None


class Members(dict[str, Member]):
    """The shards by name."""

    def named(self, name: str) -> Member:
        """Return a shard."""
        try:
            return self[name]
        except KeyError:
            raise InvalidInput(
                f"unknown shard {name!r}: expected one of {', '.join(sorted(self))}; "
                "a shard of the stored layout needs an address in every program"
            ) from None

    def gather(self, calls: Mapping[str, Callable[[MessageQueue], T]]) -> Gathered[T]:
        """Call a function for each named shard, all at once; one call runs in this thread.

        In a thread of a shard, all calls run one after the other: its threads may all wait for such calls.
        """
        members = {name: self.named(name) for name in calls}
        if len(calls) == 1 or getattr(_thread, "is_of_shard", False):
            return _collected({name: _immediate(members[name], call) for name, call in calls.items()})
        return _collected({name: members[name].submit(call) for name, call in calls.items()})

    def each(self, function: Callable[[MessageQueue], T], names: Iterable[str] | None = None) -> Gathered[T]:
        """Call one function for all shards, or for those with these names."""
        return self.gather(dict.fromkeys(self if names is None else names, function))


def _note_thread() -> None:
    _thread.is_of_shard = True


def _immediate(member: Member, function: Callable[[MessageQueue], T]) -> Future[T]:
    future: Future[T] = Future()
    try:
        future.set_result(member.call(function))
    except MessageQueueError as error:
        future.set_exception(error)
    return future


def _collected(futures: Mapping[str, Future[T]]) -> Gathered[T]:
    """Wait for all calls; raise errors that are none of this package's only after the last has ended."""
    errors = {name: error for name, future in futures.items() if (error := future.exception()) is not None}
    for error in errors.values():
        if not isinstance(error, MessageQueueError):
            raise error
    found = {name: future.result() for name, future in futures.items() if name not in errors}
    return Gathered(found, {name: error for name, error in errors.items() if isinstance(error, Exception)})
