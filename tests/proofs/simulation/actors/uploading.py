"""Uploaders: messages with external payloads, and processors that upload what they send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

from airflow_mq import Delivery, Done, MessageQueue, Outcome, Overweight, Yield
from airflow_mq.engine.queue.payloads import Held
from airflow_mq.engine.rules.blob import Reference

from ..messages import child_of, is_parent
from ..scheduler import Process
from ..world import World
from . import blocks, holding
from .processing import answer, done
from .senders import _new, _sending, send_parents
from .services import stall


def upload(world: World, process: Process, random: Random) -> object:
    """Send a message with an external payload."""
    queue, sent = world.queue(process), _new(world, process, random)
    priority = random.choice(("regular", "regular", "high"))
    sent.in_order = False
    return _sending(
        world, process, [sent], lambda: queue.payloads.enqueue(sent.origin, sent.payload, priority=priority)
    )


def serve_uploading(world: World, process: Process, random: Random) -> object:
    """Service the ring; the processor reads external payloads, and uploads what it sends."""
    queue = world.queue(process)

    def processor(delivery: Delivery) -> Outcome:
        stall(world, process, random)
        if isinstance(delivery.payload, Reference):
            with delivery.open_blob() as file:
                if file.read() != world.whole(delivery.payload):
                    world.note("payload", f"{delivery.address} has another external payload than was sent")
            world.met["external payloads that were read"] += 1
        if not is_parent(delivery.payload) or random.random() < 0.3:
            return answer(random, delivery.payload)
        with queue.payloads.put(child_of(delivery.payload)) as child:
            if random.random() < 0.5:
                delivery.enqueue("children", child.reference)
                return Done()
            return Done(enqueue=[("children", child.reference)])

    return queue.service_queues(processor, slice_messages=random.choice((1, 2, 5, 50)), seed=random.randbytes(8))


def report_uploading(world: World, process: Process, random: Random) -> object:
    """Report a block, and end the uploads: from then on the report alone keeps what the block sends."""
    if random.random() < 0.7:
        send_parents(world, process, random)
        blocks.plan(world, process, random)
    token, queue = blocks._pick(world, random), world.queue(process)
    if token is None:
        return None
    block = queue.blocks.get(token)
    for batch in block.batches():
        reports = blocks._answers(block.id, batch, random, 1.0)
        with _uploads(world, process, queue) as put:
            queue.blocks.report(token, [replace(one, outcome=put(one.outcome)) for one in reports])
        if len(reports) < len(batch) or isinstance(reports[-1].outcome, (Yield, Overweight)):
            break
    return block.id


def complete_uploading(world: World, process: Process, random: Random) -> object:
    """Complete a leased message with one that has an external payload."""
    text, queue = holding._pick(world, random), world.queue(process)
    if text is None:
        return None
    payload = queue.leases.token(text).fetch()
    holding._ask(world, text)
    with _uploads(world, process, queue) as put:
        return queue.leases.complete(text, put(done(payload)))


@contextmanager
def _uploads(world: World, process: Process, queue: MessageQueue) -> Iterator[Callable[[Any], Any]]:
    """Yield a function that uploads the payloads which an outcome sends; end the uploads if nothing fails."""
    held: list[Held] = []

    def put(outcome: Any) -> Any:
        process.arrive(commits=False)
        sent = getattr(outcome, "enqueue", ())
        uploads = [(origin, queue.payloads.put(payload)) for origin, payload in sent]
        held.extend(one for _, one in uploads)
        return replace(outcome, enqueue=[(origin, one.reference) for origin, one in uploads]) if sent else outcome

    yield put
    for one in held:
        one.release()
    world.met["uploads of workers"] += len(held)


def sweep_uploads(world: World, process: Process, random: Random) -> object:
    """Delete external payloads that no message needs."""
    return world.queue(process).payloads.sweep()
