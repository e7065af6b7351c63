"""Workers of parts: attempts that are repeated, messages that end their worker, and blocks whose claims are empty."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from random import Random

from airflow_mq import Batch, Block, Delivery, Message, MessageQueue, Outcome, Report, Weight, Yield
from airflow_mq.engine.rules.errors import Refused
from airflow_mq.processors import Part, Processor, Processors
from airflow_mq.spark.attempts import Function
from airflow_mq.spark.share import Reported
from airflow_mq.spark.store_side import run_in_place

from ..scheduler import Process
from ..world import ORIGINS, Expectation, World
from .blocks import _planned
from .processing import answer, done
from .senders import _sending

#: Heavier than any block.
HEAVY = Weight(5_000, 10)
#: A processor of all origins; tests call a function instead of it.
EVERYTHING = Processors([Processor("all", "nowhere:all", where="in place")])


def plan_twice(world: World, process: Process, random: Random) -> object:
    """Plan two blocks: of an unordered queue, the second one may claim nothing, and ends beside others."""
    queue = world.queue(process)
    for _ in range(2):
        block = queue.blocks.plan(seed=random.randbytes(8))
        world.met["empty claims"] += sum(not claim.messages for claim in block.claims)
        _planned(world, block.token)
    return None


def end_beside_a_service(world: World, process: Process, random: Random) -> object:
    """Service the ring while another process settles a block whose claim of the serviced queue has no message left.

    A set-aside message keeps the page of the claim.
    """
    queue, origin = world.queue(process), random.choice(ORIGINS)
    other = MessageQueue(world.uri, world.ring, actor=process.name)
    process.connections.insert(0, other.close)
    world.relaxed.add(origin)
    queue.admin.set_origin(origin, ordered=False)
    _send(world, process, queue, origin, [HEAVY, None, None])
    first, second = (queue.blocks.plan(seed=random.randbytes(8)) for _ in range(2))
    world.met["empty claims"] += sum(not claim.messages for claim in second.claims)
    world.asked.update((first.token, second.token))
    for batch in first.batches():
        queue.blocks.report(first, batch.answers([done(payload) for payload in batch.payloads]))
    queue.blocks.settle(first)
    _send(world, process, queue, origin, [None] * 4)
    left = [random.choice((1, 2, 4))]

    def end() -> None:
        with suppress(Refused):
            _send(world, process, other, origin, [None] * random.choice((1, 4)))
            other.blocks.settle(second)
            world.met["ends beside a service"] += 1

    def processor(delivery: Delivery) -> Outcome:
        left[0] -= 1
        if not left[0]:
            # What this thread does without its context, another process may do.
            Context().run(end)
        return answer(random, delivery.payload)

    # A slice of one message is never committed beside the next one: its lock would hold up this end.
    return queue.service_queues(processor, slice_messages=1, seed=random.randbytes(8))


def _send(world: World, process: Process, queue: MessageQueue, origin: str, weights: Sequence[Weight | None]) -> None:
    some = [world.messages.new(process.name, origin, in_order=False) for _ in weights]
    messages = [Message(one.payload, weight=weight) for one, weight in zip(some, weights)]
    _sending(world, process, some, lambda: queue.enqueue_messages(origin, messages))


def repeat_part(world: World, process: Process, random: Random) -> object:
    """Try a part several times: an attempt reports some messages and dies, and its last report may come late.

    The output of the last attempt stands, so its outcomes count.
    """
    queue = world.queue(process)
    block = queue.blocks.plan(seed=random.randbytes(8))
    batches = list(queue.blocks.batches(block.claims, block.id))
    first, last = random.choice((0, 1)), random.choice((1, 2, 3))
    late: list[Report] = []
    for epoch in range(first, last + 1):
        if epoch:
            queue.blocks.mark(block, block.claims, epoch=epoch)
        reports = _reports(random, batches, epoch)
        middle = random.randint(0, len(reports)) if epoch < last else len(reports)
        queue.blocks.report(block, [*late, *reports[:middle]])
        late = reports[middle:]
    _expect(world, block, batches, reports, f"epoch {last} counts")
    world.met["parts that were repeated"] += 1
    return _end(world, queue, block, random)


def _reports(random: Random, batches: Sequence[Batch], epoch: int) -> list[Report]:
    """Return what an attempt reports: of each queue, the first messages are done, and it leaves out the rest."""
    reports: list[Report] = []
    left: set[str] = set()
    for batch in batches:
        if batch.book in left:
            continue
        count = random.randint(0, len(batch))
        outcomes: list[Outcome] = [done(payload) for payload in batch.payloads[:count]]
        if count < len(batch):
            left.add(batch.book)
            outcomes += [Yield("not now")] * random.choice((0, 1))
        some = replace(batch, payloads=batch.payloads[: len(outcomes)])
        reports += [replace(report, epoch=epoch) for report in some.answers(outcomes)]
    return reports


def die_of_a_message(world: World, process: Process, random: Random) -> object:
    """Try the messages of a block until one of them ends the worker: the others are not tried, and keep their attempts.

    With `max_attempts`, a message of an earlier attempt is tried alone.
    """
    queue = world.queue(process)
    block = queue.blocks.plan(seed=random.randbytes(8), reports_begin=True)
    is_bounded = queue.config.max_attempts is not None
    everything = list(queue.blocks.batches(block.claims, block.id))
    tried: list[Batch] = []
    reports: list[Report] = []
    for batch in block.batches():
        tried.append(batch)
        if is_bounded and len(batch) > 1 and max(batch.attempts) > 1:
            world.note("attempts of a part", f"{batch} is begun together, though a message of it was tried before")
        process.arrive(commits=False)
        if random.random() < 0.4:
            world.met["workers that died of a message"] += 1
            break
        reports += batch.answers([done(payload) for payload in batch.payloads])
        queue.blocks.report(block, reports[-len(batch) :])
    begun = {payload for batch in tried for payload in batch.payloads} if is_bounded else None
    _expect(world, block, everything, reports, "a worker died of another message", begun)
    return _end(world, queue, block, random)


def _expect(
    world: World, block: Block, batches: Sequence[Batch], reports: Sequence[Report], why: str,
    begun: set[bytes] | None = None,
) -> None:  # fmt: skip
    """Note what must become of the messages of a block.

    :param begun: the messages that a worker began; by default, all
    """
    reported = {
        (report.book, report.page, at)
        for report in reports if not isinstance(report.outcome, Yield) for at in range(report.first, report.last + 1)
    }  # fmt: skip
    for batch in batches:
        for at, (id_, payload) in enumerate(zip(batch.ids, batch.payloads), batch.first):
            is_done = (batch.book, batch.page, at) in reported
            world.expected[id_] = Expectation(block.id, is_done, begun is None or payload in begun, why)


def _in_place(queue: MessageQueue, block: Block, function: Function) -> Reported:
    """Try the messages of a block as one part of it, as the task of a DAG does."""
    part = Part(name="all", processors=["all"], part=0, parts=1, messages=block.messages, where="in place")
    return run_in_place(queue, block.token, EVERYTHING, part, function=function)


def _end(world: World, queue: MessageQueue, block: Block, random: Random) -> object:
    """Settle a block, or leave it to its lease."""
    if random.random() < 0.3:
        return block.id
    world.asked.add(block.token)
    return queue.blocks.settle(block)
