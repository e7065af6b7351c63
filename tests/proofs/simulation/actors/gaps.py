"""Sleepers: runs that are skipped for hours, after which several come at once, and services that sleep in the middle."""

from __future__ import annotations

from random import Random
from typing import Any

from airflow_mq import Block, Delivery, MessageQueue, Outcome
from airflow_mq.engine.rules.errors import Refused

from ..clock import SECOND
from ..messages import Sent
from ..scheduler import Process
from ..world import World
from .blocks import _planned, report_to
from .processing import answer, done
from .senders import _bring_forward, _sending
from .services import stall

#: Seconds of a gap, and the longest lease, delay, pause and expiry of what was begun before it.
GAPS, LONGEST = (900.0, 3_600.0, 7_200.0), 300.0


def skip_runs(world: World, process: Process, random: Random) -> object:
    """Begin a run and let the next ones be skipped; after the gap, several catch up, and one of them is the same run.

    What waited at its beginning for a time waits for nothing after it.
    """
    queue, origin, name = world.queue(process), process.name, f"{process.name} {random.getrandbits(32)}"
    _leave(world, process, random, queue, priority=random.choice(("regular", "high")))
    first = queue.blocks.plan(f"{name} 0", lease=random.choice((10.0, LONGEST)), seed=random.randbytes(8))
    _planned(world, first.token)
    if random.random() < 0.5:
        report_to(world, process, random, first.token, 0.5)
    token = queue.leases.view(lease=random.choice((5.0, LONGEST))).try_next()
    expired = _leave(world, process, random, queue, expires=random.choice((0.0, LONGEST)))
    delayed = _leave(world, process, random, queue, not_before=random.choice((1.0, LONGEST)))
    queue.admin.pause(origin, "for now", random.choice((1.0, LONGEST)))
    ends = world.clock.database + round(LONGEST * SECOND)
    world.clock.advance(random.choice(GAPS))
    if world.scheduler.cutting and random.random() < 0.5:
        process.pause(random.choice((1, 3)))
    numbers = [0, *range(1, random.choice((2, 4)))]
    runs = [
        queue.blocks.plan(f"{name} {number}", lease=900.0, seed=random.randbytes(8))
        for number in random.sample(numbers, len(numbers))
    ]
    if world.clock.database > ends and world.clock.latest == world.clock.database:
        world.met["runs that caught up"] += len(runs)
        _look_back(world, queue, origin, first, runs)
        joined = {one.payload for one in delayed if not one.was_aside}
        if waiting := world.delayed() & joined:
            world.note("gap", f"{waiting} wait for a time that has passed")
        planned = {payload for run in runs for batch in run.batches() for payload in batch.payloads}
        if late := planned & {one.payload for one in expired}:
            world.note("gap", f"{late} are planned, though they have expired")
        if token is not None:
            _complete_late(world, queue, token)
    for run in runs:
        _planned(world, run.token)
        if random.random() < 0.8:
            report_to(world, process, random, run.token)
        world.asked.add(run.token)
        queue.blocks.settle(run)
    return len(runs)


def _leave(world: World, process: Process, random: Random, queue: MessageQueue, **terms: Any) -> list[Sent]:
    """Send messages under terms that end in the gap."""
    due = world.clock.database + round(terms.get("not_before", 0.0) * SECOND)
    some = [
        world.messages.new(
            process.name, process.name, in_order=False, expires="expires" in terms, delayed="not_before" in terms,
            due=due if "not_before" in terms else 0,
        )
        for _ in range(random.randint(1, 3))
    ]  # fmt: skip
    payloads = [one.payload for one in some]
    with world.clock.when_set_back(lambda microseconds: _bring_forward(some, microseconds)):
        _sending(world, process, some, lambda: queue.enqueue_messages(process.name, payloads, **terms))
    return some


def _look_back(world: World, queue: MessageQueue, origin: str, first: Block, runs: list[Block]) -> None:
    """Look whether anything of the time before the gap still counts."""
    if first.id in [run.id for run in runs]:
        world.note("gap", f"block {first.id} is planned again, though its lease has ended")
    if origin in [paused.origin for paused in queue.admin.paused()]:
        world.note("gap", f"the pause of {origin} has ended, and it is listed")
    for page in queue.inspect.ledger(limit=len(runs)):
        reasons = [(entry.origin, entry.reason) for entry in page.entries]
        if (origin, "paused") in reasons or origin in page.skipped.get("paused", ()):
            world.note("gap", f"the pause of {origin} has ended, and block {page.block} skips it")


def _complete_late(world: World, queue: MessageQueue, token: Any) -> None:
    """Complete a message whose lease has ended: its holder comes too late."""
    try:
        outcome = done(token.fetch())
        queue.leases.complete(token, outcome)
    except Refused:
        return
    world.note("gap", f"{token.address} is completed, though its lease has ended")


def oversleep(world: World, process: Process, random: Random) -> object:
    """Service the ring, and sleep at one message for longer than any lease, as a suspended machine does."""
    left = [random.randint(1, 4)]

    def processor(delivery: Delivery) -> Outcome:
        left[0] -= 1
        if left[0] == 0:
            world.clock.advance(random.choice(GAPS))
        stall(world, process, random, 0.04 if left[0] else 1.0)
        return answer(random, delivery.payload)

    return world.queue(process).service_queues(
        processor, slice_messages=random.choice((1, 2, 5)), seed=random.randbytes(8)
    )
