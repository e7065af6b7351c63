"""A book: the pages of one origin, the window still to be serviced, and the sums over all."""

from __future__ import annotations

from dataclasses import dataclass, field

from .message import Footprint
from .weight import Weight


@dataclass
class Standing:
    """What is set for an origin; the ring's configuration holds where nothing is."""

    #: How many times the quantum it earns per round.
    share: int = 1
    #: What it gets at least, and at most, per block.
    least: Weight | None = None
    most: Weight | None = None
    ordered: bool | None = None


DEFAULT_STANDING = Standing()


@dataclass
class Branch:
    """Of a ring with paths, the state of a group: of all origins that begin with its path."""

    path: str
    #: How much its origins used, over its share: the more, the lower. Whose siblings have less comes later.
    deficit: int
    #: At which deficit its members are served by now.
    level: int


@dataclass
class Book:
    """The state of one queue."""

    origin: str
    begin: int = 0
    end: int = 0
    #: Pages stored, which may exceed the window: pages that keep set-aside messages stay behind.
    count: int = 0
    message_count: int = 0
    size: int = 0
    #: Deficit order: what it earned and did not spend yet, in parts of a block; with paths, see `paths`.
    deficit: int = 0
    #: Paused, waiting to try again, or (when ordered) in flight: servicing passes it by.
    passed_by: str = ""
    standing: Standing = field(default_factory=lambda: DEFAULT_STANDING)

    @property
    def is_ready(self) -> bool:
        """Whether the window is not empty."""
        return self.end > self.begin

    @property
    def footprint(self) -> Footprint:
        """How much of the store it takes."""
        return Footprint(self.count, max(self.end - self.begin, 0), self.message_count, self.size)

    @property
    def stale(self) -> int:
        """Pages behind the window."""
        return self.count - min(self.end - self.begin, self.count)
