"""Ends beside a holder of the ring: blocks that end while a service is between two slices, and ends that no process can apply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from airflow_mq import Delivery, MessageQueue, Outcome, Weight
from airflow_mq.engine.queue.context import outside
from airflow_mq.engine.queue.service import service_lease
from airflow_mq.engine.rules.errors import Busy, Refused, StoreBusy, StoreCorrupt
from airflow_mq.engine.rules.settle import FATES
from airflow_mq.engine.store.blocks import EndRow
from airflow_mq.engine.store.primitives import as_json

from ..messages import Violation
from ..scheduler import Process
from ..world import World
from . import blocks, holding, senders
from .processing import answer
from .services import stall


def serve_beside_ends(world: World, process: Process, random: Random) -> object:
    """Service the ring; during some messages, another client ends blocks and gives tokens back."""
    _plan_some(world, process, random)

    def processor(delivery: Delivery) -> Outcome:
        if random.random() < 0.5:
            _as_another(world, process, random)
        stall(world, process, random)
        return answer(random, delivery.payload)

    return world.queue(process).service_queues(
        processor, slice_messages=random.choice((1, 1, 2, 5)), seed=random.randbytes(8)
    )


def hold_beside_ends(world: World, process: Process, random: Random) -> object:
    """Hold the ring while blocks end; then give it back, or forget it, as a process does that dies."""
    planned = _plan_some(world, process, random)
    session = world.queue(process).session
    lease = service_lease(session)
    lease.take()
    _end_each(world, process, random, planned)
    for _ in range(random.randint(1, 4)):
        _as_another(world, process, random)
        process.arrive(commits=False)
        if world.scheduler.cutting and random.random() < 0.5:
            process.pause(random.choice((1, 3, 8)))
    if random.random() < 0.4:
        return "forgotten"
    lease.release()
    return "released"


def spoil_end(world: World, process: Process, random: Random) -> object:
    """Record an end that cannot be applied: it would give other verdicts than recorded."""
    _plan_some(world, process, random)
    session = world.queue(process).session
    lease = service_lease(session)
    lease.take()
    _as_another(world, process, random)
    with session.store.writing() as unit:
        unit.lock(session.ring_id)
        spoiled = [end for end in unit.blocks.ends(session.ring_id) if not is_spoiled(end)]
        for end in spoiled:
            _change(unit, session.ring_id, end, lambda verdict: [*verdict, 0])
    world.met["spoiled ends"] += len(spoiled)
    lease.release()
    return len(spoiled) or None


def mend_ends(world: World, process: Process, random: Random) -> object:
    """Make spoiled ends right again, as a new version of the software would; housekeeping tries them again."""
    return mended(world.queue(process))


def mended(queue: MessageQueue) -> int:
    """Make spoiled ends right again that were set apart, and apply them; return their number."""
    session = queue.session
    with session.hold.lock() as (unit, _, _):
        spoiled = [end for end in unit.blocks.ends(session.ring_id, failed=True) if end.error and is_spoiled(end)]
        for end in spoiled:
            _change(unit, session.ring_id, end, lambda verdict: verdict[: len(FATES)])
    queue.admin.housekeep()
    return len(spoiled)


def is_spoiled(end: EndRow) -> bool:
    """Return whether the last recorded verdict of an end has a count too many: no settlement has such a one."""
    return any(len(verdict) > len(FATES) for verdict in end.terms_json["verdicts"][-1:])


def _change(unit: Any, ring: int, end: EndRow, change: Callable[[list[int]], list[int]]) -> None:
    """Change the verdicts of the last claim of an end."""
    terms = end.terms_json
    terms["verdicts"][-1:] = [change(verdict) for verdict in terms["verdicts"][-1:]]
    unit.put("save_end", ring=ring, block=end.row.id, terms=as_json(terms), error=end.error)


def _plan_some(world: World, process: Process, random: Random) -> list[str]:
    """Send messages and plan small blocks, so that others may end them and messages are left; return their tokens."""
    queue, planned = world.queue(process), []
    for _ in range(3):
        with suppress(Refused):
            senders.send_many(world, process, random)
    for _ in range(random.randint(2, 4)):
        with suppress(Refused):
            block = queue.blocks.plan(
                limit=Weight(random.choice((4, 9, 20)), 3_000), lease=600.0, seed=random.randbytes(8)
            )
            if block.messages:
                blocks._planned(world, block.token)
                planned.append(block.token)
    return planned


def _end_each(world: World, process: Process, random: Random, planned: Sequence[str]) -> None:
    """Report on several blocks and end them, as another process does, so that their ends wait together."""
    beside: Any = Beside(process)
    queue = world.queue(beside)
    with outside(world.queue(process).session.place):
        for token in random.sample(planned, len(planned)):
            with suppress(Refused, StoreBusy, Busy):
                blocks.report_to(world, beside, random, token, random.choice((1.0, 1.0, 0.5, 0.0)))
                world.asked.add(token)
                (queue.blocks.settle if random.random() < 0.7 else queue.blocks.release)(token)
    if world.scheduler.cutting:
        # The invariants see these ends wait.
        process.pause(1)


def _as_another(world: World, process: Process, random: Random) -> None:
    """Report on a block and end it, or give a token back, as another process does."""
    place = world.queue(process).session.place
    beside = Beside(process)
    act = random.choice(
        (blocks.report, blocks.report_some, blocks.settle, blocks.settle, blocks.release, holding.give_back)
    )
    with outside(place), suppress(Refused, StoreBusy, Busy):
        if act in (blocks.settle, blocks.release) and random.random() < 0.7:
            blocks.report(world, beside, random)  # type: ignore[arg-type]
        try:
            act(world, beside, random)  # type: ignore[arg-type]
        except StoreCorrupt as error:
            raise Violation("unexpected error", f"{process.step!r}: {error}") from error


class Beside:
    """Another client in the same process: it dies with it, and has a queue of its own."""

    def __init__(self, process: Process) -> None:
        self.process, self.name = process, f"{process.name}-beside"
        self.memory = process.memory.setdefault("beside", {})
        self.connections = process.connections

    def __getattr__(self, name: str) -> Any:
        return getattr(self.process, name)
