"""Events: the fates of messages, in runs.

A run is a row of neighbours in one page that shared a fate. Servicing writes runs, the store packs them, and a reader
expands them into single events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
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
    PAGE_REMOVED = 8
    DISCARDED = 9
    REQUEUED = 10
    EXECUTED = 11
    RETURNED = 12
    ATTEMPTS_EXHAUSTED = 13
    EXPIRED = 14
    SWEPT = 15
    TRANSFERRED = 16
    BUDGET_EXHAUSTED = 17  # of a queue: the message is the first that waits
    DAY_CLOSED = 18  # of the ring: the id is the header of the day's bills


WRONG = {
    BadFormat: Fate.BAD_FORMAT,
    Corrupt: Fate.CORRUPT,
    Unsupported: Fate.UNSUPPORTED,
    StackLimitReached: Fate.STACK_LIMIT,
}
ERRORS = {fate: kind.__name__ for kind, fate in WRONG.items()}
#: Names of events: the words of a fate, but for these.
NAMES = {
    **{fate: fate.name.title().replace("_", "") for fate in Fate},
    **dict.fromkeys(ERRORS, "ProcessingFailed"),
    Fate.DECLINED: "Processed",
}

#: Prefix of the reason of a message that returned and never reached its processor.
NOT_TRIED = "not tried:"

_DECISION = r"(?P<why>.*) \((?P<actor>[^()]*)\)"
_SENT = r"(?:; sent (?P<sent>\S+))?"
_PLACE = r"(?P<page>[0-9]{1,19}):(?P<index>[0-9]{1,19})"
_UP_TO = r"(?P<last_page>[0-9]{1,19}):(?P<last_index>[0-9]{1,19})"
#: What the details of events hold; the functions below write them.
_DETAILS = {
    **dict.fromkeys((Fate.DISCARDED, Fate.EXPIRED, Fate.SWEPT, Fate.PAGE_REMOVED), _DECISION),
    Fate.REQUEUED: _DECISION.replace(".*", rf".*?(?:; goes on at {_PLACE})?"),
    Fate.EXECUTED: "(?P<why>)(?P<actor>.*)",
    Fate.SET_ASIDE: f"(?P<why>.*?){_SENT}",
    Fate.ATTEMPTS_EXHAUSTED: rf"(?P<why>.*?)(?: \(attempt [0-9]{{1,19}}: (?P<error>.*)\))?{_SENT}",
    Fate.RETURNED: r"(?P<why>.*?)"
    rf"(?:(?:; )?waits aside for (?P<seconds>[0-9]{{1,19}}(?:\.[0-9]{{1,6}})?) s, joins again behind {_PLACE})?"
    rf"(?:(?:; )?untried behind it up to {_UP_TO})?",
}
_PATTERNS = {fate: re.compile(f"(?s){pattern}") for fate, pattern in _DETAILS.items()}


def returned(why: str) -> str:
    """Return the detail of a message that returned, whose reason reads as nothing else."""
    found = _PATTERNS[Fate.RETURNED].fullmatch(why)
    return f"{why}." if found and any(found.group("page", "last_page")) else why


def decided(why: str, actor: str) -> str:
    """Return the detail of a decision."""
    return f"{why} ({actor.replace('(', '[').replace(')', ']')})"


def with_untried(why: str, page: int, index: int) -> str:
    """Return the detail of a message that returned together with untried messages behind it."""
    return f"{why}{'; ' if why else ''}untried behind it up to {page}:{index}"


def with_wait(why: str, wait: int, page: int, index: int) -> str:
    """Return the detail of a message that returned and waits aside: for how many microseconds, and the last place."""
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
    def _facts(self) -> Mapping[str, str | None]:
        """Values that the detail holds, by name."""
        pattern = _PATTERNS.get(self.fate)
        found = pattern.fullmatch(self.detail) if pattern else None
        return found.groupdict() if found else {}

    @property
    def actor(self) -> str | None:
        """Actor of a decision: a person, a program or a policy."""
        return self._facts.get("actor") or None

    @property
    def why(self) -> str:
        """Reason, if one was recorded."""
        why = self._facts.get("why")
        return self.detail if why is None else why

    @property
    def wait(self) -> Wait | None:
        """For *Returned* in a relaxed queue with a backoff: the wait until the message joins its queue again."""
        seconds, behind = self._facts.get("seconds"), self._place("page", "index")
        return Wait(float(seconds), behind) if seconds and behind else None

    @property
    def sent(self) -> str | None:
        """For a message that was set aside: when it was sent, in ISO format."""
        return self._facts.get("sent")

    @property
    def last_error(self) -> str:
        """For *Returned* and *AttemptsExhausted*: the error of the attempt, if one was reported."""
        return self.why if self.fate is Fate.RETURNED else self._facts.get("error") or ""

    @property
    def moved_to(self) -> tuple[int, int] | None:
        """For *Requeued*: the page and index to which the message was requeued."""
        return self._place("page", "index") if self.fate is Fate.REQUEUED else None

    @property
    def untried_up_to(self) -> tuple[int, int] | None:
        """For *Returned*: the page and index up to which messages behind it returned untried."""
        return self._place("last_page", "last_index")

    def _place(self, page: str, index: str) -> tuple[int, int] | None:
        facts = self._facts
        return (int(facts[page] or 0), int(facts[index] or 0)) if facts.get(page) else None

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
        return [self.part(at, at + most) for at in range(0, len(self.ids), most)]

    def part(self, start: int, stop: int) -> EventRun:
        """Return the run of the events from `start` to before `stop`."""
        return replace(self, first=self.first + start, ids=self.ids[start:stop], weights=self.weights[start:stop])

    def unroll(self, block: int | None = None, at: float | None = None, seq: int = 0) -> Iterator[Event]:
        """Yield the single events of this run."""
        origin, priority = origin_of(self.origin), priority_of(self.origin)
        weights: list[Weight] | list[None] = self.weights or [None] * len(self.ids)
        for offset, (id_, weight) in enumerate(zip(self.ids, weights)):
            yield Event(
                NAMES[self.fate], self.fate, origin, self.page, self.first + offset,
                id_ or None, weight, self.detail, block, at, seq + offset, priority,
            )  # fmt: skip
