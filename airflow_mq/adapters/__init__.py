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
`airflow_mq.adapters.kafka` what is in Kafka topics. Both are commands
(`airflow-mq message receive-folder`, `receive-kafka`) and operators (`airflow_mq.operators.receive`).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, TYPE_CHECKING, Protocol, runtime_checkable

from ..core.blob import MOST_BLOB_BYTES
from ..core.errors import EmptyMessage, InvalidInput, KeyConflict, NotPermitted, TooManyOrigins
from ..core.message import MOST_KEY_BYTES, Message, message_id
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
#: Bytes after which a source ends a batch, however few messages it has.
BATCH_BYTES = 16 << 20


class Changed(Exception):
    """The source no longer has what it announced; the new content comes with a later fetch."""


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
    #: Whether the source may have other content under this key later: then that is another message.
    replaceable: bool = False


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


@runtime_checkable
class Skips(Protocol):
    """An adapter that can go on without a message which the ring does not take at the moment."""

    def skip(self, arrived: Arrived, why: str) -> None:
        """Leave this at the source for a later run."""


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
    queue.session.permit.check_priority(check_priority(priority))
    checked = None if weight is None else Weight.of(weight)
    enqueue = partial(queue.enqueue_messages, weight=checked, priority=priority)
    total = Received()
    while most is None or total.count + total.repeated < most:
        arrived = adapter.fetch(batch if most is None else min(batch, most - total.count - total.repeated))
        if not arrived:
            break
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
        total += _refuse(adapter, one, why)
    return total + _send(queue, adapter, fit, enqueue)


def _refuse(adapter: Adapter, one: Arrived, why: str) -> Received:
    log.warning("%s is no message: %s", ascii(one.place), why)
    adapter.refuse(one, why)
    return Received(refused=1)


def _send(queue: MessageQueue, adapter: Adapter, arrived: Sequence[Arrived], enqueue: Enqueue) -> Received:
    total, ready = Received(), []
    with ExitStack() as held:
        for one in arrived:
            try:
                ready.append((one, _message(queue, one, held)))
            except Changed:
                log.info("%s changed while it was read; it is left for the next time", ascii(one.place))
            except PermissionError as error:
                total += _enqueue(adapter, ready, enqueue)
                ready = []
                total += _refuse(adapter, one, f"it cannot be read: {error}")
        return total + _enqueue(adapter, ready, enqueue)


def _enqueue(adapter: Adapter, ready: Sequence[tuple[Arrived, Message]], enqueue: Enqueue) -> Received:
    """Enqueue a batch; halve one that is refused, until the message that is to blame is alone."""
    if not ready:
        return Received()
    arrived = [one for one, _ in ready]
    try:
        told = enqueue([(one.origin, message) for one, message in ready])
    except (InvalidInput, KeyConflict, TooManyOrigins) as error:
        if len(ready) == 1:
            return _enqueue_refused(adapter, *ready[0], error, enqueue)
        half = len(ready) // 2
        return _enqueue(adapter, ready[:half], enqueue) + _enqueue(adapter, ready[half:], enqueue)
    adapter.commit(arrived)
    # Of what is kept apart the queue counts the reference, and a reader the file.
    size = told.size if told.repeated else sum(one.size for one in arrived)
    return Received(told.count, size, told.repeated)


def _enqueue_refused(
    adapter: Adapter, one: Arrived, message: Message, error: Exception, enqueue: Enqueue
) -> Received:  # fmt: skip
    """Enqueue a message that the queue refused under a key of its content, or put it aside."""
    if isinstance(error, TooManyOrigins):
        if not isinstance(adapter, Skips):
            raise error
        log.warning("%s is left for a later run: %s", ascii(one.place), error)
        adapter.skip(one, str(error))
        return Received()
    key = key_for(one.key, message_id(message.payload).hex())
    if isinstance(error, KeyConflict) and one.replaceable and message.key != key:
        log.info("%s has other content under the key of a message that is in the queue", ascii(one.place))
        return _enqueue(adapter, [(one, replace(message, key=key))], enqueue)
    return _refuse(adapter, one, str(error))


def _unfit(queue: MessageQueue, one: Arrived) -> str | None:
    try:
        queue.session.check_sender(one.origin)
        if one.priority is not None:
            queue.session.permit.check_priority(check_priority(one.priority))
    except (InvalidInput, NotPermitted) as error:
        return str(error)
    if one.unfit is None and one.size == 0:
        return str(EmptyMessage())
    if one.unfit is None and one.size > MOST_BLOB_BYTES:
        return f"it has {one.size:,} bytes, and a message has at most {MOST_BLOB_BYTES:,}"
    return one.unfit


def _message(queue: MessageQueue, one: Arrived, held: ExitStack) -> Message:
    if one.payload is not None and len(one.payload) <= queue.config.max_message_len:
        return Message(one.payload, one.key, one.weight, one.headers or None, one.priority)
    if one.payload is not None:
        blob = held.enter_context(queue.payloads.put(one.payload))
    else:
        assert one.content is not None
        with one.content() as file:
            if one.size <= queue.config.max_message_len:
                return Message(file.read(), one.key, one.weight, one.headers or None, one.priority)
            blob = held.enter_context(queue.payloads.put(file))
    return blob.message(one.key, one.weight, one.headers or None, one.priority)


def key_for(*parts: str) -> str:
    """A key of what names a message within its source; a long one, or one that is no text, by its hash."""
    key = "/".join(parts)
    raw = key.encode("utf-8", "surrogateescape")
    if len(raw) <= MOST_KEY_BYTES and key.isprintable():
        return key
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"
