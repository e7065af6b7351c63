"""Sharded queue: sends go to the shard of their origin, and each shard is planned, serviced and read on its own."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from types import TracebackType
from typing import Any, TypeVar, overload

from typing_extensions import Unpack

from ..core.errors import (
    InvalidInput,
    LayoutChanged,
    MessageQueueError,
    RecursiveDisallowed,
    ShardsFailed,
    ShardUnavailable,
    StoreFull,
)
from ..core.fairness import Fairness
from ..core.invariants import Violation
from ..core.message import Footprint, Message, check_origin
from ..core.weight import Weight
from ..queue import Backlog, Enqueued, ForecastBlock, MessageQueue, QueueState, Serviced
from ..queue.attempts import BatchProcessor, Processor
from ..queue.sending.sender import Pairs, SendOptions
from ..queue.session import current_delivery
from ..queue.values import When
from ..store import Store, StoreAddress
from . import change
from .change import Drained
from .layout import Layout
from .members import Gathered, Member, Members
from .router import Place, Router
from .status import ShardStatus, statuses

T = TypeVar("T")
#: Seconds between two attempts of a send while the layout changes.
_PAUSE = 0.01
_Pair = tuple[str, "bytes | Message"]


class ShardedQueue:
    """Several stores as one logical queue: a hash of the origin chooses the store.

    ::

        with ShardedQueue({"a": "postgresql://…", "b": "postgresql://…"}) as queue:
            queue.apply({"a": 1, "b": 1})
            queue.enqueue_message("acme", b"an order")
            queue.each(lambda shard: shard.service_queues(print))

    All messages of an origin are in one shard, in order. A shard is a `MessageQueue`: blocks, leases and set-aside
    messages belong to it. A sharded queue may be shared by threads.

    :param shards: the store of each shard, by the name of the shard.
    :param ring: the name of the ring, the same in every store.
    :param busy_timeout: seconds to wait for another process, or for the end of a change of the layout.
    :param actor: recorded with decisions; by default, the user's name.
    :param traces: as of `MessageQueue`.
    """

    def __init__(
        self,
        shards: Mapping[str, str | StoreAddress | Store[Any]],
        ring: str = "default",
        *,
        busy_timeout: float = 10.0,
        actor: str | None = None,
        traces: bool | None = None,
    ) -> None:
        if not shards:
            raise InvalidInput("shards are missing: expected the store of each shard, by name")
        options = {"busy_timeout": busy_timeout, "actor": actor, "traces": traces}
        self.ring, self.busy_timeout = ring, busy_timeout
        self._members = Members({name: Member(name, store, ring, options) for name, store in shards.items()})
        self._router = Router(self._members)
        for member in self._members.values():
            member.on_open = partial(self._guard, member.name)

    def _guard(self, name: str, queue: MessageQueue) -> None:
        queue.session.fence = self._router.fence(name, queue.session.ring_id)

    # The layout.

    @property
    def shards(self) -> list[str]:
        """The names of the shards."""
        return sorted(self._members)

    def layout(self) -> Layout:
        """Return the newest layout of the shards that answer."""
        return self._router.refresh().layout

    def place(self, origin: str) -> Place:
        """Return the shard that the next message of an origin goes to."""
        self._router.forget([check_origin(origin)])
        return self._place(origin)

    def _place(self, origin: str) -> Place:
        """Return the place of an origin as the router remembers it; the fence of a send checks it."""
        place = self._router.view().places.get(origin)
        if place is not None:
            return place
        known, unknown = self._router.places([origin])
        if unknown:
            raise unknown[origin][1]
        return known[origin]

    def apply(self, weights: Mapping[str, int]) -> Layout:
        """Let all shards adopt a layout with these weights, and return it; every shard must answer.

        No message moves. An origin that the layout gives to another shard stays until its messages and idempotency
        keys are gone and `drain` has released it. A call completes a change that was interrupted. New shards get the
        settings of the ring and of its origins.

        :param weights: the weight of each shard by name, 0 to 64; a shard of weight 0 gets no new origins.
        """
        change.apply(self._members, weights)
        self.drain()
        return self.layout()

    def drain(self) -> Drained:
        """Release the origins that have left their former shard; call it from time to time after a change."""
        return change.drain(self._members)

    def status(self) -> list[ShardStatus]:
        """Return the status of each shard, also of those that do not answer."""
        return statuses(self._members)

    # Sending.

    def enqueue_message(
        self,
        origin: str,
        payload: bytes,
        *,
        key: str | None = None,
        weight: Weight | None = None,
        headers: Mapping[str, str] | None = None,
        not_before: When | None = None,
        expires: When | None = None,
        priority: str | None = None,
    ) -> Enqueued:
        """Enqueue one message in the shard of its origin; the parameters are those of `MessageQueue.enqueue_message`.

        :raises ShardUnavailable: if that shard does not answer; nothing was sent.
        """
        _refuse_nested()
        terms = SendOptions(weight=weight, headers=headers, not_before=not_before, expires=expires, priority=priority)
        origin, deadline = check_origin(origin), math.inf
        while True:
            version = self._router.view().layout.version
            try:
                with self._members.named(self._place(origin).shard) as queue:
                    return queue.enqueue_message(origin, payload, key=key, **terms)
            except LayoutChanged:
                if time.monotonic() > deadline:
                    raise
                # It begins with the first failure, so that a slow call with an old layout is repeated, too.
                deadline = min(deadline, time.monotonic() + self.busy_timeout)
                self._wait([origin])
            except (ShardUnavailable, StoreFull):
                # The origin may have left the shard.
                if not self._router.is_outdated(version):
                    raise

    @overload
    def enqueue_messages(
        self, origin: str, messages: Iterable[bytes | Message], **options: Unpack[SendOptions]
    ) -> Enqueued: ...

    @overload
    def enqueue_messages(self, origin: Pairs, messages: None = None, **options: Unpack[SendOptions]) -> Enqueued: ...

    def enqueue_messages(
        self, origin: str | Pairs, messages: Iterable[bytes | Message] | None = None, **options: Unpack[SendOptions]
    ) -> Enqueued:
        """Enqueue many messages; in each shard all of them or none, in order for each origin.

        The call holds its messages in memory. The parameters are those of `MessageQueue.enqueue_messages`.

        :raises ShardsFailed: if some shards failed; `unsent` has the messages to send again. Give messages keys if a
            repeated call must not send any of them twice.
        """
        _refuse_nested()
        if isinstance(origin, str):
            if messages is None:
                raise InvalidInput("messages are missing: expected enqueue_messages(origin, messages)")
            sender = check_origin(origin)
            return self._send([(sender, message) for message in messages], options)
        return self._send(list(origin), options)

    def _send(self, pairs: list[_Pair], options: SendOptions) -> Enqueued:
        """Send pairs to their shards; repeat those whose origins moved meanwhile."""
        sent, failed, unsent = Enqueued(0, 0), dict[str, Exception](), list[_Pair]()
        deadline, moved = math.inf, set[str]()
        while pairs:
            try:
                if moved:
                    self._wait(moved)
                version = self._router.view().layout.version
                parts, lost = self._split(pairs)
                calls = {shard: partial(_enqueue, part, options) for shard, part in parts.items()}
                answers = self._members.gather(calls)
            except MessageQueueError as unread:
                # Parts may have been sent before: the caller needs to know which were not.
                failed |= unread.failed if isinstance(unread, ShardsFailed) else {"layout": unread}
                unsent += pairs
                break
            sent = reduce(_plus, answers.found.values(), sent)
            now, pairs, moved = time.monotonic(), [], set()
            problems = [*lost, *((shard, error, parts[shard]) for shard, error in answers.missing.items())]
            for shard, error, part in problems:
                if isinstance(error, LayoutChanged) and now <= deadline:
                    pairs += part
                    moved.update(origin for origin, _ in part)
                elif isinstance(error, (ShardUnavailable, StoreFull)) and self._router.is_outdated(version):
                    # Its origins may have left the shard.
                    pairs += part
                else:
                    failed[shard] = error
                    unsent += part
            if moved:
                deadline = min(deadline, now + self.busy_timeout)
        if len(failed) == 1 and not sent.count and not sent.repeated:
            raise next(iter(failed.values()))
        if failed:
            raise ShardsFailed(failed, sent, unsent)
        return sent

    def _split(self, pairs: Sequence[_Pair]) -> tuple[dict[str, list[_Pair]], list[tuple[str, Exception, list[_Pair]]]]:
        """Return pairs by shard, in order, and those of origins whose former shard does not answer, with the error."""
        known, unknown = self._router.places({check_origin(origin) for origin, _ in pairs})
        parts: dict[str, list[_Pair]] = {}
        lost: dict[str, tuple[str, Exception, list[_Pair]]] = {}
        for pair in pairs:
            if (place := known.get(pair[0])) is not None:
                parts.setdefault(place.shard, []).append(pair)
            else:
                shard, error = unknown[pair[0]]
                lost.setdefault(shard, (shard, error, []))[2].append(pair)
        return parts, list(lost.values())

    def _wait(self, origins: Iterable[str]) -> None:
        """Wait a moment for the end of a change of the layout, and forget the places of origins."""
        time.sleep(_PAUSE)
        self._router.forget(origins)

    # Shards.

    def shard(self, name: str) -> MessageQueue:
        """Return the queue of a shard, to plan, service, settle and decide there."""
        with self._members.named(name) as queue:
            return queue

    def each(self, function: Callable[[MessageQueue], T]) -> Gathered[T]:
        """Call a function with the queue of each shard, at once; the result names the shards that did not answer."""
        return self._members.each(function)

    def everywhere(self, change: Callable[[MessageQueue], T]) -> Mapping[str, T]:
        """Make the same change in each shard, such as a pause; raise `ShardsFailed` if some shards lack it.

        ::

            queue.everywhere(lambda shard: shard.admin.pause("acme", "unpaid"))
        """
        return self.each(change).all()

    def service_queues(self, processor: Processor | BatchProcessor, limit: Weight | None = None) -> Gathered[Serviced]:
        """Service the ready queues of each shard, each within the weight, at once and in threads of this process."""
        return self.each(lambda shard: shard.service_queues(processor, limit))

    # Reading.

    def footprint(self, origin: str) -> Footprint:
        """Return the footprint of an origin over all shards; raise `ShardsFailed` if one does not answer."""
        return reduce(Footprint.plus, self.each(lambda shard: shard.footprint(origin)).all().values())

    def queues(self, prefix: str = "", after: str = "", limit: int = 50) -> Gathered[list[QueueState]]:
        """Return, for each shard, its part of the first `limit` states of queues by name."""
        answers = self.each(lambda shard: shard.inspect.queues(prefix, after, limit))
        origins = sorted({state.origin for states in answers.found.values() for state in states})[:limit]
        kept = {shard: [each for each in states if each.origin in origins] for shard, states in answers.found.items()}
        return Gathered(kept, answers.missing)

    def backlog(self) -> Gathered[Backlog]:
        """Return the totals of each shard."""
        return self.each(lambda shard: shard.inspect.backlog())

    def fairness(self, blocks: int = 100) -> Gathered[Fairness]:
        """Return the fairness of each shard. No figure compares origins of two shards: no block serves both."""
        return self.each(lambda shard: shard.inspect.fairness(blocks))

    def forecast(self, blocks: int = 10, *, seed: bytes | None = None) -> Gathered[list[ForecastBlock]]:
        """Return the next blocks of each shard. Their order across shards is not determined.

        :param seed: required if the order of the ring is `shuffle`.
        """
        return self.each(lambda shard: shard.inspect.forecast(blocks, seed=seed))

    def check(self) -> Mapping[str, list[Violation]]:
        """Check every invariant of each shard and return the violations. Nothing is written."""
        return self.each(lambda shard: shard.check()).all()

    def close(self) -> None:
        """Close the connections."""
        for member in self._members.values():
            member.close()

    def __enter__(self) -> ShardedQueue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _enqueue(part: list[_Pair], options: SendOptions, queue: MessageQueue) -> Enqueued:
    return queue.enqueue_messages(part, **options)


def _plus(one: Enqueued, other: Enqueued) -> Enqueued:
    return Enqueued(one.count + other.count, one.size + other.size, one.repeated + other.repeated)


def _refuse_nested() -> None:
    """A message that a processor sends is stored with the processor's result, in the same shard only."""
    if current_delivery.get() is not None:
        raise RecursiveDisallowed(
            "a processor cannot send through a sharded queue: its message and its result would be in two stores; send "
            "after the block is settled, or send through the delivery, to the same shard"
        )
