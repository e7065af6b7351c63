"""Messages: what actors sent, what became of each, and in which order it must be processed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_mq import Event
from airflow_mq.engine.rules.events import Fate
from airflow_mq.engine.rules.message import message_id

#: Events after which a message is gone.
FINAL = {
    Fate.PROCESSED, Fate.DECLINED, Fate.BAD_FORMAT, Fate.CORRUPT, Fate.UNSUPPORTED, Fate.STACK_LIMIT,
    Fate.DISCARDED, Fate.EXPIRED,
}  # fmt: skip
#: Events after which a message has no place in the order of its sender.
DISPLACED = {Fate.SET_ASIDE, Fate.ATTEMPTS_EXHAUSTED, Fate.REQUEUED, Fate.EXECUTED, Fate.TRANSFERRED}
PAYLOAD = re.compile(rb"<[^<>]*>")

OPEN, ACCEPTED, REFUSED = "open", "accepted", "refused"
#: Headers of a message that was sent without any.
NO_HEADERS: Sequence[Mapping[str, str]] = ({},)


class Violation(AssertionError):
    """An invariant that does not hold."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


@dataclass
class Sent:
    """A message that an actor sent."""

    payload: bytes
    origin: str
    sender: str
    serial: int
    priority: str = "regular"
    #: Whether it keeps its place in the order of its sender.
    in_order: bool = True
    #: Whether it may wait outside of its queue.
    delayed: bool = False
    expires: bool = False
    #: Time of the database's clock before which it may not be tried (again).
    due: int = 0
    #: Whether it has returned and waited aside, so that a person may end its wait.
    was_aside: bool = False
    state: str = OPEN

    @property
    def id(self) -> bytes:
        """The message's id: the hash of its payload."""
        return message_id(self.payload)


@dataclass
class Call:
    """Messages that are sent together: all or none."""

    messages: Sequence[Sent]
    #: Returns whether the call is still in progress.
    is_open: Callable[[], bool] = lambda: True
    ended: bool = False
    #: Time of the database's clock when a task began.
    began: int = 0


def child_of(payload: bytes) -> bytes:
    """Return what the processor of a parent sends."""
    return b"<child of " + payload[1:].partition(b":parent>")[0] + b">"


def is_parent(payload: bytes) -> bool:
    """Return whether the processor of a message sends another one."""
    return b":parent>" in payload


def is_odd(payload: bytes) -> bool:
    """Return whether a message does not decode, so that no processor takes it."""
    return b":odd>" in payload


@dataclass
class Messages:
    """Every message of a run."""

    by_id: dict[bytes, Sent] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    finals: Counter[bytes] = field(default_factory=Counter)
    #: Last event of each message, for reports.
    last: dict[bytes, Event] = field(default_factory=dict)
    #: Messages that changed their place: they are not in the order of their sender, and attempts may begin anew.
    displaced: set[bytes] = field(default_factory=set)
    #: Attempts that the events record, since they were last forgotten.
    tries: Counter[bytes] = field(default_factory=Counter)
    #: Headers that a message may have, by its id; a message that is not here has none.
    headers: dict[bytes, list[Mapping[str, str]]] = field(default_factory=dict)
    #: Serial of the last processed message by queue and sender.
    reached: dict[tuple[str, str, str], int] = field(default_factory=dict)
    _serial: int = 0

    def new(self, sender: str, origin: str, *, mark: str = "", size: int = 0, **terms: object) -> Sent:
        """Return a message with a payload of its own."""
        self._serial += 1
        payload = f"<{sender}.{self._serial}{mark}>".encode()
        payload += b"." * max(size - len(payload), 0)
        return Sent(payload, origin, sender, self._serial, **terms)  # type: ignore[arg-type]

    def open(self, messages: Iterable[Sent], is_open: Callable[[], bool] = lambda: True) -> Call:
        """Begin a call; its messages may be there from now on."""
        call = Call([self.by_id.setdefault(one.id, one) for one in messages], is_open)
        for one in call.messages:
            if one.state == REFUSED:
                # A keyed call is repeated.
                one.state = OPEN
        self.calls.append(call)
        return call

    def end_lost(self, there: Iterable[bytes]) -> None:
        """End the calls whose processes ended, by what is there."""
        self.calls = [call for call in self.calls if not call.ended]
        for call in self.calls:
            if not call.is_open():
                self.doubt(call, there)

    def accept(self, call: Call) -> None:
        """End a call that the queue has answered."""
        call.ended = True
        for one in call.messages:
            one.state = ACCEPTED

    def refuse(self, call: Call) -> None:
        """End a call that stored nothing."""
        call.ended = True
        for one in call.messages:
            if one.state == OPEN:
                one.state = REFUSED

    def doubt(self, call: Call, there: Iterable[bytes]) -> None:
        """End a call without an answer: what is there now was accepted."""
        names = {one.id for one in call.messages if one.state == OPEN}
        found = names & {*there, *self.finals}
        if found and found != names:
            raise Violation("I1 all or nothing", f"{len(found)} of a call of {len(names)} messages are stored")
        (self.accept if found else self.refuse)(call)

    # Events.

    def note(self, event: Event, ordered: bool, children: dict[bytes, str]) -> None:
        """Take in an event."""
        if event.fate is Fate.SWEPT or event.id is None or not event.id:
            return
        name = event.id
        self.last[name] = event
        if event.fate is Fate.RETURNED and "not tried:" not in event.detail and "it weighs" not in event.detail:
            self.tries[name] += 1
        if event.fate in DISPLACED:
            self.displaced.add(name)
        if event.fate not in FINAL:
            return
        self.finals[name] += 1
        sent = self.by_id.get(name)
        if sent is None:
            raise Violation("I1 conservation", f"nothing that was sent has the id of {event}")
        if self.finals[name] > 1:
            raise Violation("I1 settled once", f"{sent.payload!r} ended {self.finals[name]} times, the last as {event}")
        if event.fate is Fate.PROCESSED and is_parent(sent.payload):
            child = Sent(child_of(sent.payload), children.get(name, "children"), "parents", 0, in_order=False)
            child.state = ACCEPTED
            self.by_id.setdefault(child.id, child)
        if event.fate is Fate.PROCESSED and is_odd(sent.payload):
            raise Violation("odd message", f"{sent.payload!r} was processed, and does not decode: {event}")
        if event.fate is Fate.EXPIRED and not sent.expires and "policy" not in event.detail:
            raise Violation("I1 conservation", f"{sent.payload!r} expired, and has no expiry: {event}")
        if ordered and event.fate not in (Fate.DISCARDED, Fate.EXPIRED):
            self._check_order(sent, event)

    def _check_order(self, sent: Sent, event: Event) -> None:
        if not sent.in_order or sent.id in self.displaced:
            return
        key = event.origin, event.priority, sent.sender
        if sent.serial < self.reached.get(key, 0):
            raise Violation(
                "I5 order", f"{sent.payload!r} of {event.origin!r} was processed after number {self.reached[key]}"
            )
        self.reached[key] = sent.serial
