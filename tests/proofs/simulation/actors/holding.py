"""Lease holders: they take one message at a time, and complete it, hand it on, or forget it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from airflow_mq.engine.queue.tokens import ReferenceToken
from airflow_mq.engine.rules.message import message_id

from ..messages import is_odd, is_parent
from ..scheduler import Process
from ..world import ORIGINS, World
from .processing import done

KEPT = 10
#: Queues to which messages are handed on. What was handed on may be handed on again.
DESTINATIONS = ("onward", "outward", *ORIGINS)


def take(world: World, process: Process, random: Random) -> object:
    """Take the next message of the ring or of an origin."""
    origin = random.choice((None, *ORIGINS))
    token = world.queue(process).leases.view(origin, lease=random.choice((None, 5.0, 600.0))).try_next()
    if token is None:
        return None
    world.board.tokens.append(str(token))
    del world.board.tokens[:-KEPT]
    world.met["taken"] += 1
    return token.address


def take_several(world: World, process: Process, random: Random) -> object:
    """Take the next messages of the ring, one of each origin in turn."""
    view, taken = world.queue(process).leases.view(lease=random.choice((None, 600.0))), 0
    for _ in range(random.randint(2, 5)):
        token = view.try_next()
        if token is None:
            break
        world.board.tokens.append(str(token))
        taken += 1
    del world.board.tokens[:-KEPT]
    world.met["taken"] += taken
    return taken


def forward(world: World, process: Process, random: Random) -> object:
    """Take messages of a full queue one after the other, and hand each on: their bytes stay in one row."""
    queue = world.queue(process)
    full = [origin for origin, footprint in queue.footprints(limit=20) if footprint.ready_pages]
    view, handed_on = queue.leases.view(random.choice((None, *full))), 0
    for _ in range(random.randint(2, 5)):
        token = view.try_next()
        if token is None:
            break
        _hand_on(world, token)
        queue.leases.transfer(token, random.choice(DESTINATIONS))
        handed_on += 1
    world.met["handed on"] += handed_on
    return handed_on


def _pick(world: World, random: Random) -> str | None:
    tokens = world.board.tokens
    return None if not tokens else tokens[-1] if random.random() < 0.6 else random.choice(tokens)


def _ask(world: World, text: str) -> None:
    """Note that the block behind a token may end now."""
    world.asked.update(text.split("/")[1:2])


def _hand_on(world: World, token: ReferenceToken) -> None:
    """Note that a message may be in another queue from now on.

    It is there when the transfer is committed. Its event comes when the block of the token is settled, which another
    holder of the ring can delay.
    """
    _ask(world, str(token))
    world.messages.displaced.add(message_id(token.fetch()))


def complete(world: World, process: Process, random: Random) -> object:
    """Fetch a leased message and complete it."""
    text, leases = _pick(world, random), world.queue(process).leases
    if text is None:
        return None
    payload = leases.token(text).fetch()
    _ask(world, text)
    return leases.complete(text, done(payload))


def complete_in_transaction(world: World, process: Process, random: Random) -> object:
    """Complete a message within a transaction of the caller; commit, or roll back."""
    text, queue = _pick(world, random), world.queue(process)
    if text is None or is_parent(payload := queue.leases.token(text).fetch()) or is_odd(payload):
        return None
    _ask(world, text)
    return _within(world, process, random, lambda connection: queue.commands(connection).complete(text).execute())


def transfer(world: World, process: Process, random: Random) -> object:
    """Hand a leased message on to another queue, in a transaction of its own or of the caller."""
    text, queue = _pick(world, random), world.queue(process)
    if text is None:
        return None
    _hand_on(world, queue.leases.token(text))
    if random.random() < 0.5:
        return queue.leases.transfer(text, "onward").count
    return _within(
        world, process, random, lambda connection: queue.commands(connection).transfer(text, "onward").execute()
    )


def _within(world: World, process: Process, random: Random, act: Callable[[Any], object]) -> object:
    commits, connection = random.random() < 0.75, world.own_connection(process)
    try:
        connection.execute("BEGIN IMMEDIATE" if world.is_file else "BEGIN")
        act(connection)
        connection.execute("COMMIT" if commits else "ROLLBACK")
        return commits
    except Exception:
        process.is_shaken = True
        raise
    finally:
        if not process.is_gone:
            connection.close()


def give_back(world: World, process: Process, random: Random) -> object:
    """Return a message to its queue."""
    text = _pick(world, random)
    _ask(world, text or "")
    return text and world.queue(process).leases.token(text).give_back()


def renew_token(world: World, process: Process, random: Random) -> object:
    """Extend the lease of a message."""
    text = _pick(world, random)
    return text and world.queue(process).leases.token(text).renew(90.0)
