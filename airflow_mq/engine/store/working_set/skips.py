"""Skipped books of one walk: those that are paused, in flight or backing off.

A walk visits the first few as any other book, and so moves them to the end of the ring. They are those that were passed
most often. So the head of the ring moves on, and lookups do not begin at places that other books left long ago. All
further ones keep their places, and the walk only counts them. Of a stretch with many, it reads nothing but names.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from ...rules.book import Book
from ...rules.priority import origin_of
from ...rules.working_set import WorkingSet
from .source import Source

#: Number of skipped books that a walk visits and moves to the end of the ring.
VISITED = 32
#: Names that are read at once, at least and at most; within that, so many for each book that was skipped.
NAMES, MOST_NAMES, GROWTH = 1_024, 16_384, 4
#: A walk reads the names of all paused origins if it skipped at least one book for so many of them.
WORTH = 128
#: The next stretch is read by names if one in so many books of the last one was skipped.
MANY = 4


class Turns(NamedTuple):
    """A stretch of the ring by names."""

    #: Tickets and names of the books that are not skipped.
    turns: list[tuple[int, str]]
    #: The last ticket of the stretch, if any, and whether the ring ends there.
    last: int | None
    ends: bool


class Skips:
    """Record of the books that a walk skips where they stand."""

    def __init__(self, working_set: WorkingSet, source: Source, *, skip_in_flight: bool) -> None:
        """:param skip_in_flight: skip a queue with messages in flight even if it is not ordered."""
        self.working_set = working_set
        self.source = source
        self.skip_in_flight = skip_in_flight
        #: Names of the skipped books that keep their places, by reason.
        self.names: defaultdict[str, list[str]] = defaultdict(list)
        self._count = 0
        self._obstacles: list[tuple[str, set[str]]] | None = None
        #: Number of skipped books from which on another look for obstacles is worth it.
        self._next_look = VISITED
        self._by_name = False

    def keep(self, book: Book) -> bool:
        """Return whether a skipped book keeps its place; the first ones are visited instead."""
        self._count += 1
        if self._count > VISITED:
            self.names[book.skipped].append(book.origin)
        return self._count > VISITED

    def note(self, books: int, skipped: int) -> None:
        """Record how many books of a stretch were skipped, which decides how to read the next one."""
        self._by_name = self._count > VISITED and skipped * MANY >= books

    @property
    def count(self) -> int:
        """Number of skipped books, visited ones included."""
        return self._count

    def next_turns(self, after: int) -> Turns | None:
        """Return the next stretch by names, and record its skipped books; None if whole rows are worth more."""
        obstacles = self._known_obstacles() if self._by_name else None
        if obstacles is None:
            return None
        limit = min(max(NAMES, GROWTH * self._count), MOST_NAMES)
        row = self.source.next_turns(after, limit, self.working_set.now)
        awake, asleep = row.awake, row.asleep
        if self.working_set.patterns is not None:
            awake, asleep = (list(filter(self.working_set.takes, names)) for names in (awake, asleep))
        for reason, among in obstacles:
            awake = self._keep_all(reason, awake, among)
            asleep = self._keep_all(reason, asleep, among)
        self.names["backoff"] += asleep
        skipped = row.books - len(awake)
        self._count += skipped
        self.note(row.books, skipped)
        tickets = dict(zip(row.awake, row.tickets)) if awake else {}
        return Turns([(int(tickets[name]), name) for name in awake], row.last, row.books < limit)

    def _keep_all(self, reason: str, names: list[str], among: set[str]) -> list[str]:
        """Record the names that are in a set as skipped; return the others."""
        found = [name for name in names if name in among]
        self.names[reason] += found
        return [name for name in names if name not in among] if len(found) < len(names) else []

    def _known_obstacles(self) -> list[tuple[str, set[str]]] | None:
        """Return origins by their obstacle: read once, unless they are many more than the skipped books."""
        if self._obstacles is None and self._count >= self._next_look:
            self._next_look = 2 * self._count
            self._obstacles = self._read_obstacles(WORTH * self._count)
        return self._obstacles

    def _read_obstacles(self, most: int) -> list[tuple[str, set[str]]] | None:
        paused = self.source.paused_names(self.working_set.now, most)
        claimed = None if paused is None else self.source.claimed_names(most)
        if paused is None or claimed is None:
            return None
        # Messages of either priority are in the way of both.
        in_flight = set(map(origin_of, claimed))
        if in_flight and not self.skip_in_flight:
            ordered = self.working_set.config.ordered
            others = self.source.differently_ordered(most, ordered=ordered)
            if others is None:
                return None
            in_flight = in_flight - others if ordered else in_flight & others
        return [(reason, names) for reason, names in (("paused", paused), ("in flight", in_flight)) if names]
