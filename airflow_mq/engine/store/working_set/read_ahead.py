"""Messages and bytes that an operation may still take, and so how much it reads ahead for queues that it comes to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter

from ...rules.weight import LARGEST, PER
from ...rules.working_set import WorkingSet
from ..rows import PlainRow
from . import books
from .inbox import FIRST_LOOK

#: Inbox rows and bytes of messages that are read at once, at most.
MOST_ROWS, MOST_BYTES = 8_192, 4 << 20
#: An operation near its limit still reads for one in so many of the queues that it loaded: each look is a statement.
SPARE = 8


class ReadAhead:
    """Messages and bytes that an operation may still take.

    They follow from the meter, if it pays for each message the weight that the ring's weigher predicts. Otherwise they
    are unknown: a few messages at first, and twice as many after each read that brought as many as it was to bring.
    """

    def __init__(self, working_set: WorkingSet) -> None:
        self._working_set = working_set
        self._unmetered = FIRST_LOOK
        #: Rows that looks brought, their messages and bytes.
        self._rows, self._messages, self._bytes = 0, 0, 0

    @property
    def messages(self) -> int:
        """Messages that the meter can still pay for; if they weigh less than predicted, more are read later."""
        if self._working_set.meter is None:
            return self._unmetered
        config = self._working_set.config
        return self._affordable(config.weigher.base.plus(config.costs.service_page_item), 1)

    @property
    def size(self) -> int:
        """Bytes of messages that the meter can still pay for."""
        working_set = self._working_set
        return MOST_BYTES if working_set.meter is None else self._affordable(working_set.config.weigher.per_byte, PER)

    @property
    def is_known(self) -> bool:
        """Whether a look has shown how many messages a row has."""
        return self._rows > 0

    def rows(self, held: int = 0) -> int:
        """Return how many inbox rows to read at once, if they are like those that looks brought.

        :param held: rows that were read and not taken
        """
        left = self.messages
        if self._working_set.meter is not None and self._rows:
            left = min(left * self._rows // self._messages, self.size * self._rows // max(self._bytes, 1)) + 1 - held
        return max(min(left, MOST_ROWS), FIRST_LOOK)

    def note(self, rows: Sequence[PlainRow], asked: int) -> None:
        """Record the rows of a look, which was to bring at most so many."""
        self._rows += len(rows)
        self._bytes += sum(map(itemgetter(2), rows))
        self._messages += sum(map(itemgetter(3), rows))
        if len(rows) >= asked:
            self.double()

    def double(self) -> None:
        """Let an operation without a meter read twice as much next time."""
        self._unmetered = min(2 * self._unmetered, MOST_ROWS)

    def upcoming(self, origin: str, rows: int) -> Iterator[str]:
        """Iterate over the queues to read rows for together with this one, at least `FIRST_LOOK` of each."""
        most = max(rows // FIRST_LOOK, len(self._working_set.books) // SPARE, 1) - 1
        following = self._working_set.circle(origin).upcoming(origin, min(most, books.RING_SLICE))
        return (name for name in following if not self._working_set.books[name].skipped)

    def _affordable(self, each: Sequence[int], unit: int) -> int:
        """Return how many the meter can still pay for, at a weight for so many of them."""
        meter = self._working_set.meter
        assert meter is not None
        return max(min((part * unit // cost for part, cost in zip(meter.left, each) if cost), default=LARGEST), 0)
