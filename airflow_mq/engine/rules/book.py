"""Books: the pages of an origin, the window of pages to service, and the sums over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .budget import Budget, Rate
from .message import Footprint
from .weight import Weight

#: Reasons for which servicing skips a queue, with their words in a list of queues. Users see the first one that holds:
#: `BookRow.skip_reason`, `BucketLoader` and the statement `serviceable_books` decide.
PAUSED, IN_FLIGHT, BACKOFF, BUDGET = "paused", "in flight", "backoff", "budget"
SKIPS = {
    PAUSED: "Paused", IN_FLIGHT: "Its first messages are in flight", BACKOFF: "The last attempt failed",
    BUDGET: "Its budget is used up",
}  # fmt: skip


@dataclass(frozen=True)
class QueueSettings:
    """Settings of one origin. Where a setting is not set, the ring's configuration applies."""

    #: Factor of the quantum that it earns per round.
    share: int = 1
    #: Least and most weight per block.
    least: Weight | None = None
    most: Weight | None = None
    ordered: bool | None = None
    #: Budget over time: milliseconds and bytes per period, and the largest balances.
    rate: Rate | None = None
    rate_bytes: Rate | None = None
    burst: int | None = None
    burst_bytes: int | None = None
    #: The most bytes that it may store.
    quota: int | None = None

    @property
    def budget(self) -> Budget | None:
        """The budget over time; None if no rate is set."""
        return Budget.of(self.rate, self.rate_bytes, self.burst, self.burst_bytes)


DEFAULT_SETTINGS = QueueSettings()


@dataclass
class Group:
    """State of a group in a ring with paths: of all origins that begin with its path."""

    path: str
    #: Weight that its origins used, over its share, as a negative number. Siblings with a larger deficit come first.
    deficit: int
    #: Deficit at which its members are currently served.
    level: int


@dataclass
class Book:
    """State of one queue."""

    origin: str
    begin: int = 0
    end: int = 0
    #: Stored pages. They may exceed the window: pages that keep set-aside messages stay behind it.
    count: int = 0
    message_count: int = 0
    size: int = 0
    #: Deficit order: credit earned and not spent yet, in parts of a block. With paths, see `paths`.
    deficit: int = 0
    #: Name of the reason why servicing skips the queue; empty if it does not.
    skipped: str = ""
    settings: QueueSettings = field(default_factory=lambda: DEFAULT_SETTINGS)
    #: Names of the budgets that pay for its messages: of its origin, and of the groups that hold it.
    budgets: Sequence[str] = ()

    @property
    def is_paused(self) -> bool:
        """Whether servicing skips the queue until a person ends that: no call executes its messages."""
        return self.skipped == PAUSED

    @property
    def is_ready(self) -> bool:
        """Whether the window is not empty."""
        return self.end > self.begin

    @property
    def footprint(self) -> Footprint:
        """Size of the queue in the store."""
        return Footprint(self.count, max(self.end - self.begin, 0), self.message_count, self.size)

    @property
    def stale(self) -> int:
        """Number of pages behind the window."""
        return self.count - min(self.end - self.begin, self.count)
