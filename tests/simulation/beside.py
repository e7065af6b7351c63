"""Commits beside a service, in simulation: as late as they may be.

The thread runs only while its service waits for it, so a run repeats itself. It writes and commits when the service
needs the commit, not before: what the service reads until then shows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

import greenlet

from airflow_mq.engine.queue import service
from airflow_mq.engine.queue.commits import Commit, Commits
from airflow_mq.engine.rules.errors import Busy
from airflow_mq.engine.store.rows import Locked
from airflow_mq.engine.store.unit import Unit

from .scheduler import Process, Scheduler

#: Slices of fewer messages are committed before the next message is tried.
LEAST_BESIDE = 2


class LateCommit(Commit):
    """A commit that ends while its service waits for it."""

    process: Process
    _late: Callable[[], None] | None = None

    def _hold(self) -> AbstractContextManager[tuple[Unit, Locked]]:
        return self._session.hold(token=self._token, patience=0.0)

    def _run(self) -> None:
        greenlet.getcurrent().process = self.process  # type: ignore[attr-defined]
        super()._run()

    def commit(self, write: Callable[[], None]) -> None:
        """Keep what writes."""
        self._late = write

    @property
    def is_decided(self) -> bool:
        """Whether the thread may commit, or is to roll back."""
        return self._late is not None or super().is_decided

    def wait(self) -> None:
        """Let the thread commit, and wait for it; a process that has ended takes its thread with it."""
        if self._late is not None and not super().is_decided:
            if self.process.is_gone:
                self.give_up()
            else:
                super().commit(self._late)
        super().wait()


class LateCommits(Commits):
    """Commits whose thread never waits for a lock: only actors can let others run."""

    def begin(self) -> Commit:
        """Wait for the ring here, then let the thread hold it."""
        while True:
            with self.session.hold(token=self.token):
                pass
            commit = super().begin()
            try:
                commit.held()
            except Busy:
                # Another actor's session got the ring in between.
                self._commit = None
                continue
            return commit

    def close(self) -> None:
        """End the thread after the commit that it has still to make."""
        commit = self._commit
        try:
            if isinstance(commit, LateCommit) and commit.is_decided:
                self._commit = None
                commit.wait()
        finally:
            super().close()


@contextmanager
def simulated_commits(scheduler: Scheduler) -> Iterator[None]:
    """Let services of actors commit slices of two messages or more in this way."""

    class Late(LateCommit):
        def __init__(self, *arguments: Any) -> None:
            assert scheduler.running is not None
            self.process = scheduler.running
            super().__init__(*arguments)

    with ExitStack() as stack:
        stack.enter_context(mock.patch("airflow_mq.engine.queue.commits.Commit", Late))
        stack.enter_context(mock.patch.object(service, "Commits", LateCommits))
        stack.enter_context(mock.patch.object(service, "LEAST_BESIDE", LEAST_BESIDE))
        yield
