"""Events: the fates of messages, in runs.

A run is a row of neighbours in one page that shared a fate. Servicing writes runs, the store packs them, and a reader
expands them into single events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from .message import Address
from .outcome import BadFormat, Corrupt, StackLimitReached, Unsupported
from .priority import REGULAR, origin_of, priority_of
from .weight import Weight


class Fate(Enum):
    """Events of a message's life; the values are stored."""

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

#: Events of decisions; the detail names the reason and the actor.
DECISIONS = {Fate.DISCARDED, Fate.REJUDGED, Fate.EXECUTED, Fate.EXPIRED, Fate.SWEPT, Fate.PAGE_REAPED}

WRONG = {
    BadFormat: Fate.BAD_FORMAT,
    Corrupt: Fate.CORRUPT,
    Unsupported: Fate.UNSUPPORTED,
    StackLimitReached: Fate.STACK_LIMIT,
}


#: Prefix of the reason of a message that went back and never reached its processor.
NOT_TRIED = "not tried:"

_DECIDED = re.compile(r"(?s)(.*) \(([^()]*)\)")
_SENT = re.compile(r"; sent (\S+)$")
_MOVED = re.compile(r"; goes on at ([0-9]{1,19}):([0-9]{1,19})")
_UNTRIED = re.compile(r"(?s)(.*?)(?:; )?untried behind it up to ([0-9]{1,19}):([0-9]{1,19})")
_WAITS = re.compile(
    r"(?s)(.*?)(?:; )?waits aside for ([0-9]{1,19}(?:\.[0-9]{1,6})?) s, joins again behind ([0-9]{1,19}):([0-9]{1,19})"
)
_ATTEMPT = re.compile(r"(?s)(.*?) \(attempt [0-9]{1,19}: (.*)\)")


def decided(why: str, actor: str) -> str:
    """Return the detail of a decision."""
    return f"{why} ({actor.replace('(', '[').replace(')', ']')})"


def with_untried(why: str, page: int, index: int) -> str:
    """Return the detail of a message that went back together with untried messages behind it."""
    return f"{why}{'; ' if why else ''}untried behind it up to {page}:{index}"


def with_wait(why: str, wait: int, page: int, index: int) -> str:
    """Return the detail of a message that went back and waits aside: for how many microseconds, and the last place."""
    seconds = f"{wait // 1_000_000}.{wait % 1_000_000:06}".rstrip("0").rstrip(".")
    return f"{why}{'; ' if why else ''}waits aside for {seconds} s, joins again behind {page}:{index}"


def with_error(why: str, attempts: int, error: str) -> str:
    """Return the detail of a message that exhausted its attempts: their number and the last error."""
    return f"{why} (attempt {attempts}: {error})"


def with_arrival(why: str, when: str) -> str:
    """Return the detail of a message that was set aside."""
    return f"{why}; sent {when}"


class Wait(NamedTuple):
    """A wait aside: its seconds from the event on, and the last place of the queue when it began."""

    seconds: float
    behind: tuple[int, int]


@dataclass(frozen=True)
class Event:
    """The fate of one message, as a reader sees it."""

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
    priority: str = REGULAR

    @property
    def address(self) -> Address:
        """Address of the message at the time of the event."""
        return Address(self.origin, self.page, self.index, self.priority)

    @property
    def success(self) -> bool | None:
        """For *Processed*: whether the processor reported success."""
        return {Fate.PROCESSED: True, Fate.DECLINED: False}.get(self.fate)

    @property
    def actor(self) -> str | None:
        """Actor of a decision: a person, a program or a policy."""
        if self.fate is Fate.EXECUTED:
            return self.detail or None
        found = _DECIDED.fullmatch(self.detail) if self.fate in DECISIONS else None
        return found[2] if found else None

    @property
    def why(self) -> str:
        """Reason, if one was recorded."""
        if self.fate is Fate.EXECUTED:
            return ""
        detail = _SENT.sub("", self.detail)
        if self.fate is Fate.ATTEMPTS_EXHAUSTED:
            attempt = _ATTEMPT.fullmatch(detail)
            return attempt[1] if attempt else detail
        if self.fate is Fate.WENT_BACK:
            return self._went_back[0]
        found = _DECIDED.fullmatch(self.detail) if self.fate in DECISIONS else None
        return found[1] if found else detail

    @property
    def _went_back(self) -> tuple[str, Wait | None]:
        """For *WentBack*: the reason, and the wait that followed."""
        untried = _UNTRIED.fullmatch(self.detail)
        detail = untried[1] if untried else self.detail
        found = _WAITS.fullmatch(detail)
        return (found[1], Wait(float(found[2]), (int(found[3]), int(found[4])))) if found else (detail, None)

    @property
    def wait(self) -> Wait | None:
        """For *WentBack* in a relaxed queue with a backoff: the wait until the message joins its queue again."""
        return self._went_back[1] if self.fate is Fate.WENT_BACK else None

    @property
    def sent(self) -> str | None:
        """For a message that was set aside: when it was sent, in ISO format."""
        found = _SENT.search(self.detail) if self.fate in (Fate.SET_ASIDE, Fate.ATTEMPTS_EXHAUSTED) else None
        return found[1] if found else None

    @property
    def last_error(self) -> str:
        """For *WentBack* and *AttemptsExhausted*: the error of the attempt, if one was reported."""
        if self.fate is Fate.WENT_BACK:
            return self.why
        found = _ATTEMPT.fullmatch(_SENT.sub("", self.detail)) if self.fate is Fate.ATTEMPTS_EXHAUSTED else None
        return found[2] if found else ""

    @property
    def moved_to(self) -> tuple[int, int] | None:
        """For *Rejudged*: the page and index to which the message was requeued."""
        found = _MOVED.search(self.detail) if self.fate is Fate.REJUDGED else None
        return (int(found[1]), int(found[2])) if found else None

    @property
    def untried_up_to(self) -> tuple[int, int] | None:
        """For *WentBack*: the page and index up to which messages behind it went back untried."""
        found = _UNTRIED.fullmatch(self.detail) if self.fate is Fate.WENT_BACK else None
        return (int(found[2]), int(found[3])) if found else None

    @property
    def error(self) -> str | None:
        """For *ProcessingFailed*: the permanent error."""
        return ERRORS.get(self.fate)


@dataclass
class EventRun:
    """A row of neighbours in one page that shared a fate, in the order of events."""

    fate: Fate
    origin: str
    page: int
    first: int
    ids: list[bytes]
    #: One weight per message, or an empty list.
    weights: list[Weight]
    detail: str = ""

    def takes(self, fate: Fate, origin: str, page: int, index: int, detail: str) -> bool:
        """Return whether this event continues the run."""
        return (
            self.fate is fate
            and self.page == page
            and self.first + len(self.ids) == index
            and self.origin == origin
            and self.detail == detail
        )

    def split(self, most: int) -> list[EventRun]:
        """Split the run into runs of at most this many events."""
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
        """Yield the single events of this run."""
        origin, priority = origin_of(self.origin), priority_of(self.origin)
        weights: list[Weight] | list[None] = self.weights or [None] * len(self.ids)
        for offset, (id_, weight) in enumerate(zip(self.ids, weights)):
            yield Event(
                NAMES[self.fate], self.fate, origin, self.page, self.first + offset,
                id_ or None, weight, self.detail, block, at, seq + offset, priority,
            )  # fmt: skip
