"""Repository of shards: the layout that a ring adopted, and its pinned origins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..core.priority import HIGH, LAST, REGULAR, book_name, origin_of
from .inbox import Inbox
from .primitives import Repository

#: Names that one statement reads.
_BATCH = 1_000


class ShardRow(NamedTuple):
    """The shard that a ring is, and the layout that it adopted, as JSON."""

    name: str
    version: int
    layout: str


class FenceRow(NamedTuple):
    """The part of a shard that every send reads."""

    name: str
    version: int


class Shards(Repository):
    """The rings that are shards of a sharded queue."""

    __slots__ = ()

    def adopted(self, ring: int) -> ShardRow | None:
        """Return the shard that a ring is, if it is one."""
        return next((ShardRow(*row) for row in self.unit.rows("shard", ring=ring)), None)

    def fence(self, ring: int) -> FenceRow | None:
        """Return name and version of the shard; neither they nor pins change until the transaction ends."""
        return next((FenceRow(*row) for row in self.unit.rows("shard_fence", ring=ring)), None)

    def lock(self) -> None:
        """Wait until every transaction that has read a fence ends; hold off the next ones."""
        self.unit.run("lock_shard")

    def adopt(self, ring: int, row: ShardRow) -> None:
        """Write the layout of a shard. Requires the lock."""
        self.unit.run("adopt_layout", ring=ring, **row._asdict())

    def pins(self, ring: int) -> Iterator[list[str]]:
        """Yield the pinned origins by name, some at a time."""
        after = ""
        while rows := self.unit.rows("pins", ring=ring, after=after, limit=_BATCH):
            yield [origin for (origin,) in rows]
            after = rows[-1][0]

    def pinned(self, ring: int, origins: Sequence[str]) -> set[str]:
        """Return which of these origins are pinned."""
        if not origins:
            return set()
        return {origin for (origin,) in self.unit.rows_for("pinned", {"origin": origins}, ring=ring)}

    def pin(self, ring: int, origins: Sequence[str]) -> None:
        """Pin origins. Requires the lock."""
        self._write("pin", ("origin",), [(origin,) for origin in origins], ring=ring)

    def unpin(self, ring: int, origins: Sequence[str]) -> int:
        """Release pinned origins; return how many. Requires the lock."""
        return self._write("unpin", ("origin",), [(origin,) for origin in origins], ring=ring)

    def present(self, ring: int, since: int) -> set[str]:
        """Return the origins with messages of any state, or with keys that were used after a time."""
        names = self._queues(ring)
        return {origin_of(name) for name in names} | {
            origin for (origin,) in self.unit.rows("keyed_origins", ring=ring, since=since)
        }

    def present_among(self, ring: int, origins: Iterable[str], since: int) -> set[str]:
        """Return which of these origins have messages of any state, or keys that were used after a time."""
        names = [(book_name(origin, priority),) for origin in origins for priority in (REGULAR, HIGH)]
        return {origin_of(name) for (name,) in self._read("stored_among", ("origin",), names, ring=ring, since=since)}

    def _queues(self, ring: int) -> set[str]:
        """Return the names of all queues with inbox rows, cut or not, or delayed rows."""
        inbox = Inbox(self.unit)
        found = set(inbox.delayed_origins(ring, "", LAST, 1 << 62))
        after = ""
        while names := inbox.origins(ring, after, "", LAST, _BATCH):
            found.update(names)
            after = max(names)
        return found
