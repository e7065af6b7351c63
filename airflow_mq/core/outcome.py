"""What a processor may answer. A closed union: whoever matches on it handles every case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from .weight import Weight


@dataclass(frozen=True)
class Done:
    """Treated. `success=False` is the processor's own business; the message is gone either way."""

    success: bool = True
    #: Another name for the message in its event; without one, the hash of its bytes.
    id: bytes | None = None
    #: What it really used, where that was measured; without it, what the weigher told.
    used: Weight | None = None
    #: Messages to enqueue together with this outcome: (origin, payload).
    enqueue: Sequence[tuple[str, bytes]] = field(default=())


@dataclass(frozen=True)
class Overweight:
    """It needs this weight, and there is not enough."""

    weight: Weight
    id: bytes | None = None


@dataclass(frozen=True)
class Yield:
    """Not now; try again in a later block."""

    reason: str = ""


@dataclass(frozen=True)
class BadFormat:
    """Wrong for good: it cannot be read."""

    id: bytes | None = None


@dataclass(frozen=True)
class Corrupt:
    """Wrong for good: it contradicts itself."""

    id: bytes | None = None


@dataclass(frozen=True)
class Unsupported:
    """Wrong for good: nothing here can treat such a message."""

    id: bytes | None = None


@dataclass(frozen=True)
class StackLimitReached:
    """Nested too deep."""

    id: bytes | None = None


Outcome = Done | Overweight | Yield | BadFormat | Corrupt | Unsupported | StackLimitReached

DONE = Done()


class PageStatus(Enum):
    """How servicing a page ended."""

    BAILED = auto()  # the meter could not pay for the next step
    NO_PROGRESS = auto()  # the processor said: not now
    SPENT = auto()  # the origin's own budget is used up (deficit order, or its most)
    NO_MORE = auto()  # every item was attempted
