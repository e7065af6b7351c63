"""Tree of ready queues and their groups: states of members, and whose turn is next.

A ring may hold a hundred thousand queues, of which a block visits a few. A queue is only a name and a number until its
turn is near.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator
from enum import Enum, auto
from heapq import heappop, heappush

from .book import Group
from .config import BLOCK_PARTS
from .groups import ROOT, SEPARATOR, group_of, groups_of, home_of
from .weight import Meter
from .working_set import WorkingSet

#: Unit of members' deficits: this many parts of a block. Deficits only ever fall, and must not overflow.
GRAIN = 1 << 10
#: More than any turn may spend; and the allowance of a member without rivals, since others may join meanwhile.
ANY = 1 << 62
_SOLO = BLOCK_PARTS // 16


def units_of(parts: int, share: int) -> int:
    """Return by how much the deficit of a member with this share falls for used parts."""
    return -(-parts // (share * GRAIN))


class State(Enum):
    """States of a member in this block."""

    #: May get a turn.
    OPEN = auto()
    #: Its next message does not fit the rest; it keeps its place among its siblings.
    WAITING = auto()
    #: Has no message to service, is skipped, or used up its *most*.
    OUT = auto()


#: A queue without a turn yet: its deficit (negative), its place among its siblings, and its name.
Unmet = tuple[int, int, str]

#: Members of queues, which are not groups.
_NO_MEMBERS: list[Member] = []
_NO_ENTRIES: list[tuple[int, int, Member]] = []
_NO_QUEUES: list[Unmet] = []


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
        #: Whether share and meter were loaded.
        self.known = False
        #: Whether it was visited.
        self.met = False
        # For a group: its members, those that may have a turn, the number of present ones, and the level of newcomers.
        self.members: list[Member] = [] if self.is_group else _NO_MEMBERS
        self.heap: list[tuple[int, int, Member]] = [] if self.is_group else _NO_ENTRIES
        #: Queues that no turn reached yet, the next of them last; and those that this block will not reach.
        self.unmet = self.passed = _NO_QUEUES
        self.present = 0
        self.level = level or 0

    def __lt__(self, other: Member) -> bool:
        """Return False: equal entries of a heap belong to the same member."""
        return False

    @property
    def settings_of(self) -> str:
        """Name under which its share and its *most* are set."""
        return self.name.removesuffix(SEPARATOR) if self.is_group else self.name

    @property
    def is_own(self) -> bool:
        """Whether it is the queue that has the name of its group; settings of that name are the group's."""
        return not self.is_group and self.parent is not None and self.parent.name == self.name + SEPARATOR

    def first(self) -> Member | None:
        """Return the member of this group whose turn is next."""
        heap, unmet = self.heap, self.unmet
        while heap:
            deficit, place, member = heap[0]
            if member.state is not State.OPEN or deficit != -member.deficit:
                heappop(heap)
            elif unmet and unmet[-1] < (deficit, place):
                break
            else:
                return member
        return self.meet(unmet.pop()) if unmet else None

    def first_queue(self) -> Member | None:
        """Return the queue below this member whose turn is next, if there is one."""
        member: Member | None = self
        while member is not None and member.is_group:
            member = member.first()
        return member

    def meet(self, unmet: Unmet) -> Member:
        """Make a member of a queue that no turn reached yet."""
        deficit, place, name = unmet
        queue = Member(name, self, place, -deficit)
        queue.state = State.OPEN
        self.members.append(queue)
        heappush(self.heap, (deficit, place, queue))
        return queue

    def rival(self, member: Member) -> Member | None:
        """Return the member whose turn follows that of the first member."""
        first = heappop(self.heap)
        second = self.first()
        while second is member:
            heappop(self.heap)
            second = self.first()
        heappush(self.heap, first)
        return second

    def enqueue(self) -> None:
        """Take the place among the siblings that the deficit determines."""
        assert self.parent is not None
        heappush(self.parent.heap, (-self.deficit, self.place, self))

    def lower(self, most: int) -> None:
        """Lower the deficit to that of its siblings: absent members save nothing."""
        if self.deficit > most:
            self.base -= self.deficit - most
            self.deficit = most

    def charge(self, parts: int) -> None:
        """Reduce the deficit by used parts; rounded once for all turns."""
        self.used += parts
        self.deficit = self.base - units_of(self.used, self.share)
        if self.state is State.OPEN:
            self.enqueue()

    def _present_deficits(self) -> Iterator[int]:
        """Yield the deficits of all present members; of queues that no turn reached, only the largest."""
        yield from (-queues[-1][0] for queues in (self.unmet, self.passed) if queues)
        yield from (member.deficit for member in self.members if member.state is not State.OUT)

    def now(self) -> int:
        """Return the level at which a newcomer starts now."""
        return min(self.level, max(self._present_deficits(), default=ANY))

    def end_level(self) -> int:
        """Return the level at which a newcomer starts after this block."""
        best = max(self._present_deficits(), default=None)
        return min(self.level, best if best is not None else min(member.deficit for member in self.members))


