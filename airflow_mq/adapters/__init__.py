"""Adapters: other transports as senders.

An adapter fetches messages from a source. `receive` enqueues them under an idempotency key that names each within its
source for ever, and commits them at the source only when the queue has stored them:

    fetch ─► enqueue, with keys ─► commit at the source

After a crash the source returns its messages again, and the queue knows their keys. At least once from the source
becomes exactly once in the queue, within the ring's `key_window` (a day by default). So repeat an interrupted run
within that time. An adapter implements the four methods of `Adapter`:

    with MessageQueue("sqlite:///queue.db") as queue:
        print(receive(queue, MySource()))

This package contains two: `airflow_mq.adapters.landing` receives new files of a folder or of an object store, and
`airflow_mq.adapters.kafka` receives the records of Kafka topics. Both are commands
(`airflow-mq message receive-folder`, `receive-kafka`) and operators (`airflow_mq.operators.receive`).
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass, replace
from functools import partial
from operator import add
from typing import IO, TYPE_CHECKING, Protocol, runtime_checkable

from ..engine.rules.blob import MOST_BLOB_BYTES
from ..engine.rules.errors import EmptyMessage, InvalidInput, KeyConflict, NotPermitted, QueueFull, TooManyOrigins
from ..engine.rules.message import Message, message_id
from ..engine.rules.priority import REGULAR, check_priority
from ..engine.rules.weight import Weight
from ..keys import key_for
from ..words import many

if TYPE_CHECKING:
    from ..engine.queue import MessageQueue
    from ..engine.queue.values import Enqueued

    Enqueue = Callable[[Sequence[tuple[str, bytes | Message]]], Enqueued]

log = logging.getLogger("airflow_mq.adapters")

#: Default number of messages that are enqueued together.
BATCH = 500
#: Bytes after which a source ends a batch.
BATCH_BYTES = 16 << 20
#: Why a message stays at the source behind the first one that stays there.
_BEHIND = "a message before it is left"
#: Errors of one file, as a missing permission is. Others may be of the process, or of the source as a whole.
_OF_ONE_FILE = (errno.EIO, errno.ESTALE, errno.EINVAL, errno.EISDIR, errno.ENXIO)


class Changed(Exception):
    """The source does not have the announced content any more; the new content comes with a later fetch."""


def is_unreadable(error: OSError) -> bool:
    """Return whether an error is that of one file, which stays for a later run while the source is read on."""
    return isinstance(error, PermissionError) or error.errno in _OF_ONE_FILE


@dataclass(frozen=True)
class Arrived:
    """A message of a source."""

    #: Idempotency key: names the message within its source for ever.
    key: str
    origin: str
    #: Payload; None if it is too large to hold: then `content` opens it, and `size` is its length.
    payload: bytes | None
    #: Place of the message in the source, for people.
    place: str
    headers: Mapping[str, str] | None = None
    content: Callable[[], IO[bytes]] | None = None
    size: int = 0
    #: Reason why it can never be a message, if the source knows one.
    unfit: str | None = None
    #: Weight and priority, if the source knows them better than the receiver.
    weight: Weight | None = None
    priority: str | None = None
    #: Whether the source may have other content under this key later, which is another message then.
    replaceable: bool = False


class Adapter(Protocol):
    """A source of messages."""

    def fetch(self, most: int) -> Sequence[Arrived]:
        """Return at most this many next messages, or none at the end. Messages that were not committed come again."""

    def commit(self, arrived: Sequence[Arrived]) -> None:
        """Commit messages that the queue has stored: they need not come again."""

    def refuse(self, arrived: Arrived, why: str) -> bool | None:
        """Put a message that can never be enqueued where a person finds it, or raise to stop here.

        Return False if the refusal of an earlier message included it, as with lines of one file.
        """

    def close(self) -> None:
        """Release the source."""


@runtime_checkable
class Skips(Protocol):
    """An adapter that can go on without a message that the ring does not accept at the moment."""

    def skip(self, arrived: Arrived, why: str) -> None:
        """Leave a message at the source for a later run."""


@dataclass(frozen=True)
class Received:
    """Result of receiving."""

    count: int = 0
    size: int = 0
    #: Number of messages that the queue had already stored.
    repeated: int = 0
    #: Number of messages that can never be enqueued and were put aside; a file that is read by lines counts once.
    refused: int = 0
    #: Number of messages left at the source, because they cannot be read now or a queue or the ring is full; a source
    #: that is read in order stops at the first.
    left: int = 0
    #: Number of files and folders that cannot be read now.
    unreadable: int = 0

    def __add__(self, other: Received) -> Received:
        return Received(*map(add, astuple(self), astuple(other)))

    def __str__(self) -> str:
        text = f"received {many(self.count, 'message')} of {self.size:,} bytes"
        text += f"; {self.repeated:,} had been received before" if self.repeated else ""
        text += f"; {self.refused:,} put aside" if self.refused else ""
        text += f"; {self.unreadable:,} cannot be read" if self.unreadable else ""
        return text + (f"; {self.left:,} left at the source; the log states why" if self.left else "")


def unmatched(source: Adapter) -> str:
    """Return a remark on files that a landing's pattern did not match; empty without any."""
    count, first = getattr(source, "unmatched", 0), getattr(source, "first_unmatched", "")
    return f"; the pattern does not match what is there: {many(count, 'file')}, {first!a} first" if count else ""


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
    """Enqueue what a source has now, in the source's order.

    The messages of an origin whose queue is full stay at the source, and a later run goes on with them; likewise those
    behind a message that cannot be read. A source that can be read in order only is not read behind the first of them.

    :param most: stop after about this many new messages.
    :param batch: number of messages that are enqueued in one transaction.
    :param weight: weight of each message, if it is known.
    :param priority: `high` messages are serviced before all `regular` ones.
    :param progress: called after each batch with the sums so far.
    """
    for what, number in (("most", most), ("batch", batch)):
        if number is not None and (type(number) is not int or number < 1):
            raise InvalidInput(f"invalid {what} {number!r}: expected a whole number of at least 1")
    # Check before any message is put aside at the source because of the priority.
    queue.session.permit.check_priority(check_priority(priority))
    enqueue = partial(queue.enqueue_messages, weight=weight and Weight.of(weight), priority=priority)
    total, full = Received(), set[str]()
    while most is None or total.count < most:
        arrived = adapter.fetch(batch if most is None else min(batch, most - total.count))
        if not arrived:
            break
        total += _take(queue, adapter, arrived, enqueue, full)
        if progress:
            progress(total)
        if full and not isinstance(adapter, Skips):
            break
    return total + Received(unreadable=getattr(adapter, "unreadable", 0))


