"""Status of shards: whether they answer, their layout, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..queue import Backlog, MessageQueue
from .change import count_leaving
from .layout import Layout
from .members import Members
from .router import adopted


@dataclass(frozen=True)
class ShardStatus:
    """One shard."""

    name: str
    #: The address of its store, without the password.
    where: str
    #: Weight in the newest layout; None if that does not contain the shard.
    weight: int | None = None
    #: Version of the layout that it has adopted; None if it has none or does not answer.
    version: int | None = None
    #: Origins that the layout gives to another shard, and that stay here until their messages and keys are gone.
    pinned: int | None = None
    backlog: Backlog | None = None
    #: Why it does not answer.
    error: str | None = None


def statuses(members: Members) -> list[ShardStatus]:
    """Return the status of each shard, by name."""
    answers = members.each(_look)
    layouts = [layout for layout, _, _ in answers.found.values() if layout is not None]
    weights: Mapping[str, int] = max(layouts, key=lambda each: each.version).shards if layouts else {}
    found = []
    for name in sorted(members):
        where, weight = members[name].where, weights.get(name)
        if name in answers.missing:
            found.append(ShardStatus(name, where, weight, error=str(answers.missing[name])))
            continue
        layout, pinned, backlog = answers.found[name]
        found.append(ShardStatus(name, where, weight, layout.version if layout else None, pinned, backlog))
    return found


def _look(queue: MessageQueue) -> tuple[Layout | None, int, Backlog]:
    return adopted(queue), count_leaving(queue), queue.inspect.backlog()
