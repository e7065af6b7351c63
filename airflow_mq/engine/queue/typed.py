"""Typed queues: values for senders and processors, bytes in the store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Generic, TypeVar

from typing_extensions import Unpack

from ... import failures
from ...codecs import Codec, Undecodable, encoded, undecodable
from ..rules.blob import Reference
from ..rules.errors import BlobMissing, InvalidOutcome
from ..rules.message import Address, Message
from ..rules.outcome import DONE, Outcome, Unreadable
from ..rules.priority import REGULAR
from ..rules.weight import Weight
from .attempts import Answer, BatchProcessor, Processor, outcome_of
from .calls import caller_of
from .sending.sender import SendOptions
from .values import Batch, Delivery, Enqueued, Peeked, Serviced

if TYPE_CHECKING:
    from . import MessageQueue

log = logging.getLogger("airflow_mq.service")

T = TypeVar("T")
#: Returns the outcome of a message, named by its address, that does not decode.
Undecoded = Callable[[str, ValueError], Outcome]


class TypedDelivery(Delivery, Generic[T]):
    """A message for a processor of values: a delivery with its value."""

    __slots__ = ("_codec", "delivery", "value")

    def __init__(self, delivery: Delivery, value: T, codec: Codec[T]) -> None:
        super().__init__(delivery._open, delivery.payload, delivery.index)
        #: The decoded payload.
        self.value = value
        #: The delivery of the bytes.
        self.delivery = delivery
        self._codec = codec

    def enqueue(  # type: ignore[override]
        self, origin: str, value: T, priority: str = REGULAR, headers: Mapping[str, str] | None = None
    ) -> None:
        """Enqueue a value if, and only if, this message is done."""
        self.delivery.enqueue(origin, encoded(self._codec, value), priority, headers)


@dataclass(frozen=True)
class TypedBatch(Generic[T]):
    """Neighbouring messages of one origin for a batch processor of values, without those that do not decode."""

    origin: str
    values: Sequence[T]
    headers: Sequence[Mapping[str, str]]
    #: Ids, addresses, numbers of this attempt and times of enqueuing, one for each value.
    ids: Sequence[bytes] = ()
    addresses: Sequence[Address] = ()
    attempts: Sequence[int] = ()
    sent_at: Sequence[datetime | None] = ()
    #: Id of the block that holds the messages; none in a service in place.
    block: int | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class TypedMessage(Generic[T]):
    """A value to enqueue with more than itself."""

    value: T
    key: str | None = None
    weight: Weight | None = None
    headers: Mapping[str, str] | None = None
    priority: str | None = None


@dataclass(frozen=True)
class TypedPeeked(Generic[T]):
    """A message that was read without a change."""

    peeked: Peeked
    #: The decoded payload; None if it does not decode.
    value: T | None
    #: The reason why it does not decode.
    error: str | None = field(default=None)


class TypedQueue(Generic[T]):
    """A queue whose messages are values of one type. ::

        orders = queue.typed(Order)
        orders.enqueue("acme", Order(id=17))
        orders.service(lambda it: ship(it.value), "acme")

    No processor gets a message that does not decode: it is set aside with the reason.
    """

    def __init__(self, queue: MessageQueue, codec: Codec[T]) -> None:
        self._queue, self.codec = queue, codec

    def enqueue(self, origin: str, value: T, *, key: str | None = None, **options: Unpack[SendOptions]) -> Enqueued:
        """Enqueue one value; the options are those of `MessageQueue.enqueue_message`."""
        return self._queue.enqueue_message(origin, encoded(self.codec, value), key=key, **options)

    def enqueue_many(
        self, values: Iterable[tuple[str, T | TypedMessage[T]]], **options: Unpack[SendOptions]
    ) -> Enqueued:
        """Enqueue pairs of origin and value, all or none; the options are those of `MessageQueue.enqueue_messages`."""
        return self._queue.enqueue_messages(((origin, self._message(value)) for origin, value in values), **options)

    def _message(self, value: T | TypedMessage[T]) -> bytes | Message:
        if isinstance(value, TypedMessage):
            return Message(encoded(self.codec, value.value), value.key, value.weight, value.headers, value.priority)
        return encoded(self.codec, value)

    def service(
        self,
        processor: Callable[[TypedDelivery[T]], Answer],
        origins: str | Iterable[str],
        *,
        delete_undecodable: bool = False,
        **how: Any,
    ) -> Serviced:
        """Service the queues of some origins in this process; the options are those of `service_queues`.

        :param origins: case-sensitive shell patterns of the origins whose messages are values of this type.
        :param delete_undecodable: delete messages that do not decode, with the outcome *bad format*. By default they
            are set aside with the reason, for a requeue when the codec is fixed.
        """
        return self._queue.service_queues(
            decoding(self.codec, processor, refused if delete_undecodable else kept), origins=origins, **how
        )

    def service_batches(
        self,
        process: Callable[[TypedBatch[T]], Sequence[Answer] | None],
        origins: str | Iterable[str],
        *,
        delete_undecodable: bool = False,
        **how: Any,
    ) -> Serviced:
        """Service with a function that takes neighbours together: one answer each, or None for all done.

        The parameters are those of `service`.
        """
        return self._queue.service_queues(
            decoding_batches(self.codec, process, refused if delete_undecodable else kept), origins=origins, **how
        )

    def peek(self, origin: str, **how: Any) -> list[TypedPeeked[T]]:
        """Read messages of an origin without a change; the options are those of `Inspect.peek`."""
        found: list[TypedPeeked[T]] = []
        for peeked in self._queue.inspect.peek(origin, **how):
            try:
                opened = partial(self._queue.payloads.open, peeked)
                whole = _whole(peeked.payload, self._queue.config.whole_payloads, opened)
                found.append(TypedPeeked(peeked, self.codec.decode(whole)))
            except ValueError as error:
                found.append(TypedPeeked(peeked, None, str(error) or type(error).__name__))
        return found


def decoding(
    codec: Codec[T], processor: Callable[[TypedDelivery[T]], Answer], undecoded: Undecoded | None = None
) -> Processor:
    """Return a processor of messages that calls a processor of values.

    :param undecoded: returns the outcome of a message that does not decode; by default, a permanent failure.
    """
    call = caller_of(processor)

    def process(delivery: Delivery) -> Answer:
        working_set = delivery._open.working_set
        most = working_set.config.whole_payloads if working_set else 0
        try:
            payload = _whole(delivery.payload, most, delivery.open_blob)
        except External as error:
            return kept(f"{delivery.address}", error)
        try:
            value = codec.decode(payload)
        except ValueError as error:
            return (undecoded or refused)(f"{delivery.address}", error)
        return call(value, TypedDelivery(delivery, value, codec))

    return process


def decoding_batches(
    codec: Codec[T],
    process: Callable[[TypedBatch[T]], Sequence[Answer] | None],
    undecoded: Undecoded | None = None,
) -> BatchProcessor:
    """Return a batch processor that calls a batch processor of values; `undecoded` as in `decoding`."""

    def process_batch(batch: Batch) -> Sequence[Answer] | None:
        values, good, outcomes = list[T](), list[int](), list[Answer]()
        for at, (address, payload) in enumerate(zip(batch.addresses, batch.payloads)):
            try:
                values.append(codec.decode(_whole(payload)))
                good.append(at)
                outcomes.append(DONE)
            except ValueError as error:
                outcomes.append((kept if isinstance(error, External) else undecoded or refused)(str(address), error))
        answers = process(_typed_batch(batch, good, values)) if good else ()
        if answers is not None and len(answers) != len(good):
            raise InvalidOutcome(f"{len(answers)} answers for {len(good)} values: expected one answer each")
        for at, answer in zip(good, answers or ()):
            outcomes[at] = outcome_of(answer)
        return outcomes

    return BatchProcessor(process_batch)


def _typed_batch(batch: Batch, good: Sequence[int], values: Sequence[T]) -> TypedBatch[T]:
    """Return the values of a batch with the facts about their messages, without those that do not decode."""
    headers = batch.headers or ({},) * len(batch)
    ids, addresses, attempts, sent_at = batch.ids, batch.addresses, batch.attempts, batch.sent_at
    return TypedBatch(
        origin=batch.origin,
        values=values,
        headers=[headers[at] for at in good],
        ids=[ids[at] for at in good],
        addresses=[addresses[at] for at in good],
        attempts=[attempts[at] for at in good],
        sent_at=[sent_at[at] for at in good],
        block=batch.block,
    )


class External(Undecodable):
    """An external payload that is not decoded: it is missing or too large to be read whole. Its message is kept."""


def _whole(payload: bytes, most: int = 0, opened: Callable[[], IO[bytes]] | None = None) -> bytes:
    """Return the payload to decode, up to this size if it is external, or raise `External`."""
    if not isinstance(payload, Reference):
        return payload
    with suppress(BlobMissing):
        if opened is not None and payload.size <= most:
            with opened() as file:
                return file.read()
    raise External(f"the payload of {payload.size:,} bytes is missing, above whole_payloads, or in a batch in place")


def refused(where: str, error: ValueError) -> Outcome:
    """Return the permanent failure of a message that does not decode, and log the reason."""
    outcome = undecodable(error)
    log.warning("%s does not decode (%s): %s", ascii(where), type(outcome).__name__, _reason(error))
    return outcome


def kept(where: str, error: ValueError) -> Outcome:
    """Return the outcome that keeps a message that does not decode, set aside or in its queue; log the reason."""
    log.warning("%s does not decode, and is kept: %s", ascii(where), _reason(error))
    return Unreadable(f"does not decode ({type(undecodable(error)).__name__}): {_reason(error)}")


def _reason(error: ValueError) -> str:
    is_safe = isinstance(error, Undecodable) or failures.texts_allowed()
    return f"{type(error).__name__}: {str(error)[:500]}" if is_safe else type(error).__name__
