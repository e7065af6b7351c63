"""A survey: how deep all queues of a ring are, added up piece by piece.

Exact totals, and queues sorted by depth, take a look at all books and all mail. That is done in short reads, so that
no transaction stays open, and whoever waits sees how far it has come. What moves meanwhile may be counted as it was
before: a survey is of the moment at which it began, nearly.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...store import codec
from ...store.rows import LATEST
from ..session import RingSession

#: Books, and inbox rows, that are read at once.
BOOKS, ROWS = 2_000, 10_000
#: Queues that a survey keeps in mind at most; what lies beyond is left out.
MOST_QUEUES = 250_000


@dataclass
class QueueDepth:
    """How deep a queue is; where its first message lies, as inbox rows are numbered."""

    messages: int = 0
    size: int = 0
    first: int = LATEST


@dataclass
class Survey:
    """Queues by the names of their books, as far as they were counted."""

    depths: dict[str, QueueDepth] = field(default_factory=dict)
    messages: int = 0
    size: int = 0
    #: Whether all of it was counted, and whether there were more queues than are kept in mind.
    done: bool = False
    cut_short: bool = False

    def add(self, name: str, messages: int, size: int, first: int) -> None:
        """Add to a queue."""
        depth = self.depths.get(name)
        if depth is None:
            if len(self.depths) >= MOST_QUEUES:
                self.cut_short = True
                return
            depth = self.depths[name] = QueueDepth()
        depth.messages += messages
        depth.size += size
        depth.first = min(depth.first, first)
        self.messages += messages
        self.size += size


class Surveys:
    """Counts over all queues."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id

    def survey(self, into: Survey | None = None) -> Survey:
        """See `Inspect.survey`."""
        found = Survey() if into is None else into
        with self.store.loose() as unit:
            floors: dict[str, tuple[int, frozenset[int]]] = {}
            after = ""
            while rows := unit.books.summaries(self.ring_id, after, BOOKS):
                for name, messages, size, floor, ahead, first in rows:
                    floors[name] = floor, frozenset(codec.unpack_numbers(bytes(ahead))[0]) if ahead else frozenset()
                    if messages:
                        found.add(name, messages, size, LATEST if first is None else first)
                after = rows[-1].origin
            last = 0
            while batch := unit.inbox.sizes(self.ring_id, last, ROWS):
                for last, ring, name, items, size in batch:
                    floor, others = floors.get(name, _NOTHING)
                    if ring == self.ring_id and last >= floor and last not in others:
                        found.add(name, items, size, last)
        found.done = True
        return found

    def ring_version(self) -> tuple[int, int]:
        """See `Inspect.ring_version`."""
        with self.store.loose() as unit:
            version = unit.rings.floors(self.ring_id).version
            return version, unit.rings.latest_id()


_NOTHING: tuple[int, frozenset[int]] = (0, frozenset())
