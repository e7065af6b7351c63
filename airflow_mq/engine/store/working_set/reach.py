"""Reach: how far ahead of the walk a loader reads rows that are large or many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...rules.weigher import PER
from ...rules.weight import LARGEST, Meter
from ...rules.working_set import WorkingSet
from . import books

#: From so many messages on that an operation can take, it reads ahead for every queue that it comes to.
MANY = 16_384
#: An operation near its limit still reads ahead for one in so many of the queues that it loaded: each look is a
#: statement.
SPARE = 8


class Room(NamedTuple):
    """Messages and bytes that an operation can still take."""

    messages: int
    size: int


class Reach:
    """How far ahead of the walk to read: not beyond the meter, and for more queues with each queue that it comes to."""

    def __init__(self, working_set: WorkingSet) -> None:
        self._working_set = working_set
        #: The meter, if it pays for each message the weight that the ring's own weigher predicts.
        self.meter: Meter | None = None
        self._reached: set[str] = set()

    @property
    def room(self) -> Room:
        """Messages and bytes that the meter can still pay for.

        If messages weigh less than predicted, the operation reads more later.
        """
        if self.meter is None:
            return Room(LARGEST, LARGEST)
        left, weigher = self.meter.left, self._working_set.config.weigher
        each = weigher.base.plus(self._working_set.config.costs.service_page_item)
        return Room(
            max(min((part // cost for part, cost in zip(left, each) if cost), default=LARGEST), 0),
            max(min((part * PER // cost for part, cost in zip(left, weigher.per_byte) if cost), default=LARGEST), 0),
        )

    @property
    def takes_many(self) -> bool:
        """Whether the meter can pay for many messages; unknown without a meter."""
        return self.meter is not None and self.room.messages >= MANY

    @property
    def spare(self) -> int:
        """Number of queues to read ahead for even if the meter cannot pay for them."""
        return len(self._working_set.books) // SPARE

    def upcoming(self, origin: str) -> Iterator[str]:
        """Iterate over the queues to read ahead for.

        None at the first queue, and four times as many at each further one, unless the meter can pay for many messages.
        """
        self._reached.add(origin)
        most = books.RING_SLICE
        if (messages := self.room.messages) < MANY:
            most = min(most, max(messages, self.spare), 4 ** min(len(self._reached) - 1, 9) - 1)
        return self._working_set.circle(origin).upcoming(origin, most)
