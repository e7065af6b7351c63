"""What `airflow-mq top` asks of a ring: who stands where, what blocks did, who waits longest, how quickly it moves.

A look is cheap however many origins there are: of the ring it reads as far as somebody sees, and the sums over all of
it only as often as they are quick to make.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, islice

from ...core.message import check_number, check_text
from ...core.priority import book_name
from ...core.weight import Weight
from ...store import codec
from ...store.unit import Unit
from ...store.working_set import StoredSet
from ..blocks.block import Block, block_of
from ..session import RingSession
from ..values import moment
from .backlog import backlog_of
from .history import ENDS
from .lines import by_name, in_turn, longest
from .summaries import QueueState, living, queues_of

#: In which order queues are shown: as their turns come, by how much they hold, by how long they wait, by name.
SORTS = ("turn", "backlog", "oldest", "name")
#: Of so many inbox rows of one queue that lie in no page yet, nobody counts the rest.
_MOST_ROWS = 20_000
#: So many rows of events are read at one look; rates are told over so many microseconds.
_EVENT_ROWS, _EVENT_STEPS = 512, 20
_SPAN = 60_000_000
#: Sums over a whole ring are made again after so many times what they took the last time.
_REST = 10.0


@dataclass(frozen=True)
class Totals:
    """Sums over a ring."""

    #: Queues that have something to service.
    ready: int
    waiting: int
    #: Of what waits, or is in flight.
    bytes: int
    in_flight: int
    set_aside: int
    #: Sent for later, or waiting for another try.
    delayed: int


@dataclass(frozen=True)
class Look:
    """A ring at one moment."""

    at: datetime
    ring: str
    order: str
    limit: Weight | None
    #: The queues, the head first, or in the order that was asked for.
    turns: Sequence[QueueState]
    #: Those that wait longest, the longest first.
    waits: Sequence[QueueState]
    blocks: Sequence[Block]
    paused: int
    totals: Totals | None
    #: Messages a second; what goes out is processed, failed, discarded, expired or handed on.
    rate_in: float | None
    rate_out: float | None

    @property
    def oldest(self) -> datetime | None:
        """When the message was sent that waits longest."""
        return self.waits[0].oldest if self.waits else None


@dataclass
class _Rates:
    """How many messages came to their end, and how many were stored, over time."""

    last_event: int = -1
    ended: int = 0
    ends: deque[tuple[int, int]] = field(default_factory=deque)
    #: Of looks that counted everything: when, how many were stored, and how many had ended.
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
    """Looks at one ring, and remembers enough of the last looks to tell how quickly it moves."""

    def __init__(self, session: RingSession) -> None:
        self.session = session
        self._totals: Totals | None = None
        self._cost, self._counted_at = 0.0, float("-inf")
        self._rates = _Rates()

    def look(
        self, limit: int = 50, *, search: str = "", sort: str = "turn", blocks: int = 10, waits: int = 10,
        totals: bool = True,
    ) -> Look:  # fmt: skip
        """See how the ring stands.

        :param limit: how many queues.
        :param search: only queues whose name holds this.
        :param sort: in which order, one of `SORTS`.
        :param blocks: how many of the latest blocks.
        :param waits: how many of those that wait longest.
        :param totals: with the sums over the whole ring; those of the last time, where it is too early to count again.
        """
        check_number(limit, "a limit")
        check_text(search, "what to search for")
        session = self.session
        with session.snapshot() as (unit, working_set):
            now, floor = working_set.now, unit.rings.floors(session.ring_id).look_floor
            paused = len(unit.origins.paused(session.ring_id, now))
            names = _line(unit, working_set, limit, floor, search, sort)
            waiting = longest(unit, working_set, waits + paused, floor, search)
            wanted = list(dict.fromkeys([*names, *waiting]))
            seen = queues_of(unit, working_set, wanted, most=_MOST_ROWS, exact=True)
            told = {book_name(one.origin, one.priority): one for one in seen}
            self._hear(unit, now)
            if totals and time.monotonic() - self._counted_at >= _REST * self._cost:
                self._count(unit, working_set)
            last = [block_of(row) for row in unit.blocks.latest(session.ring_id, limit=blocks)]
            return Look(
                moment(now), session.ring, working_set.config.order, working_set.config.service_weight,
                [told[name] for name in names if name in told and (told[name].in_ring or sort != "turn")],
                sorted(
                    (told[name] for name in waiting if name in told and told[name].oldest),
                    key=lambda one: (one.oldest, one.origin),
                )[:waits],
                last, paused, self._totals, self._rates.rate_in(now), self._rates.rate_out(now),
            )  # fmt: skip

    def _count(self, unit: Unit, working_set: StoredSet) -> None:
        began = time.monotonic()
        found = backlog_of(unit, working_set)
        in_flight = sum(block.messages for block in living(unit, working_set.ring_id) if not block.by_hand)
        waiting = max(0, found.messages - in_flight)
        self._totals = Totals(found.queues, waiting, found.size, in_flight, found.set_aside, found.delayed)
        stored = found.messages + found.set_aside + found.delayed
        self._rates.counts.append((working_set.now, stored, self._rates.ended))
        self._counted_at = time.monotonic()
        self._cost = self._counted_at - began

    def _hear(self, unit: Unit, now: int) -> None:
        """Take note of messages that came to their end since the last look."""
        rates, ring = self._rates, self.session.ring_id
        if rates.last_event < 0:
            first = unit.events.first_since(ring, now - _SPAN)
            if first is None:
                return
            rates.last_event = first - 1
        for _ in range(_EVENT_STEPS):
            rows = unit.events.after(ring, rates.last_event, _EVENT_ROWS)
            for id_, whose, _, at, data in rows:
                runs = codec.unpack_events(whose, bytes(data))
                count = sum(len(run.ids) for run in runs if run.fate in ENDS)
                rates.last_event, rates.ended = id_, rates.ended + count
                rates.ends.append((at, count))
            if len(rows) < _EVENT_ROWS:
                return


def _line(unit: Unit, working_set: StoredSet, limit: int, floor: int, search: str, sort: str) -> list[str]:
    """The books that are shown, in the order that was asked for."""
    if sort == "backlog":
        return unit.books.deepest(working_set.ring_id, search, limit)
    if sort == "oldest":
        return longest(unit, working_set, limit, floor, search)
    if sort == "name":
        return by_name(unit, working_set, limit, search)
    if working_set.config.paths and not search:
        circles = [working_set.high, working_set.ring] if working_set.config.high else [working_set.ring]
        return list(islice(chain.from_iterable(circles), limit))
    return in_turn(unit, working_set, limit, floor, search)