def _take(
    queue: MessageQueue, adapter: Adapter, arrived: Sequence[Arrived], enqueue: Enqueue, full: set[str]
) -> Received:
    """Enqueue in order: an adapter that stops at a refused message has committed all before it and none after.

    :param full: origins of which nothing is taken; none of their messages may pass the one that is left
    """
    total, ready = Received(), []
    with ExitStack() as held:
        for item in arrived:
            why = _unfit(queue, item)
            if why is None and item.origin in full:
                total += _leave(adapter, item, _BEHIND)
            elif why is None:
                try:
                    ready.append((item, _message(queue, item, held)))
                except Changed:
                    log.info("%s changed while it was read; it is left for the next run", ascii(item.place))
                except OSError as error:
                    if not is_unreadable(error):
                        raise
                    total, ready = total + _enqueue(adapter, ready, enqueue, full), []
                    full.add(item.origin)
                    left = _leave(adapter, item, f"it cannot be read: {error.strerror or error}")
                    total += replace(left, unreadable=1)
            if why is not None:
                total += _enqueue(adapter, ready, enqueue, full)
                ready = []
                # Behind a message that is left, a source that is read in order is not read on.
                if not full or isinstance(adapter, Skips):
                    total += _refuse(adapter, item, why)
        return total + _enqueue(adapter, ready, enqueue, full)


