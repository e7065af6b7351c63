"""Loader of the ring's order, slice by slice: ready books by their tickets, newcomers by their first inbox row."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from heapq import heappop, heappush
from itertools import islice

from ...rules.book import BUDGET
from ...rules.changes import POSTED
from ...rules.groups import SEPARATOR, paths_of
from ...rules.priority import is_high
from ...rules.working_set import WorkingSet
from ..rows import ASLEEP, LAST_PLACE
from . import books
from .books import BookLoader
from .inboxes import InboxLoader
from .pages import PageLoader
from .source import UNKNOWN, LoadOptions, Source

#: A look for newcomers reads rows of so many ids. If none of them is of a newcomer, the next look goes from origin to
#: origin, because a few origins may own most rows; it leaves out so many origins that the walk knows.
SLICE_IDS, MOST_KNOWN = 20_000, 1_024
#: So many newcomers are met together: their books are made, and their first rows cut. A transaction that does nothing
#: else meets at most the second number.
MEET_AT_ONCE, MEET_IN_ALL = 1_024, 4_096
#: A walk visits so many skipped books, which moves them to the end of the ring. Then each statement passes over more
#: skipped books than the one before, by this factor, and at most the second number.
VISITED, MOST_SKIPPED, GROWTH = 32, 16_384, 4


class NextBooks:
    """The next books of a ring: ready ones that are loaded, and newcomers that are not met yet."""

    def __init__(self) -> None:
        #: A heap of ready books, by ticket.
        self.ready: list[tuple[int, str]] = []
        #: Origins that are in no ring and have inbox rows, by the id of their first one.
        self.newcomers: deque[tuple[int, str]] = deque()

    @property
    def is_empty(self) -> bool:
        """Whether no book is known to come."""
        return not (self.ready or self.newcomers)


class RingLoader:
    """Loads ready books in the ring's order."""

    def __init__(
        self, working_set: WorkingSet, source: Source, books: BookLoader, pages: PageLoader, inboxes: InboxLoader,
        options: LoadOptions,
    ) -> None:  # fmt: skip
        self.working_set = working_set
        self.source = source
        self.books, self.pages = books, pages
        self.inboxes = inboxes
        if source.state is UNKNOWN:
            source.state = source.unit.rings.state(source.ring_id)
        state = source.state
        self.look_cursor = state.look_floor
        #: Rows below this id were visible at the first look. The horizon moves on with each save, and a sender may
        #: commit smaller ids behind the looks: only the next operation finds those.
        self._look_horizon = source.horizon
        self._ticket_cursor = state.ticket_floor - 1
        self._rest_done = False
        self._high_cursor = -LAST_PLACE
        self._high_done = not working_set.config.high
        #: Where the next look goes on, of regular books and of high ones.
        self.places = {False: state.look_place, True: state.high_place}
        #: A ticket of which no ready book that this walk passed and did not load has a smaller one.
        self._least_passed: int | None = None
        #: Number of skipped books, visited ones included, and of books among which the next stretch is.
        self._skipped = self._look = 0
        self._next, self._next_high = NextBooks(), NextBooks()
        #: Origins that waited for their budgets and wait no longer; and of these, by priority, those that came first
        #: and have their turn at the end of the walk.
        self._woken: set[str] = set()
        self._late: dict[bool, list[str]] = {}
        #: Origins that a look has found.
        self._found: set[str] = set()
        #: Newcomers that entered their ring: their places are not stored yet.
        self._met: dict[str, None] = {}
        #: Whether the last look came to its end: no newcomer is left that it could have found.
        self._look_ended = False
        self._options = options
        #: Ticket, origin and deficit of all ready books, in a ring with paths.
        self._whole: list[tuple[int, str, int]] | None = None
        #: First parts of paths below which no row of it was read.
        self._without: set[str] = set()

    def more_ready(self) -> list[str]:
        """Return the next stretch: books by their tickets, and newcomers by their first inbox row."""
        self._wake_first(high=False)
        following = self._next
        found: list[tuple[int, str]] = []
        looked_to_end = self._options.looks_once and self._rest_done and self._look_ended
        while not found:
            if following.is_empty and not self._rest_done:
                if self.working_set.keeps_places and self._skipped > VISITED and self.source.leaves_out:
                    self._fetch_serviceable()
                else:
                    self._fetch_all()
            if not following.newcomers and not looked_to_end:
                self._look_for_news(None if self._rest_done else self._ticket_cursor, MEET_AT_ONCE)
                looked_to_end = self._rest_done and self._look_ended
            if looked_to_end and following.is_empty:
                break
            found = self._next_stretch(following, MEET_AT_ONCE)
        return [origin for _, origin in sorted(found)] or self._wake_more(high=False)

    def more_high(self) -> list[str]:
        """Return the next stretch of high books: they come before all regular ones, however late they were sent."""
        self._wake_first(high=True)
        following = self._next_high
        if not self._high_done:
            self._fetch_high()
        found: list[tuple[int, str]] = []
        while not found and not following.is_empty:
            found = self._next_stretch(following, MEET_AT_ONCE)
        return [origin for _, origin in sorted(found)] or self._wake_more(high=True)

    def _wake_first(self, *, high: bool) -> None:
        """At the begin of a walk, give books that wait for no budget any more their places, also if it ends early."""
        if high not in self._late:
            self._late[high] = self._wake(high=high)

    def _wake_more(self, *, high: bool) -> list[str]:
        """Return the books that have their turn at the end of a walk, because they waited for their budgets."""
        late, self._late[high] = self._late[high], []
        return late or self._wake(high=high)

    def _wake(self, *, high: bool) -> list[str]:
        """Give some more books that wait for no budget any more places at the end of their ring; return them."""
        if not self.source.state.budgeted:
            return []
        most = MEET_IN_ALL + len(self._woken)
        names = self.source.woken(most, self.working_set.now, high=high)
        fresh = [name for name in names if name not in self._woken]
        self._woken.update(fresh)
        self.books.load(fresh)
        for name in fresh:
            self.working_set.circle(name).queue_up(name)
        if not high:
            # A block that does not come to them has skipped them: they were not wanting before.
            self.working_set.skipped[BUDGET] += filter(self.working_set.takes, fresh)
        return fresh

    def line(self) -> list[tuple[str, int]]:
        """Return all ready regular origins in the ring's order with their deficits, except those in halted groups."""
        groups = self.books.groups
        groups.load_groups()
        for reason, names in groups.halted().items():
            self.working_set.halted[reason].update(names)
        halted = frozenset[str]().union(*groups.halted().values())
        # Of these, no row is read.
        self._without = {name for name in halted if SEPARATOR not in name}
        rows = self.source.line(self._without)
        while woken := self._wake(high=False):
            rows += [(ASLEEP, name, self.working_set.books[name].deficit) for name in woken]
        if self.working_set.config.high:
            rows = [row for row in rows if not is_high(row[1])]
        self._whole = rows
        fresh = self._meet_all()
        books = self.working_set.books
        rows = sorted([*rows, *((ticket, origin, books[origin].deficit) for ticket, origin in fresh)])
        if halted:
            rows = [row for row in rows if halted.isdisjoint(paths_of(row[1], True))]
        return [(origin, deficit) for _, origin, deficit in rows]

    def _meet_all(self) -> list[tuple[int, str]]:
        fresh: list[tuple[int, str]] = []
        self._look_ended = False
        while not (self._next.is_empty and self._look_ended):
            fresh += self._meet_more(MEET_AT_ONCE)
        fresh.sort()
        for _, origin in fresh:
            self.working_set.ring.meet(origin)
        return fresh

    def meet_newcomers(self, most: int = MEET_IN_ALL) -> bool:
        """Meet at most `most` newcomers of each priority, by their first row; return whether more wait."""
        if self.working_set.config.high:
            self._look_for_high_news()
        for _ in range(0, min(most, len(self._next_high.newcomers)), MEET_AT_ONCE):
            self._next_stretch(self._next_high, MEET_AT_ONCE)
        self._look_ended = False
        for _ in range(0, most, MEET_AT_ONCE):
            self._meet_more(MEET_AT_ONCE)
        return bool(self._next.newcomers or self._next_high.newcomers) or not self._look_ended

    def _meet_more(self, most: int) -> list[tuple[int, str]]:
        """Meet the next newcomers, after a look if none is known."""
        if not (self._next.newcomers or self._look_ended):
            self._look_for_news(None, most)
        return self._next_stretch(self._next, most)

    def _fetch_all(self) -> None:
        takes = self.working_set.takes
        rows = self.source.ready_books(self._ticket_cursor, books.RING_SLICE, self.working_set.now, high=False)
        mine = rows if self.working_set.patterns is None else [row for row in rows if takes(row.origin)]
        if len(mine) < len(rows) and self._least_passed is None:
            self._least_passed = next(row.ticket for row in rows if not takes(row.origin))
        self.books.take(mine)
        self._rest_done = len(rows) < books.RING_SLICE
        for row in mine:
            self._stand(row.ticket or 0, row.origin)
        if rows:
            self._ticket_cursor = rows[-1].ticket or 0

    def _fetch_serviceable(self) -> None:
        """Load the next stretch without skipped books: they keep their places, and only their names are read."""
        takes, look = self.working_set.takes, max(self._look, books.RING_SLICE)
        stretch = self.source.serviceable(
            self._ticket_cursor, look, books.RING_SLICE, self.working_set.now,
            ordered=self.working_set.config.ordered, any_order=self._options.skip_in_flight,
        )  # fmt: skip
        for reason, names in stretch.skipped.items():
            self.working_set.skipped[reason] += filter(takes, names)
        if self._least_passed is None:
            self._least_passed = self._ticket_cursor + 1
        mine = [turn for turn in stretch.turns if takes(turn[1])]
        self.books.load(origin for _, origin in mine)
        for ticket, origin in mine:
            self._stand(ticket, origin)
        is_open = 2 * len(stretch.turns) >= look
        self._look = books.RING_SLICE if is_open else min(GROWTH * look, MOST_SKIPPED)
        self._rest_done = stretch.ends
        if stretch.last is not None:
            self._ticket_cursor = stretch.last

    def _stand(self, ticket: int, origin: str) -> None:
        """Let a ready book take its turn, unless it is skipped and keeps its place."""
        if not self._keeps(origin):
            heappush(self._next.ready, (ticket, origin))

    def _keeps(self, origin: str) -> bool:
        """Return whether a book is skipped and keeps its place. The first few are visited, and so move to the end.

        They are those that were passed most often. So the head of the ring moves on, and lookups do not begin at places
        that other books left long ago.
        """
        book = self.working_set.books[origin]
        if not (self.working_set.keeps_places and book.skipped) or is_high(origin) or origin in self.working_set.ring:
            return False
        self._skipped += 1
        if self._skipped <= VISITED:
            return False
        self.working_set.skipped[book.skipped].append(origin)
        return True

    def _fetch_high(self) -> None:
        rows = self.source.ready_books(self._high_cursor, books.RING_SLICE, self.working_set.now, high=True)
        self.books.take(rows)
        for row in rows:
            heappush(self._next_high.ready, (row.ticket or 0, row.origin))
        if len(rows) == books.RING_SLICE:
            self._high_cursor = rows[-1].ticket or 0
        else:
            self._high_done = True
            self._look_for_high_news()

    def _look_for_news(self, below: int | None, most: int) -> None:
        """Find origins that were not ready and have inbox rows; each is met later, at the place of its first row.

        A look ends early if it found some. The next one continues from there.

        :param most: number of newcomers to be met: the fewer, the fewer ids the first look reads.
        """
        if below is not None and 0 < self.source.last_id < below:
            # No row has such an id yet. Tickets of a forecast are far above all ids.
            below = None
        self._look_ended = below is not None and below <= self.look_cursor
        looked = 0
        while not (self._look_ended or self._next.newcomers):
            ids = SLICE_IDS if looked else SLICE_IDS * most // MEET_AT_ONCE
            self._look_at_slice(below, ids, by_origin=looked >= SLICE_IDS)
            looked += ids

    def _look_at_slice(self, below: int | None, ids: int, *, by_origin: bool) -> None:
        last, stop = self.source.last_id, self.look_cursor + ids
        self._look_ended = True
        if below is not None and below <= stop:
            rows, reached = self.source.news_by_id(self.look_cursor, below), below
        elif below is None and last < stop:
            rows, reached = self.source.news_by_id(self.look_cursor, POSTED), last + 1
        elif below is None and by_origin:
            rows, reached = self.source.news_by_origin(self._known()), last + 1
        else:
            rows, reached, self._look_ended = self.source.news_by_id(self.look_cursor, stop), stop, False
        self.look_cursor = reached
        fresh = [row for row in rows if not is_high(row[1]) and row[1] not in self._found]
        self._found.update(origin for _, origin in fresh)
        self._next.newcomers.extend(fresh)

    def _known(self) -> list[str]:
        """Return origins that no look needs to find, in ascending order, at most `MOST_KNOWN`.

        This walk serviced them. PostgreSQL would step over each row that it deleted to find the next origin.
        """
        ring = self.working_set.ring
        known = self._found.union(ring.unknitted, filter(ring.__contains__, self.books.stored))
        return sorted(islice(known, MOST_KNOWN))

    def _look_for_high_news(self) -> None:
        self._next_high.newcomers.extend(self.source.high_news())

    def _next_stretch(self, following: NextBooks, most: int) -> list[tuple[int, str]]:
        """Meet the next newcomers, and return all books before those that are still to be met."""
        fresh = [following.newcomers.popleft() for _ in range(min(most, len(following.newcomers)))]
        for entry in self._meet(fresh):
            heappush(following.ready, entry)
        found: list[tuple[int, str]] = []
        reached = self._reached(following)
        while following.ready and (reached is None or following.ready[0][0] < reached):
            found.append(heappop(following.ready))
        return found

    def _reached(self, following: NextBooks) -> int | None:
        """Return a ticket before which no newcomer takes its place; None if none is left."""
        if following.newcomers:
            return following.newcomers[0][0]
        return self.look_cursor + 1 if following is self._next and not self._look_ended else None

    def _meet(self, rows: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
        """Let origins that are not ready and have inbox rows enter their ring; return their tickets."""
        working_set, found = self.working_set, []
        fresh = [(id_, origin) for id_, origin in rows if origin not in working_set.circle(origin)]
        self.inboxes.look_at(origin for _, origin in fresh)
        for id_, origin in fresh:
            book, ring = working_set.book(origin), working_set.circle(origin)
            if origin in ring.unknitted or not (book.is_ready or working_set.pull(book)) or origin in ring:
                continue
            self._met[origin] = None
            if not self._keeps(origin):
                found.append((working_set.changes.tickets.get(origin, id_), origin))
        return found

    # Looks at queues that a walk does not come to.

    def look_on(self, most: int, known: Container[str], *, high: bool) -> tuple[list[str], bool]:
        """Return ready books before a remembered place, the last ones first, and whether no unknown one comes before.

        A look goes from the end of the ring to its head, so books that enter meanwhile do not prolong it. It ends at
        known books, because a walk moves the head's again and again. Newcomers get their places first.
        """
        if high:
            if not self._next_high.newcomers:
                self._look_for_high_news()
            self._next_stretch(self._next_high, most)
        else:
            self._look_ended = False
            self._meet_more(most)
        takes = self.working_set.takes
        fresh = [name for name in self._met if name not in known and is_high(name) == high and takes(name)]
        for origin in fresh[:most]:
            del self._met[origin]
        rows = self.source.turns_before(self.places[high], most, high=high)
        ended = len(rows) < most or any(origin in known for _, origin in rows)
        self.places[high] = LAST_PLACE if ended else rows[-1][0]
        names = [*fresh[:most], *filter(takes, (origin for _, origin in rows))]
        self.books.load(names)
        self.pages.fetch(
            (name, book.begin)
            for name, book in ((name, self.working_set.books[name]) for name in names)
            if book.is_ready and not book.skipped
        )
        unmet = self._next_high.newcomers if high else self._next.newcomers or not self._look_ended
        return names, ended and len(fresh) <= most and not unmet

    def look_anew(self) -> None:
        """Let the next look begin at the end of the ring."""
        self.places = {False: LAST_PLACE, True: LAST_PLACE}

    # Where the next operation begins.

    def least_tickets(self, floor: int) -> list[int]:
        """Return tickets of which no ready regular book that this operation did not load has a smaller one."""
        found = [] if self._least_passed is None else [self._least_passed]
        if self._whole is not None and not self._without:
            found += islice((row[0] for row in self._whole if row[1] not in self.books.stored), 1)
        elif not self._rest_done:
            found.append(self._ticket_cursor + 1)
        # Newcomers take their places in the ring by their first row.
        found += islice((id_ for id_, _ in self._next.newcomers if id_ >= floor), 1)
        return found

    def look_floor(self, floor: int) -> int:
        """Return an id below which no row is of an origin that is still to be met."""
        floor = min(self.look_cursor, max(self._look_horizon, floor))
        return min(floor, self._next.newcomers[0][0]) if self._next.newcomers else floor
