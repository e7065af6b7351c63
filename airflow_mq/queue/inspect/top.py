"""Snapshots of a ring for `airflow-mq top`: queues, blocks, longest waits, totals and rates.

A snapshot is cheap however many origins there are. It reads the queues that are shown, and the totals only as often as
they are quick to compute.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ...core.message import check_number, check_text
from ...core.priority import book_name
from ...core.weight import Weight
from ...store.unit import Unit
from ...store.working_set import StoredSet
from ..blocks.block import Block, block_of
from ..session import RingSession
from ..values import moment
from .events import runs_of
from .history import ENDS
from .order import in_order
from .queues import Backlog, QueueState, backlog_of, queue_states

#: Inbox rows of a queue that are added up.
_MOST_ROWS = 20_000
#: Rows of events that are read at once, and the number of reads of one snapshot.
_EVENT_ROWS, _EVENT_STEPS = 512, 20
#: Microseconds over which rates are computed.
_SPAN = 60_000_000
#: Totals are computed again after this multiple of the time that they took.
_REST = 10.0


@dataclass(frozen=True)
class Look:
    """A ring at one moment."""

    at: datetime
    ring: str
    order: str
    limit: Weight | None
    #: The text that the names of the queues contain, and their order.
    search: str
    sort: str
    #: The queues, the head first, or in the requested order.
    turns: Sequence[QueueState]
    #: The queues that wait longest.
    waits: Sequence[QueueState]
    blocks: Sequence[Block]
    #: Number of paused origins.
    paused: int
    totals: Backlog | None
    #: Stored messages per second.
    rate_in: float | None
    #: Ended messages per second: processed, failed, discarded, expired or transferred.
    rate_out: float | None

    @property
    def oldest(self) -> datetime | None:
        """Time at which the message that waits longest was sent."""
        return self.waits[0].oldest if self.waits else None


@dataclass
class _Rates:
    """Numbers of ended and of stored messages over time."""

    last_event: int = -1
    ended: int = 0
    ends: deque[tuple[int, int]] = field(default_factory=deque)
    #: Time, stored messages and ended messages of each snapshot with new totals.
    counts: deque[tuple[int, int, int]] = field(default_factory=deque)

    def rate_out(self, now: int) -> float:
        while self.ends and self.ends[0][0] < now - _SPAN:
            self.ends.popleft()
        return sum(count for _, count in self.ends) * 1e6 / _SPAN

    def rate_in(self, now: int) -> float | None:
        while len(self.counts) > 2 and self.counts[1][0] < now - _SPAN:
            self.counts.popleft()
        if len(self.counts) < 2 or self.counts[-1][0] <= self.counts[0][0]:
            return None
        (began, stored, ended), (until, stored_now, ended_now) = self.counts[0], self.counts[-1]
        return max(0.0, (stored_now - stored + ended_now - ended) * 1e6 / (until - began))


class Watcher:
    """Takes snapshots of one ring, and computes rates from successive ones."""

    def __init__(self, session: RingSession) -> None:
        self.session = session
        self._totals: Backlog | None = None
        self._cost, self._counted_at = 0.0, float("-inf")
        self._rates = _Rates()

    def look(
        self,
        limit: int = 50,
        *,
        search: str = "",
        sort: str = "turn",
        blocks: int = 10,
        waits: int = 10,
        totals: bool = True,
    ) -> Look:
        """Take a snapshot of the ring.

        :param limit: number of queues
        :param search: only queues whose name contains this text
        :param sort: order of the queues, one of `SORTS`
        :param blocks: number of latest blocks
        :param waits: number of queues that wait longest
        :param totals: with the totals of the ring; those of an earlier snapshot if it is too early to compute them
        """
        check_number(limit, "a limit")
        check_text(search, "what to search for")
        session = self.session
        with session.snapshot() as (unit, working_set):
            now = working_set.now
            paused = len(unit.origins.paused(session.ring_id, now))
            names = in_order(unit, working_set, sort, limit, search)
            oldest = in_order(unit, working_set, "oldest", waits + paused, search)
            wanted = list(dict.fromkeys([*names, *oldest]))
            read = queue_states(unit, working_set, wanted, most=_MOST_ROWS, exact=True)
            states = {book_name(state.origin, state.priority): state for state in read}
            self._read_ends(unit, now)
            if totals and time.monotonic() - self._counted_at >= _REST * self._cost:
                self._count(unit, working_set)
            latest = [block_of(row) for row in unit.blocks.latest(session.ring_id, limit=blocks)]
        turns = [states[name] for name in names if name in states]
        waiting = [states[name] for name in oldest if name in states and states[name].oldest]
        turns = [state for state in turns if state.in_ring or sort != "turn"]
        waiting.sort(key=lambda state: (state.oldest, state.origin))
        config = working_set.config
        return Look(
            at=moment(now),
            ring=session.ring,
            order=config.order,
            limit=config.service_weight,
            search=search,
            sort=sort,
            turns=turns,
            waits=waiting[:waits],
            blocks=latest,
            paused=paused,
            totals=self._totals,
            rate_in=self._rates.rate_in(now),
            rate_out=self._rates.rate_out(now),
        )

    def _count(self, unit: Unit, working_set: StoredSet) -> None:
        began = time.monotonic()
        self._totals = backlog_of(unit, working_set)
        stored = self._totals.messages + self._totals.set_aside + self._totals.delayed
        self._rates.counts.append((working_set.now, stored, self._rates.ended))
        self._counted_at = time.monotonic()
        self._cost = self._counted_at - began

    def _read_ends(self, unit: Unit, now: int) -> None:
        """Count the messages that ended since the last snapshot."""
        rates, ring = self._rates, self.session.ring_id
        if rates.last_event < 0:
            first = unit.events.first_since(ring, now - _SPAN)
            if first is None:
                return
            rates.last_event = first - 1
        for _ in range(_EVENT_STEPS):
            rows = unit.events.after(ring, rates.last_event, _EVENT_ROWS)
            for row in rows:
                count = sum(len(run.ids) for run in runs_of(row) if run.fate in ENDS)
                rates.last_event, rates.ended = row.id, rates.ended + count
                rates.ends.append((row.at, count))
            if len(rows) < _EVENT_ROWS:
                return
