"""The tree of ready queues: who is a member of which group, how each stands, and whose turn is next.

There may be a hundred thousand queues, of which a block meets a few: a queue is a name and a number until its turn
is near.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from enum import Enum, auto
from heapq import heappop, heappush

from .book import Branch
from .config import BLOCK_PARTS
from .groups import ROOT, SEPARATOR, group_of, groups_of, home_of
from .shelf import Shelf
from .weight import Meter

#: Deficits of members are counted in so many parts of a block each: they only ever fall, and must last.
GRAIN = 1 << 10
#: More than any turn may spend; and what one may that has no rivals: somebody may join meanwhile.
ANY = 1 << 62
_SOLO = BLOCK_PARTS // 16


def units_of(parts: int, share: int) -> int:
    """By how much the deficit of a member of this share falls for what it used."""
    return -(-parts // (share * GRAIN))


class State(Enum):
    """How a member stands in this block."""

    #: It may get a turn.
    OPEN = auto()
    #: Its next message does not fit what is left; it still is where it was among its siblings.
    WAITING = auto()
    #: It has nothing to service, is passed by, or got its most.
    OUT = auto()


#: A queue that had no turn yet, by its place among its siblings: its deficit (negative), its place, its name.
Unmet = tuple[int, int, str]

#: What queues, which are no groups, have for members.
_NOBODY: list[Member] = []
_NOTHING: list[tuple[int, int, Member]] = []
_UNMET: list[Unmet] = []


class Member:
    """A queue or a group, among its siblings."""

    __slots__ = ("base", "deficit", "heap", "is_group", "known", "level", "members", "met", "meter", "name", "parent",
                 "passed", "place", "present", "share", "state", "unmet", "used")  # fmt: skip

    def __init__(self, name: str, parent: Member | None, place: int, deficit: int, level: int | None = None) -> None:
        self.name, self.parent, self.place = name, parent, place
        self.is_group = level is not None
        self.base = self.deficit = deficit
        self.used = 0
        self.state = State.OUT
        self.share = 1
        self.meter: Meter | None = None
        #: Whether share and meter are as they are set.
        self.known = False
        #: Whether it was visited.
        self.met = False
        # Of a group: who is in it, who may have a turn, how many are not out, and where newcomers start.
        self.members: list[Member] = [] if self.is_group else _NOBODY
        self.heap: list[tuple[int, int, Member]] = [] if self.is_group else _NOTHING
        #: Queues that nobody looked at yet, the next of them last; and those whom nobody will look at in this block.
        self.unmet = self.passed = _UNMET
        self.present = 0
        self.level = level or 0

    def __lt__(self, other: Member) -> bool:
        """Entries of a heap that are alike are of the same member."""
        return False

    @property
    def standing_of(self) -> str:
        """By which name its share and its most are set."""
        return self.name.removesuffix(SEPARATOR) if self.is_group else self.name

    @property
    def is_own(self) -> bool:
        """Whether it is the queue that bears the name of its group; what is set under that name is the group's."""
        return not self.is_group and self.parent is not None and self.parent.name == self.name + SEPARATOR

    def first(self) -> Member | None:
        """The member of this group whose turn is next."""
        heap, unmet = self.heap, self.unmet
        while heap:
            deficit, place, member = heap[0]
            if member.state is not State.OPEN or deficit != -member.deficit:
                heappop(heap)
            elif unmet and unmet[-1] < (deficit, place):
                break
            else:
                return member
        return self._meet() if unmet else None

    def first_queue(self) -> Member | None:
        """The queue below this member whose turn is next, if there is one."""
        member: Member | None = self
        while member is not None and member.is_group:
            member = member.first()
        return member

    def _meet(self) -> Member:
        """Look at the next queue that nobody looked at yet."""
        deficit, place, name = self.unmet.pop()
        queue = Member(name, self, place, -deficit)
        queue.state = State.OPEN
        self.members.append(queue)
        heappush(self.heap, (deficit, place, queue))
        return queue

    def rival(self, member: Member) -> Member | None:
        """The member whose turn is next when this one, which is the first, has had its own."""
        first = heappop(self.heap)
        second = self.first()
        while second is member:
            heappop(self.heap)
            second = self.first()
        heappush(self.heap, first)
        return second

    def enqueue(self) -> None:
        """Take the place among the siblings that the deficit says."""
        assert self.parent is not None
        heappush(self.parent.heap, (-self.deficit, self.place, self))

    def lower(self, most: int) -> None:
        """Who was away does not come back with what it did not use meanwhile."""
        if self.deficit > most:
            self.base -= self.deficit - most
            self.deficit = most

    def charge(self, parts: int) -> None:
        """Let the deficit fall by what was used; rounded once, however many turns it took."""
        self.used += parts
        self.deficit = self.base - units_of(self.used, self.share)
        if self.state is State.OPEN:
            self.enqueue()

    def _present_deficits(self) -> Iterator[int]:
        """Those of all members that are not out; of queues that nobody looked at, the largest."""
        yield from (-queues[-1][0] for queues in (self.unmet, self.passed) if queues)
        yield from (one.deficit for one in self.members if one.state is not State.OUT)

    def now(self) -> int:
        """Where somebody starts who joins this group now."""
        return min(self.level, max(self._present_deficits(), default=ANY))

    def end_level(self) -> int:
        """Where somebody starts who joins after this block."""
        best = max(self._present_deficits(), default=None)
        return min(self.level, best if best is not None else min(one.deficit for one in self.members))


