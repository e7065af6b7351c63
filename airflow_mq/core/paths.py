"""Sub-origins: an origin is a path, and weight is shared fairly at each level of it.

`acme/orders` is a member of the group `acme/`, which is a member of the ring. Every group is a
small ring of its own. What a queue uses is charged to it and to each group that holds it, over
their shares: their *deficits* fall. Whose turn it is, is decided from the top: among the members
that have something to service the one with the largest deficit is next, then among its members,
down to a queue. So a tenant gets the same whether it sends to one origin or to a thousand.

Nobody saves up: who was away starts at the *level* at which the others of its group are served by
now. What a group cannot use goes to the others in the same block, and is charged to them. A
message whose turn it is and that does not fit what is left of the block is *owed*: it starts
first in the next one, at most one for each member of the ring at a time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from .book import DEFAULT_STANDING, Book, Branch
from .config import BLOCK_PARTS
from .groups import SEPARATOR, groups_of, head_of
from .orders import LOOK_PAST, Ledger, front_weight, parts_of, visit
from .priority import is_high
from .service import Ladder
from .shelf import Shelf
from .tree import ANY, GRAIN, Member, State, Tree, units_of
from .weight import Meter, Weight

#: How many queues are loaded at once.
LOADED = 128


class Turn:
    """What a queue may spend in this turn: something may start as long as anything is left."""

    def __init__(self, allowance: int, parts: Callable[[Weight], int], meters: Sequence[Meter]) -> None:
        self.allowance, self.parts, self.meters = allowance, parts, meters
        self.spent = 0
        #: What of the meters had no room for the next message.
        self.refused: Meter | None = None

    def covering(self, weights: Sequence[Weight]) -> int:
        """How many of these messages, from the first on, may start."""
        left = self.allowance - self.spent
        if left <= 0:
            return 0
        if weights.count(weights[0]) == len(weights):
            count = -(-left // max(self.parts(weights[0]), 1))
        else:
            count = 1 + bisect_left(list(accumulate(map(self.parts, weights))), left)
        count = min(count, len(weights))
        for meter in self.meters:
            for part in (0, 1):
                sums = list(accumulate(weight[part] for weight in weights[:count]))
                count = bisect_right(sums, meter.left[part])
            if not count:
                self.refused = meter
                break
        return count

    def spend(self, weight: Weight) -> None:
        """Charge what was used."""
        self.spent += self.parts(weight)
        for meter in self.meters:
            meter.time += weight[0]
            meter.size += weight[1]

    def refund(self, weight: Weight) -> None:
        """Give back what was charged for messages that were not tried."""
        self.spent -= self.parts(weight)
        for meter in self.meters:
            meter.time -= weight[0]
            meter.size -= weight[1]


class PathRounds:
    """Turns over the tree of ready queues, within one block."""

    def __init__(self, ladder: Ladder, ledger: Ledger) -> None:
        self.ladder, self.ledger, self.shelf = ladder, ledger, ladder.shelf
        self.ring = ladder.shelf.ring
        config = ladder.shelf.config
        self.parts = parts_of(config.service_weight or ladder.meter.limit)
        self.quantum = max(BLOCK_PARTS // config.rounds_per_block, 1)
        self.owed: list[str] = []
        self._loaded: set[str] = set()

    def run(self, guaranteed: Iterable[str] = ()) -> None:
        """Guarantees first, then what is owed, then turn after turn."""
        if not self.ladder.meter.consume(self.ladder.costs.bump_service_head):
            return
        guaranteed = list(guaranteed)
        self.tree = Tree(self.shelf, guaranteed)
        self.ring.entrants = []
        try:
            for path in guaranteed:
                self._grant(path)
            self._pay_owed()
            self._take_turns()
        finally:
            self.ring.entrants = None
            self.ring.soon = ()
        self._keep()

    def _take_turns(self) -> None:
        unfit = 0
        while True:
            queue = self.tree.next()
            if queue is None or self.ladder.is_full:
                return
            book = self._load(queue)
            turn = self._turn(queue, self.tree.allowance(queue, self.quantum))
            served = self._visit(queue, book, turn)
            if self._end_turn(queue, book, turn, served):
                unfit = 0
                continue
            if not self.ladder.meter.fits(self.ladder.visit_cost):
                return
            unfit = 0 if served else unfit + 1
            if unfit == LOOK_PAST:
                self.tree.only_met()

    def _end_turn(self, queue: Member, book: Book, turn: Turn, served: bool) -> bool:
        """Where the queue stands after its turn; false, if its next message does not fit what is left."""
        reason = self.ledger.entry(queue.name).reason
        if reason == "limit" and book.is_ready and not book.passed_by:
            front = front_weight(self.ladder, book)
            if front is not None and front.exceeds(self.ladder.room):
                # No block like this one carries it: it saves nothing up, and newcomers start where the others are.
                self.tree.leave(queue)
            else:
                self.tree.wait(queue)
                self._owe(queue.name)
            return False
        if turn.refused is not None:
            # A queue that got its most, or a group.
            full = next(one for one in self.tree.path(queue) if one.meter is turn.refused)
            self.tree.leave(full)
        elif reason != "spent" or not book.is_ready:
            self.tree.leave(queue)
        return True

    def _owe(self, origin: str) -> None:
        """The first of each member of the ring that did not fit when its turn came is first in the next block."""
        whose = head_of(origin)
        if len(self.owed) < LOOK_PAST and all(head_of(one) != whose for one in self.owed):
            self.owed.append(origin)

    def _pay_owed(self) -> None:
        for origin in self.shelf.owed:
            queue = self.tree.queues.get(origin)
            if queue is None or queue.state is not State.OPEN:
                continue
            book, turn = self._load(queue), self._turn(queue, 1)
            self._end_turn(queue, book, turn, self._visit(queue, book, turn))

    def _grant(self, path: str) -> None:
        """What is promised to a queue or a group: it is not charged."""
        member = self.tree.below(path)
        least = self.shelf.standing(path).least
        if member is None or least is None or member.state is State.OUT:
            return
        meter, stopped = Meter(least), []
        while member.state is State.OPEN:
            queue = member.first_queue()
            if queue is None:
                break
            book, turn = self._load(queue), self._turn(queue, ANY)
            turn.meters = [meter, *turn.meters]
            self._visit(queue, book, turn, charged=False)
            if book.is_ready and not book.passed_by:
                # Its next message does not fit what is promised, or left; others of the group may have smaller ones.
                self.tree.wait(queue)
                stopped.append(queue)
            else:
                self.tree.leave(queue)
        for one in stopped:
            one.state = State.OPEN
            one.enqueue()

    def _turn(self, queue: Member, allowance: int) -> Turn:
        return Turn(allowance, self.parts, [one.meter for one in self.tree.path(queue) if one.meter is not None])

    def _visit(self, queue: Member, book: Book, turn: Turn, *, charged: bool = True) -> bool:
        queue.met, self.tree.queues[queue.name] = True, queue
        self.ring.bump(queue.name)
        entry = self.ledger.entry(queue.name)
        spent = self.parts(entry.granted)
        entry.offered = max(entry.offered, min(spent + turn.allowance, BLOCK_PARTS))
        self.ladder.credit = turn
        visited = visit(self.ladder, self.ledger, queue.name)
        self.ladder.credit = None
        if charged and turn.spent:
            self._charge(queue, book, turn.spent)
        for origin in self.ring.entrants or ():
            if origin != queue.name:
                self.tree.join(origin, self.shelf.book(origin).deficit)
        self.ring.entrants = []
        return visited.progressed

    def _charge(self, queue: Member, book: Book, parts: int) -> None:
        for member in self.tree.path(queue):
            member.charge(parts)
            if member.is_group:
                self._keep_group(member)
        book.deficit = queue.deficit
        self.shelf.changed_books.add(book.origin)

    def _load(self, queue: Member) -> Book:
        """The book of a queue, and with it those of queues whose turns will come soon."""
        if queue.name not in self._loaded:
            soon = dict.fromkeys([queue.name, *self.tree.soon(LOADED)])
            self._loaded.update(soon)
            self.shelf.load_books(soon)
            for origin in soon:
                if self.shelf.book(origin).is_ready:
                    self.ring.meet(origin)
            self.ring.soon = tuple(soon)
        book = self.shelf.book(queue.name)
        for member in self.tree.path(queue):
            if not member.known:
                standing = DEFAULT_STANDING if member.is_own else self.shelf.standing(member.standing_of)
                member.known, member.share = True, standing.share
                member.meter = Meter(standing.most) if standing.most else None
        return book

    def _keep_group(self, group: Member) -> None:
        self.shelf.branches[group.name] = Branch(group.name, group.deficit, group.level)
        self.shelf.changed_branches.add(group.name)

    def _keep(self) -> None:
        """Write down where everybody stands; the levels of the groups that were touched only ever fall."""
        for group in self.tree.groups.values():
            if any(member.met or member.used for member in group.members):
                group.level = group.end_level()
                self._keep_group(group)
        for origin, entry in self.ledger.entries.items():
            queue = self.tree.queues[origin]
            assert queue.parent is not None
            entry.deficit = (queue.deficit - queue.parent.level) * GRAIN
        # Who is owed a turn that this block could not give is owed it in the next one that services it.
        owed = [*(one for one in self.shelf.owed if not self.shelf.takes(one)), *self.owed]
        if self.shelf.owed != owed:
            self.shelf.owed = owed
            self._keep_group(self.tree.root)


def charge_overrun(shelf: Shelf, book: Book, parts: int) -> None:
    """What processors used beyond what was planned is charged when their block settles, in any deficit order."""
    if not shelf.config.paths or is_high(book.origin):
        book.deficit -= parts
        if not book.is_ready:
            book.deficit = min(book.deficit, 0)
        return
    if not parts:
        return
    shelf.load_branches()
    own = book.origin + SEPARATOR
    nested = own in shelf.branches
    book.deficit -= units_of(parts, 1 if nested else shelf.standing(book.origin).share)
    shelf.changed_books.add(book.origin)
    for path in [*groups_of(book.origin), own]:
        branch = shelf.branches.get(path)
        if branch is not None:
            branch.deficit -= units_of(parts, shelf.standing(path.removesuffix(SEPARATOR)).share)
            shelf.changed_branches.add(path)
