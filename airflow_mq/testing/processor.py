"""Scripted processor: executes the script in each message, and records the messages.

A script is words separated by `;`, and padding from `#` on: `w=T,S` (the required weight; 1,1 by default), `id=N`,
`fail`, `enq=O/P` (enqueue P, with `+` for `;`, to origin O), `svc`, `exec=O,P,I` and `reap=O,P` (try operations that a
processor must not perform), and at most one answer: `over=T,S`, `bad`, `corrupt`, `unsupported`, `yield`, `stack`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..engine.queue.values import Delivery
from ..engine.rules.errors import MessageQueueError
from ..engine.rules.message import Address
from ..engine.rules.outcome import BadFormat, Corrupt, Done, Outcome, Overweight, StackLimitReached, Unsupported, Yield
from ..engine.rules.weight import UNLIMITED, ZERO, Weighed, Weight

if TYPE_CHECKING:
    from ..engine.queue import MessageQueue

_WRONG: dict[str, type[BadFormat | Corrupt | Unsupported | StackLimitReached]] = {
    "bad": BadFormat,
    "corrupt": Corrupt,
    "unsupported": Unsupported,
    "stack": StackLimitReached,
}


@dataclass
class Script:
    """Script of a message."""

    weight: Weight = Weight(1, 1)
    id: bytes | None = None
    success: bool = True
    #: Actions before the answer, from left to right: word and argument.
    acts: list[tuple[str, str]] = field(default_factory=list)
    answer: Outcome | None = None

    @classmethod
    def read(cls, payload: bytes) -> Script:
        """Return the script of a message; unknown words are ignored."""
        script = cls()
        words = payload.decode("utf-8", "replace").partition("#")[0].split(";")
        for word in words:
            name, _, value = word.partition("=")
            if name == "w":
                script.weight = _weight(value)
            elif name == "id":
                script.id = bytes([int(value)]) * 32
            elif name == "fail":
                script.success = False
            elif name in ("enq", "svc", "exec", "reap"):
                script.acts.append((name, value))
        script.answer = next((answer for word in words if (answer := script._answer(word))), None)
        return script

    def _answer(self, word: str) -> Outcome | None:
        name, _, value = word.partition("=")
        if name == "over":
            return Overweight(_weight(value), self.id)
        if name == "yield":
            return Yield()
        wrong = _WRONG.get(name)
        return wrong(self.id) if wrong else None

    @property
    def is_plain(self) -> bool:
        """Whether a weigher can predict all of it: it has no actions and is not merely postponed."""
        return not self.acts and not isinstance(self.answer, (Overweight, Yield))

    def outcome(self) -> Outcome:
        """Return the outcome that a block reports for it."""
        return self.answer or Done(self.success, self.id)


class RecordingProcessor:
    """Processor that executes scripts. `seen` holds (origin, payload) of all tried messages."""

    #: It consumes from the meter itself, like the pallet's processors.
    meters_itself = True

    def __init__(self, queue: MessageQueue | None = None) -> None:
        self.queue = queue
        self.seen: list[tuple[str, bytes]] = []
        self.yielding: set[str] = set()
        #: Results of servicing, executing and reaping from inside.
        self.nested: list[tuple[str, object]] = []

    def __call__(self, delivery: Delivery) -> Outcome:
        self.seen.append((delivery.origin, delivery.payload))
        if delivery.origin in self.yielding:
            return Yield("its origin yields")
        script = Script.read(delivery.payload)
        for act, argument in script.acts:
            self._act(delivery, act, argument)
        if script.answer is not None:
            return script.answer
        if not delivery.meter.consume(script.weight):
            return Overweight(script.weight, script.id)
        return Done(script.success, script.id)

    def _act(self, delivery: Delivery, act: str, argument: str) -> None:
        queue = self.queue
        if act == "enq":
            origin, _, message = argument.partition("/")
            delivery.enqueue(origin, message.replace("+", ";").encode())
            return
        assert queue is not None, "a script that tries operations requires a queue"
        if act == "svc":
            self._try("service_queues", lambda: queue.service_queues(self, UNLIMITED).weight)
        elif act == "exec":
            origin, page, index = argument.split(",")
            address = Address(origin, int(page), int(index))
            self._try(
                "execute_overweight",
                lambda: queue.execute_overweight(address, self, UNLIMITED, for_everything=True),
            )
        else:
            origin, page = argument.split(",")
            self._try("reap_page", lambda: queue.reap_page(origin, int(page)))

    def _try(self, call: str, act: Callable[[], object]) -> None:
        try:
            self.nested.append((call, act()))
        except MessageQueueError as error:
            self.nested.append((call, error))

    @staticmethod
    def weigh(origin: str, payloads: Sequence[bytes]) -> list[Weighed]:
        """Weigh messages; permanently wrong ones weigh nothing."""
        scripts = map(Script.read, payloads)
        return [Weighed(ZERO if script.answer else script.weight, script.id) for script in scripts]


def _weight(text: str) -> Weight:
    time, _, size = text.partition(",")
    return Weight(int(time), int(size))
