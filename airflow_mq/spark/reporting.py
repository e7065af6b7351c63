"""Telling what became of messages: in chunks, patiently, under a lease that is kept alive."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from ..core.errors import CommitInDoubt, MessageQueueError, StoreBusy, StoreUnreachable, TokenRefused, UnknownBlock
from ..core.outcome import DONE, Done, Outcome
from ..queue import MessageQueue, Report

log = logging.getLogger("airflow_mq.spark")

#: Answers, seconds and bytes to enqueue after which a chunk is sent.
MOST_ANSWERS, MOST_SECONDS, MOST_BYTES = 1_000, 1.0, 1 << 20
#: Seconds for which a store that does not answer is asked again.
PATIENCE = 120.0
#: How often a lease is renewed within its time.
RENEWALS = 3

T = TypeVar("T")


class Reporter:
    """Gathers answers; neighbours of which all is well become one. One thread adds; a timer's may flush beside it.

    :param send: what takes a chunk of reports.
    :param seconds: after so long a chunk is sent, however small.
    """

    def __init__(self, send: Callable[[Sequence[Report]], None], seconds: float = MOST_SECONDS) -> None:
        self._send, self.seconds = send, seconds
        self._runs: list[list[Any]] = []
        self._bytes, self._since = 0, time.monotonic()
        # Chunks are sent one after the other, and answers are taken meanwhile.
        self._sending, self._adding = threading.Lock(), threading.Lock()

    def add(self, origin: str, page: int, index: int, outcome: Outcome) -> None:
        """Take an answer, and send what there is if it is time to."""
        with self._adding:
            last = self._runs[-1] if self._runs else None
            if last and outcome == DONE == last[4] and last[:2] == [origin, page] and last[3] == index - 1:
                last[3] = index
            else:
                self._runs.append([origin, page, index, index, outcome])
            if isinstance(outcome, Done):
                self._bytes += sum(len(sent[1]) for sent in outcome.enqueue)
            late = time.monotonic() - self._since >= self.seconds
            is_full = late or len(self._runs) >= MOST_ANSWERS or self._bytes >= MOST_BYTES
        if is_full:
            self.flush()

    def expect(self, milliseconds: int) -> None:
        """Send what there is before work that is expected to take longer than a chunk may wait."""
        if milliseconds >= self.seconds * 1_000 and self._runs:
            self.flush()

    def flush(self) -> None:
        """Send what there is; what cannot be sent is kept for the next time."""
        with self._sending:
            with self._adding:
                runs, self._runs, self._bytes = self._runs, [], 0
            try:
                if runs:
                    self._send([Report(*run) for run in runs])
            except BaseException:
                # Still late: the next answer that is added sends these again.
                with self._adding:
                    self._runs = runs + self._runs
                raise
            self._since = time.monotonic()

    def flush_quietly(self) -> None:
        """Send what there is, from a timer: what goes wrong is raised by the next flush of the thread that adds."""
        try:
            self.flush()
        except Exception as error:
            log.warning("answers could not be reported (%s); trying again", type(error).__name__)


@contextmanager
def flushed(reporter: Reporter) -> Iterator[None]:
    """Flush a reporter by a timer of its own while this runs."""
    end = threading.Event()

    def run() -> None:
        while not end.wait(reporter.seconds):
            reporter.flush_quietly()

    thread = threading.Thread(target=run, name="airflow-mq-reports", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def patiently(call: Callable[[], T], patience: float = PATIENCE) -> T:
    """Call until the store answers: for what may be said twice, as reports and renewals may."""
    give_up, wait = time.monotonic() + patience, 0.05
    while True:
        try:
            return call()
        except (StoreBusy, StoreUnreachable, CommitInDoubt) as error:
            if time.monotonic() + wait > give_up:
                raise
            log.warning("the store cannot be reached (%s); trying again", type(error).__name__)
        time.sleep(wait)
        wait = min(wait * 2, 5.0)


class LeaseKeeper:
    """Renews a block's lease from a thread, and flushes its reporters, until the block is not ours any more.

    :param lease: seconds for which each renewal holds; the ring's lease where it is not said.
    :param on_refused: called, in that thread, when the block turns out to be settled, released or past its deadline.
    """

    def __init__(
        self, queue: MessageQueue, token: str, lease: float | None = None,
        on_refused: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self._queue, self._token, self._lease = queue, token, lease
        self._on_refused = on_refused
        self._seconds = (queue.config.lease if lease is None else lease) / RENEWALS
        self._end = threading.Event()
        self._reporters: list[Reporter] = []
        self._thread = threading.Thread(target=self._keep, name="airflow-mq-lease", daemon=True)
        #: Why the block is not ours any more.
        self.refused: MessageQueueError | None = None

    def start(self) -> None:
        """Renew at once, which tells a job that comes too late, and from then on by a thread."""
        patiently(lambda: self._queue.renew_block(self._token, self._lease))
        self._thread.start()

    def stop(self) -> None:
        """Renew no more."""
        self._end.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(5.0)

    @contextmanager
    def flushing(self, reporter: Reporter) -> Iterator[None]:
        """Flush a reporter from the same thread while this runs."""
        self._reporters.append(reporter)
        try:
            yield
        finally:
            self._reporters.remove(reporter)

    def _keep(self) -> None:
        due = time.monotonic() + self._seconds
        while not self._end.wait(min(MOST_SECONDS, max(0.0, due - time.monotonic()))):
            if time.monotonic() >= due:
                wait = self._renew()
                if wait is None:
                    return
                due = time.monotonic() + wait
            for reporter in tuple(self._reporters):
                reporter.flush_quietly()

    def _renew(self) -> float | None:
        """Renew the lease; return the seconds until the next time, and nothing when the block is not ours any more."""
        try:
            self._queue.renew_block(self._token, self._lease)
        except (TokenRefused, UnknownBlock) as error:
            self.refused = error
            if self._on_refused:
                self._on_refused()
            return None
        except Exception as error:
            log.warning("the lease could not be renewed (%s); trying again", type(error).__name__)
            return min(1.0, self._seconds)
        return self._seconds


@contextmanager
def keeping_lease(
    queue: MessageQueue, token: str, lease: float | None = None, on_refused: Callable[[], None] | None = None
) -> Iterator[LeaseKeeper]:
    """Keep a block alive while this runs. Raises `TokenRefused` at once if it is not ours any more."""
    keeper = LeaseKeeper(queue, token, lease, on_refused)
    keeper.start()
    try:
        yield keeper
    finally:
        keeper.stop()
