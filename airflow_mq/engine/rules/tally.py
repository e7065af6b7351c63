"""Tally: how many messages have each fate."""

from __future__ import annotations

from dataclasses import dataclass

#: Fates of a message that went to a processor, or should have: the numbers of a tally, in their order.
FATES = ("processed", "failed", "set_aside", "went_back", "expired")


@dataclass
class Tally:
    """How many messages have each fate."""

    processed: int = 0
    #: Messages that failed and are not tried again.
    failed: int = 0
    set_aside: int = 0
    #: Attempts without an outcome; in a block also the untried messages behind them.
    went_back: int = 0
    expired: int = 0

    @property
    def counts(self) -> list[int]:
        """The numbers, in the order of `FATES`."""
        return [getattr(self, fate) for fate in FATES]

    @property
    def moved(self) -> int:
        """How many messages left their queues."""
        return sum(self.counts) - self.went_back

    def add_counts(self, other: Tally) -> None:
        """Add the numbers of another tally."""
        for fate in FATES:
            setattr(self, fate, getattr(self, fate) + getattr(other, fate))
