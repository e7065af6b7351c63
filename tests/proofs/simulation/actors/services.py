"""Services: processors that run in place, in slices, with pauses between two messages."""

from __future__ import annotations

from random import Random

from airflow_mq import Batch, Delivery, Outcome, Overweight, Weight, batch_processor
from airflow_mq.engine.queue.service import Service, service_lease
from airflow_mq.engine.rules.outcome import DONE

from ..scheduler import Process
from ..world import World
from .processing import answer, answers


def _in_flight(world: World) -> set[tuple[str, int, int]]:
    from ..invariants import check_holds

    with world.scheduler.checking():
        return set(check_holds(world))


def stall(world: World, process: Process, random: Random, often: float = 0.04) -> None:
    """Give others a turn; now and then stop for longer than any lease, as a process does that swaps or is stopped."""
    process.arrive(commits=False)
    if world.scheduler.cutting and random.random() < often:
        world.met["stalls"] += 1
        world.clock.advance(45.0)
        process.pause(random.choice((2, 4, 8)))


def serve(world: World, process: Process, random: Random) -> object:
    """Service the ring, message by message."""

    def processor(delivery: Delivery) -> Outcome:
        stall(world, process, random)
        place = delivery.book, delivery.page, delivery.index
        if world.observer.config.ordered and place in _in_flight(world) and _still_holds(world, process):
            world.note("I4 one holder", f"{delivery.address} is processed in place, and a block holds it")
        return answer(random, delivery.payload)

    return world.queue(process).service_queues(
        processor, slice_messages=random.choice((1, 2, 5, 50)), seed=random.randbytes(8)
    )


def work(world: World, process: Process, random: Random) -> object:
    """Service the ring again and again, as a worker does that keeps its lease meanwhile."""

    def processor(delivery: Delivery) -> Outcome:
        stall(world, process, random)
        return answer(random, delivery.payload)

    queue, done = world.queue(process), 0
    with service_lease(queue.session, keeps=True) as lease:
        for _ in range(random.randint(2, 5)):
            if lease.newest():
                world.met["kept leases"] += lease.ring is not None
                slice_messages = random.choice((1, 2, 5, 50))
                service = Service(queue.session, processor, None, lease, slice_messages=slice_messages)
                done += service.run().processed
            stall(world, process, random)
    return done


def serve_metering(world: World, process: Process, random: Random) -> object:
    """Service the ring with a processor that meters itself."""

    def processor(delivery: Delivery) -> Outcome:
        stall(world, process, random)
        weight = Weight(random.choice((1, 3, 5_000)) if random.random() < 0.1 else 1, len(delivery.payload))
        return answer(random, delivery.payload) if delivery.meter.consume(weight) else Overweight(weight)

    processor.meters_itself = True  # type: ignore[attr-defined]
    return world.queue(process).service_queues(
        processor, slice_messages=random.choice((1, 2, 5, 50)), seed=random.randbytes(8)
    )


def _still_holds(world: World, process: Process) -> bool:
    """Return whether the process has the ring: one that lost its lease repeats what others do, and commits nothing."""
    (row,) = world.rows("ring_state", "lease_holder, lease_token")
    return process.name in str(row[0]) and row[1] is not None


def serve_batches(world: World, process: Process, random: Random) -> object:
    """Service the ring, batch by batch."""

    def processor(batch: Batch) -> list[Outcome] | None:
        stall(world, process, random)
        found = answers(random, batch.payloads)
        # Without answers, all are done.
        return None if len(found) > 1 and all(one is DONE for one in found) else found

    return world.queue(process).service_queues(
        batch_processor(processor), slice_messages=random.choice((2, 5, 50)), seed=random.randbytes(8)
    )
