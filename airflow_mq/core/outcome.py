"""What a processor may answer. A closed union: whoever matches on it handles every case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from .config import MOST_HEADERS
from .errors import InvalidOutcome
from .message import Message, check_headers, check_payload
from .permit import OPEN, Permit
from .priority import HIGH, REGULAR, book_name, check_priority, is_high, origin_of
from .weight import Weight


@dataclass(frozen=True)
class Done:
    """Treated. `success=False` is the processor's own business; the message is gone either way."""

    success: bool = True
    #: Another name for the message in its event; without one, the hash of its bytes.
    id: bytes | None = None
    #: What it really used, where that was measured; without it, what the weigher told.
    used: Weight | None = None
    #: Messages to enqueue together with this outcome: (origin, payload), or (origin, payload, priority), or
    #: (origin, Message(…)), of which payload, headers and priority are taken.
    enqueue: Sequence[tuple[Any, ...]] = field(default=())


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


@dataclass(frozen=True)
class Transferred:
    """Handed on to another queue. Told by a command, in the transaction that put it there; never by a processor."""

    #: Where it went: the origin, or the ring and the origin.
    to: str
    id: bytes | None = None


@dataclass(frozen=True)
class Begun:
    """A mark, not an outcome: a worker began these messages. An attempt counts for those that get no outcome."""


@dataclass(frozen=True)
class NotBegun:
    """A mark, not an outcome: these messages could not be handed to their processor, so no attempt counts."""

    #: The class and the first line of the error that prevented it.
    error: str


#: Reported beside outcomes; an outcome or a `Begun` counts more than a `NotBegun`, whatever came first.
Mark = Begun | NotBegun
BEGUN = Begun()
#: Why a message went back of a block whose workers report what they begin.
NEVER_BEGUN = "no worker began it"

Outcome = Done | Overweight | Yield | BadFormat | Corrupt | Unsupported | StackLimitReached | Transferred

DONE = Done()
#: How many bytes the name of a message has.
ID_BYTES = 32


def check_outcome(answer: Outcome, most: int, permit: Permit = OPEN, most_headers: int = MOST_HEADERS) -> Outcome:
    """An outcome as a processor gave it, or the reason why it is none: once stored, it must settle.

    :param most: how long a message may be that is to be enqueued with it.
    :param permit: with which origins.
    """
    if answer is DONE:
        return DONE
    kind: object = answer
    if not isinstance(kind, Outcome) or isinstance(kind, Transferred):
        raise InvalidOutcome(f"an outcome is Done, Overweight, Yield and so on, not {type(answer).__name__}")
    name: Any = getattr(answer, "id", None)
    if name is not None and not (isinstance(name, bytes) and len(name) == ID_BYTES):
        length = f" of length {len(name)}" if isinstance(name, (bytes, str)) else ""
        raise InvalidOutcome(f"an outcome's id is {ID_BYTES} bytes, not {type(name).__name__}{length}")
    if isinstance(answer, Done):
        return _check_done(answer, most, permit, most_headers)
    if isinstance(answer, Overweight):
        return Overweight(Weight.of(answer.weight), answer.id)
    if isinstance(answer, Yield) and answer.reason:
        return Yield(str(answer.reason).encode("utf-8", "replace").decode().replace("\0", " "))
    return answer


def _check_done(done: Done, most: int, permit: Permit, most_headers: int) -> Done:
    if done.success not in (True, False):
        raise InvalidOutcome(f"success is true or false, not {type(done.success).__name__}")
    used = None if done.used is None else Weight.of(done.used)
    if not isinstance(done.enqueue, (list, tuple)):
        raise InvalidOutcome(f"what an outcome enqueues is a list of pairs, not {type(done.enqueue).__name__}")
    enqueue = [check_sent(entry, most, permit, most_headers) for entry in done.enqueue]
    return Done(done.success, done.id, used, enqueue)


def check_sent(entry: Any, most: int, permit: Permit = OPEN, most_headers: int = MOST_HEADERS) -> tuple[Any, ...]:
    """What a processor enqueues, as a shelf takes it: the book's name, the payload, and headers if there are any."""
    if not isinstance(entry, (tuple, list)) or not 2 <= len(entry) <= 3:
        raise InvalidOutcome(
            "what an outcome enqueues is pairs of origin and payload, with a priority if it likes, "
            f"not {type(entry).__name__}"
        )
    origin, payload, priority = entry[0], entry[1], REGULAR
    headers: Mapping[str, str] = {}
    if isinstance(payload, Message):
        priority, headers = payload.priority or REGULAR, payload.headers or {}
        payload = payload.payload
    if isinstance(origin, str) and is_high(origin):
        # It was looked at before.
        origin, priority = origin_of(origin), HIGH
    if len(entry) == 3 and isinstance(entry[2], Mapping):
        headers = entry[2]
    elif len(entry) == 3:
        priority = check_priority(entry[2])
    name = book_name(permit.check_origin(origin), permit.check_priority(priority))
    plain = (name, check_payload(payload, most))
    return (*plain, check_headers(headers, most_headers)) if headers else plain


class PageStatus(Enum):
    """How servicing a page ended."""

    BAILED = auto()  # the meter could not pay for the next step
    NO_PROGRESS = auto()  # the processor said: not now
    SPENT = auto()  # the origin's own budget is used up (deficit order, or its most)
    NO_MORE = auto()  # every item was attempted