class Tree:
    """All ready queues in their groups; there may be a hundred thousand, of which a block meets a few."""

    def __init__(self, shelf: Shelf, guaranteed: Iterable[str] = ()) -> None:
        self.shelf = shelf
        line = [one for one in shelf.line() if shelf.takes(one[0])]
        branches = shelf.branches
        root = branches.get(ROOT)
        self.root = Member(ROOT, None, 0, 0, root.level if root else 0)
        self.groups: dict[str, Member] = {ROOT: self.root}
        #: Queues that were visited, or are asked for by name; and all that are in the line.
        self.queues: dict[str, Member] = {}
        self._line = {origin for origin, _ in line}
        #: Groups that are known, or appear now. A queue of the same name is a member of its own group.
        above = {origin[: origin.rfind(SEPARATOR) + 1] for origin in self._line}
        self._paths = {path for path in branches if path}.union(above, *map(groups_of, above))
        self._place = 0
        self._line_up(line, {*guaranteed, *shelf.owed})

    def _line_up(self, line: Iterable[tuple[str, int]], wanted: Container[str]) -> None:
        groups, paths = self.groups, self._paths
        for origin, deficit in line:
            path = origin + SEPARATOR
            if path not in paths:
                path = origin[: origin.rfind(SEPARATOR) + 1]
            group = groups.get(path) or self._group(path)
            if origin in wanted:
                self._enter(self._queue(origin, deficit))
                continue
            if not group.unmet:
                group.unmet = []
                self._enter(group)
            self._place += 1
            group.unmet.append((-deficit if deficit < group.level else -group.level, self._place, origin))
        for group in groups.values():
            group.unmet.sort(reverse=True)
            group.present += len(group.unmet)

    def join(self, origin: str, deficit: int) -> None:
        """A queue became ready meanwhile."""
        queue = self.queues.get(origin)
        if queue is None:
            if origin in self._line:
                return
            queue = self._queue(origin, deficit)
        if queue.state is State.OUT and queue.parent is not None:
            queue.lower(queue.parent.now())
            self._enter(queue)

    def _queue(self, origin: str, deficit: int) -> Member:
        own = origin + SEPARATOR
        parent = self._group(own if own in self._paths else home_of(origin))
        queue = self.queues[origin] = self._member(origin, parent, deficit)
        return queue

    def _group(self, path: str) -> Member:
        group = self.groups.get(path)
        if group is None:
            parent = self._group(group_of(path))
            branch = self.shelf.branches.get(path) or Branch(path, parent.level, parent.level)
            group = self.groups[path] = self._member(path, parent, branch.deficit, branch.level)
        return group

    def _member(self, name: str, parent: Member, deficit: int, level: int | None = None) -> Member:
        self._place += 1
        member = Member(name, parent, self._place, min(deficit, parent.level), level)
        parent.members.append(member)
        return member

    def _enter(self, member: Member) -> None:
        while member.state is State.OUT and member.parent is not None:
            member.state = State.OPEN
            member.enqueue()
            member.parent.present += 1
            member = member.parent

    def leave(self, member: Member) -> None:
        """This member gets no turn any more, and who joins its group need not ask where it is."""
        while member.state is not State.OUT and member.parent is not None:
            member.state = State.OUT
            member = member.parent
            member.present -= 1
            if member.present:
                return

    def wait(self, member: Member) -> None:
        """This member gets no turn any more, and keeps its place among the siblings."""
        if member.state is State.OPEN:
            member.state = State.WAITING

    def next(self) -> Member | None:
        """The queue whose turn is next: from the top, always the member with the largest deficit."""
        member = self.root
        while member.is_group:
            below = member.first()
            if below is not None:
                member = below
            elif member.parent is None:
                return None
            else:
                self.wait(member)
                member = member.parent
        return member

    def path(self, member: Member) -> Iterator[Member]:
        """A member and the groups that hold it, without the root."""
        while member.parent is not None:
            yield member
            member = member.parent

    def allowance(self, queue: Member, quantum: int) -> int:
        """What the turn of this queue, which is the next, may spend: until it is somebody else's, and a quantum."""
        least = max(quantum, _SOLO)
        for member in self.path(queue):
            assert member.parent is not None
            rival = member.parent.rival(member)
            if rival is not None:
                least = min(least, ((member.deficit - rival.deficit) * GRAIN + quantum) * member.share)
        return max(least, 1)

    def soon(self, most: int) -> list[str]:
        """Queues whose turns will come soon, about in that order."""
        return list(_soon(self.root, most))

    def below(self, path: str) -> Member | None:
        """The group of this name, or the queue."""
        return self.groups.get(path + SEPARATOR) or self.queues.get(path)

    def only_met(self) -> None:
        """Queues that were not visited yet get no turn in this block."""
        for group in self.groups.values():
            for member in group.members:
                if not (member.is_group or member.met):
                    self.wait(member)
            if group.unmet:
                group.passed, group.unmet = group.unmet, _UNMET


def _soon(member: Member, most: int) -> Iterator[str]:
    first = member.first()
    if first is None:
        return
    below: list[Member | str] = [first]
    if most > 1:
        entries: list[tuple[int, int, Member | str]] = [*member.unmet[-most:]]
        entries += [one for one in member.heap[:most] if one[2].state is State.OPEN and one[0] == -one[2].deficit]
        below = list(dict.fromkeys(one for _, _, one in sorted(entries)))[:most]
    for one in below:
        if isinstance(one, Member) and one.is_group:
            yield from _soon(one, max(most // len(below), 1))
        else:
            yield one.name if isinstance(one, Member) else one
