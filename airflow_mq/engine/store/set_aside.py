"""Repository of set-aside messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..rules.changes import Aside
from ..rules.message import Address
from . import codec
from .primitives import Repository, columns
from .rows import LATEST, Arrival


class AsideRow(NamedTuple):
    """A set-aside message."""

    origin: str
    page: int
    item: int
    id: bytes
    size: int
    weight: bytes | None
    weight_limit: bytes | None
    reason: str
    block: int | None
    at: int
    arrived_at: int
    arrived_block: int | None

    @classmethod
    def of(cls, place: Address, aside: Aside, block: int | None, now: int, arrival: Arrival | None) -> AsideRow:
        """Return the row of a message that is set aside now; without an arrival, it was sent by the same operation."""
        return cls(
            place.book, place.page, place.index, aside.id, aside.size, codec.pack_weight(aside.weight),
            codec.pack_weight(aside.limit), aside.reason, block, now, *(arrival or (now, block)),
        )  # fmt: skip


class SetAside(Repository):
    """Set-aside messages of a ring."""

    __slots__ = ()

    def save(self, ring: int, rows: Mapping[Address, AsideRow | None]) -> None:
        """Record why messages were set aside; delete the records of `None`."""
        gone = [(place.book, place.page, place.index) for place, row in rows.items() if row is None]
        kept = list(filter(None, rows.values()))
        self.unit.put("delete_aside", columns(("origin", "page", "item"), gone), ring=ring)
        self.unit.put("save_set_aside", columns(AsideRow._fields, kept), ring=ring)

    def of_pages(self, ring: int, pages: Sequence[tuple[str, int]]) -> list[AsideRow]:
        """Return why messages of these pages were set aside."""
        return [AsideRow(*row) for row in self.unit.rows("asides", columns(("origin", "page"), pages), ring=ring)]

    def after(
        self, ring: int, after: Address, last: str, *, reason: str | None = None, before: int = LATEST,
        block: int | None = None, arrived: int | None = None, limit: int = LATEST,
    ) -> list[AsideRow]:  # fmt: skip
        """Return set-aside messages after an address, up to the queue `last`.

        :param before: only messages that arrived before this time
        :param block: only messages that this block set aside
        :param arrived: only messages that arrived before this block, after the one before it
        """
        statement, choice = "asides_from", {}
        if block is not None:
            statement, choice = "asides_of_block", {"block": block}
        elif arrived is not None:
            statement = "asides_since_block"
        rows = self.unit.rows(
            statement, ring=ring, origin=after.book, page=after.page, item=after.index, last=last, reason=reason,
            before=before, arrived=arrived, limit=limit, **choice,
        )  # fmt: skip
        return [AsideRow(*row) for row in rows]

    def count(self, ring: int, limit: int) -> int:
        """Return the number of set-aside messages in at most `limit` pages."""
        return int(self.unit.rows("count_set_aside", ring=ring, limit=limit)[0][0])
