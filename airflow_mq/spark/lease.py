"""Lease of a block: renewed while its messages are processed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..engine.queue import MessageQueue
from ..engine.rules.errors import MessageQueueError, TokenRefused, UnknownBlock
from ..ticker import RENEWALS, Ticker
from .reports import patiently

log = logging.getLogger("airflow_mq.spark")


class LeaseKeeper:
    """Renews a block's lease from a thread until the block ends.

    :param lease: seconds for which each renewal holds; the block's own if left out
    :param on_refused: called in that thread when the block was settled, released, or is past its deadline
    """

    def __init__(
        self, queue: MessageQueue, token: str, lease: float | None = None, on_refused: Callable[[], None] | None = None
    ) -> None:
        self._queue, self._token, self._lease = queue, token, lease
        self._on_refused = on_refused
        self._seconds = 0.0
        self._ticker: Ticker | None = None
        #: Reason for which the block takes no more outcomes.
        self.refused: MessageQueueError | None = None

    def start(self) -> None:
        """Renew the lease now, and from then on by the thread. Raises `TokenRefused` if the block has ended."""
        blocks = self._queue.blocks
        patiently(lambda: blocks.renew(self._token, self._lease))
        lease = patiently(lambda: blocks.get(self._token)).lease if self._lease is None else self._lease
        self._seconds = lease / RENEWALS
        self._ticker = Ticker(self._renew, self._seconds, "airflow-mq-lease", patience=5.0)
        self._ticker.start()

    def stop(self) -> None:
        """Stop renewing."""
        if self._ticker is not None:
            self._ticker.stop()

    def _renew(self) -> float | None:
        """Renew the lease; return the seconds until the next renewal, or None if the block has ended."""
        try:
            self._queue.blocks.renew(self._token, self._lease)
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
    """Keep a block's lease while the context is open. Raises `TokenRefused` at once if the block has ended."""
    keeper = LeaseKeeper(queue, token, lease, on_refused)
    keeper.start()
    try:
        yield keeper
    finally:
        keeper.stop()
