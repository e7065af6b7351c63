"""Router: the shard of an origin, and the fence that keeps a sender with an outdated layout from sending.

An origin is in one shard at a time: in the one that has pinned it, or else in the one that the layout gives it. A shard
pins an origin when it adopts a layout that gives the origin to another shard while messages or keys of it are stored
here, unless another shard has pinned it. It releases the pin when none is left. So in one version of the layout, an
origin moves once at most, away from its pin, and a router may keep the answer "not pinned" for as long as the version
lasts.

The fence runs in the transaction of each send. It checks that the shard has adopted the router's version, and that
pinned origins are pinned still. Neither can change before that transaction ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from ..core.errors import LayoutChanged, LayoutMissing, ShardsFailed, StoreCorrupt
from ..core.priority import origin_of
from ..queue import MessageQueue
from ..store.shards import FenceRow
from ..store.unit import Unit
from .layout import Layout
from .members import REST, Members

#: Places of origins that a router remembers.
MOST_PLACES = 1_000_000


class Place(NamedTuple):
    """The shard that an origin's next message goes to."""

    shard: str
    #: Whether the origin stays there only until its messages and keys are gone.
    pinned: bool


@dataclass
class View:
    """A layout, and the places of origins in it."""

    layout: Layout
    places: dict[str, Place] = field(default_factory=dict)


class Router:
    """The places of origins, as the stores have them."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._lock = threading.Lock()
        self._view: View | None = None
        #: When the layout was last read.
        self._read_at = float("-inf")

    def view(self) -> View:
        """Return the present view; read the layout if there is none."""
        return self._view or self.refresh()

    def refresh(self) -> View:
        """Read the layout from all shards that answer, and keep the newest."""
        layout = newest(self._members)
        self._read_at = time.monotonic()
        with self._lock:
            if self._view is None or self._view.layout.version < layout.version:
                self._view = View(layout)
            return self._view

    def is_outdated(self, version: int) -> bool:
        """Return whether a newer layout than this version is known; read it, at most once in `REST` seconds."""
        view = self.view()
        if view.layout.version == version and time.monotonic() >= self._read_at + REST:
            with suppress(ShardsFailed):
                view = self.refresh()
        return view.layout.version > version

    def places(self, origins: Iterable[str]) -> tuple[dict[str, Place], dict[str, tuple[str, Exception]]]:
        """Return the places of origins, and the shards whose answer is missing for the others, with their errors."""
        view = self.view()
        found, unknown = {}, []
        for origin in origins:
            place = view.places.get(origin)
            if place is None:
                unknown.append(origin)
            else:
                found[origin] = place
        if not unknown:
            return found, {}
        fresh, missing = self._ask(view.layout, unknown)
        if len(view.places) + len(fresh) > MOST_PLACES:
            # The fence of the send that follows looks these up.
            view.places.clear()
            view.places.update(found)
        view.places.update(fresh)
        return {**found, **fresh}, missing

    def _ask(self, layout: Layout, origins: Sequence[str]) -> tuple[dict[str, Place], dict[str, tuple[str, Exception]]]:
        """Return the places of origins from the shards that may have pinned them."""
        questions = layout.by_former_owner(origins)
        found = {origin: Place(layout.owner(origin), False) for origin in origins}
        if not questions:
            return found, {}
        answers = self._members.gather({name: _pinned(name, layout, asked) for name, asked in questions.items()})
        for origin in origins:
            # There is one at most, unless two stores had messages of the origin before they became shards.
            pins = (shard for shard in layout.former_owners(origin) if origin in answers.found.get(shard, ()))
            found[origin] = next((Place(shard, True) for shard in pins), found[origin])
        missing = {origin: (shard, error) for shard, error in answers.missing.items() for origin in questions[shard]}
        # A pin in one shard is the answer, also if another shard is down.
        missing = {origin: problem for origin, problem in missing.items() if not found[origin].pinned}
        return {origin: place for origin, place in found.items() if origin not in missing}, missing

    def forget(self, origins: Iterable[str]) -> None:
        """Forget the places of origins, and read the layout again."""
        view = self.refresh()
        for origin in origins:
            view.places.pop(origin, None)

    def fence(self, shard: str, ring: int) -> ShardFence:
        """Return the fence of a shard."""
        return ShardFence(self, shard, ring)


class ShardFence:
    """The fence of one shard: its sends agree with the layout that it has adopted, and with its pins."""

    def __init__(self, router: Router, shard: str, ring: int) -> None:
        self._router, self._shard, self._ring = router, shard, ring

    def plain(self, queues: Iterable[str]) -> FenceRow | None:
        """Return what a send to these queues requires; None if a queue is pinned or has another place."""
        view = self._router.view()
        places, expected = view.places, (self._shard, False)
        for name in queues:
            if places.get(origin_of(name)) != expected:
                return None
        return FenceRow(self._shard, view.layout.version)

    def check(self, unit: Unit, queues: Iterable[str]) -> None:
        """Check a send to these queues in its transaction."""
        view = self._router.view()
        _require(self._shard, view.layout.version, unit.shards.fence(self._ring))
        places = {origin: view.places.get(origin) for origin in map(origin_of, queues)}
        if any(place is None or place.shard != self._shard for place in places.values()):
            raise LayoutChanged()
        pinned = [origin for origin, place in places.items() if place is not None and place.pinned]
        if pinned and len(unit.shards.pinned(self._ring, pinned)) < len(pinned):
            raise LayoutChanged()


def _pinned(shard: str, layout: Layout, origins: Sequence[str]) -> Callable[[MessageQueue], set[str]]:
    """Return a question for a shard that has adopted the layout: which of these origins has it pinned?"""

    def ask(queue: MessageQueue) -> set[str]:
        # One snapshot: pins belong to a version.
        with queue.store.reading() as unit:
            _require(shard, layout.version, unit.shards.fence(queue.session.ring_id))
            return unit.shards.pinned(queue.session.ring_id, origins)

    return ask


def _require(shard: str, version: int, fence: FenceRow | None) -> None:
    """Raise an error unless a store is this shard and has adopted this version."""
    if fence is not None and fence.name != shard:
        raise StoreCorrupt(f"the store of shard {shard!r} is shard {fence.name!r}: correct the addresses of the shards")
    if fence is None or fence.version != version:
        stored = "no layout" if fence is None else f"version {fence.version} of the layout"
        raise LayoutChanged(
            f"shard {shard!r} has {stored}, expected version {version}: run `airflow-mq shards apply` to complete a "
            "change; nothing was sent to it"
        )


def adopted(queue: MessageQueue) -> Layout | None:
    """Return the layout that a shard has adopted."""
    with queue.store.loose() as unit:
        row = unit.shards.adopted(queue.session.ring_id)
    return None if row is None else Layout.from_json(row.layout)


def newest(members: Members) -> Layout:
    """Return the newest layout of all shards that answer."""
    answers = members.each(adopted)
    layouts = [layout for layout in answers.found.values() if layout is not None]
    if not layouts and answers.missing:
        raise ShardsFailed(dict(answers.missing))
    if not layouts:
        raise LayoutMissing()
    layout = max(layouts, key=lambda each: each.version)
    if any(other.version == layout.version and other != layout for other in layouts):
        raise StoreCorrupt(f"shards disagree about version {layout.version} of the layout: restore one of them")
    return layout
