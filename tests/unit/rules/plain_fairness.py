"""The figures of fairness in the plain way: a walk over all blocks and all queues, as their definition reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from airflow_mq.engine.rules.config import BLOCK_PARTS
from airflow_mq.engine.rules.fairness import Fairness, OriginFairness, Promise, Takes, jain, ratios_of
from airflow_mq.engine.rules.groups import SEPARATOR
from airflow_mq.engine.rules.judging import MOST
from airflow_mq.engine.rules.orders import Entry, lines_of, wanting_in
from airflow_mq.engine.rules.weight import Weight

#: Parts of a demand that may be missing where it counts as promised: about a billionth of a block.
MISSING = 1 << 10


@dataclass(frozen=True)
class Round:
    """One block: what each queue received, which queues were started, and which were left wanting."""

    granted: Mapping[str, int]
    started: frozenset[str]
    wanting: frozenset[str]
    #: Queues whose visit ended at a *most*.
    stopped: frozenset[str] = frozenset()


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
            frozenset(entry.origin for entry in page if entry.reason == MOST),
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
        # Weights are rounded down to parts, and sums of parts are inexact in their last digits.
        if self.done_after is None and self.promised >= self.asked - MISSING:
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
    groups: Collection[str] = (),
) -> Fairness:
    """Return the figures of these blocks.

    :param promises: settings of each origin; with paths, also of groups by name.
    :param left: remaining demand of the queues that are wanting at the end; infinite if missing.
    :param groups: names of groups, in any of the blocks.
    """
    lasting = backlogs_of(rounds, left or {})
    sums: dict[str, _Sum] = {}
    for block, backlogs in zip(rounds, lasting):
        fair = fair_shares(
            block, promises, {origin: log.rest for origin, log in backlogs.items()}, paths=paths, groups=groups
        )
        given = sum(block.granted.values())
        for origin, backlog in backlogs.items():
            backlog.add(fair[origin], block.granted.get(origin, 0), given)
            sums.setdefault(origin, _Sum()).backlogs[id(backlog)] = backlog
        _wait(block, sums)
    origins = [_figures(origin, promises.get(origin, Promise()), sums[origin]) for origin in sorted(sums)]
    return Fairness(len(rounds), origins, jain(ratios_of(origins)))


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
    block: Round,
    promises: Mapping[str, Promise],
    asked: Mapping[str, float] | None = None,
    *,
    paths: bool = False,
    groups: Collection[str] = (),
) -> dict[str, float]:
    """Return what each queue was promised of what a block gave to all: weighted max-min, leasts first.

    With paths, the weight of a block is divided among groups, and the promise of a group among its members.

    :param asked: demand of the queues with a backlog, where it is known.
    """
    wants: dict[str, float] = dict(block.granted)
    for origin in {*block.wanting, *(asked or ())}:
        got = block.granted.get(origin, 0)
        # Below a group, the visit may have ended at the group's *most*.
        is_top = not paths or (SEPARATOR not in origin and origin not in groups)
        most = got if got and origin in block.stopped and is_top else max(promises.get(origin, Promise()).most, got)
        wants[origin] = min(most, (asked or {}).get(origin, inf))
    fair: dict[str, float] = {}
    _share_out(float(sum(block.granted.values())), wants, promises, fair, "" if paths else None)
    return fair


def _share_out(
    left: float, wants: Mapping[str, float], promises: Mapping[str, Promise], fair: dict[str, float], path: str | None
) -> None:
    """Divide weight among the members of a group: the queues and groups below this path."""
    members = _members(wants, path)
    own = {name: _own(name, path, promises) for name in members}
    wanted, least = {}, {}
    for name, below in members.items():
        wanted[name], least[name] = _demand(name, below, own[name], promises)
    for name, parts in _fill(left, wanted, least, {name: promise.share for name, promise in own.items()}).items():
        if path is None or list(members[name]) == [name]:
            fair[name] = parts
        else:
            _share_out(parts, members[name], promises, fair, name + SEPARATOR)


def _own(name: str, path: str | None, promises: Mapping[str, Promise]) -> Promise:
    """Return the settings of a member; what is set under the name of its group is the group's."""
    return Promise() if path and not name.startswith(path) else promises.get(name, Promise())


def _demand(
    name: str, below: Mapping[str, float], own: Promise, promises: Mapping[str, Promise]
) -> tuple[float, float]:
    """Return what a member wants, and its least: a group's bounds hold for what its members want together."""
    if list(below) == [name]:
        # The settings of a queue bound its demand already.
        return below[name], min(own.least, below[name])
    path = name + SEPARATOR
    demands = [_demand(one, under, _own(one, path, promises), promises) for one, under in _members(below, path).items()]
    wanted = min(sum(wants for wants, _ in demands), own.most)
    return wanted, min(max(own.least, sum(least for _, least in demands)), wanted)


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
