"""Changes of the layout: shards adopt a new one one after the other, and release the origins that have drained.

A change is complete when every shard has adopted it. Until then, sends of the origins that it concerns fail and are
repeated; all other origins go on. A change that was interrupted is completed by the next call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from ..core.errors import ConfigRefused, LayoutChanged
from ..queue import MessageQueue
from ..store.origins import PauseRow
from ..store.rows import standing_of
from ..store.shards import ShardRow
from ..store.unit import Unit
from .layout import Layout, check_shards
from .members import Members
from .router import adopted


@dataclass(frozen=True)
class Drained:
    """Origins that were released, and origins that are still pinned, by shard."""

    released: Mapping[str, int]
    pinned: Mapping[str, int]
    missing: Mapping[str, Exception] = field(default_factory=dict)


def apply(members: Members, weights: Mapping[str, int]) -> Layout:
    """Let all shards adopt a layout with these weights, and return it; see `ShardedQueue.apply`."""
    wanted = check_shards(weights)
    known = members.each(adopted, dict.fromkeys((*members, *wanted))).all()
    current = max(filter(None, known.values()), key=lambda layout: layout.version, default=None)
    if current is None:
        return _adopt(members, Layout(1, wanted, _of_full(members, wanted)), sorted(wanted))
    _adopt(members, current, sorted(current.shards))
    if current.shards == wanted:
        return current
    newcomers, leaving = sorted(wanted.keys() - current.shards.keys()), sorted(current.shards.keys() - wanted.keys())
    _refuse_full(members, current, leaving)
    _share_settings(members, min(current.shards), newcomers)
    former = _distinct((*current.former, current.shards, *_of_full(members, newcomers)))
    # Two changes at once begin with the same shard, and one of them fails there.
    return _adopt(members, Layout(current.version + 1, wanted, former), [*sorted(current.shards), *newcomers])


def drain(members: Members) -> Drained:
    """Release pinned origins without messages and keys; once none is left, forget the former layouts."""
    answers = members.each(_release)
    released = {name: count for name, (count, _) in answers.found.items()}
    pinned = {name: left for name, (_, left) in answers.found.items()}
    if not answers.missing and not any(pinned.values()):
        _forget_former(members)
    return Drained(released, pinned, answers.missing)


def _forget_former(members: Members) -> None:
    layouts = members.each(adopted).all()
    current = max(filter(None, layouts.values()), key=lambda layout: layout.version, default=None)
    if current is None or not current.former:
        return
    # A shard that adopted this version late may have pinned origins since.
    _adopt(members, current, sorted(current.shards))
    if not any(members.each(count_leaving, current.shards).all().values()):
        _adopt(members, Layout(current.version + 1, current.shards), sorted(current.shards))


def _of_full(members: Members, names: Iterable[str]) -> tuple[Mapping[str, int], ...]:
    """Return, as former layouts, those of these shards that have messages or keys from before."""
    counts = members.each(_count_present, names).all()
    return tuple({name: 1} for name, count in sorted(counts.items()) if count)


def _distinct(layouts: Iterable[Mapping[str, int]]) -> tuple[Mapping[str, int], ...]:
    """Return layouts without repetitions."""
    found: list[Mapping[str, int]] = []
    for layout in layouts:
        if layout not in found:
            found.append(layout)
    return tuple(found)


def _refuse_full(members: Members, current: Layout, leaving: Sequence[str]) -> None:
    """Refuse to remove shards that messages may still be sent to, or that hold some."""
    if leaving and (current.former or any(current.shards[name] for name in leaving)):
        raise ConfigRefused(
            f"shards {', '.join(leaving)} cannot be removed yet: give them weight 0, and wait until `airflow-mq shards "
            "drain` reports that no origin is pinned"
        )
    for name, count in members.each(_count_present, leaving).all().items():
        if count:
            raise ConfigRefused(f"shard {name!r} cannot be removed: it holds messages or keys of {count:,} origins")


def _share_settings(members: Members, source: str, newcomers: Sequence[str]) -> None:
    """Give new shards the settings of the ring and of its origins, and the pauses."""
    if not newcomers:
        return
    config, settings, pauses = members.named(source).call(_settings)

    def write(queue: MessageQueue) -> None:
        # Pages may only grow, and those of two shards never meet.
        heap_size = max(config["heap_size"], queue.config.heap_size)
        queue.admin.change_ring(**{**config, "heap_size": heap_size})
        for origin, standing in settings:
            queue.admin.set_origin(origin, **standing)
        with queue.store.writing() as unit:
            for pause in pauses:
                unit.origins.pause(
                    queue.session.ring_id, pause.origin, reason=pause.reason, actor=pause.actor, now=pause.at,
                    until=pause.until, below=pause.below,
                )  # fmt: skip

    members.each(write, newcomers).all()


def _settings(queue: MessageQueue) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]], list[PauseRow]]:
    ring = queue.session.ring_id
    with queue.store.loose() as unit:
        config = queue.session.remember_config(unit.rings.named(queue.ring).config)
        settings = [(row.origin, vars(standing_of(row.settings))) for row in unit.origins.all_settings(ring)]
        pauses = unit.origins.paused(ring, unit.now())
    return {each.name: getattr(config, each.name) for each in fields(config)}, settings, pauses


def _adopt(members: Members, layout: Layout, names: Iterable[str]) -> Layout:
    """Let shards adopt a layout, one after the other."""
    for name in names:
        members.named(name).call(partial(_adopt_one, members=members, name=name, layout=layout))
    return layout


def _adopt_one(queue: MessageQueue, members: Members, name: str, layout: Layout) -> None:
    """Write a layout, and pin the origins that leave and have messages or keys here.

    A pinned origin that the layout gives back stays pinned until the former layouts are forgotten. Otherwise the shard
    that loses it would pin it for transferred messages. So one shard at most has pinned an origin.
    """
    ring = queue.session.ring_id
    with queue.store.writing() as unit:
        unit.shards.lock()
        row = unit.shards.adopted(ring)
        if row is not None and row.name != name:
            raise ConfigRefused(f"the store of shard {name!r} is shard {row.name!r} already: correct its address")
        if row is not None and row.version >= layout.version:
            if row.version > layout.version or row.layout != layout.to_json():
                raise LayoutChanged("another change of the layout came first: look at it, then try again")
            return
        present = unit.shards.present(ring, _since(queue, unit))
        pinned = {origin for pins in unit.shards.pins(ring) for origin in pins}
        kept = {origin for origin in pinned & present if layout.former or layout.owner(origin) != name}
        leaving = {origin for origin in present - pinned if layout.owner(origin) != name}
        if row is not None:
            leaving = _of_its_own(members, Layout.from_json(row.layout), layout, name, leaving)
        unit.shards.unpin(ring, sorted(pinned - kept))
        unit.shards.pin(ring, sorted(leaving))
        unit.shards.adopt(ring, ShardRow(name, layout.version, layout.to_json()))


def _of_its_own(members: Members, before: Layout, layout: Layout, name: str, origins: set[str]) -> set[str]:
    """Return which of these origins, none of them pinned here, got their messages from senders and not by transfers.

    These are the origins that the layout before gives to the shard, except those that another shard has pinned. While
    the caller holds the lock of the shard, no send follows a pin that is released.
    """
    if name not in before.shards or before.version < layout.version - 1:
        # It was removed, and is a new shard: all that it holds is from before.
        return origins
    own = {origin for origin in origins if before.owner(origin) == name}
    questions = before.by_former_owner(own)
    answers = members.gather({shard: partial(_pinned, origins=asked) for shard, asked in questions.items()})
    return own.difference(*answers.all().values())


def _pinned(queue: MessageQueue, origins: Sequence[str]) -> set[str]:
    with queue.store.loose() as unit:
        return unit.shards.pinned(queue.session.ring_id, origins)


def _since(queue: MessageQueue, unit: Unit) -> int:
    """Return the time before which keys no longer count."""
    config = queue.session.remember_config(unit.rings.named(queue.ring).config)
    return unit.now() - int(config.key_window * 1_000_000)


def _release(queue: MessageQueue) -> tuple[int, int]:
    """Release pinned origins that have drained; return how many, and how many are left."""
    ring, released = queue.session.ring_id, 0
    with queue.store.loose() as unit:
        since = _since(queue, unit)
        idle: list[str] = []
        for pins in unit.shards.pins(ring):
            present = unit.shards.present_among(ring, pins, since)
            idle += [origin for origin in pins if origin not in present]
    if idle:
        with queue.store.writing() as unit:
            unit.shards.lock()
            present = unit.shards.present_among(ring, idle, since)
            released = unit.shards.unpin(ring, [origin for origin in idle if origin not in present])
    return released, count_leaving(queue)


def count_leaving(queue: MessageQueue) -> int:
    """Return the number of pinned origins that the layout gives to another shard."""
    ring = queue.session.ring_id
    with queue.store.loose() as unit:
        row = unit.shards.adopted(ring)
        if row is None:
            return 0
        layout = Layout.from_json(row.layout)
        return sum(layout.owner(origin) != row.name for pins in unit.shards.pins(ring) for origin in pins)


def _count_present(queue: MessageQueue) -> int:
    with queue.store.loose() as unit:
        return len(unit.shards.present(queue.session.ring_id, _since(queue, unit)))
