"""Tree of ready queues and their groups: states of members, and whose turn is next.

A ring may hold a hundred thousand queues, of which a block visits a few. A queue is only a name and a number until its
turn is near.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from heapq import heappop, heappush
from itertools import chain

from .book import Book, Group
from .config import BLOCK_PARTS
from .groups import ROOT, SEPARATOR, group_of, groups_of, home_of
from .priority import is_high
from .weight import Meter
from .working_set import WorkingSet

#: Unit of members' deficits: this many parts of a block. Deficits only ever fall, and must not overflow.
GRAIN = 1 << 10
#: More than any turn may spend; and the allowance of a member without rivals, since others may join meanwhile.
ANY = 1 << 62
_SOLO = BLOCK_PARTS // 16
#: The largest debt of a queue, in parts of a block. A processor that measures in a wrong unit costs its queue the turns
#: of a few blocks.
MOST_DEBT = 8 * BLOCK_PARTS


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
        # For a group: its members and their turns, queues that no turn reached yet, the next of them last, queues that
        # get no turn in this block, the number of all present ones, and the level of newcomers.
        self.members: list[Member] = []
        self.heap: list[tuple[int, int, Member]] = []
        self.unmet: list[Unmet] = []
        self.passed: list[Unmet] = []
        self.present = 0
        self.level = level or 0

    def __lt__(self, other: Member) -> bool:
        """Return False: equal entries of a heap belong to the same member."""
        return False

    @property
    def settings_name(self) -> str | None:
        """Name under which its share and its *most* are set; None if settings of its name are those of its group."""
        if self.is_group:
            return self.name.removesuffix(SEPARATOR)
        return None if self.parent is not None and self.parent.name == self.name + SEPARATOR else self.name

    def path(self) -> Iterator[Member]:
        """Yield the member and the groups that hold it, without the root."""
        member = self
        while member.parent is not None:
            yield member
            member = member.parent

    def enter(self) -> None:
        """Take part in the turns; so do the groups above."""
        for member in self.path():
            if member.state is not State.OUT or member.parent is None:
                return
            member.open()
            member.parent.present += 1

    def open(self) -> None:
        """Take the place among the siblings that the deficit determines."""
        assert self.parent is not None
        self.state = State.OPEN
        heappush(self.parent.heap, (-self.deficit, self.place, self))

    def wait(self) -> None:
        """Get no further turn; the place among the siblings stays."""
        if self.state is State.OPEN:
            self.state = State.WAITING

    def leave(self) -> None:
        """Get no further turn; the place does not count for newcomers."""
        for member in self.path():
            if member.state is State.OUT or member.parent is None:
                return
            member.state = State.OUT
            member.parent.present -= 1
            if member.parent.present:
                return

    def charge(self, parts: int) -> None:
        """Reduce the deficit by used parts; rounded once for all turns."""
        self.used += parts
        self.deficit = self.base - units_of(self.used, self.share)
        if self.state is State.OPEN:
            self.open()


#: The turn of a member, or of a queue without one yet.
Turn = tuple[int, int, Member] | Unmet


def _counts(turn: tuple[int, int, Member]) -> bool:
    """Return whether a turn is the latest one of its member, which may have it."""
    return turn[2].state is State.OPEN and turn[0] == -turn[2].deficit


class Tree:
    """All ready queues in their groups."""

    def __init__(self, working_set: WorkingSet) -> None:
        self.working_set = working_set
        line = working_set.loader.line()
        root = working_set.groups.get(ROOT)
        self.root = Member(ROOT, None, 0, 0, root.level if root else 0)
        self.groups: dict[str, Member] = {ROOT: self.root}
        #: Queues that are members, and the places of all in the line.
        self.queues: dict[str, Member] = {}
        self._line: dict[str, tuple[int, int]] = {}
        #: Groups that are stored or new. A queue of the same name is a member of its own group.
        above = {origin[: origin.rfind(SEPARATOR) + 1] for origin, _ in line}
        self._paths = {path for path in working_set.groups if path}.union(above, *map(groups_of, above))
        self._place = 0
        self._has_only_met = False
        self._line_up(line)

    def _line_up(self, line: Iterable[tuple[str, int]]) -> None:
        """Enter all ready queues. Those that this walk does not service are present, and get no turn."""
        groups, paths, takes = self.groups, self._paths, self.working_set.takes
        for origin, deficit in line:
            path = origin + SEPARATOR
            if path not in paths:
                path = origin[: origin.rfind(SEPARATOR) + 1]
            group = groups.get(path) or self._group(path)
            if not group.present:
                group.enter()
            group.present += 1
            self._place += 1
            turn = -min(deficit, group.level), self._place, origin
            self._line[origin] = turn[:2]
            (group.unmet if takes(origin) else group.passed).append(turn)
        for group in groups.values():
            group.unmet.sort(reverse=True)
            group.passed.sort(reverse=True)

    def _group(self, path: str) -> Member:
        group = self.groups.get(path)
        if group is None:
            parent = self._group(group_of(path))
            stored = self.working_set.groups.get(path) or Group(path, parent.level, parent.level)
            self._place += 1
            group = Member(path, parent, self._place, min(stored.deficit, parent.level), stored.level)
            self.groups[path] = group
            parent.members.append(group)
        return group

    def queue(self, origin: str) -> Member | None:
        """Return the queue of this name as a member, if it takes part in the turns."""
        queue = self.queues.get(origin)
        if queue is None and origin in self._line:
            deficit, place = self._line[origin]
            queue = self._meet(origin, -deficit, place)
            queue.open()
            if self._has_only_met or not self.working_set.takes(origin):
                queue.wait()
        return queue

    def _meet(self, origin: str, deficit: int, place: int) -> Member:
        """Make a member of a queue."""
        path = origin + SEPARATOR
        group = self._group(path if path in self._paths else home_of(origin))
        queue = self.queues[origin] = Member(origin, group, place, min(deficit, group.level))
        group.members.append(queue)
        return queue

    def join(self, origin: str, deficit: int) -> Member:
        """Enter a queue that became ready meanwhile; absent members save nothing."""
        queue = self.queue(origin)
        if queue is None:
            self._place += 1
            queue = self._meet(origin, deficit, self._place)
        if queue.state is State.OUT and queue.parent is not None:
            most = min(queue.parent.level, max(self._present(queue.parent), default=ANY))
            queue.base -= max(queue.deficit - most, 0)
            queue.deficit = min(queue.deficit, most)
            queue.enter()
        return queue

    def first(self, group: Member) -> Member | None:
        """Return the member of a group whose turn is next."""
        turn = self._first(group)
        if turn is None or isinstance(turn[2], Member):
            return None if turn is None else turn[2]
        deficit, place, origin = group.unmet.pop()
        queue = self._meet(origin, -deficit, place)
        queue.open()
        return queue

    def _first(self, group: Member) -> Turn | None:
        """Return the first turn of a group that still counts."""
        heap, unmet = group.heap, group.unmet
        while heap and not _counts(heap[0]):
            heappop(heap)
        while unmet and unmet[-1][2] in self.queues:
            unmet.pop()
        if heap and (not unmet or heap[0][:2] < unmet[-1][:2]):
            return heap[0]
        return unmet[-1] if unmet else None

    def next(self) -> Member | None:
        """Return the queue whose turn is next: from the top, always the member with the largest deficit."""
        member = self.first_below(self.root)
        while member.is_group:
            if member.parent is None:
                return None
            member.wait()
            member = self.first_below(member.parent)
        return member

    def first_below(self, member: Member) -> Member:
        """Return the queue below this member whose turn is next, or the group that has none on the way there."""
        while member.is_group and (below := self.first(member)) is not None:
            member = below
        return member

    def allowance(self, queue: Member, quantum: int) -> int:
        """Return what the next queue may spend: up to its rival's turn, plus a quantum."""
        least = max(quantum, _SOLO)
        for member in queue.path():
            rival = self._rival(member)
            if rival is not None:
                least = min(least, ((member.deficit - rival) * GRAIN + quantum) * member.share)
        return max(least, 1)

    def _rival(self, member: Member) -> int | None:
        """Return the deficit of the member whose turn follows that of the first member."""
        assert member.parent is not None
        heap = member.parent.heap
        own = heappop(heap)
        while (turn := self._first(member.parent)) is not None and turn[2] is member:
            heappop(heap)
        heappush(heap, own)
        return None if turn is None else -turn[0]

    def unmet(self) -> Iterator[str]:
        """Yield the queues without a turn so far that this walk services, and whose groups may have one."""
        for group in self.groups.values():
            if all(member.state is not State.OUT for member in group.path()):
                lines = (name for *_, name in chain(group.unmet, group.passed) if name not in self.queues)
                members = (one.name for one in group.members if not (one.is_group or one.met or one.state is State.OUT))
                yield from filter(self.working_set.takes, chain(lines, members))

    def soon(self, most: int) -> list[str]:
        """Return queues whose turns come soon, roughly in order."""
        return list(self._soon(self.root, most))

    def _soon(self, group: Member, most: int) -> Iterator[str]:
        first = self._first(group)
        turns: list[Turn] = [] if first is None else [first]
        if most > 1:
            turns = [turn for turn in group.unmet[-most:] if turn[2] not in self.queues]
            turns += [turn for turn in group.heap[:most] if _counts(turn)]
            turns.sort()
        for _, _, member in turns[:most]:
            if isinstance(member, Member) and member.is_group:
                yield from self._soon(member, max(most // min(len(turns), most), 1))
            else:
                yield member.name if isinstance(member, Member) else member

    def meet(self, origins: Iterable[str]) -> list[Member]:
        """Return these queues as members, except those that had a turn or that cannot get one.

        Queues that became ready within the operation are not in the line.
        """
        fresh = [origin for origin in origins if origin not in self.queues]
        found = [self.join(origin, self.working_set.book(origin).deficit) for origin in fresh]
        return [
            queue
            for queue in found
            if queue.state is State.OPEN and all(member.state is not State.OUT for member in queue.path())
        ]

    def only_met(self) -> None:
        """Give no turn in this block to queues that were not visited yet."""
        for group in self.groups.values():
            for member in group.members:
                if not (member.is_group or member.met):
                    member.wait()
            group.passed, group.unmet = sorted([*group.passed, *group.unmet], reverse=True), []
        self._has_only_met = True

    def _present(self, group: Member) -> Iterator[int]:
        """Yield the largest deficits of the present members of a group."""
        while group.passed and group.passed[-1][2] in self.queues:
            group.passed.pop()
        yield from (-turn[0] for turn in (self._first(group), *group.passed[-1:]) if turn is not None)
        yield from (member.deficit for member in group.members if member.state is State.WAITING)

    def end_level(self, group: Member) -> int:
        """Return the level at which a newcomer of a group starts after this block."""
        best = max(self._present(group), default=None)
        return min(group.level, best if best is not None else min(member.deficit for member in group.members))


def charge_overrun(working_set: WorkingSet, book: Book, parts: int) -> None:
    """Charge weight beyond plans, at most `MOST_DEBT`, when a block settles or a visit ends, in any deficit order."""
    parts = min(parts, MOST_DEBT)
    working_set.changes.books.add(book.origin)
    if not working_set.config.paths or is_high(book.origin):
        book.deficit = max(book.deficit - parts, -MOST_DEBT)
        if not book.is_ready:
            book.deficit = min(book.deficit, 0)
        return
    if not parts:
        return
    working_set.loader.load_groups()
    own, turns = book.origin + SEPARATOR, working_set.turns
    nested = own in working_set.groups
    # A walk in progress, between two slices of which this end is applied, has read the deficits already.
    deficit = None if turns is None else turns.charge(book.origin, parts, is_group=False)
    if deficit is None:
        deficit = book.deficit - units_of(parts, 1 if nested else working_set.loader.settings(book.origin).share)
    book.deficit = deficit
    for path in [*groups_of(book.origin), own]:
        if turns is not None and turns.charge(path, parts, is_group=True) is not None:
            continue
        if group := working_set.groups.get(path):
            group.deficit -= units_of(parts, working_set.loader.settings(path.removesuffix(SEPARATOR)).share)
            working_set.changes.groups.add(path)
