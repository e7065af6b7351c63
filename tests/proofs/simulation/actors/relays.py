"""Relays: processors that use queues of other rings, callbacks that send, and deliveries that their processor keeps."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, copy_context
from random import Random

from airflow_mq import Delivery, Done, MessageQueue, Outcome
from airflow_mq.engine.queue.values import Serviced
from airflow_mq.engine.rules.errors import Busy, DeliverySealed, RecursiveDisallowed, Refused

from ..messages import child_of, is_parent
from ..scheduler import Process
from ..world import ORIGINS, World
from .processing import answer
from .senders import _sending
from .services import stall

#: Sends of the callbacks of one service, and deliveries that are kept.
MOST_SENDS, KEPT = 4, 3


def _send(world: World, process: Process, random: Random, queue: MessageQueue) -> object:
    """Send a message to a ring by a queue of it: from outside of its processors, it is there at once."""
    # Rings count their messages apart: the mark keeps their payloads apart, too.
    mark = f":{world.label}" if world.label else ""
    sent = world.messages.new(process.name, random.choice(ORIGINS), mark=mark, in_order=False)
    world.met[f"sends to another ring ({world.label})" if world.label else "sends of a callback"] += 1
    return _sending(world, process, [sent], lambda: queue.enqueue_message(sent.origin, sent.payload))


def _unless_refused(world: World, what: str, act: Callable[[], object]) -> object:
    """Do what a processor or a callback may do; only a ring that is in use may refuse it."""
    try:
        return act()
    except (RecursiveDisallowed, DeliverySealed) as error:
        world.note("own ring", f"{what} is refused: {type(error).__name__}: {error}")
        raise


# A second queue in a processor.


def relay(world: World, process: Process, random: Random) -> object:
    """Service the ring; the processor sends to other rings and to its own, and fails now and then."""
    queue = world.queue(process)

    def processor(delivery: Delivery) -> Outcome:
        stall(world, process, random)
        if random.random() < 0.4:
            other = random.choice(world.beside)
            _unless_refused(world, "a send", lambda: _send(other, process, random, other.queue(process)))
        return _own_sends(queue, random, delivery.payload)

    return queue.service_queues(processor, slice_messages=random.choice((1, 2, 50)), seed=random.randbytes(8))


def _own_sends(queue: MessageQueue, random: Random, payload: bytes) -> Outcome:
    """Answer; what is sent by a queue of the ring goes to the delivery, and counts only if the message is done."""
    outcome = answer(random, payload)
    if not is_parent(payload) or random.random() < 0.4:
        return outcome
    queue.enqueue_message("children", child_of(payload))
    if random.random() < 0.2:
        raise RuntimeError
    return Done() if isinstance(outcome, Done) else outcome


def relay_and_serve(world: World, process: Process, random: Random) -> object:
    """Service the ring; the processor services and plans another ring, and may not do so on its own."""
    queue, other = world.queue(process), random.choice(world.beside)
    inner = other.queue(process)

    def of_other(delivery: Delivery) -> Outcome:
        if random.random() < 0.3:
            # It runs inside a processor of this ring, and for a message of the other one.
            _unless_refused(world, "a send", lambda: _send(world, process, random, queue))
        return answer(random, delivery.payload)

    def processor(delivery: Delivery) -> Outcome:
        stall(world, process, random)
        if random.random() < 0.3:
            world.met["services inside a processor"] += 1
            _unless_refused(other, "a service", lambda: inner.service_queues(of_other, seed=random.randbytes(8)))
        elif random.random() < 0.3:
            _unless_refused(other, "a plan", lambda: other.asked.add(_plan_and_release(other, inner, random)))
        elif random.random() < 0.3:
            _meddle(world, queue)
        return answer(random, delivery.payload)

    return queue.service_queues(processor, slice_messages=random.choice((1, 2, 50)), seed=random.randbytes(8))


def _plan_and_release(world: World, queue: MessageQueue, random: Random) -> str:
    block = queue.blocks.plan(seed=random.randbytes(8))
    world.asked.add(block.token)
    queue.blocks.release(block)
    return block.token


def _meddle(world: World, queue: MessageQueue) -> None:
    """Do what a processor may not do on its own ring."""
    tried: list[Delivery] = []
    try:
        done = queue.service_queues(lambda delivery: tried.append(delivery))
    except Busy as error:
        world.note("own ring", f"a processor waits for its own ring: {error}")
        raise
    if tried or done != Serviced():
        world.note("own ring", f"a processor services its own ring: {done}")
    try:
        queue.blocks.plan()
    except RecursiveDisallowed:
        return
    world.note("own ring", "a processor plans on its own ring")


# Callbacks that send.


def serve_calling_back(world: World, process: Process, random: Random) -> object:
    """Service the ring; `progress` and a listener send, and so does who kept a delivery."""
    plain = world.queue(process)
    kept: list[tuple[Delivery, Context]] = []
    left = [MOST_SENDS]

    def call_back(*_: object) -> None:
        if left[0] <= 0 or random.random() < 0.5:
            return
        left[0] -= 1
        if kept and random.random() < 0.5:
            _send_late(world, process, random, plain, *random.choice(kept))
        else:
            _unless_refused(world, "a callback's send", lambda: _send(world, process, random, plain))

    def processor(delivery: Delivery) -> Outcome:
        stall(world, process, random)
        if kept and random.random() < 0.2:
            _send_late(world, process, random, plain, *random.choice(kept))
        kept.append((delivery, copy_context()))
        del kept[:-KEPT]
        return answer(random, delivery.payload)

    queue = _listening(world, process, call_back) if random.random() < 0.4 else plain
    try:
        return queue.service_queues(
            processor, slice_messages=random.choice((1, 1, 2, 5)), seed=random.randbytes(8), progress=call_back
        )
    finally:
        if kept and not process.is_gone:
            _send_late(world, process, random, plain, *kept[-1])


def _listening(world: World, process: Process, listener: Callable[..., None]) -> MessageQueue:
    queue = MessageQueue(world.uri, world.ring, actor=process.name, listeners=[listener])
    process.connections.insert(0, queue.close)
    return queue


def _send_late(
    world: World, process: Process, random: Random, queue: MessageQueue, delivery: Delivery, context: Context
) -> None:
    """Send by a delivery whose processor has answered, or in a copy of its context: it is refused, or stored."""
    sent = world.messages.new(process.name, random.choice(ORIGINS), in_order=False)
    world.met["sends by a kept delivery"] += 1
    by_queue = random.random() < 0.5

    def send() -> object:
        if by_queue:
            return context.run(queue.enqueue_message, sent.origin, sent.payload)
        delivery.enqueue(sent.origin, sent.payload)
        return None

    try:
        _sending(world, process, [sent], send)
    except DeliverySealed:
        return
    except Refused:
        if not by_queue:
            raise
        return
    world.note("sealed", f"a delivery that has answered takes {sent.payload!r}")
