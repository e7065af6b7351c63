"""Fairness figures, which anyone can recompute from the ledger.

*Received* weight of a queue in a block is the dominant part of the weight that its messages and the steps around them
used, as a part of a full block, as in the deficit order.

*Wanting* is a queue that a block left with messages it could have taken. It stopped there for lack of weight (`limit`)
or credit (`spent`) or at the queue's *most* (`most`), or did not visit it at all. A queue that is paused, in flight or
backing off is not wanting, nor is one whose processor yielded.

*Promised* is a queue's fair share: its weighted max-min part of what the block gave to all. An emptied queue wanted
what it got; a wanting queue would have taken more. Each gets its *least* first and at most its *most*; the rest is
divided by shares. A queue that stopped at its own *most* wanted what it got: the smaller part of a *most* may end a
visit long before the dominant one. Where origins are paths, this holds among the members of each group. High queues are
compared with high ones and regular with regular ones, for the weight that a block gave to their level.

*Contended* blocks count for the share of a queue: those in which it was wanting, and the block that emptied it
afterwards. They make up its *backlogs*. A backlog is promised at most its total demand: what it got, and what of it
still waits. So

    promised = the sum of what its backlogs were promised / the sum of what these blocks gave
    received = the sum of what it got                     / the sum of what these blocks gave
    error    = received / promised - 1

    Jain's index = (sum of x)² / (n · sum of x²), where x = received / promised of each of n queues

Jain's index is 1 where all got what was promised, and 1/n where one got everything. A queue that was promised less than
a whole block and of which no message was started has no error: a single message may be worth as much. An emptied
backlog got all it asked for, possibly late; two figures in blocks measure that. A *wait* is a row of blocks in which a
queue was wanting and none of its messages was started. A backlog was *late* by the blocks that it lasted longer than if
each block had given what was promised.

Queues that are alike, with equal settings in one group, are judged as one member: a block promises the same to each of
them that wants more. So a block costs time for its lines and its kinds of queues, not for the queues that wait.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import accumulate, count, repeat
from math import inf
from operator import attrgetter
from typing import NamedTuple

from .config import BLOCK_PARTS
from .groups import ROOT, SEPARATOR, group_of, home_of, names_above
from .judging import MOST
from .orders import Entry, lines_of, wanting_in
from .priority import REGULAR, queue_name
from .weight import Weight

#: Filter of the origins that a block services; None: all.
Takes = Callable[[str], bool] | None
#: Number of bits by which promises are finer than parts of a block: they are whole numbers, so that sums are exact.
FINE = 64
#: A demand counts as promised if at most this much is missing, a billionth of a block: weights and shares are rounded.
NEARLY = 1 << FINE + 10
#: Demand without a known end.
ENDLESS = 1 << 192


class Promise(NamedTuple):
    """Settings of an origin; least and most are in parts of a block."""

    share: int = 1
    least: int = 0
    most: float = inf


PLAIN = Promise()


class Asks(NamedTuple):
    """Demand of a ready queue."""

    #: Index of the first block in which it had messages to service.
    since: int
    #: Demand in parts of a block; a lower bound unless `all` is set.
    parts: float = 0
    all: bool = False


class OriginFairness(NamedTuple):
    """Promised and received weight of one origin."""

    origin: str
    #: Configured share.
    share: int = 1
    #: Number of contended blocks, and its shares of what these gave; None without such a block.
    contended: int = 0
    promised: float | None = None
    received: float | None = None
    #: Relative deviation from the promise: -0.5 is half of it.
    error: float | None = None
    #: Longest row of blocks in which it waited, and the present one.
    longest_wait: int = 0
    waiting: int = 0
    #: Largest number of blocks by which the queue was emptied later than with its fair share.
    late: int = 0
    #: Weight received in all, in blocks.
    granted: float = 0.0
    #: Priority of the queue; high queues are compared with high ones.
    priority: str = REGULAR

    @property
    def name(self) -> str:
        """Name of the queue: the origin, and its priority if that is high."""
        return queue_name(self.origin, self.priority)


@dataclass(frozen=True)
class Fairness:
    """Promised and received weight of all origins, over a number of blocks."""

    blocks: int
    origins: Sequence[OriginFairness]
    #: None if no queue was left wanting.
    jain: float | None
    #: Whether too many queues wait to include all. Each of those left out has a claim too, so these
    #: figures are upper bounds of what the others were promised.
    partial: bool = False

    @property
    def longest_wait(self) -> int:
        """Longest wait of all, in blocks."""
        return max((figures.longest_wait for figures in self.origins), default=0)

    @property
    def most_late(self) -> int:
        """Largest number of blocks by which any queue was emptied later than with its fair share."""
        return max((figures.late for figures in self.origins), default=0)

    @property
    def most_error(self) -> float:
        """Largest share error of all, in either direction."""
        return max((abs(figures.error) for figures in self.origins if figures.error is not None), default=0.0)

    def origin(self, name: str, priority: str = REGULAR) -> OriginFairness:
        """Return the figures of an origin; empty ones if it was never met."""
        found = (figures for figures in self.origins if (figures.origin, figures.priority) == (name, priority))
        return next(found, OriginFairness(name, priority=priority))

    def broken(
        self, *, most_wait: int | None = None, most_late: int | None = None, most_error: float | None = None,
        least_jain: float | None = None,
    ) -> list[str]:  # fmt: skip
        """Return a sentence for each figure beyond these bounds."""
        problems = [
            f"{queue.name} waited {_blocks(queue.longest_wait)}{', and still waits' if queue.waiting else ''}, "
            f"more than {most_wait:,}"
            for queue in self._beyond("longest_wait", most_wait)
        ]
        problems += [
            f"{queue.name} was emptied {_blocks(queue.late)} later than with its fair share, more than {most_late:,}"
            for queue in self._beyond("late", most_late)
        ]
        if most_error is not None:
            problems += self._errors_beyond(most_error)
        if least_jain is not None and self.jain is not None and self.jain < least_jain:
            problems.append(f"Jain's index is {self.jain:.3f}, below {least_jain:g}")
        return problems

    def _beyond(self, figure: str, most: int | None) -> list[OriginFairness]:
        """Return the origins of which a figure exceeds `most`, the largest first."""
        found = [queue for queue in self.origins if most is not None and getattr(queue, figure) > most]
        return sorted(found, key=attrgetter(figure), reverse=True)

    def _errors_beyond(self, most: float) -> list[str]:
        """Return a sentence for each origin whose share error exceeds `most`."""
        judged = [(queue.error, queue) for queue in self.origins if queue.error is not None and abs(queue.error) > most]
        return [
            f"{queue.name} received {queue.received or 0:.1%}, but its fair share is {queue.promised or 0:.1%}: "
            f"{abs(error):.1%} {'less' if error < 0 else 'more'}, beyond the bound of {most:.1%}"
            for error, queue in sorted(judged, key=lambda pair: pair[0])
        ]


def _blocks(count: int) -> str:
    return f"{count:,} blocks" if count != 1 else "1 block"


def judge(
    pages: Sequence[Sequence[Entry]], parts: Callable[[Weight], int], ready: Mapping[str, Asks],
    promises: Mapping[str, Promise], left: Callable[[str], float], *, priority: str = REGULAR, paths: bool = False,
    takes: Sequence[Takes] = (), skips: Sequence[Collection[str]] = (),
) -> Fairness:  # fmt: skip
    """Return the figures of the queues of one priority from a ledger, the oldest block first.

    A queue that a block left wanting is also wanting in the blocks that do not mention it, up to its next line, unless
    that line reports a skip. Behind its last line, `ready` decides.

    :param ready: the queues that are ready now.
    :param promises: settings of each origin; with paths, also of groups by name.
    :param left: returns the whole demand of a ready queue; called only if that is unknown and matters.
    :param takes: for each block, the origins that it services, if any block services only some. A queue is never
        wanting in a block that does not service it.
    :param skips: for each block, the queues that it skipped without a visit.
    """
    lines, every = lines_of(pages, skips), range(len(pages))

    def own(origin: str) -> Sequence[int]:
        """Return the blocks that serviced a queue."""
        if not takes:
            return every
        mentioned = {at for at, _ in lines.get(origin, ())}
        return tuple(at for at, accepts in enumerate(takes) if accepts is None or accepts(origin) or at in mentioned)

    names = {name for origin in lines.keys() | ready.keys() for name in names_above(origin)} if paths else set()
    division = _Division(len(pages), promises, left, names, paths=paths)
    queues = []
    for origin, own_lines in lines.items():
        queues.append(_Queue([origin], division.kind(origin)))
        queues[-1].read(own_lines, ready.get(origin), own(origin), parts)
    alike: defaultdict[tuple[_Kind, Asks, Sequence[int]], list[str]] = defaultdict(list)
    for origin, asks in ready.items():
        if origin not in lines:
            alike[division.kind(origin), asks, own(origin)].append(origin)
    for (kind, asks, blocks), origins in alike.items():
        queue = _Queue(origins, kind)
        queue.read((), asks, blocks, parts)
        queues += [queue] if queue.backlogs else []
    given = [sum(parts(entry.granted) for entry in page) for page in pages]
    division.judge(queues, given)
    sums = list(accumulate(given, initial=0))
    found = [figures for queue in queues for figures in queue.figures(sums, priority)]
    found.sort(key=attrgetter("origin"))
    return Fairness(len(pages), found, jain(ratios_of(found)))


@dataclass(eq=False, slots=True)
class _Kind:
    """Queues of a group with equal settings: a block promises the same to each of them that wants more.

    So they have one clock, which advances by the weight promised to each. For one block, a queue that is not like
    others there is a kind by itself, and so is a group.
    """

    group: _Group
    #: Configured share, and the one that counts in the group.
    setting: int
    share: int
    least: int
    most: int
    #: Whether a visit that ended at a *most* ended at the queue's own: no group above it can have one.
    is_top: bool = False
    #: Of a kind for one block: its backlog, or the group that it stands for.
    backlog: _Backlog | None = None
    below: _Group | None = None
    now: int = 0
    #: Number of wanting queues, and their backlogs by the clock at which each will have been promised its demand.
    size: int = 0
    alarms: list[tuple[int, int, _Backlog]] = field(default_factory=list)
    #: Weight that the present block promises to each.
    got: int = 0

    def rest(self) -> int:
        """Return the smallest demand of its queues that is not promised yet."""
        while self.alarms and self.alarms[0][2].alarm != self.alarms[0][1]:
            heappop(self.alarms)
        return self.alarms[0][0] - self.now if self.alarms else ENDLESS

    def level(self) -> int:
        """Return the weight for a share of one at which one or all of its queues have all that they may get."""
        return -((self.got - min(self.most, self.rest())) // self.share)

    def demand(self) -> tuple[int, int]:
        """Return what its queues want of a block, and the sum of their leasts."""
        rests = [(end - self.now, len(log.names)) for end, alarm, log in self.alarms if log.alarm == alarm]
        rests.append((ENDLESS, self.size - sum(size for _, size in rests)))
        least = min(self.least, self.most)
        return sum(min(self.most, rest) * size for rest, size in rests), sum(min(least, rest) * n for rest, n in rests)


@dataclass(eq=False, slots=True)
class _Backlog:
    """Blocks that left queues wanting, and the one that emptied them afterwards."""

    queue: _Queue
    names: list[str]
    stretches: list[range] = field(default_factory=list)
    received: int = 0
    #: Total demand; a lower bound unless `known`.
    asked: int = 0
    known: bool = True
    #: Weight promised up to the clock at which this stretch began, and the block after which all was promised.
    promised: int = 0
    since: int | None = None
    done: int | None = None
    #: Number of its alarm; 0 for none.
    alarm: int = 0

    @property
    def late(self) -> int:
        """Number of its blocks after the one in which its whole demand was promised."""
        if self.done is None:
            return 0
        return sum(max(stretch.stop - max(stretch.start, self.done + 1), 0) for stretch in self.stretches)


@dataclass(eq=False, slots=True)
class _Queue:
    """Figures of a queue from its lines in the ledger, or of queues without a line that are alike."""

    names: list[str]
    kind: _Kind
    granted: int = 0
    longest: int = 0
    waiting: int = 0
    #: Whether any message was started since it had a backlog.
    started: bool = False
    backlogs: list[_Backlog] = field(default_factory=list)
    #: Blocks in which it is not like others, with what it got: outside of backlogs, stopped at its most, or beyond it.
    apart: list[tuple[int, int, _Backlog | None]] = field(default_factory=list)

    def read(
        self, lines: Sequence[tuple[int, Entry]], asks: Asks | None, own: Sequence[int], parts: Callable[[Weight], int]
    ) -> None:
        """Find the backlogs in its lines."""
        entries = dict(lines)
        since = None if asks is None else bisect_left(own, asks.since)
        stretches = wanting_in([(bisect_left(own, at), entry) for at, entry in lines], since, len(own))
        wanting = [blocks for stretch in stretches for blocks in _blocks_of(own, stretch)]
        emptied = entries.keys() - {blocks.start for blocks in wanting}
        backlog: _Backlog | None = None
        for blocks in sorted([*wanting, *(range(at, at + 1) for at in emptied)], key=attrgetter("start")):
            entry, is_wanting = entries.get(blocks.start), blocks.start not in emptied
            got = 0 if entry is None else parts(entry.granted)
            started = entry is not None and entry.messages > 0
            self.granted += got
            if is_wanting and backlog is None:
                backlog = _Backlog(self, self.names)
                self.backlogs.append(backlog)
            if started:
                self.waiting, self.started = 0, self.started or bool(self.backlogs)
            elif is_wanting:
                self.waiting += len(blocks)
                self.longest = max(self.longest, self.waiting)
            is_in = backlog is not None and (started or is_wanting)
            if backlog is not None and is_in:
                backlog.stretches.append(blocks)
                backlog.received += got
            at_most = entry is not None and entry.reason == MOST and self.kind.is_top
            if got and (not is_in or at_most or _fine(got) > self.kind.most):
                self.apart.append((blocks.start, got, backlog if is_in else None))
            if started and not is_wanting:
                backlog = None
        for log in self.backlogs:
            log.asked = _fine(log.received)
        if backlog is not None:
            backlog.asked += _fine(inf if asks is None else asks.parts)
            backlog.known = asks is None or asks.all

    def figures(self, sums: Sequence[int], priority: str) -> Iterator[OriginFairness]:
        """Yield the figures of each queue.

        :param sums: what the blocks before each block gave.
        """
        for logs in [self.backlogs] if len(self.names) == 1 else [[log] for log in self.backlogs]:
            contended = given = promised = received = late = 0
            for log in logs:
                contended += sum(map(len, log.stretches))
                given += sum(sums[blocks.stop] - sums[blocks.start] for blocks in log.stretches)
                promised, received, late = promised + log.promised, received + log.received, max(late, log.late)
            promise = promised / (1 << FINE)
            judged = promise > 0 and (self.started or promise >= BLOCK_PARTS)
            common = (
                self.kind.setting, contended, promise / given if given else None, received / given if given else None,
                received / promise - 1 if judged else None, self.longest, self.waiting, late,
                self.granted / BLOCK_PARTS, priority,
            )  # fmt: skip
            names = logs[0].names if logs else self.names
            yield from map(OriginFairness._make, zip(names, *map(repeat, common)))


def _fine(parts: float) -> int:
    return ENDLESS if parts == inf else int(parts) << FINE


def _blocks_of(own: Sequence[int], stretch: range) -> Iterator[range]:
    """Yield the blocks that a stretch of some of all blocks consists of."""
    if stretch and own[stretch[-1]] - own[stretch[0]] == len(stretch) - 1:
        yield range(own[stretch[0]], own[stretch[-1]] + 1)
    else:
        yield from (range(own[at], own[at] + 1) for at in stretch)


@dataclass(eq=False, slots=True)
class _Group:
    """A group of queues and groups. Without paths, one holds all queues."""

    promise: Promise
    kinds: list[_Kind] = field(default_factory=list)
    groups: list[_Group] = field(default_factory=list)
    #: Kinds for the present block.
    singles: list[_Kind] = field(default_factory=list)

    def demand(self) -> tuple[int, int]:
        """Return what the queues below want of a block, and the sum of their leasts; make groups members."""
        demands = [(single.most, single.least) for single in self.singles]
        demands += [kind.demand() for kind in self.kinds if kind.size]
        for group in self.groups:
            wants, leasts = group.demand()
            want = min(wants, _fine(group.promise.most))
            least = min(max(_fine(group.promise.least), leasts), want)
            demands.append((want, least))
            share = group.promise.share
            self.singles.append(_Kind(self, share, share, least, want, below=group, size=1))
        return sum(wants for wants, _ in demands), sum(leasts for _, leasts in demands)


class _Division:
    """Division of what blocks gave: weighted max-min among the members of each group, leasts first."""

    def __init__(
        self, blocks: int, promises: Mapping[str, Promise], left: Callable[[str], float], names: Collection[str], *,
        paths: bool,
    ) -> None:  # fmt: skip
        """
        :param names: names of groups.
        """
        self.promises, self.left, self.names, self.paths = promises, left, names, paths
        self.groups = {ROOT: _Group(PLAIN)}
        self.kinds: dict[tuple[str, Promise, bool], _Kind] = {}
        self.begins: list[list[_Backlog]] = [[] for _ in range(blocks + 1)]
        self.ends: list[list[_Backlog]] = [[] for _ in range(blocks + 1)]
        self.alarms = count(1)
        #: Backlogs that join their kinds again after the present block.
        self.again: list[_Backlog] = []

    def kind(self, origin: str) -> _Kind:
        """Return the queues that are like this one."""
        promise, is_group = self.promises.get(origin, PLAIN), origin in self.names
        path = origin + SEPARATOR if is_group else home_of(origin) if self.paths else ROOT
        kind = self.kinds.get((path, promise, is_group))
        if kind is None:
            # What is set under the name of a group is the group's.
            share, least = (1, 0) if is_group else (promise.share, promise.least)
            group = self._group(path)
            kind = _Kind(group, promise.share, share, _fine(least), _fine(promise.most), is_top=path == ROOT)
            self.kinds[path, promise, is_group] = kind
            group.kinds.append(kind)
        return kind

    def _group(self, path: str) -> _Group:
        group = self.groups.get(path)
        if group is None:
            group = self.groups[path] = _Group(self.promises.get(path[:-1], PLAIN))
            self._group(group_of(path)).groups.append(group)
        return group

    def judge(self, queues: Sequence[_Queue], given: Sequence[int]) -> None:
        """Find what the backlogs of these queues were promised."""
        apart: list[list[tuple[_Kind, int, _Backlog | None]]] = [[] for _ in given]
        for queue in queues:
            for at, got, backlog in queue.apart:
                apart[at].append((queue.kind, got, backlog))
        for backlog in [backlog for queue in queues for backlog in queue.backlogs]:
            self._schedule(backlog)
            if self.paths and not backlog.known:
                self._read_demand(backlog)
        root = self.groups[ROOT]
        for at, gave in enumerate(given):
            self._turn(at)
            for single in apart[at]:
                self._set_apart(*single)
            if self.paths:
                root.demand()
            self._share_out(root, gave << FINE, at)
            for backlog in self.again:
                self._join(backlog)
            self.again.clear()
            for kind in self.kinds.values():
                self._satisfy(self._reached(kind, NEARLY), at)
        self._turn(len(given))

    def _schedule(self, backlog: _Backlog) -> None:
        for blocks in backlog.stretches:
            self.begins[blocks.start].append(backlog)
            self.ends[blocks.stop].append(backlog)

    def _turn(self, at: int) -> None:
        """End and begin stretches before this block."""
        for backlog in self.ends[at]:
            self._leave(backlog)
        for backlog in self.begins[at]:
            if backlog.done is None:
                self._join(backlog)

    def _join(self, backlog: _Backlog) -> None:
        kind = backlog.queue.kind
        kind.size += len(backlog.names)
        backlog.since = kind.now
        if backlog.asked < ENDLESS:
            backlog.alarm = next(self.alarms)
            heappush(kind.alarms, (kind.now + backlog.asked - backlog.promised, backlog.alarm, backlog))

    def _leave(self, backlog: _Backlog) -> None:
        if backlog.since is not None:
            kind = backlog.queue.kind
            kind.size -= len(backlog.names)
            backlog.promised += kind.now - backlog.since
            backlog.since, backlog.alarm = None, 0

    def _satisfy(self, reached: Iterable[tuple[int, _Backlog]], at: int) -> None:
        for _, backlog in reached:
            backlog.promised, backlog.done = backlog.asked, at

    def _read_demand(self, backlog: _Backlog) -> None:
        """Read the whole demand of queues, of which a lower bound was known; some may be no longer alike."""
        is_waiting = backlog.since is not None
        self._leave(backlog)
        by_rest: defaultdict[float, list[str]] = defaultdict(list)
        for name in backlog.names:
            by_rest[self.left(name)].append(name)
        backlog.known = True
        for at, (rest, names) in enumerate(by_rest.items()):
            part = replace(backlog) if at else backlog
            part.names, part.asked = names, _fine(part.received) + _fine(rest)
            if at:
                part.queue.backlogs.append(part)
                self._schedule(part)
            if is_waiting:
                self._join(part)

    def _reached(self, kind: _Kind, most: int) -> Iterator[tuple[int, _Backlog]]:
        """Remove and yield the backlogs that want at most this, with what they want."""
        while kind.size and (rest := kind.rest()) <= most:
            backlog = kind.alarms[0][2]
            if backlog.known:
                self._leave(backlog)
                yield rest, backlog
            else:
                self._read_demand(backlog)

    def _set_apart(self, kind: _Kind, got: int, backlog: _Backlog | None) -> None:
        """Let a queue be a member by itself in the next block."""
        want = _fine(got)
        if backlog is not None:
            if not backlog.known:
                self._read_demand(backlog)
            if backlog.since is None:
                return
            self._leave(backlog)
            want = min(want, backlog.asked - backlog.promised)
        least = min(kind.least, want)
        kind.group.singles.append(_Kind(kind.group, kind.setting, kind.share, least, want, backlog=backlog, size=1))

    def _share_out(self, group: _Group, left: int, at: int) -> None:
        """Divide weight among the members of a group and of the groups below."""
        kinds = [kind for kind in group.kinds if kind.size]
        singles, group.singles = group.singles, []
        self._fill([*kinds, *singles], left, at)
        for kind in kinds:
            kind.now += kind.got
        for single in singles:
            if single.below is not None:
                self._share_out(single.below, single.got, at)
            if single.backlog is not None:
                single.backlog.promised += single.got
                self.again.append(single.backlog)

    def _fill(self, kinds: Sequence[_Kind], left: int, at: int) -> None:
        """Divide weight: leasts first, then the rest by shares; no member gets more than it wants."""
        small: list[tuple[int, _Backlog]] = []
        for kind in kinds:
            kind.got = min(kind.least, kind.most)
            small += self._reached(kind, kind.got)
        leasts = sum(kind.got * kind.size for kind in kinds)
        leasts += sum(rest * len(backlog.names) for rest, backlog in small)
        if leasts > left:
            for kind in kinds:
                kind.got = kind.got * left // leasts
            for rest, backlog in small:
                backlog.promised += rest * left // leasts
            self.again += [backlog for _, backlog in small]
            return
        self._satisfy(small, at)
        left -= leasts
        shares = sum(kind.share * kind.size for kind in kinds)
        # The smallest demand per share is satisfied first; the rest goes to the others.
        stops = [(kind.level(), place, kind) for place, kind in enumerate(kinds)]
        heapify(stops)
        while shares and stops[0][0] * shares <= left:
            _, place, kind = heappop(stops)
            if kind.most < kind.rest():
                left, shares = left - (kind.most - kind.got) * kind.size, shares - kind.share * kind.size
                kind.got = kind.most
            else:
                reached = list(self._reached(kind, kind.rest()))
                left -= sum((rest - kind.got) * len(backlog.names) for rest, backlog in reached)
                shares -= sum(kind.share * len(backlog.names) for _, backlog in reached)
                self._satisfy(reached, at)
                heappush(stops, (kind.level(), place, kind))
        level = left // shares if shares else 0
        for _, _, kind in stops:
            kind.got += level * kind.share


def together(levels: Mapping[str, Fairness]) -> Fairness:
    """Return the figures of all levels as one result; each level was judged by itself."""
    if list(levels) == [REGULAR]:
        return levels[REGULAR]
    origins = [
        queue if queue.priority == level else queue._replace(priority=level)
        for level, figures in levels.items()
        for queue in figures.origins
    ]
    origins.sort(key=lambda queue: (queue.origin, queue.priority == REGULAR))
    return Fairness(max(figures.blocks for figures in levels.values()), origins, jain(ratios_of(origins)))


def ratios_of(origins: Sequence[OriginFairness]) -> list[float]:
    """Return received over promised weight of each origin that has an error."""
    return [1 + queue.error for queue in origins if queue.error is not None]


def jain(ratios: Sequence[float]) -> float | None:
    """Return Jain's index of received over promised weight, or None without any origin to compare."""
    if not ratios:
        return None
    squares = sum(ratio * ratio for ratio in ratios)
    return sum(ratios) ** 2 / (len(ratios) * squares) if squares else 1.0
