"""Commits of large slices, each beside the processing of the next slice.

Deleting the messages of a slice and waiting for the disk take about as long as processing the next one. So a thread
with a connection of its own writes and commits a slice while the service goes on. It does not wait for the processor:
its transaction is as short as one without a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import copy_context

from ..store.rows import Locked
from ..store.unit import Unit
from .session import RingSession

#: A service commits a slice of fewer messages before it tries the next one. So a crash repeats few messages.
LEAST_BESIDE = 5_000


class Commits:
    """The commits of one service that run beside it, one at a time."""

    def __init__(self, session: RingSession, token: bytes) -> None:
        self.session, self.token = session, token
        self._threads: ThreadPoolExecutor | None = None
        self._commit: Commit | None = None

    def begin(self) -> Commit:
        """Let the thread hold the ring; its last commit has ended."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, "airflow_mq commit")
        self._commit = Commit(self._threads, self.session, self.token)
        return self._commit

    def finish(self) -> bool:
        """Wait for the commit under way, and raise its error; return whether there was one."""
        commit = self._commit
        if commit is None or not commit.is_decided:
            return False
        self._commit = None
        commit.wait()
        return True

    def close(self) -> None:
        """End the thread, after the commit under way. A transaction that was only begun is rolled back."""
        if self._commit is not None and not self._commit.is_decided:
            self._commit.give_up()
            self._commit = None
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None


class GivenUp(Exception):
    """The service ended before it decided what to write."""


class Commit:
    """A transaction of another thread. It holds the ring, takes a function that writes, calls it and commits."""

    def __init__(self, threads: ThreadPoolExecutor, session: RingSession, token: bytes) -> None:
        self._session, self._token = session, token
        self._held: Future[tuple[Unit, Locked]] = Future()
        self._write: Future[Callable[[], None]] = Future()
        self._end = threads.submit(copy_context().run, self._run)

    def held(self) -> tuple[Unit, Locked]:
        """Return the transaction and the ring that it holds. This thread may use both until it lets it commit."""
        return self._held.result()

    def commit(self, write: Callable[[], None]) -> None:
        """Let the thread write and commit, and return at once."""
        self._write.set_result(write)

    def give_up(self) -> None:
        """Let the thread roll back."""
        self._write.set_exception(GivenUp())

    @property
    def is_decided(self) -> bool:
        """Whether the thread may commit, or is to roll back."""
        return self._write.done()

    def wait(self) -> None:
        """Wait for the end of the transaction, and raise its error."""
        self._end.result()

    def _hold(self) -> AbstractContextManager[tuple[Unit, Locked]]:
        return self._session.hold(token=self._token)

    def _run(self) -> None:
        try:
            with self._hold() as held:
                self._held.set_result(held)
                self._write.result()()
        except BaseException as error:
            if not self._held.done():
                self._held.set_exception(error)
            raise
