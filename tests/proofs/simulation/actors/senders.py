"""Senders: one message, many, with keys, delays, expiry and priorities, and in the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

from airflow_mq import Message, Weight
from airflow_mq.engine.queue.sending.inline import Inline
from airflow_mq.engine.rules.errors import CommitInDoubt, MessageQueueError, Refused

from ..clock import SECOND
from ..messages import Call, Sent
from ..scheduler import Process, ProcessGone
from ..world import ORIGINS, World
from .processing import done


def _sending(world: World, process: Process, messages: Sequence[Sent], act: Callable[[], Any]) -> Any:
    """Run a call that sends messages, and record how it ended."""
    call = world.messages.open(messages, _in_progress(process))
    try:
        result = act()
    except CommitInDoubt:
        _settle_doubt(world, call)
        raise
    except MessageQueueError:
        world.messages.refuse(call)
        raise
    except ProcessGone:
        # The process ends here; the next check looks at what it left.
        raise
    world.messages.accept(call)
    return result


def _in_progress(process: Process) -> Callable[[], bool]:
    step = process.step
    return lambda: process.is_busy and process.step is step


def _settle_doubt(world: World, call: Call) -> None:
    stored, _, delayed = world.look()
    there = {*stored, *delayed}
    world.messages.doubt(call, {one.id for one in call.messages if {one.payload, one.payload.rstrip(b".")} & there})


def _new(world: World, process: Process, random: Random, **terms: Any) -> Sent:
    return world.messages.new(process.name, random.choice(ORIGINS), size=random.choice((0, 0, 30, 60)), **terms)


def _several(world: World, process: Process, random: Random, most: int = 6, **terms: Any) -> list[Sent]:
    origin = random.choice(ORIGINS)
    return [
        world.messages.new(process.name, origin, size=random.choice((0, 30)), **terms)
        for _ in range(random.randint(2, most))
    ]


def send(world: World, process: Process, random: Random) -> object:
    """Send one message."""
    queue, sent = world.queue(process), _new(world, process, random)
    return _sending(world, process, [sent], lambda: queue.enqueue_message(sent.origin, sent.payload))


def send_many(world: World, process: Process, random: Random) -> object:
    """Send many messages of one origin."""
    queue, some = world.queue(process), _several(world, process, random, random.choice((4, 12)))
    return _sending(world, process, some, lambda: queue.enqueue_messages(some[0].origin, [one.payload for one in some]))


def send_pairs(world: World, process: Process, random: Random) -> object:
    """Send messages of several origins in one call."""
    queue, some = world.queue(process), [_new(world, process, random) for _ in range(random.randint(2, 6))]
    return _sending(world, process, some, lambda: queue.enqueue_messages([(one.origin, one.payload) for one in some]))


def send_keyed(world: World, process: Process, random: Random) -> object:
    """Send with idempotency keys, again and again until an answer comes."""
    queue = world.queue(process)
    some = [_new(world, process, random) for _ in range(random.randint(1, 3))]
    pairs = [(one.origin, Message(one.payload, key=f"key {one.serial}")) for one in some]
    began = world.clock.database
    for _ in range(4):
        if not _remembers(world, began):
            break
        try:
            result = _sending(world, process, some, lambda: queue.enqueue_messages(pairs))
            if random.random() < 0.3 and _remembers(world, began):
                # A task that is tried again sends what it has sent before.
                queue.enqueue_messages(pairs)
            return result
        except Refused:
            raise
        except MessageQueueError:
            process.is_shaken = True
    return None


def _remembers(world: World, began: int) -> bool:
    """Return whether keys that were sent at a time are still known, though a clock was set back meanwhile."""
    age = 2 * world.clock.latest - world.clock.database - began
    return age < world.observer.config.key_window * SECOND * 0.9


def send_again(world: World, process: Process, random: Random) -> object:
    """Send with idempotency keys, as a task does: if its process ends, another one sends the same messages."""
    tasks = world.board.tasks
    tasks[:] = [one for one in tasks if one.is_open() or _remembers(world, one.began)]
    queue, task = world.queue(process), next((one for one in tasks if not one.is_open()), None)
    if task is None:
        some = [_new(world, process, random) for _ in range(random.randint(1, 3))]
    else:
        tasks.remove(task)
        some = list(task.messages)
        # The lost call may have stored its messages, even if the next one fails.
        for call in [one for one in world.messages.calls if not (one.ended or one.is_open())]:
            _settle_doubt(world, call)
        for one in some:
            # Its sender may have sent others meanwhile.
            one.in_order = False
        world.met["tasks that were repeated"] += 1
    task = Call(some, _in_progress(process), began=world.clock.database if task is None else task.began)
    tasks.append(task)
    pairs = [(one.origin, Message(one.payload, key=f"key {one.serial}")) for one in some]
    result = _sending(world, process, some, lambda: queue.enqueue_messages(pairs))
    tasks.remove(task)
    return result


def send_delayed(world: World, process: Process, random: Random) -> object:
    """Send messages that join their queue later."""
    queue, delay = world.queue(process), random.choice((0, 1, 30, 600))
    due = world.clock.database + delay * SECOND
    some = _several(world, process, random, 3, in_order=False, delayed=True, due=due)
    payloads = [one.payload for one in some]
    # The database may read its clock after a fault set it back.
    with world.clock.when_set_back(partial(_bring_forward, some)):
        return _sending(
            world, process, some, lambda: queue.enqueue_messages(some[0].origin, payloads, not_before=delay)
        )


def _bring_forward(messages: Sequence[Sent], microseconds: int) -> None:
    for sent in messages:
        sent.due -= microseconds


def send_expiring(world: World, process: Process, random: Random) -> object:
    """Send messages that expire."""
    queue, span = world.queue(process), timedelta(seconds=random.choice((0, 5, 60, 900)))
    some = _several(world, process, random, 3, expires=True)
    payloads = [one.payload for one in some]
    return _sending(world, process, some, lambda: queue.enqueue_messages(some[0].origin, payloads, expires=span))


def send_heavy(world: World, process: Process, random: Random) -> object:
    """Send a message that is too heavy for any block, or nearly."""
    queue, sent, weight = (
        world.queue(process),
        _new(world, process, random),
        Weight(random.choice((8, 25, 5_000, 5_000)), 10),
    )
    return _sending(world, process, [sent], lambda: queue.enqueue_message(sent.origin, sent.payload, weight=weight))


def send_overweight(world: World, process: Process, random: Random) -> object:
    """Send messages of one origin, some of which no block can carry."""
    queue, some = world.queue(process), _several(world, process, random)
    heavy, light = Weight(5_000, 10), Weight(2, 10)
    messages = [Message(one.payload, weight=random.choice((heavy, heavy, light))) for one in some]
    return _sending(world, process, some, lambda: queue.enqueue_messages(some[0].origin, messages))


def send_high(world: World, process: Process, random: Random) -> object:
    """Send messages of high priority."""
    queue, some = world.queue(process), _several(world, process, random, 4, priority="high")
    payloads = [one.payload for one in some]
    return _sending(world, process, some, lambda: queue.enqueue_messages(some[0].origin, payloads, priority="high"))


def send_parents(world: World, process: Process, random: Random) -> object:
    """Send messages whose processor sends another one."""
    queue, origin = world.queue(process), random.choice(ORIGINS)
    some = [world.messages.new(process.name, origin, mark=":parent") for _ in range(random.randint(1, 3))]
    return _sending(world, process, some, lambda: queue.enqueue_messages(origin, [one.payload for one in some]))


def send_inline(world: World, process: Process, random: Random) -> object:
    """Send a message that may be executed at once."""
    queue, sent = world.queue(process), _new(world, process, random)
    inline = Inline(lambda delivery: done(delivery.payload), Weight(50, 1_000))
    return _sending(world, process, [sent], lambda: queue.enqueue_message(sent.origin, sent.payload, inline=inline))


def send_in_transaction(world: World, process: Process, random: Random) -> object:
    """Send within a transaction of the caller, with a row of the caller's own; commit, or roll back."""
    queue, some = world.queue(process), _several(world, process, random, 4)
    commits, table = random.random() < 0.75, "sim_own" if world.is_file else "sim.own"
    connection = world.own_connection(process)
    call = world.messages.open(some, _in_progress(process))
    try:
        connection.execute("BEGIN IMMEDIATE" if world.is_file else "BEGIN")
        commands = queue.commands(connection)
        for one in some:
            connection.execute(f"INSERT INTO {table} VALUES ('{world.ring}', '{one.payload.decode()}')")
            commands.push(one.origin, one.payload).execute()
        connection.execute("COMMIT" if commits else "ROLLBACK")
    except Exception:
        connection.close()
        _settle_doubt(world, call)
        process.is_shaken = True
        raise
    finally:
        if not process.is_gone:
            connection.close()
    (world.messages.accept if commits else world.messages.refuse)(call)
    return commits
