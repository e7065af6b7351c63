"""Adapters: other transports as senders. The interface is this page.

What a source has is fetched, enqueued under an idempotency key that names it within its source for ever, and
committed at the source only when the queue has it:

    fetch ─► enqueue, with keys ─► commit at the source

Whatever dies in between, the source gives it again, and the queue knows its key: at least once from the source
becomes exactly once in the queue, within the ring's `key_window` (a day, unless the ring says otherwise). So run
again within that time what did not get to its end. An adapter of your own has the four functions of `Adapter`:

    with MessageQueue("sqlite:///queue.db") as queue:
        print(receive(queue, MySource()))

Two are here: `airflow_mq.adapters.landing` takes new files of a folder, or of an object store, and
`airflow_mq.adapters.kafka` what is in Kafka topics. Both are commands (`airflow-mq receive`) and operators
(`airflow_mq.operators.receive`).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Protocol

from ..core.errors import EmptyMessage, InvalidInput, NotPermitted
from ..core.message import MOST_KEY_BYTES, Message
from ..core.priority import REGULAR, check_priority
from ..core.weight import Weight
from ..words import many

if TYPE_CHECKING:
    from ..queue import MessageQueue
    from ..queue.values import Enqueued

    Enqueue = Callable[[Sequence[tuple[str, bytes | Message]]], Enqueued]

log = logging.getLogger("airflow_mq.adapters")

#: Messages that are enqueued together, unless somebody says otherwise.
BATCH = 500


@dataclass(frozen=True)
class Arrived:
    """A message as a source has it."""

    #: Names it within its source, for ever: its idempotency key.
    key: str
    origin: str
    #: Its bytes; none, where there are too many to hold: then `content` opens them, and `size` says how many.
    payload: bytes | None
    #: Where it is, for people.
    place: str
    headers: Mapping[str, str] | None = None
    content: Callable[[], IO[bytes]] | None = None
    size: int = 0
    #: Why it can never be a message, where the source knows already.
    unfit: str | None = None
    #: What it will cost, and its priority, where the source knows better than whoever receives.
    weight: Weight | None = None
    priority: str | None = None


class Adapter(Protocol):
    """A source of messages."""

    def fetch(self, most: int) -> Sequence[Arrived]:
        """The next messages, so many at most; none, when that was all for now. What was not committed comes again."""

    def commit(self, arrived: Sequence[Arrived]) -> None:
        """The queue has these for good: they need not come again."""

    def refuse(self, arrived: Arrived, why: str) -> None:
        """This can never be a message: put it where a person finds it, or raise and stop here."""

    def close(self) -> None:
        """Let go of the source."""


@dataclass(frozen=True)
class Received:
    """What receiving came to."""

    count: int = 0
    size: int = 0
    #: How many the queue had already.
    repeated: int = 0
    #: How many can never be messages, and were put aside.
    refused: int = 0

    def __add__(self, other: Received) -> Received:
        return Received(
            self.count + other.count,
            self.size + other.size,
            self.repeated + other.repeated,
            self.refused + other.refused,
        )

    def __str__(self) -> str:
        said = f"received {many(self.count, 'message')} of {self.size:,} bytes"
        said += f"; {self.repeated:,} had been received before" if self.repeated else ""
        return said + (f"; {self.refused:,} put aside" if self.refused else "")


def receive(
    queue: MessageQueue,
    adapter: Adapter,
    *,
    most: int | None = None,
    batch: int = BATCH,
    weight: Weight | None = None,
    priority: str = REGULAR,
    progress: Callable[[Received], object] | None = None,
) -> Received:
    """Take what a source has now into the queue, in the source's order.

    :param most: stop after about so many messages.
    :param batch: how many are enqueued in one transaction.
    :param weight: what each will cost, where that is known.
    :param priority: `high` is serviced before all that is `regular`.
    :param progress: called after each of them.
    """
    for what, number in (("most", most), ("batch", batch)):
        if number is not None and (type(number) is not int or number < 1):
            raise InvalidInput(f"{what} is a whole number of at least 1, not {number!r}")
    # Before anything is put aside at the source for it.
    queue.permit.check_priority(check_priority(priority))
    enqueue = partial(queue.enqueue_messages, weight=weight, priority=priority)
    total, seen = Received(), 0
    while most is None or seen < most:
        arrived = adapter.fetch(batch if most is None else min(batch, most - seen))
        if not arrived:
            break
        seen += len(arrived)
        total += _take(queue, adapter, arrived, enqueue)
        if progress:
            progress(total)
    return total


def _take(queue: MessageQueue, adapter: Adapter, arrived: Sequence[Arrived], enqueue: Enqueue) -> Received:
    """In order: an adapter that stops at what can never be a message has committed all before it, and nothing after."""
    total, fit = Received(), []
    for one in arrived:
        why = _unfit(queue, one)
        if why is None:
            fit.append(one)
            continue
        total += _send(queue, adapter, fit, enqueue)
        fit = []
        log.warning("%s is no message: %s", ascii(one.place), why)
        adapter.refuse(one, why)
        total += Received(refused=1)
    return total + _send(queue, adapter, fit, enqueue)


def _send(queue: MessageQueue, adapter: Adapter, arrived: Sequence[Arrived], enqueue: Enqueue) -> Received:
    if not arrived:
        return Received()
    with ExitStack() as held:
        told = enqueue([(one.origin, _message(queue, one, held)) for one in arrived])
    adapter.commit(arrived)
    # Of what is kept apart the queue counts the reference, and a reader the file.
    size = told.size if told.repeated else sum(one.size for one in arrived)
    return Received(told.count, size, told.repeated)


def _unfit(queue: MessageQueue, one: Arrived) -> str | None:
    try:
        queue.check_sender(one.origin)
        if one.priority is not None:
            queue.permit.check_priority(check_priority(one.priority))
    except (InvalidInput, NotPermitted) as error:
        return str(error)
    if one.unfit is None and one.size == 0:
        return str(EmptyMessage())
    return one.unfit


def _message(queue: MessageQueue, one: Arrived, held: ExitStack) -> Message:
    if one.payload is not None and len(one.payload) <= queue.config.max_message_len:
        return Message(one.payload, one.key, one.weight, one.headers or None, one.priority)
    if one.payload is not None:
        blob = held.enter_context(queue.put_blob(one.payload))
    else:
        assert one.content is not None
        with one.content() as file:
            if one.size <= queue.config.max_message_len:
                return Message(file.read(), one.key, one.weight, one.headers or None, one.priority)
            blob = held.enter_context(queue.put_blob(file))
    return blob.message(one.key, one.weight, one.headers or None, one.priority)


def key_for(*parts: str) -> str:
    """A key of what names a message within its source; a long one, or one that is no text, by its hash."""
    key = "/".join(parts)
    raw = key.encode("utf-8", "surrogateescape")
    if len(raw) <= MOST_KEY_BYTES and key.isprintable():
        return key
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"
