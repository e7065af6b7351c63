"""Readings of a ring whose store may go away and come back, for `status`, `top` and the demo."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from ..engine.queue import MessageQueue
from ..engine.queue.blocks.block import Block
from ..engine.queue.inspect.queues import Backlog, QueueState
from ..engine.queue.inspect.servicing import Overdue, Servicing
from ..engine.queue.values import Paused
from ..engine.rules.errors import MessageQueueError
from ..engine.rules.weight import Weight
from ..engine.store.pipelined import within
from .queue import Row, rows_of

#: Totals are counted again after this multiple of the time that they took: a large ring takes its server seconds.
REST = 10.0
#: Seconds over which rates are computed.
SPAN = 60.0
#: Blocks of a reading.
BLOCKS = 12


@dataclass(frozen=True)
class Look:
    """A ring at one moment."""

    at: datetime
    ring: str
    order: str
    limit: Weight | None
    sort: str
    #: The first queues, in the requested order.
    queues: Sequence[QueueState]
    in_flight: int
    #: When the first delayed message is due; None if there is none.
    due: datetime | None
    #: The totals of this reading, or of an earlier one if counting takes long.
    backlog: Backlog
    pauses: Sequence[Paused]
    #: The blocks in progress, then the latest others.
    blocks: Sequence[Block]
    servicing: Servicing
    #: Plans and services that should have come.
    overdue: Sequence[Overdue]
    #: Stored and ended messages per second over the last minute; None before the second count.
    rate_in: float | None
    rate_out: float | None
    #: Returns a command line about the ring.
    cli: Callable[[str], str] = field(repr=False)

    def rows(self) -> list[Row]:
        """Return the rows of the table of queues."""
        return rows_of(self.queues, self.servicing, self.pauses, turns=self.sort == "turn")


class Watcher:
    """Reads of one ring, with rates between them; it reopens the store after an error."""

    def __init__(self, reopen: Callable[[], MessageQueue], sort: str = "turn", limit: int = 60) -> None:
        self.reopen, self.sort, self.limit = reopen, sort, limit
        self._queue: MessageQueue | None = None
        self._backlog, self._rested_at = Backlog(), float("-inf")
        #: Where to continue to count ended messages.
        self._ended_at: int | None = None
        self._counts: deque[_Count] = deque()
        self._rate_in: float | None = None
        self._rate_out: float | None = None

    def close(self) -> None:
        queue, self._queue = self._queue, None
        if queue is not None:
            with suppress(Exception):
                queue.close()

    def look(self) -> Look:
        """Read the ring; raise an error of the store, and reopen it at the next call."""
        try:
            with within(30.0):
                self._queue = self._queue or self.reopen()
                return self._look(self._queue)
        except MessageQueueError:
            self.close()
            raise

    def _look(self, queue: MessageQueue) -> Look:
        inspect = queue.inspect
        state = inspect.ring(self.limit)
        if time.monotonic() >= self._rested_at:
            self._count(queue, state.now)
        running = queue.blocks.list("planned", limit=BLOCKS)
        ids = {block.id for block in running}
        servicing = inspect.servicing()
        return Look(
            at=state.now,
            ring=queue.ring,
            order=queue.config.order,
            limit=queue.config.service_weight,
            sort=self.sort,
            queues={"turn": state.queues, "backlog": self._backlog.deepest, "oldest": self._backlog.oldest}[self.sort],
            in_flight=state.in_flight,
            due=state.due,
            backlog=self._backlog,
            pauses=queue.admin.paused(),
            blocks=[*running, *(block for block in queue.blocks.list(limit=BLOCKS) if block.id not in ids)],
            servicing=servicing,
            overdue=servicing.of_queues(state.queues),
            rate_in=self._rate_in,
            rate_out=self._rate_out,
            cli=queue.session.cli,
        )

    def _count(self, queue: MessageQueue, now: datetime) -> None:
        """Count the totals, and compute the rates of the last minute."""
        began = time.monotonic()
        self._backlog = queue.inspect.backlog(
            deepest=self.limit * (self.sort == "backlog"), oldest=self.limit * (self.sort == "oldest")
        )
        ended, self._ended_at = queue.inspect.ended(self._ended_at)
        counts = self._counts
        if not counts:
            # The first call has the ends of the last minute; how much was stored then is unknown.
            counts.append(_Count(now - timedelta(seconds=SPAN), None, 0))
        stored = self._backlog.messages + self._backlog.set_aside + self._backlog.delayed
        last = _Count(now, stored, counts[-1].ended + ended)
        counts.append(last)
        while len(counts) > 2 and (now - counts[1].at).total_seconds() >= SPAN:
            counts.popleft()
        self._rate_out = last.rate_since(counts[0], last.ended - counts[0].ended)
        first = next(count for count in counts if count.stored is not None)
        self._rate_in = last.rate_since(first, stored - (first.stored or 0) + last.ended - first.ended)
        took = time.monotonic() - began
        self._rested_at = began + took + REST * took


class _Count(NamedTuple):
    """Stored messages at a time, and messages that ended up to then."""

    at: datetime
    stored: int | None
    ended: int

    def rate_since(self, earlier: _Count, messages: int) -> float | None:
        """Return how many messages per second these are; None without time between."""
        seconds = (self.at - earlier.at).total_seconds()
        return max(messages, 0) / seconds if seconds > 0 else None
