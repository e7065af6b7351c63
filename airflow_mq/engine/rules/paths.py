"""Path rounds: origins are paths, and weight is shared fairly at each level of the path.

`acme/orders` is a member of the group `acme/`, which is a member of the ring. Every group is a small ring of its own.
Used weight is charged to a queue and to each group that holds it, over their shares: their *deficits* fall. The next
turn is decided from the top: among the ready members the one with the largest deficit is next, then among its members,
down to a queue. So a tenant gets the same whether it sends to one origin or to a thousand.

Absent members save nothing: a newcomer starts at the *level* at which the others of its group are currently served. The
weight that a group cannot use goes to the others in the same block, and is charged to them. A message whose turn has
come and that does not fit the rest of the block is *owed*: it starts first in the next one, at most one for each member
of the ring at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from .book import BUDGET, DEFAULT_SETTINGS, Book, Group
from .config import BLOCK_PARTS
from .groups import SEPARATOR, head_of
from .orders import LOOK_PAST, MOST_LOOKS, Ledger, Parts, Rounds, covered
from .service import Credit, Ladder
from .tree import ANY, GRAIN, Member, State, Tree
from .weight import Meter, Weight

#: Number of queues that are loaded at once.
LOADED = 128


class Turn(Credit):
    """Weight that a queue may spend in this turn; a message may start as long as any is left."""

    def __init__(self, allowance: int, parts: Parts, meters: Iterable[Meter]) -> None:
        super().__init__(*meters)
        self.allowance, self.parts = allowance, parts
        self.spent = 0

    def covering(self, weights: Sequence[Weight]) -> int:
        left = self.allowance - self.spent
        return min(covered(weights, self.parts, left - 1) + 1, super().covering(weights)) if left > 0 else 0

    def spend(self, weight: Weight) -> None:
        self.spent += self.parts(weight)
        super().spend(weight)

    def refund(self, weight: Weight) -> None:
        self.spent -= self.parts(weight)
        super().refund(weight)


class PathRounds(Rounds):
    """Turns over the tree of ready queues, within one block."""

    def __init__(self, ladder: Ladder, ledger: Ledger) -> None:
        super().__init__(ladder, ledger)
        self.owed: list[str] = []
        #: Queues that got no turn.
        self.unmet: Iterable[str] = self.ring
        #: Whether this walk looked past queues whose messages do not fit.
        self.has_looked = False
        #: Whether the block reached only a part of the ring, because enough queues gave messages.
        self.is_part = False
        self._loaded: set[str] = set()
        #: Names of queues and groups whose buckets this walk exhausted.
        self.exhausted: set[str] = set()

    def run(self, guaranteed: Iterable[str] = ()) -> None:
        """Service guarantees, then owed turns, then turn after turn."""
        if not self.ladder.meter.consume(self.ladder.costs.bump_service_head):
            return
        with self._turns_over(Tree(self.working_set)):
            for path in guaranteed:
                self._grant(path)
            self._pay_owed()
            self._take_turns()

    @contextmanager
    def _turns_over(self, tree: Tree) -> Iterator[None]:
        """Give turns to the queues of a tree, and store the deficits at the end."""
        self.tree, self.ring.entrants, self.working_set.turns = tree, [], self
        try:
            yield
        finally:
            self.ring.entrants = None
            self.ring.soon = ()
            self.working_set.turns = None
            self.unmet = tree.unmet()
        self._keep()

    def _take_turns(self) -> None:
        unfit = 0
        while (queue := self.tree.next()) is not None:
            if self.ladder.is_full and not queue.met:
                self.is_part = True
                self.tree.only_met()
                continue
            served, ended = self._give_turn(queue, self.tree.allowance(queue, self.quantum))
            if ended:
                unfit = 0
                continue
            if not self.ladder.meter.fits(self.ladder.visit_cost):
                return
            unfit = 0 if served else unfit + 1
            if unfit == LOOK_PAST and not self.has_looked:
                self._service_found(self.look_on(LOOK_PAST))

    def stopped(self) -> Iterator[str]:
        """Yield the queues for which the meter could not pay any more, without those in groups that wait."""
        entries = self.ledger.entries
        yield from (name for name in self.unmet if name not in entries)
        yield from filter(self.is_stopped, entries)

    def look_further(self) -> None:
        """Service queues to which earlier walks of this call did not come. The names of a ring are read if one fits."""
        if found := list(self.look_on(MOST_LOOKS)):
            with self._turns_over(Tree(self.working_set)):
                self.owed = list(filter(self.working_set.takes, self.working_set.owed))
                self._service_found(found)
                self._take_turns()

    def _service_found(self, found: Iterable[str]) -> None:
        """Service queues before their turn, one message each; then only queues that were visited get turns."""
        self.has_looked = True
        for queue in self.tree.meet(found):
            if not self.ladder.is_full and self.ladder.can_service(self._load(queue)):
                self._give_turn(queue, 1)
        self.tree.only_met()

    def _give_turn(self, queue: Member, allowance: int) -> tuple[bool, bool]:
        """Return whether a message was processed, and whether something else than the rest ended the turn."""
        book, turn = self._load(queue), self._turn(queue, allowance)
        served = self._visit(queue, book, turn)
        return served, self._end_turn(queue, book, turn)

    def _end_turn(self, queue: Member, book: Book, turn: Turn) -> bool:
        """Update the tree after a turn; return false if the queue's next message does not fit the rest."""
        reason = self.ledger.entry(queue.name).reason
        if book.skipped == BUDGET:
            self._budget_of(queue, book).leave()
            return True
        if reason == "limit" and book.is_ready and not book.skipped:
            front = self.ladder.front_of(book)
            if front is not None and front.exceeds(self.ladder.room):
                # Such a block never carries it: the queue saves no credit, and newcomers start at the level of the
                # others.
                queue.leave()
            else:
                queue.wait()
                self._owe(queue.name)
            return False
        if turn.refused is not None:
            # The *most* of a queue or a group is used up.
            full = next(member for member in queue.path() if member.meter is turn.refused)
            full.leave()
            self.ledger.at_most.add(full.name)
        elif reason != "spent" or not book.is_ready:
            queue.leave()
        return True

    def _budget_of(self, queue: Member, book: Book) -> Member:
        """Return the outermost member that waits for its budget: all queues below it wait, too."""
        buckets = self.working_set.buckets_of(book)
        waiting = {bucket.path for bucket in buckets if bucket.wake_at > self.working_set.now}
        self.exhausted |= waiting
        return [member for member in queue.path() if member.settings_name in waiting or member is queue][-1]

    def _owe(self, origin: str) -> None:
        """Record a queue whose turn came and whose message did not fit: one for each member of the ring.

        Where earlier parts of a call used up the weight, it is no turn.
        """
        head = head_of(origin)
        if self.ladder.is_resumed:
            return
        if len(self.owed) < LOOK_PAST and all(head_of(owed) != head for owed in self.owed):
            self.owed.append(origin)

    def _pay_owed(self) -> None:
        for origin in self.working_set.owed:
            queue = self.tree.queue(origin)
            if queue is None or queue.state is not State.OPEN:
                continue
            if self.ladder.is_full:
                # It stays owed.
                self.owed.append(origin)
            else:
                self._give_turn(queue, 1)

    def _grant(self, path: str) -> None:
        """Service the guarantee of a queue or a group, without a charge."""
        member = self.tree.groups.get(path + SEPARATOR) or self.tree.queue(path)
        least = self.working_set.loader.settings(path).least
        if member is None or least is None or member.state is State.OUT:
            return
        meter, stopped = Meter(least), []
        while member.state is State.OPEN:
            queue = self.tree.first_below(member)
            if queue.is_group:
                # Its queues wait; others below the member may have messages that fit.
                queue.wait()
                stopped.append(queue)
                continue
            book, turn = self._load(queue), self._turn(queue, ANY)
            turn.meters = (meter, *turn.meters)
            self._visit(queue, book, turn, charged=False)
            if book.is_ready and not book.skipped:
                # Its next message does not fit the guarantee or the block; other queues of the group may have smaller
                # ones.
                queue.wait()
                stopped.append(queue)
            elif book.skipped == BUDGET:
                self._budget_of(queue, book).leave()
            else:
                queue.leave()
        for queue in stopped:
            queue.open()

    def _turn(self, queue: Member, allowance: int) -> Turn:
        return Turn(allowance, self.parts, [member.meter for member in queue.path() if member.meter is not None])

    def _visit(self, queue: Member, book: Book, turn: Turn, *, charged: bool = True) -> bool:
        queue.met = True
        self.ring.bump(queue.name)
        entry = self.ledger.entry(queue.name)
        spent = self.parts(entry.granted)
        entry.offered = max(entry.offered, min(spent + turn.allowance, BLOCK_PARTS))
        visited = self.service(queue.name, turn)
        if charged and turn.spent:
            for member in queue.path():
                member.charge(turn.spent)
                if member.is_group:
                    self._keep_group(member)
            book.deficit = queue.deficit
            self.working_set.changes.books.add(book.origin)
        for origin in self.ring.entrants or ():
            if origin != queue.name:
                self.tree.join(origin, self.working_set.book(origin).deficit)
        self.ring.entrants = []
        return visited.processed > 0

    def charge(self, name: str, parts: int, *, is_group: bool) -> int | None:
        """Charge a queue or a group for an overrun; return its deficit, or None if it takes no part in the turns."""
        member = self.tree.groups.get(name) if is_group else self.tree.queue(name)
        if member is None:
            return None
        self._learn(member)
        member.charge(parts)
        if is_group:
            self._keep_group(member)
        return member.deficit

    def _learn(self, member: Member) -> None:
        """Load the share and the *most* of a member."""
        if not member.known:
            name = member.settings_name
            settings = DEFAULT_SETTINGS if name is None else self.working_set.loader.settings(name)
            member.known, member.share = True, settings.share
            member.meter = Meter(settings.most) if settings.most else None

    def _load(self, queue: Member) -> Book:
        """Return the book of a queue; load it together with those whose turns come soon."""
        if queue.name not in self._loaded:
            soon = dict.fromkeys([queue.name, *self.tree.soon(LOADED)])
            self._loaded.update(soon)
            self.working_set.loader.load_books(soon)
            for origin in soon:
                if self.working_set.book(origin).is_ready:
                    self.ring.meet(origin)
            self.ring.soon = tuple(soon)
        book = self.working_set.book(queue.name)
        for member in queue.path():
            self._learn(member)
        return book

    def _keep_group(self, group: Member) -> None:
        self.working_set.groups[group.name] = Group(group.name, group.deficit, group.level)
        self.working_set.changes.groups.add(group.name)

    def _keep(self) -> None:
        """Store the deficits and levels of all visited groups; levels only ever fall."""
        for group in self.tree.groups.values():
            if any(member.met or member.used for member in group.members):
                group.level = self.tree.end_level(group)
                self._keep_group(group)
        groups = self.tree.groups
        self.working_set.halted[BUDGET].update(name for name in self.exhausted if name + SEPARATOR in groups)
        for origin, entry in self.ledger.entries.items():
            queue = self.tree.queues.get(origin)
            if queue is None or queue.parent is None:
                # An earlier walk of this call visited it.
                continue
            entry.deficit = (queue.deficit - queue.parent.level) * GRAIN
        # A turn that this block could not give stays owed for the next one that services the queue. Where a block
        # reaches a part of the ring, a queue that got messages waits: else it would be in the next part as well.
        owed = [origin for origin in self.working_set.owed if not self.working_set.takes(origin)]
        heads = set(map(head_of, owed))
        waits = {origin for origin in self.owed if self.is_part and self.ledger.entry(origin).messages}
        owed += [origin for origin in self.owed if head_of(origin) not in heads and origin not in waits]
        if self.working_set.owed != owed:
            self.working_set.owed = owed
            self._keep_group(self.tree.root)