class Tree:
    """All ready queues in their groups."""

    def __init__(self, working_set: WorkingSet, guaranteed: Iterable[str] = ()) -> None:
        self.working_set = working_set
        line = working_set.loader.line()
        groups = working_set.groups
        root = groups.get(ROOT)
        self.root = Member(ROOT, None, 0, 0, root.level if root else 0)
        self.groups: dict[str, Member] = {ROOT: self.root}
        #: Queues that were visited or named; and all queues in the line.
        self.queues: dict[str, Member] = {}
        self._line = {origin for origin, _ in line}
        #: Groups that are stored or new. A queue of the same name is a member of its own group.
        above = {origin[: origin.rfind(SEPARATOR) + 1] for origin in self._line}
        self._paths = {path for path in groups if path}.union(above, *map(groups_of, above))
        self._place = 0
        self._line_up(line, {*guaranteed, *working_set.owed})

    def _line_up(self, line: Iterable[tuple[str, int]], wanted: Container[str]) -> None:
        """Enter all ready queues. Those that this walk does not service are present, and get no turn."""
        groups, paths, takes = self.groups, self._paths, self.working_set.takes
        for origin, deficit in line:
            path = origin + SEPARATOR
            if path not in paths:
                path = origin[: origin.rfind(SEPARATOR) + 1]
            group = groups.get(path) or self._group(path)
            taken = takes(origin)
            if taken and origin in wanted:
                self._enter(self._queue(origin, deficit))
                continue
            if not (group.unmet or group.passed):
                group.unmet, group.passed = [], []
                self._enter(group)
            self._place += 1
            queues = group.unmet if taken else group.passed
            queues.append((-deficit if deficit < group.level else -group.level, self._place, origin))
        for group in groups.values():
            group.unmet.sort(reverse=True)
            group.passed.sort(reverse=True)
            group.present += len(group.unmet) + len(group.passed)

    def join(self, origin: str, deficit: int) -> None:
        """Enter a queue that became ready meanwhile."""
        queue = self.queues.get(origin)
        if queue is None:
            if origin in self._line:
                return
            queue = self._queue(origin, deficit)
        if queue.state is State.OUT and queue.parent is not None:
            queue.lower(queue.parent.now())
            self._enter(queue)

    def _queue(self, origin: str, deficit: int) -> Member:
        parent = self._group(self._path_of(origin))
        queue = self.queues[origin] = self._member(origin, parent, deficit)
        return queue

    def known(self, origin: str) -> Member | None:
        """Return the queue of this name if it takes part in the turns, also if no turn reached it yet."""
        queue = self.queues.get(origin)
        if queue is not None or origin not in self._line:
            return queue
        group = self._group(self._path_of(origin))
        for member in group.members:
            if member.name == origin and not member.is_group:
                return member
        for queues, state in ((group.unmet, State.OPEN), (group.passed, State.WAITING)):
            for at, (deficit, place, name) in enumerate(queues):
                if name == origin:
                    del queues[at]
                    queue = Member(origin, group, place, -deficit)
                    queue.state = state
                    group.members.append(queue)
                    return queue
        return None

    def _path_of(self, origin: str) -> str:
        """Return the path of the group of which a queue is a member."""
        path = origin + SEPARATOR
        return path if path in self._paths else home_of(origin)

    def _group(self, path: str) -> Member:
        group = self.groups.get(path)
        if group is None:
            parent = self._group(group_of(path))
            stored = self.working_set.groups.get(path) or Group(path, parent.level, parent.level)
            group = self.groups[path] = self._member(path, parent, stored.deficit, stored.level)
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
        """Take a member out of the turns; its place does not count for newcomers."""
        while member.state is not State.OUT and member.parent is not None:
            member.state = State.OUT
            member = member.parent
            member.present -= 1
            if member.present:
                return

    def wait(self, member: Member) -> None:
        """Take a member out of the turns; it keeps its place among its siblings."""
        if member.state is State.OPEN:
            member.state = State.WAITING

    def next(self) -> Member | None:
        """Return the queue whose turn is next: from the top, always the member with the largest deficit."""
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
        """Yield a member and the groups that hold it, without the root."""
        while member.parent is not None:
            yield member
            member = member.parent

    def allowance(self, queue: Member, quantum: int) -> int:
        """Return what the next queue may spend: up to its rival's turn, plus a quantum."""
        least = max(quantum, _SOLO)
        for member in self.path(queue):
            assert member.parent is not None
            rival = member.parent.rival(member)
            if rival is not None:
                least = min(least, ((member.deficit - rival.deficit) * GRAIN + quantum) * member.share)
        return max(least, 1)

    def soon(self, most: int) -> list[str]:
        """Return queues whose turns come soon, roughly in order."""
        return list(_soon(self.root, most))

    def below(self, path: str) -> Member | None:
        """Return the group of this name, or the queue."""
        return self.groups.get(path + SEPARATOR) or self.queues.get(path)

    def meet(self, origins: Collection[str]) -> list[Member]:
        """Return these queues as members, except those that had a turn or that cannot get one.

        Queues that became ready within the operation are not in the line.
        """
        fresh = [origin for origin in origins if origin not in self._line and origin not in self.queues]
        for origin in fresh:
            self.join(origin, self.working_set.book(origin).deficit)
        found = [self.queues[origin] for origin in fresh]
        for group in list(self.groups.values()):
            if any(one[2] in origins for one in group.unmet):
                found += [group.meet(one) for one in group.unmet if one[2] in origins]
                group.unmet = [one for one in group.unmet if one[2] not in origins]
        return [queue for queue in found if all(one.state is not State.OUT for one in self.path(queue))]

    def only_met(self) -> None:
        """Give no turn in this block to queues that were not visited yet."""
        for group in self.groups.values():
            for member in group.members:
                if not (member.is_group or member.met):
                    self.wait(member)
            if group.unmet:
                group.passed, group.unmet = sorted([*group.passed, *group.unmet], reverse=True), _NO_QUEUES


def _soon(member: Member, most: int) -> Iterator[str]:
    first = member.first()
    if first is None:
        return
    below: list[Member | str] = [first]
    if most > 1:
        entries: list[tuple[int, int, Member | str]] = [*member.unmet[-most:]]
        entries += [
            entry for entry in member.heap[:most] if entry[2].state is State.OPEN and entry[0] == -entry[2].deficit
        ]
        below = list(dict.fromkeys(found for _, _, found in sorted(entries)))[:most]
    for found in below:
        if isinstance(found, Member) and found.is_group:
            yield from _soon(found, max(most // len(below), 1))
        else:
            yield found.name if isinstance(found, Member) else found
