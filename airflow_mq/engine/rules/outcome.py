"""Outcomes that a processor may return: a closed union."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeAlias

from .characters import shown
from .config import MOST_HEADERS, RingConfig
from .errors import InvalidOutcome
from .message import ID_BYTES, MOST_TEXT_BYTES, Attributes, Message, Posted, check_payload
from .patterns import OPEN, Permit, strict
from .priority import REGULAR, book_name, check_priority, origin_of, priority_of
from .weight import Weight


@dataclass(frozen=True)
class Done:
    """Processed. `success=False` is the processor's own business; the message is gone either way."""

    success: bool = True
    #: Id of the message in its event; None: the hash of its bytes.
    id: bytes | None = None
    #: Measured weight; None: the predicted one.
    used: Weight | None = None
    #: Messages to enqueue together with this outcome: (origin, payload), or (origin, payload, priority), or
    #: (origin, Message(…)), of which payload, headers and priority are taken. A checked outcome has them as `Posted`.
    enqueue: Sequence[Any] = field(default=())


@dataclass(frozen=True)
class Overweight:
    """The message needs this weight, which is not left."""

    weight: Weight
    id: bytes | None = None


@dataclass(frozen=True)
class Yield:
    """Not now: retry in a later block."""

    reason: str = ""


@dataclass(frozen=True)
class Unreadable(Yield):
    """Answer of a typed service for a message that does not decode: it is set aside at once, with the reason."""


@dataclass(frozen=True)
class BadFormat:
    """Permanently wrong: the message cannot be read."""

    id: bytes | None = None


@dataclass(frozen=True)
class Corrupt:
    """Permanently wrong: the message contradicts itself."""

    id: bytes | None = None


@dataclass(frozen=True)
class Unsupported:
    """Permanently wrong: no processor here can treat such a message."""

    id: bytes | None = None


@dataclass(frozen=True)
class StackLimitReached:
    """Nested too deeply."""

    id: bytes | None = None


@dataclass(frozen=True)
class Transferred:
    """Moved to another queue. Recorded by a command in the transaction that stored it there, never by a processor."""

    #: Destination: the origin, or the ring and the origin.
    to: str
    id: bytes | None = None


@dataclass(frozen=True)
class Begun:
    """Mark, not an outcome: a worker began these messages. Those without an outcome count an attempt."""


@dataclass(frozen=True)
class NotBegun:
    """Mark, not an outcome: these messages could not be passed to their processor, so no attempt counts."""

    #: Class and first line of the error.
    error: str


#: Marks are reported beside outcomes. An outcome or a `Begun` overrides a `NotBegun`, in any order of arrival.
Mark = Begun | NotBegun
BEGUN = Begun()


def is_tried_alone(attempt: int, max_attempts: int | None) -> bool:
    """Return whether a message is tried alone at this attempt, from 1: it may end the process that tries it.

    Others that began with it would lose attempts, until they are set aside.
    """
    return max_attempts is not None and (attempt > 1 or max_attempts == 1)


#: Reason why a message returned from a block whose workers report what they begin.
NEVER_BEGUN = "no worker began it"

Outcome = Done | Overweight | Yield | BadFormat | Corrupt | Unsupported | StackLimitReached | Transferred

DONE = Done()
#: Bounds of the messages that a processor enqueues: their length, their origins and their headers.
SendBounds: TypeAlias = "tuple[int, Permit, int]"


def send_bounds(config: RingConfig, permit: Permit) -> SendBounds:
    """Return the bounds of the messages that a processor enqueues."""
    return config.max_message_len, permit if config.invisible_origins else strict(permit), config.max_headers


def check_outcome(answer: Outcome, most: int, permit: Permit = OPEN, most_headers: int = MOST_HEADERS) -> Outcome:
    """Return a processor's answer as an outcome that settles, or raise `InvalidOutcome`.

    :param most: largest length of a message that is enqueued with it.
    :param permit: origins and priority of such messages.
    """
    if answer is DONE:
        return DONE
    kind: object = answer
    if not isinstance(kind, Outcome) or isinstance(kind, Transferred):
        raise InvalidOutcome(
            f"invalid outcome ({type(answer).__name__}): expected Done, Overweight, Yield or another outcome"
        )
    name: object = getattr(answer, "id", None)
    if name is not None and not (isinstance(name, bytes) and len(name) == ID_BYTES):
        length = f" of length {len(name)}" if isinstance(name, (bytes, str)) else ""
        raise InvalidOutcome(f"invalid id of an outcome ({type(name).__name__}{length}): expected {ID_BYTES} bytes")
    if isinstance(answer, Done):
        return _check_done(answer, most, permit, most_headers)
    if isinstance(answer, Overweight):
        return Overweight(Weight.of(answer.weight), answer.id)
    if isinstance(answer, Yield):
        return replace(answer, reason=_text(answer.reason))
    return answer


def _text(reason: object) -> str:
    """Return any reason as text that can be stored."""
    text = reason if isinstance(reason, str) else shown(reason or "", MOST_TEXT_BYTES)
    return text.encode("utf-8", "replace").decode().replace("\0", " ")


def _check_done(done: Done, most: int, permit: Permit, most_headers: int) -> Done:
    if done.success not in (True, False):
        raise InvalidOutcome(f"invalid success ({type(done.success).__name__}): expected true or false")
    used = None if done.used is None else Weight.of(done.used)
    if not isinstance(done.enqueue, (list, tuple)):
        raise InvalidOutcome(f"invalid enqueue of an outcome ({type(done.enqueue).__name__}): expected a list of pairs")
    enqueue = [check_sent(entry, most, permit, most_headers) for entry in done.enqueue]
    return Done(done.success, done.id, used, enqueue)


def check_sent(entry: object, most: int, permit: Permit = OPEN, most_headers: int = MOST_HEADERS) -> Posted:
    """Return a message that a processor enqueues, or raise `InvalidOutcome` or another error of invalid input."""
    if isinstance(entry, Posted):
        origin, payload, attributes = origin_of(entry.origin), entry.payload, entry.attributes
        priority = priority_of(entry.origin)
    elif isinstance(entry, (tuple, list)) and 2 <= len(entry) <= 3:
        origin, message = entry[0], entry[1] if isinstance(entry[1], Message) else Message(entry[1])
        refuse_options(key=message.key, weight=message.weight)
        payload, attributes = message.payload, Attributes.given_by(message)
        priority = check_priority(entry[2] if len(entry) == 3 else message.priority or REGULAR)
    else:
        raise InvalidOutcome(
            f"invalid entry in enqueue of an outcome ({type(entry).__name__}): expected (origin, payload), or (origin, "
            "payload, priority)"
        )
    name = book_name(permit.check_origin(origin), permit.check_priority(priority))
    return Posted(name, check_payload(payload, most), attributes.checked(most_headers))


def refuse_options(**options: object) -> None:
    """Raise `InvalidOutcome` for options that an outcome cannot store with the messages that it enqueues."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InvalidOutcome(
            f"a processor cannot send with {', '.join(given)}: expected priority and headers only; the messages are "
            "enqueued with the outcome of the processed message, once"
        )


class PageStatus(Enum):
    """Results of servicing a page; the values are the reasons in the ledger why a visit ended."""

    BAILED = "limit"  # the meter could not pay for the next step
    NO_PROGRESS = "yielded"  # the processor yielded
    SPENT = "spent"  # the origin's own budget is used up (deficit order); `most` in the end if its *most* is
    NO_MORE = "emptied"  # every item was attempted
