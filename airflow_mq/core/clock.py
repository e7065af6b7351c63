"""The figures of fairness where shares alone decide: as many queues as there are cost no more than they must.

Where nobody has a least or a most, and there are no groups, whoever has a backlog is promised the same for each unit
of its share. So one clock serves them all: it runs by what a share of one is promised, and a queue has been promised
all it asks for when the clock has come so far. A block costs no more than its lines, however many it did not come to.
The figures are those of `fairness.judge`, which goes from block to block and in each from queue to queue.

The clock counts whole numbers, fine parts of a part of a block, so that no sum of them is off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate
from math import inf
from operator import attrgetter
from typing import NamedTuple

from .config import BLOCK_PARTS
from .fairness import Fairness, OriginFairness, Promise, jain, lines_of, wanting_in
from .orders import Entry
from .priority import REGULAR
from .weight import Weight

#: By so many bits the clock is finer than parts of a block.
FINE = 64
#: All was promised where no more than one in so many is missing: `judge`, whose sums are not exact, says so, too.
NEARLY = 10**9


class Asks(NamedTuple):
    """What a queue that is ready asks for."""

    #: From which block on it had something to take.
    since: int
    #: What that is, in parts of a block; at least, where it is not `all`.
    parts: float = 0
    all: bool = False


@dataclass(slots=True)
class _Backlog:
    """Blocks that left a queue wanting, and the one that emptied it then."""

    origin: str
    share: int
    #: The stretches of blocks that belong to it.
    stretches: list[range] = field(default_factory=list)
    #: What it got of them, and what it asks for in all; at least, while not all is known.
    received: int = 0
    asked: float = 0
    known: bool = True
    #: What it was promised before this stretch, where the clock stood when that began, and the block after which
    #: it had been promised all.
    promised: int = 0
    since: int | None = None
    done: int | None = None
    #: To whom it belongs, while others of them wait behind it.
    crowd: _Crowd | None = None
    #: Which alarm is its own; none where it has none.
    alarm: int = 0

    def add(self, stretch: range, received: int) -> None:
        if self.stretches and self.stretches[-1].stop == stretch.start:
            stretch = range(self.stretches.pop().start, stretch.stop)
        self.stretches.append(stretch)
        self.received += received
        self.asked += received

    @property
    def blocks(self) -> int:
        return sum(map(len, self.stretches))

    @property
    def late(self) -> int:
        """How many of its blocks came after the one in which all was promised."""
        if self.done is None:
            return 0
        return sum(max(stretch.stop - max(stretch.start, self.done + 1), 0) for stretch in self.stretches)


@dataclass(slots=True)
class _Crowd:
    """Queues of one share that no line mentions, and that wait since the same block: what differs is what each asks."""

    share: int
    stretch: range
    #: What each asks for, its name, and whether that is all; who asks for least comes last.
    waiting: list[tuple[float, str, bool]] = field(default_factory=list)
    #: Those at whose turn the clock rang, or will ring next.
    called: list[_Backlog] = field(default_factory=list)
    #: Where the clock stood when they began to wait.
    since: int = 0


class _Tally:
    """What the ledger says of a queue."""

    __slots__ = ("backlogs", "granted", "longest", "started", "waiting")

    def __init__(self) -> None:
        self.backlogs: list[_Backlog] = []
        self.granted = self.longest = self.waiting = 0
        #: Whether anything was started once it had a backlog.
        self.started = False

    def wait(self, blocks: int) -> None:
        self.waiting += blocks
        self.longest = max(self.longest, self.waiting)


class _Clock:
    """How much a share of one was promised up to now, and who has a backlog."""

    def __init__(self, count: int, left: Callable[[str], float]) -> None:
        self.now, self.shares, self.left = 0, 0, left
        self.crowds: dict[tuple[int, int], _Crowd] = {}
        self.begins: list[list[_Backlog]] = [[] for _ in range(count + 1)]
        self.ends: list[list[_Backlog]] = [[] for _ in range(count + 1)]
        #: When each will have been promised all; of several of one backlog the last counts.
        self._alarms: list[tuple[int, int, _Backlog]] = []
        self._set = 0

    def crowd(self, share: int, since: int) -> _Crowd:
        """Those of this share who have waited since this block, and whom no line mentions."""
        key = share, since
        if key not in self.crowds:
            self.crowds[key] = _Crowd(share, range(since, len(self.begins) - 1))
        return self.crowds[key]

    def block(self, at: int, given: int, others: Mapping[str, tuple[int, int]]) -> None:
        """A block gave so much; to others than those with a backlog, by name, what they wanted, and their shares."""
        self._turn(at)
        left, total = given << FINE, self.shares + sum(share for _, share in others.values())
        # Whoever wants least for its share is satisfied first; what it leaves is everybody else's.
        wants = sorted(((-(-(got << FINE) // share), got, share) for got, share in others.values()), reverse=True)
        while total:
            level, alarm = left // total, self._alarm()
            if wants and wants[-1][0] <= level and (alarm is None or wants[-1][0] <= alarm - self.now):
                _, got, share = wants.pop()
                left, total = left - (got << FINE), total - share
            elif alarm is not None and alarm - self.now <= level:
                backlog = self._alarms[0][-1]
                if self._all_known(backlog):
                    left, total = left - (alarm - self.now) * backlog.share, total - backlog.share
                    self._done(backlog, at)
            else:
                self.now += level
                break
        while (alarm := self._alarm()) is not None:
            backlog = self._alarms[0][-1]
            if (alarm - self.now) * backlog.share * NEARLY > int(backlog.asked) << FINE:
                break
            if self._all_known(backlog):
                self._done(backlog, at)

    def close(self) -> None:
        """The last block is over."""
        self._turn(-1)

    def _turn(self, at: int) -> None:
        """Stretches end and begin before this block."""
        for backlog in self.ends[at]:
            if backlog.since is not None:
                backlog.promised += (self.now - backlog.since) * backlog.share
                backlog.since, backlog.alarm = None, 0
                self.shares -= backlog.share
        for backlog in self.begins[at]:
            if backlog.done is None:
                backlog.since = self.now
                self.shares += backlog.share
                self._set_alarm(backlog)
        for crowd in self.crowds.values():
            if crowd.stretch.start == at:
                crowd.since = self.now
                crowd.waiting.sort(reverse=True)
                self.shares += crowd.share * len(crowd.waiting)
                self._call(crowd)

    def _call(self, crowd: _Crowd | None) -> None:
        """The next one of a crowd will be promised all before the others are."""
        if crowd is not None and crowd.waiting:
            asked, name, known = crowd.waiting.pop()
            backlog = _Backlog(name, crowd.share, [crowd.stretch], 0, asked, known, 0, crowd.since, None, crowd)
            crowd.called.append(backlog)
            self._set_alarm(backlog)

    def _set_alarm(self, backlog: _Backlog) -> None:
        if backlog.asked != inf:
            assert backlog.since is not None
            rest = (int(backlog.asked) << FINE) - backlog.promised
            backlog.alarm = self._set = self._set + 1
            heappush(self._alarms, (backlog.since - (-rest // backlog.share), self._set, backlog))

    def _alarm(self) -> int | None:
        """When the next one will have been promised all, as far as is known."""
        while self._alarms:
            end, which, backlog = self._alarms[0]
            if backlog.alarm == which:
                return end
            heappop(self._alarms)
        return None

    def _all_known(self, backlog: _Backlog) -> bool:
        """Whether it asks for no more than was known; what it asks for is found out where that begins to matter."""
        if backlog.known:
            return True
        backlog.alarm = 0
        backlog.known, backlog.asked = True, backlog.received + self.left(backlog.origin)
        self._set_alarm(backlog)
        self._call(backlog.crowd)
        backlog.crowd = None
        return False

    def _done(self, backlog: _Backlog, at: int) -> None:
        backlog.promised, backlog.since, backlog.done = int(backlog.asked) << FINE, None, at
        backlog.alarm = 0
        self.shares -= backlog.share
        self._call(backlog.crowd)


def judge_shares(
    pages: Sequence[Sequence[Entry]], parts: Callable[[Weight], int], ready: Mapping[str, Asks],
    promises: Mapping[str, Promise], left: Callable[[str], float], priority: str = REGULAR,
) -> Fairness:  # fmt: skip
    """The figures of the queues of one priority, by what a ledger says of them, the oldest block first.

    :param ready: the queues that are ready now.
    :param promises: what is set for whom; nothing but shares counts.
    :param left: what all of a queue that is ready asks for, where that is not known and matters.
    """
    count, lines = len(pages), lines_of(pages)
    given = [sum(parts(entry.granted) for entry in page) for page in pages]
    sums = list(accumulate(given, initial=0))
    shares = {name: promise.share for name, promise in promises.items()}
    others: list[dict[str, tuple[int, int]]] = [{} for _ in pages]
    clock = _Clock(count, left)
    tallies: dict[str, _Tally] = {}
    for origin, its in lines.items():
        tally = tallies[origin] = _Tally()
        share = shares.get(origin, 1)
        for at, got in _tell(tally, origin, share, its, ready.get(origin), count, parts):
            others[at][origin] = got, share
        for backlog in tally.backlogs:
            for stretch in backlog.stretches:
                clock.begins[stretch.start].append(backlog)
                clock.ends[stretch.stop].append(backlog)
    for origin, asks in ready.items():
        if origin not in lines and asks.since < count:
            clock.crowd(shares.get(origin, 1), asks.since).waiting.append((asks.parts, origin, asks.all))
    for at, gave in enumerate(given):
        clock.block(at, gave, others[at])
    clock.close()
    origins = [_figures(name, shares.get(name, 1), tally, sums, priority) for name, tally in tallies.items()]
    for crowd in clock.crowds.values():
        origins += _figures_of(crowd, clock.now, sums, priority)
    origins.sort(key=attrgetter("origin"))
    return Fairness(count, origins, jain([1 + one.error for one in origins if one.error is not None]))


def _tell(
    tally: _Tally, origin: str, share: int, lines: Sequence[tuple[int, Entry]], asks: Asks | None, count: int,
    parts: Callable[[Weight], int],
) -> list[tuple[int, int]]:  # fmt: skip
    """Note what the lines of a queue say, and its backlogs; tell what it got, and in which block, beside these."""
    told = dict(lines)
    wanting = [stretch for stretch in wanting_in(lines, None if asks is None else asks.since, count) if stretch]
    emptied = told.keys() - {stretch.start for stretch in wanting}
    open_one: _Backlog | None = None
    beside = []
    for stretch in sorted([*wanting, *(range(at, at + 1) for at in emptied)], key=lambda one: one.start):
        at = stretch.start
        entry = told.get(at)
        got = 0 if entry is None else parts(entry.granted)
        started = entry is not None and entry.messages > 0
        tally.granted += got
        if at not in emptied and open_one is None:
            open_one = _Backlog(origin, share)
            tally.backlogs.append(open_one)
        if started:
            tally.waiting = 0
            tally.started |= bool(tally.backlogs)
        elif at not in emptied:
            tally.wait(len(stretch))
        if open_one is not None and (started or at not in emptied):
            open_one.add(stretch, got)
        elif got:
            beside.append((at, got))
        if at in emptied and started:
            open_one = None
    if open_one is not None:
        open_one.asked += inf if asks is None else asks.parts
        open_one.known = asks is None or asks.all
    return beside


def _figures(origin: str, share: int, its: _Tally, sums: Sequence[int], priority: str) -> OriginFairness:
    given = sum(sums[stretch.stop] - sums[stretch.start] for one in its.backlogs for stretch in one.stretches)
    promised = sum(one.promised for one in its.backlogs) / (1 << FINE)
    received = sum(one.received for one in its.backlogs)
    judged = promised > 0 and (its.started or promised >= BLOCK_PARTS)
    return OriginFairness(
        origin, share, sum(one.blocks for one in its.backlogs), promised / given if given else None,
        received / given if given else None, received / promised - 1 if judged else None, its.longest, its.waiting,
        max((one.late for one in its.backlogs), default=0), its.granted / BLOCK_PARTS, priority,
    )  # fmt: skip


def _figures_of(crowd: _Crowd, now: int, sums: Sequence[int], priority: str) -> list[OriginFairness]:
    """The figures of a crowd: but for those who were promised all they ask for, those of one are those of all."""
    blocks, one = len(crowd.stretch), _Tally()
    one.wait(blocks)
    found, alike = [], [name for _, name, _ in crowd.waiting]
    for backlog in crowd.called:
        if backlog.done is None:
            alike.append(backlog.origin)
        else:
            one.backlogs = [backlog]
            found.append(_figures(backlog.origin, crowd.share, one, sums, priority))
    one.backlogs = [_Backlog("", crowd.share, [crowd.stretch], promised=(now - crowd.since) * crowd.share)]
    its = _figures("", crowd.share, one, sums, priority)
    found += [
        OriginFairness(
            name, its.share, its.contended, its.promised, its.received, its.error, its.longest_wait, its.waiting,
            its.late, its.granted, priority,
        )
        for name in alike
    ]  # fmt: skip
    return found
