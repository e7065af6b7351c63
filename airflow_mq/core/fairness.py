"""Who got what, and who waited: figures that anybody can recompute from the ledger.

What a queue *got* of a block is the dominant half of what its messages and the steps around
them used, as a part of a full block; so it is in the deficit order.

*Wanting* is a queue that a block left with messages it could have taken: it stopped there for
want of weight (`limit`) or credit (`spent`), or did not come to it at all. A queue that is
paused, in flight or backing off wants nothing, nor does one whose processor said *not now*.

*Promised* is the weighted max-min fair share of what the block gave to all: whoever was
emptied wanted what it got and no more, whoever is wanting would have taken more; each gets its
*least* first, nobody more than its *most*, and the rest goes by shares. Where origins are paths,
this holds among the members of each group. High queues are compared with high ones, and regular
with regular: of what a block gave to their level.

What counts for the share of a queue are *contended* blocks: those in which it was wanting, and
the block that ended that by emptying it. They make up its *backlogs*. Of a backlog nobody is
promised more than it asked for in all: what it got, and what of it waits still. So

    promised = the sum of what its backlogs were promised / the sum of what these blocks gave
    received = the sum of what it got                     / the sum of what these blocks gave
    error    = received / promised - 1

    Jain's index = (sum of x)² / (n · sum of x²), where x = received / promised of each of n queues

Jain's index is 1 where all got what was promised, and 1/n where one got everything. A queue that
was promised less than a whole block, and of which nothing was started, has no error: a single
message may be worth as much. Whose backlog was emptied got all it asked for, if late; that is told
by two figures in blocks. A *wait* is a row of blocks in which a queue was wanting and none of its
messages was started. It was *late* by the blocks that a backlog lasted longer than if each block
had given what was promised.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from .config import BLOCK_PARTS
from .groups import SEPARATOR
from .orders import Entry
from .priority import REGULAR, queue_name
from .weight import Weight

#: Why a block stopped at a queue that would have taken more, and why it did not come to one at all.
STOPPED = ("limit", "spent")
PASSED_BY = ("paused", "in flight", "backoff")


#: Whether a block services an origin; none: it services all.
Takes = Callable[[str], bool] | None


@dataclass(frozen=True)
class Promise:
    """What is set for an origin; least and most are in parts of a block."""

    share: int = 1
    least: int = 0
    most: float = inf


@dataclass(frozen=True)
class Round:
    """One block: what each queue got of it, of whom anything was started, and who was left wanting."""

    granted: Mapping[str, int]
    started: frozenset[str]
    wanting: frozenset[str]


@dataclass(frozen=True)
class OriginFairness:
    """What one origin was promised and got."""

    origin: str
    #: As it is set.
    share: int
    #: How many blocks count, and its shares of what these gave; none where there was no such block.
    contended: int
    promised: float | None
    received: float | None
    #: How much more than promised it received: -0.5 is half of it.
    error: float | None
    #: The longest row of blocks in which it waited, and that which goes on now.
    longest_wait: int
    waiting: int
    #: By how many blocks at most a backlog was emptied later than promised.
    late: int
    #: What it got in all, in blocks.
    granted: float
    #: Of which of its two queues this is; high ones are compared with high ones.
    priority: str = REGULAR

    @property
    def name(self) -> str:
        """The origin, and that it is its high queue."""
        return queue_name(self.origin, self.priority)


@dataclass(frozen=True)
class Fairness:
    """What everybody was promised and got, over so many blocks."""

    blocks: int
    origins: Sequence[OriginFairness]
    #: None where nobody was left wanting.
    jain: float | None

    @property
    def longest_wait(self) -> int:
        """The longest wait of all, in blocks."""
        return max((one.longest_wait for one in self.origins), default=0)

    @property
    def most_late(self) -> int:
        """By how many blocks at most any backlog was emptied later than promised."""
        return max((one.late for one in self.origins), default=0)

    @property
    def most_error(self) -> float:
        """The largest share error of all, whichever way."""
        return max((abs(one.error) for one in self.origins if one.error is not None), default=0.0)

    def origin(self, name: str, priority: str = REGULAR) -> OriginFairness:
        """The figures of this origin; nothing of everything, where it was never met."""
        found = (one for one in self.origins if (one.origin, one.priority) == (name, priority))
        return next(found, replace(_nobody(name), priority=priority))

    def broken(
        self, *, most_wait: int | None = None, most_late: int | None = None, most_error: float | None = None,
        least_jain: float | None = None,
    ) -> list[str]:  # fmt: skip
        """What goes beyond these bounds, a sentence each; nothing, where all is fair."""
        found = []
        if most_wait is not None:
            found += [
                f"{one.name} waited {_blocks(one.longest_wait)}{', and still waits' if one.waiting else ''}, "
                f"more than {most_wait:,}"
                for one in sorted(self.origins, key=lambda one: -one.longest_wait)
                if one.longest_wait > most_wait
            ]
        if most_late is not None:
            found += [
                f"{one.name} was served {_blocks(one.late)} later than promised, more than {most_late:,}"
                for one in sorted(self.origins, key=lambda one: -one.late)
                if one.late > most_late
            ]
        if most_error is not None:
            judged = [one for one in self.origins if one.error is not None and abs(one.error) > most_error]
            found += [
                f"{one.name} received {one.received or 0:.1%} where {one.promised or 0:.1%} was promised: "
                f"{abs(one.error or 0):.1%} {'less' if (one.error or 0) < 0 else 'more'}, beyond {most_error:.1%}"
                for one in sorted(judged, key=lambda one: one.error or 0)
            ]
        if least_jain is not None and self.jain is not None and self.jain < least_jain:
            found.append(f"Jain's index is {self.jain:.3f}, below {least_jain:g}")
        return found


def _nobody(name: str) -> OriginFairness:
    return OriginFairness(name, 1, 0, None, None, None, 0, 0, 0, 0.0)


def _blocks(count: int) -> str:
    return f"{count:,} blocks" if count != 1 else "1 block"


def rounds_of(
    pages: Sequence[Sequence[Entry]], parts: Callable[[Weight], int], ready: Mapping[str, int],
    takes: Sequence[Takes] = (),
) -> list[Round]:  # fmt: skip
    """The blocks of a ledger, the oldest first.

    A queue that a block left wanting is wanting in the blocks that do not mention it, up to its
    next line, unless that says that it was passed by. Behind its last line, what is ready now
    tells: from which of these blocks on, counted from 0, a queue had something to service.

    :param takes: for each block, which origins it services, if any block services only some. A queue is wanting in no
        block that does not service it.
    """
    wanting: list[set[str]] = [set() for _ in pages]
    lines = lines_of(pages)
    for origin in lines.keys() | ready.keys():
        own = [at for at, its in enumerate(takes) if its is None or its(origin)] if takes else range(len(pages))
        mine = [(bisect_left(own, at), entry) for at, entry in lines.get(origin, ())]
        since = bisect_left(own, ready[origin]) if origin in ready else None
        for stretch in wanting_in(mine, since, len(own)):
            for at in stretch:
                wanting[own[at]].add(origin)
    return [
        Round(
            {entry.origin: parts(entry.granted) for entry in page},
            frozenset(entry.origin for entry in page if entry.messages),
            frozenset(wanting[at]),
        )
        for at, page in enumerate(pages)
    ]


def lines_of(pages: Sequence[Sequence[Entry]]) -> dict[str, list[tuple[int, Entry]]]:
    """What the ledger says of each queue, and in which block."""
    found: dict[str, list[tuple[int, Entry]]] = {}
    for at, page in enumerate(pages):
        for entry in page:
            found.setdefault(entry.origin, []).append((at, entry))
    return found


def wanting_in(lines: Sequence[tuple[int, Entry]], ready: int | None, count: int) -> Iterator[range]:
    """In which blocks a queue was wanting, by its lines and by since when it is ready now."""
    last, stopped = -1, False
    for at, entry in lines:
        if stopped and entry.reason not in PASSED_BY:
            yield range(last + 1, at)
        last, stopped = at, entry.reason in STOPPED
        if stopped:
            yield range(at, at + 1)
    if ready is not None:
        yield range(last + 1 if stopped else max(last + 1, ready), count)


@dataclass
class Backlog:
    """Blocks that left a queue wanting, and the one that emptied it then."""

    #: What it asked for in all, in parts of a block; without end, while nobody knows.
    asked: float = 0.0
    promised: float = 0.0
    received: int = 0
    #: What these blocks gave to all, how many they are, and after how many all was promised.
    given: int = 0
    blocks: int = 0
    done_after: int | None = None

    @property
    def rest(self) -> float:
        """What it is not promised yet."""
        return max(self.asked - self.promised, 0.0)

    def add(self, promised: float, received: int, given: int) -> None:
        """One of its blocks."""
        self.promised += promised
        self.received += received
        self.given += given
        self.blocks += 1
        # Sums of parts are not exact to the last digit.
        if self.done_after is None and self.promised >= self.asked * (1 - 1e-9):
            self.done_after = self.blocks

    @property
    def late(self) -> int:
        """How many blocks it lasted beyond the one in which all was promised."""
        return 0 if self.done_after is None else self.blocks - self.done_after


def backlogs_of(rounds: Sequence[Round], left: Mapping[str, float]) -> list[dict[str, Backlog]]:
    """For each block, the backlogs that it belongs to."""
    found: list[dict[str, Backlog]] = []
    open_ones: dict[str, Backlog] = {}
    for one in rounds:
        here: dict[str, Backlog] = {}
        for origin in one.wanting | (one.started & open_ones.keys()):
            backlog = here[origin] = open_ones.setdefault(origin, Backlog())
            backlog.asked += one.granted.get(origin, 0)
            if origin not in one.wanting:
                del open_ones[origin]
        found.append(here)
    for origin, backlog in open_ones.items():
        backlog.asked += left.get(origin, inf)
    return found


def judge(
    rounds: Sequence[Round], promises: Mapping[str, Promise], *, left: Mapping[str, float] | None = None,
    paths: bool = False,
) -> Fairness:  # fmt: skip
    """The figures of these blocks.

    :param promises: what is set for each origin; with paths, for groups by their names, too.
    :param left: what those who are wanting at the end still ask for; without end, where it is not said.
    """
    lasting = backlogs_of(rounds, left or {})
    sums: dict[str, _Sum] = {}
    for one, backlogs in zip(rounds, lasting):
        fair = fair_shares(one, promises, {origin: its.rest for origin, its in backlogs.items()}, paths=paths)
        given = sum(one.granted.values())
        for origin, backlog in backlogs.items():
            backlog.add(fair[origin], one.granted.get(origin, 0), given)
            its = sums.setdefault(origin, _Sum())
            its.backlogs[id(backlog)] = backlog
        _wait(one, sums)
    origins = [_figures(origin, promises.get(origin, Promise()), sums[origin]) for origin in sorted(sums)]
    ratios = [1 + one.error for one in origins if one.error is not None]
    return Fairness(len(rounds), origins, jain(ratios))


def together(levels: Mapping[str, Fairness]) -> Fairness:
    """The figures of the high queues and of the regular ones, each judged among themselves."""
    origins = [
        one if one.priority == level else replace(one, priority=level)
        for level, told in levels.items() for one in told.origins
    ]  # fmt: skip
    origins.sort(key=lambda one: (one.origin, one.priority == REGULAR))
    ratios = [1 + one.error for one in origins if one.error is not None]
    return Fairness(max(told.blocks for told in levels.values()), origins, jain(ratios))


@dataclass
class _Sum:
    """What adds up for one origin."""

    granted: int = 0
    waits: list[int] = field(default_factory=lambda: [0])
    backlogs: dict[int, Backlog] = field(default_factory=dict)
    #: Whether anything of a backlog was started.
    started: bool = False


def _wait(one: Round, sums: dict[str, _Sum]) -> None:
    for origin in one.granted.keys() | one.wanting:
        its = sums.setdefault(origin, _Sum())
        its.granted += one.granted.get(origin, 0)
        if origin in one.started:
            its.waits.append(0)
            its.started |= bool(its.backlogs)
        elif origin in one.wanting:
            its.waits[-1] += 1


def _figures(origin: str, promise: Promise, its: _Sum) -> OriginFairness:
    lasted = its.backlogs.values()
    given, promised = sum(one.given for one in lasted), sum(one.promised for one in lasted)
    received = sum(one.received for one in lasted)
    judged = promised > 0 and (its.started or promised >= BLOCK_PARTS)
    return OriginFairness(
        origin, promise.share, sum(one.blocks for one in lasted), promised / given if given else None,
        received / given if given else None, received / promised - 1 if judged else None,
        max(its.waits), its.waits[-1], max((one.late for one in lasted), default=0), its.granted / BLOCK_PARTS,
    )  # fmt: skip


def fair_shares(
    one: Round, promises: Mapping[str, Promise], asked: Mapping[str, float] | None = None, *, paths: bool = False
) -> dict[str, float]:
    """What each queue was promised of what a block gave to all: weighted max-min, leasts first.

    With paths, what a block gave is shared by groups, and what a group was promised by its members.

    :param asked: what those who have a backlog ask for, where it is known.
    """
    wants: dict[str, float] = dict(one.granted)
    for origin in {*one.wanting, *(asked or ())}:
        most = max(promises.get(origin, Promise()).most, one.granted.get(origin, 0))
        wants[origin] = min(most, (asked or {}).get(origin, inf))
    fair: dict[str, float] = {}
    _share_out(float(sum(one.granted.values())), wants, promises, fair, "" if paths else None)
    return fair


def _share_out(
    left: float, wants: Mapping[str, float], promises: Mapping[str, Promise], fair: dict[str, float], path: str | None
) -> None:
    """Share out among the members of a group: the queues and groups below this path."""
    members = _members(wants, path)
    own = {name: Promise() if path and not name.startswith(path) else promises.get(name, Promise()) for name in members}
    wanted, least = {}, {}
    for name, below in members.items():
        # What is set for a queue bounds what it wants already; a group's most bounds what its members do.
        wanted[name] = min(sum(below.values()), own[name].most if list(below) != [name] else inf)
        leasts = sum(promises.get(origin, Promise()).least for origin in below if origin != name)
        least[name] = min(max(own[name].least, leasts), wanted[name])
    for name, its in _fill(left, wanted, least, {name: promise.share for name, promise in own.items()}).items():
        if path is None or list(members[name]) == [name]:
            fair[name] = its
        else:
            _share_out(its, members[name], promises, fair, name + SEPARATOR)


def _members(wants: Mapping[str, float], path: str | None) -> dict[str, dict[str, float]]:
    """The members of a group, and what the queues below each of them want."""
    found: dict[str, dict[str, float]] = {}
    for origin, want in wants.items():
        at = -1 if path is None or not origin.startswith(path) else origin.find(SEPARATOR, len(path))
        found.setdefault(origin if at < 0 else origin[:at], {})[origin] = want
    return found


def _fill(
    left: float, wanted: Mapping[str, float], least: Mapping[str, float], shares: Mapping[str, int]
) -> dict[str, float]:
    """Leasts first; then the rest by shares, to nobody more than it wants."""
    leasts = sum(least.values())
    if leasts > left:
        return {name: its * left / leasts for name, its in least.items()}
    found = dict(least)
    left, total = left - leasts, sum(shares.values())
    # Whoever wants least for its share is satisfied first; what it leaves is everybody else's.
    for name in sorted(wanted, key=lambda name: ((wanted[name] - found[name]) / shares[name], name)):
        more = min(wanted[name] - found[name], left * shares[name] / total)
        found[name] += more
        left -= more
        total -= shares[name]
    return found


def jain(ratios: Sequence[float]) -> float | None:
    """Jain's index of what each got of what it was promised; none, where there is nobody to compare."""
    if not ratios:
        return None
    squares = sum(ratio * ratio for ratio in ratios)
    return sum(ratios) ** 2 / (len(ratios) * squares) if squares else 1.0
