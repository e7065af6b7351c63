"""Fairness figures, which anyone can recompute from the ledger.

*Received* weight of a queue in a block is the dominant part of the weight that its messages and the steps around them
used, as a part of a full block, as in the deficit order.

*Wanting* is a queue that a block left with messages it could have taken. It stopped there for lack of weight (`limit`)
or credit (`spent`), or did not visit it at all. A queue that is paused, in flight or backing off is not wanting, nor is
one whose processor yielded.

*Promised* is the weighted max-min fair share of what the block gave to all. An emptied queue wanted what it got; a
wanting queue would have taken more. Each gets its *least* first and at most its *most*; the rest is divided by shares.
Where origins are paths, this holds among the members of each group. High queues are compared with high ones and regular
with regular ones, for the weight that a block gave to their level.

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
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from .config import BLOCK_PARTS
from .groups import SEPARATOR
from .orders import Entry, lines_of, wanting_in
from .priority import REGULAR, queue_name
from .weight import Weight

#: Filter of the origins that a block services; None: all.
Takes = Callable[[str], bool] | None


@dataclass(frozen=True)
class Promise:
    """Settings of an origin; least and most are in parts of a block."""

    share: int = 1
    least: int = 0
    most: float = inf


@dataclass(frozen=True)
class Round:
    """One block: what each queue received, which queues were started, and which were left wanting."""

    granted: Mapping[str, int]
    started: frozenset[str]
    wanting: frozenset[str]


class OriginFairness(NamedTuple):
    """Promised and received weight of one origin."""

    origin: str
    #: Configured share.
    share: int
    #: Number of contended blocks, and its shares of what these gave; None without such a block.
    contended: int
    promised: float | None
    received: float | None
    #: Relative deviation from the promise: -0.5 is half of it.
    error: float | None
    #: Longest row of blocks in which it waited, and the present one.
    longest_wait: int
    waiting: int
    #: Largest number of blocks by which a backlog was emptied later than promised.
    late: int
    #: Weight received in all, in blocks.
    granted: float
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
        """Largest number of blocks by which any backlog was emptied later than promised."""
        return max((figures.late for figures in self.origins), default=0)

    @property
    def most_error(self) -> float:
        """Largest share error of all, in either direction."""
        return max((abs(figures.error) for figures in self.origins if figures.error is not None), default=0.0)

    def origin(self, name: str, priority: str = REGULAR) -> OriginFairness:
        """Return the figures of an origin; empty ones if it was never met."""
        found = (figures for figures in self.origins if (figures.origin, figures.priority) == (name, priority))
        return next(found, _no_figures(name)._replace(priority=priority))

    def broken(
        self, *, most_wait: int | None = None, most_late: int | None = None, most_error: float | None = None,
        least_jain: float | None = None,
    ) -> list[str]:  # fmt: skip
        """Return a sentence for each figure beyond these bounds."""
        problems = []
        if most_wait is not None:
            problems += [
                f"{queue.name} waited {_blocks(queue.longest_wait)}{', and still waits' if queue.waiting else ''}, "
                f"more than {most_wait:,}"
                for queue in sorted(self.origins, key=lambda queue: -queue.longest_wait)
                if queue.longest_wait > most_wait
            ]
        if most_late is not None:
            problems += [
                f"{queue.name} was served {_blocks(queue.late)} later than promised, more than {most_late:,}"
                for queue in sorted(self.origins, key=lambda queue: -queue.late)
                if queue.late > most_late
            ]
        if most_error is not None:
            problems += self._errors_beyond(most_error)
        if least_jain is not None and self.jain is not None and self.jain < least_jain:
            problems.append(f"Jain's index is {self.jain:.3f}, below {least_jain:g}")
        return problems

    def _errors_beyond(self, most: float) -> list[str]:
        """Return a sentence for each origin whose share error exceeds `most`."""
        judged = [(queue.error, queue) for queue in self.origins if queue.error is not None and abs(queue.error) > most]
        return [
            f"{queue.name} received {queue.received or 0:.1%} where {queue.promised or 0:.1%} was promised: "
            f"{abs(error):.1%} {'less' if error < 0 else 'more'}, beyond {most:.1%}"
            for error, queue in sorted(judged, key=lambda pair: pair[0])
        ]


def _no_figures(name: str) -> OriginFairness:
    return OriginFairness(name, 1, 0, None, None, None, 0, 0, 0, 0.0)


def _blocks(count: int) -> str:
    return f"{count:,} blocks" if count != 1 else "1 block"


def rounds_of(
    pages: Sequence[Sequence[Entry]],
    parts: Callable[[Weight], int],
    ready: Mapping[str, int],
    takes: Sequence[Takes] = (),
    skips: Sequence[Collection[str]] = (),
) -> list[Round]:
    """Return the blocks of a ledger, the oldest first.

    A queue that a block left wanting is also wanting in the blocks that do not mention it, up to its next line, unless
    that line reports a skip. Behind its last line, `ready` decides: from which of these blocks on, counted from 0, the
    queue had messages to service.

    :param takes: for each block, the origins that it services, if any block services only some. A queue is never
        wanting in a block that does not service it.
    :param skips: for each block, the queues that it skipped without a visit.
    """
    wanting: list[set[str]] = [set() for _ in pages]
    lines = lines_of(pages, skips)
    for origin in lines.keys() | ready.keys():
        own: Sequence[int] = range(len(pages))
        if takes:
            own = [at for at, services in enumerate(takes) if services is None or services(origin)]
        mine = [(bisect_left(own, at), entry) for at, entry in lines.get(origin, ())]
        since = bisect_left(own, ready[origin]) if origin in ready else None
        for stretch in wanting_in(mine, since, len(own)):
            for at in stretch:
                wanting[own[at]].add(origin)
    return [
        Round(
            {**dict.fromkeys(skipped, 0), **{entry.origin: parts(entry.granted) for entry in page}},
            frozenset(entry.origin for entry in page if entry.messages),
            frozenset(wanting[at]),
        )
        for at, (page, skipped) in enumerate(zip(pages, skips or [()] * len(pages)))
    ]


@dataclass
class Backlog:
    """Blocks that left a queue wanting, and the one that emptied it afterwards."""

    #: Total demand, in parts of a block; infinite while unknown.
    asked: float = 0.0
    promised: float = 0.0
    received: int = 0
    #: Total that these blocks gave, their number, and after how many the whole demand was promised.
    given: int = 0
    blocks: int = 0
    done_after: int | None = None

    @property
    def rest(self) -> float:
        """Demand that is not promised yet."""
        return max(self.asked - self.promised, 0.0)

    def add(self, promised: float, received: int, given: int) -> None:
        """Add one of its blocks."""
        self.promised += promised
        self.received += received
        self.given += given
        self.blocks += 1
        # Sums of parts are inexact in their last digits.
        if self.done_after is None and self.promised >= self.asked * (1 - 1e-9):
            self.done_after = self.blocks

    @property
    def late(self) -> int:
        """Number of blocks that it lasted beyond the one in which its whole demand was promised."""
        return 0 if self.done_after is None else self.blocks - self.done_after


def backlogs_of(rounds: Sequence[Round], left: Mapping[str, float]) -> list[dict[str, Backlog]]:
    """Return, for each block, the backlogs that contain it."""
    found: list[dict[str, Backlog]] = []
    open_ones: dict[str, Backlog] = {}
    for block in rounds:
        here: dict[str, Backlog] = {}
        for origin in block.wanting | (block.started & open_ones.keys()):
            backlog = here[origin] = open_ones.setdefault(origin, Backlog())
            backlog.asked += block.granted.get(origin, 0)
            if origin not in block.wanting:
                del open_ones[origin]
        found.append(here)
    for origin, backlog in open_ones.items():
        backlog.asked += left.get(origin, inf)
    return found


def judge(
    rounds: Sequence[Round],
    promises: Mapping[str, Promise],
    *,
    left: Mapping[str, float] | None = None,
    paths: bool = False,
) -> Fairness:
    """Return the figures of these blocks.

    :param promises: settings of each origin; with paths, also of groups by name.
    :param left: remaining demand of the queues that are wanting at the end; infinite if missing.
    """
    lasting = backlogs_of(rounds, left or {})
    sums: dict[str, _Sum] = {}
    for block, backlogs in zip(rounds, lasting):
        fair = fair_shares(block, promises, {origin: log.rest for origin, log in backlogs.items()}, paths=paths)
        given = sum(block.granted.values())
        for origin, backlog in backlogs.items():
            backlog.add(fair[origin], block.granted.get(origin, 0), given)
            sums.setdefault(origin, _Sum()).backlogs[id(backlog)] = backlog
        _wait(block, sums)
    origins = [_figures(origin, promises.get(origin, Promise()), sums[origin]) for origin in sorted(sums)]
    return Fairness(len(rounds), origins, jain(ratios_of(origins)))


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


@dataclass
class _Sum:
    """Sums over the blocks of one origin."""

    granted: int = 0
    waits: list[int] = field(default_factory=lambda: [0])
    backlogs: dict[int, Backlog] = field(default_factory=dict)
    #: Whether any message of a backlog was started.
    started: bool = False


def _wait(block: Round, sums: dict[str, _Sum]) -> None:
    for origin in block.granted.keys() | block.wanting:
        total = sums.setdefault(origin, _Sum())
        total.granted += block.granted.get(origin, 0)
        if origin in block.started:
            total.waits.append(0)
            total.started |= bool(total.backlogs)
        elif origin in block.wanting:
            total.waits[-1] += 1


def _figures(origin: str, promise: Promise, total: _Sum) -> OriginFairness:
    backlogs = total.backlogs.values()
    given, promised = sum(log.given for log in backlogs), sum(log.promised for log in backlogs)
    received = sum(log.received for log in backlogs)
    judged = promised > 0 and (total.started or promised >= BLOCK_PARTS)
    return OriginFairness(
        origin, promise.share, sum(log.blocks for log in backlogs), promised / given if given else None,
        received / given if given else None, received / promised - 1 if judged else None,
        max(total.waits), total.waits[-1], max((log.late for log in backlogs), default=0), total.granted / BLOCK_PARTS,
    )  # fmt: skip


def fair_shares(
    block: Round, promises: Mapping[str, Promise], asked: Mapping[str, float] | None = None, *, paths: bool = False
) -> dict[str, float]:
    """Return what each queue was promised of what a block gave to all: weighted max-min, leasts first.

    With paths, the weight of a block is divided among groups, and the promise of a group among its members.

    :param asked: demand of the queues with a backlog, where it is known.
    """
    wants: dict[str, float] = dict(block.granted)
    for origin in {*block.wanting, *(asked or ())}:
        most = max(promises.get(origin, Promise()).most, block.granted.get(origin, 0))
        wants[origin] = min(most, (asked or {}).get(origin, inf))
    fair: dict[str, float] = {}
    _share_out(float(sum(block.granted.values())), wants, promises, fair, "" if paths else None)
    return fair


def _share_out(
    left: float, wants: Mapping[str, float], promises: Mapping[str, Promise], fair: dict[str, float], path: str | None
) -> None:
    """Divide weight among the members of a group: the queues and groups below this path."""
    members = _members(wants, path)
    own = {name: Promise() if path and not name.startswith(path) else promises.get(name, Promise()) for name in members}
    wanted, least = {}, {}
    for name, below in members.items():
        # The settings of a queue bound its demand already; a group's *most* bounds the demand of its members.
        wanted[name] = min(sum(below.values()), own[name].most if list(below) != [name] else inf)
        leasts = sum(promises.get(origin, Promise()).least for origin in below if origin != name)
        least[name] = min(max(own[name].least, leasts), wanted[name])
    for name, parts in _fill(left, wanted, least, {name: promise.share for name, promise in own.items()}).items():
        if path is None or list(members[name]) == [name]:
            fair[name] = parts
        else:
            _share_out(parts, members[name], promises, fair, name + SEPARATOR)


def _members(wants: Mapping[str, float], path: str | None) -> dict[str, dict[str, float]]:
    """Return the members of a group, with the demand of the queues below each."""
    found: dict[str, dict[str, float]] = {}
    for origin, want in wants.items():
        at = -1 if path is None or not origin.startswith(path) else origin.find(SEPARATOR, len(path))
        found.setdefault(origin if at < 0 else origin[:at], {})[origin] = want
    return found


def _fill(
    left: float, wanted: Mapping[str, float], least: Mapping[str, float], shares: Mapping[str, int]
) -> dict[str, float]:
    """Divide weight: leasts first, then the rest by shares; no member gets more than it wants."""
    leasts = sum(least.values())
    if leasts > left:
        return {name: parts * left / leasts for name, parts in least.items()}
    found = dict(least)
    left, total = left - leasts, sum(shares.values())
    # The smallest demand per share is satisfied first; the rest goes to the others.
    for name in sorted(wanted, key=lambda name: ((wanted[name] - found[name]) / shares[name], name)):
        more = min(wanted[name] - found[name], left * shares[name] / total)
        found[name] += more
        left -= more
        total -= shares[name]
    return found


def jain(ratios: Sequence[float]) -> float | None:
    """Return Jain's index of received over promised weight, or None without any origin to compare."""
    if not ratios:
        return None
    squares = sum(ratio * ratio for ratio in ratios)
    return sum(ratios) ** 2 / (len(ratios) * squares) if squares else 1.0