def _refuse(adapter: Adapter, item: Arrived, why: str) -> Received:
    if adapter.refuse(item, why) is False:
        return Received()
    log.warning("%s cannot be a message: %s", ascii(item.place), why)
    return Received(refused=1)


def _enqueue(adapter: Adapter, ready: Sequence[tuple[Arrived, Message]], enqueue: Enqueue, full: set[str]) -> Received:
    """Enqueue a batch; halve a refused one until the refused message is alone."""
    kept = []
    for item, message in ready:
        if full and (item.origin in full or not isinstance(adapter, Skips)):
            _leave(adapter, item, _BEHIND)
        else:
            kept.append((item, message))
    return Received(left=len(ready) - len(kept)) + (_enqueue_all(adapter, kept, enqueue, full) if kept else Received())


def _enqueue_all(
    adapter: Adapter, ready: Sequence[tuple[Arrived, Message]], enqueue: Enqueue, full: set[str]
) -> Received:
    try:
        sent = enqueue([(item.origin, message) for item, message in ready])
    except (InvalidInput, KeyConflict, QueueFull, TooManyOrigins) as error:
        if len(ready) == 1:
            return _enqueue_refused(adapter, *ready[0], error, enqueue, full)
        half = len(ready) // 2
        return _enqueue(adapter, ready[:half], enqueue, full) + _enqueue(adapter, ready[half:], enqueue, full)
    adapter.commit([item for item, _ in ready])
    return Received(sent.count, sent.size, sent.repeated)


def _enqueue_refused(
    adapter: Adapter, item: Arrived, message: Message, error: Exception, enqueue: Enqueue, full: set[str]
) -> Received:
    """Enqueue a message that the queue refused under a key of its content, or put it aside."""
    if isinstance(error, TooManyOrigins) and not isinstance(adapter, Skips):
        raise error
    if isinstance(error, (QueueFull, TooManyOrigins)):
        full.add(item.origin)
        return _leave(adapter, item, str(error))
    key = key_for(item.key, message_id(message.payload).hex())
    if isinstance(error, KeyConflict) and item.replaceable and message.key != key:
        log.info("%s has other content under the key of a message that is in the queue", ascii(item.place))
        return _enqueue(adapter, [(item, replace(message, key=key))], enqueue, full)
    return _refuse(adapter, item, str(error))


def _leave(adapter: Adapter, item: Arrived, why: str) -> Received:
    # The first message of an origin that is left is logged with the reason; thousands may follow.
    log.log(
        logging.DEBUG if why == _BEHIND else logging.WARNING, "%s is left for a later run: %s", ascii(item.place), why
    )
    if isinstance(adapter, Skips):
        adapter.skip(item, why)
    return Received(left=1)


def _unfit(queue: MessageQueue, item: Arrived) -> str | None:
    try:
        queue.session.check_sender(item.origin)
        if item.priority is not None:
            queue.session.permit.check_priority(check_priority(item.priority))
    except (InvalidInput, NotPermitted) as error:
        return str(error)
    if item.unfit is None and _size(item) == 0:
        return str(EmptyMessage())
    if item.unfit is None and _size(item) > MOST_BLOB_BYTES:
        return f"it has {_size(item):,} bytes: expected at most {MOST_BLOB_BYTES:,}"
    return item.unfit


def _size(item: Arrived) -> int:
    return item.size if item.payload is None else len(item.payload)


def _message(queue: MessageQueue, item: Arrived, held: ExitStack) -> Message:
    payload, most = item.payload, queue.config.max_message_len
    if payload is None:
        assert item.content is not None
        with item.content() as file:
            payload = file.read() if item.size <= most else held.enter_context(queue.payloads.put(file)).reference
    elif len(payload) > most:
        payload = held.enter_context(queue.payloads.put(payload)).reference
    return Message(payload, item.key, item.weight, item.headers or None, item.priority)
