"""Reports of outcomes to a block: in chunks, and repeated while the store does not answer."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from ..engine.queue.batches import grouped
from ..engine.queue.values import Report
from ..engine.rules.errors import CommitInDoubt, StoreBusy, StoreUnreachable, TokenRefused, UnknownBlock
from ..engine.rules.message import ID_BYTES, message_id
from ..engine.rules.outcome import DONE, Done, Outcome
from ..engine.rules.settle import UNTIMED
from ..ticker import Ticker

log = logging.getLogger("airflow_mq.spark")

#: Outcomes, seconds, and bytes to enqueue after which a chunk is sent.
CHUNK_OUTCOMES, CHUNK_SECONDS, CHUNK_BYTES = 1_000, 1.0, 1 << 20
#: Seconds for which a call to a store that does not answer is repeated.
PATIENCE = 120.0

T = TypeVar("T")


@dataclass
class _Run:
    """Neighbours with the same outcome, and their ids if they are known."""

    book: str
    page: int
    first: int
    last: int
    outcome: Outcome
    ids: list[bytes]
    took: tuple[int, int]

    def goes_on(self, book: str, page: int, index: int, outcome: Outcome, has_id: bool, batch: int) -> bool:
        """Return whether a message is the next one of this run."""
        return (
            outcome == DONE == self.outcome
            and (book, page, index) == (self.book, self.page, self.last + 1)
            and has_id == bool(self.ids)
            and batch == self.took[0]
        )

    def report(self) -> Report:
        return Report(self.book, self.page, self.first, self.last, self.outcome, ids=b"".join(self.ids), took=self.took)


class Reporter:
    """Collects outcomes and sends them in chunks. One thread adds; a timer may flush beside it.

    Neighbours that are all done become one report, with their ids: settling then reads no payloads.

    :param send: takes a chunk of reports
    :param seconds: age at which a chunk is sent, however small
    """

    def __init__(self, send: Callable[[Sequence[Report]], None], seconds: float = CHUNK_SECONDS) -> None:
        self._send, self.seconds = send, seconds
        self._runs: list[_Run] = []
        self._bytes, self._since = 0, time.monotonic()
        self._is_refused = False
        # One chunk is sent at a time; outcomes are added meanwhile.
        self._sending, self._adding = threading.Lock(), threading.Lock()

    def add(
        self, book: str, page: int, index: int, outcome: Outcome, payload: bytes | None = None,
        took: tuple[int, int] = UNTIMED,
    ) -> None:  # fmt: skip
        """Add an outcome, and send the chunk if it is full or old enough.

        :param payload: the message, if it is at hand
        :param took: the batch in which it was tried, and the time (`Report.took`)
        """
        ids = [message_id(payload)] if payload is not None and outcome == DONE else []
        with self._adding:
            last = self._runs[-1] if self._runs else None
            if last and last.goes_on(book, page, index, outcome, bool(ids), took[0]):
                last.last, last.took = index, took
                last.ids += ids
            else:
                self._runs.append(_Run(book, page, index, index, outcome, ids, took))
            self._bytes += ID_BYTES * len(ids)
            if isinstance(outcome, Done):
                self._bytes += sum(len(sent.payload) for sent in outcome.enqueue)
            late = time.monotonic() - self._since >= self.seconds
            is_full = late or len(self._runs) >= CHUNK_OUTCOMES or self._bytes >= CHUNK_BYTES
        if is_full:
            self.flush()

    def flush(self, marks: Sequence[Report] = ()) -> None:
        """Send the chunk, and with it these marks; keep the chunk if sending fails."""
        with self._sending:
            with self._adding:
                runs, self._runs, self._bytes = self._runs, [], 0
            try:
                if runs or marks:
                    self._send([*(run.report() for run in runs), *marks])
            except BaseException:
                # The chunk stays late: the next outcome that is added sends it again.
                with self._adding:
                    self._runs = runs + self._runs
                raise
            self._since = time.monotonic()

    def flush_quietly(self) -> float:
        """Send the chunk, and leave an error to the next `flush`. Return the seconds until the next call."""
        try:
            if not self._is_refused:
                self.flush()
        except (TokenRefused, UnknownBlock) as error:
            self._is_refused = True
            log.warning("the block takes no more outcomes: %s", error)
        except Exception as error:
            log.warning("outcomes could not be reported (%s); trying again", type(error).__name__)
        return self.seconds


@contextmanager
def flushed(reporter: Reporter) -> Iterator[None]:
    """Flush a reporter by a thread of its own, and at the end, however the task ends."""
    with Ticker(reporter.flush_quietly, reporter.seconds, "airflow-mq-reports"):
        try:
            yield
        finally:
            reporter.flush_quietly()


def chunked(reports: Iterable[Report]) -> Iterator[list[Report]]:
    """Yield reports in chunks: each is a transaction, or a file."""
    return grouped(reports, CHUNK_BYTES, lambda report: len(report.ids), most=CHUNK_OUTCOMES)


def patiently(call: Callable[[], T], patience: float = PATIENCE) -> T:
    """Call until the store answers, for calls that may be repeated: reports and renewals."""
    deadline, wait = time.monotonic() + patience, 0.05
    while True:
        try:
            return call()
        except (StoreBusy, StoreUnreachable, CommitInDoubt) as error:
            if time.monotonic() + wait > deadline:
                raise
            log.warning("the store cannot be reached (%s); trying again", type(error).__name__)
        time.sleep(wait)
        wait = min(wait * 2, 5.0)
