"""What became of messages, in runs.

A run is a row of neighbours in one page that shared a fate. Servicing writes runs, the
store keeps them packed, and a reader unrolls them into single events.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from .outcome import BadFormat, Corrupt, StackLimitReached, Unsupported
from .weight import Weight


class Fate(Enum):
    """What can happen to a message; the values are stored."""

    PROCESSED = 1
    DECLINED = 2  # processed, without success
    BAD_FORMAT = 3
    CORRUPT = 4
    UNSUPPORTED = 5
    STACK_LIMIT = 6
    SET_ASIDE = 7
    PAGE_REAPED = 8
    DISCARDED = 9
    REJUDGED = 10
    EXECUTED = 11
    WENT_BACK = 12
    ATTEMPTS_EXHAUSTED = 13
    EXPIRED = 14
    SWEPT = 15
    TRANSFERRED = 16


NAMES = {
    Fate.PROCESSED: "Processed",
    Fate.DECLINED: "Processed",
    Fate.BAD_FORMAT: "ProcessingFailed",
    Fate.CORRUPT: "ProcessingFailed",
    Fate.UNSUPPORTED: "ProcessingFailed",
    Fate.STACK_LIMIT: "ProcessingFailed",
    Fate.SET_ASIDE: "OverweightEnqueued",
    Fate.PAGE_REAPED: "PageReaped",
    Fate.DISCARDED: "Discarded",
    Fate.REJUDGED: "Rejudged",
    Fate.EXECUTED: "Executed",
    Fate.WENT_BACK: "WentBack",
    Fate.ATTEMPTS_EXHAUSTED: "AttemptsExhausted",
    Fate.EXPIRED: "Expired",
    Fate.SWEPT: "Swept",
    Fate.TRANSFERRED: "Transferred",
}

ERRORS = {
    Fate.BAD_FORMAT: "BadFormat",
    Fate.CORRUPT: "Corrupt",
    Fate.UNSUPPORTED: "Unsupported",
    Fate.STACK_LIMIT: "StackLimitReached",
}

WRONG = {
    BadFormat: Fate.BAD_FORMAT,
    Corrupt: Fate.CORRUPT,
    Unsupported: Fate.UNSUPPORTED,
    StackLimitReached: Fate.STACK_LIMIT,
}


@dataclass(frozen=True)
class Event:
    """One message's fate, as a reader sees it."""

    name: str
    fate: Fate
    origin: str
    page: int
    index: int
    id: bytes | None = None
    weight: Weight | None = None
    detail: str = ""
    block: int | None = None
    at: float | None = None
    seq: int = 0

    @property
    def success(self) -> bool | None:
        """For *Processed*: whether the processor called it a success."""
        return {Fate.PROCESSED: True, Fate.DECLINED: False}.get(self.fate)

    @property
    def error(self) -> str | None:
        """For *ProcessingFailed*: what was wrong for good."""
        return ERRORS.get(self.fate)


@dataclass
class EventRun:
    """Neighbours in one page that shared a fate, in the order in which it met them."""

    fate: Fate
    origin: str
    page: int
    first: int
    ids: list[bytes]
    #: One weight each, or none at all.
    weights: list[Weight]
    detail: str = ""

    def takes(self, fate: Fate, origin: str, page: int, index: int, detail: str) -> bool:
        """Whether this event continues the run."""
        return (
            self.fate is fate
            and self.page == page
            and self.first + len(self.ids) == index
            and self.origin == origin
            and self.detail == detail
        )

    def split(self, most: int) -> list[EventRun]:
        """The same in runs of at most so many events."""
        if len(self.ids) <= most:
            return [self]
        return [
            EventRun(
                self.fate, self.origin, self.page, self.first + at, self.ids[at : at + most],
                self.weights[at : at + most], self.detail,
            )
            for at in range(0, len(self.ids), most)
        ]  # fmt: skip

    def unroll(self, block: int | None = None, at: float | None = None, seq: int = 0) -> Iterator[Event]:
        """The single events of this run."""
        weights: list[Weight] | list[None] = self.weights or [None] * len(self.ids)
        for offset, (id_, weight) in enumerate(zip(self.ids, weights)):
            yield Event(
                NAMES[self.fate], self.fate, self.origin, self.page, self.first + offset,
                id_ or None, weight, self.detail, block, at, seq + offset,
            )  # fmt: skip
