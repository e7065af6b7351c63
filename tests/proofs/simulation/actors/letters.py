"""Typists: letters, which a codec reads, and processors of letters that send others."""

from __future__ import annotations

from random import Random

from airflow_mq import Done, MessageQueue, Outcome
from airflow_mq.codecs import Undecodable
from airflow_mq.engine.queue.attempts import Answer
from airflow_mq.engine.queue.typed import TypedBatch, TypedDelivery, TypedMessage, decoding, kept

from ..messages import child_of, is_odd, is_parent
from ..scheduler import Process
from ..world import World
from .blocks import _planned
from .parts import _in_place
from .processing import answered, answers
from .senders import _sending
from .services import stall

#: The origin of letters.
TYPED = "typed"


class Letters:
    """Codec of letters: their text, without brackets."""

    def encode(self, value: str) -> bytes:
        """Return the bytes of a letter."""
        return f"<{value}>".encode()

    def decode(self, data: bytes) -> str:
        """Return the text of a letter."""
        if is_odd(data):
            raise Undecodable("it is odd")
        return data.decode()[1:-1]


LETTERS = Letters()


def send_letters(world: World, process: Process, random: Random) -> object:
    """Send letters in one call: plain ones, parents and odd ones."""
    queue, marks = world.queue(process), random.choices(("", ":parent", ":odd"), (3, 4, 2), k=random.randint(2, 6))
    some = [world.messages.new(process.name, TYPED, mark=mark, in_order=False) for mark in marks]
    texts = [one.payload.decode()[1:-1] for one in some]
    pairs = [(TYPED, random.choice((text, TypedMessage(text)))) for text in texts]
    return _sending(world, process, some, lambda: queue.typed(LETTERS).enqueue_many(pairs))


def serve_letters(world: World, process: Process, random: Random) -> object:
    """Service letters one by one."""
    queue = _supplied(world, process, random)
    return queue.typed(LETTERS).service(
        lambda delivery: _read(world, process, random, queue, delivery), TYPED,
        slice_messages=random.choice((1, 2, 50)), seed=random.randbytes(8),
    )  # fmt: skip


def serve_letters_together(world: World, process: Process, random: Random) -> object:
    """Service letters batch by batch: the odd ones do not come to the processor."""

    def processor(batch: TypedBatch[str]) -> list[Outcome]:
        stall(world, process, random)
        return answers(random, [LETTERS.encode(value) for value in batch.values])

    queue = _supplied(world, process, random)
    return queue.typed(LETTERS).service_batches(processor, [TYPED, "children"], seed=random.randbytes(8))


def report_letters(world: World, process: Process, random: Random) -> object:
    """Plan a block and try it as one part: what letters send comes with its reports."""
    queue = _supplied(world, process, random)
    block = queue.blocks.plan(seed=random.randbytes(8), lease=600.0, origins=[TYPED], reports_begin=True)
    _planned(world, block.token)

    def read(delivery: TypedDelivery[str]) -> Answer:
        return _read(world, process, random, queue, delivery)

    _in_place(queue, block, decoding(LETTERS, read, random.choice((None, kept))))
    world.met["letters in blocks"] += block.messages
    if random.random() < 0.5:
        return block.id
    world.asked.add(block.token)
    return queue.blocks.settle(block)


def _supplied(world: World, process: Process, random: Random) -> MessageQueue:
    """Return the queue of a process, mostly with new letters."""
    if random.random() < 0.7:
        send_letters(world, process, random)
    return world.queue(process)


def _read(
    world: World, process: Process, random: Random, queue: MessageQueue, delivery: TypedDelivery[str]
) -> Outcome:  # fmt: skip
    """Answer a letter; a parent sends a letter in one of three ways."""
    stall(world, process, random)
    if LETTERS.encode(delivery.value) != delivery.payload:
        world.note("value", f"{delivery.address} has the value {delivery.value!r}")
    outcome, way = answered(random, delivery), random.randrange(3)
    if not is_parent(delivery.payload) or way == 2 or random.random() < 0.1:
        return outcome
    child = LETTERS.decode(child_of(delivery.payload))
    if way:
        delivery.enqueue("children", child)
    else:
        queue.typed(LETTERS).enqueue("children", child)
    world.met["letters that a processor sent"] += 1
    # What was sent counts only if the letter is done.
    return Done() if isinstance(outcome, Done) else outcome
