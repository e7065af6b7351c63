"""Repository of bills: headers of closed days, and what they contain of each tenant. Both are only ever added."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from itertools import islice
from typing import Any, NamedTuple

from ...bills import EPOCH, Header, Leaf
from ..rules.charging import DAY
from .primitives import Repository, columns
from .rows import LATEST

#: Leaves that one statement writes, or reads.
LEAVES = 16


class BillDay(NamedTuple):
    """A closed day of UTC since 1970, and the last charge in its bills."""

    day: int
    last: int
    before: bytes
    root: bytes
    leaves: int

    @property
    def header(self) -> Header:
        """The header, as it is published."""
        return Header(date_of(self.day).isoformat(), bytes(self.before), bytes(self.root), self.leaves)


class Bills(Repository):
    """Bills of a ring."""

    __slots__ = ()

    def close(self, ring: int, closed: BillDay, leaves: Iterable[tuple[str, Leaf]]) -> None:
        """Write a closed day, with the leaf of each tenant; requires the ring lock."""
        self.unit.put("close_bill_day", ring=ring, **closed._asdict())
        rows = ((tenant, one.place, one.salt, b"".join(one.path), one.data) for tenant, one in leaves)
        while some := list(islice(rows, LEAVES)):
            named = columns(("tenant", "place", "salt", "path", "data"), some)
            self.unit.run("insert_bill_leaves", named, ring=ring, day=closed.day)

    def last(self, ring: int) -> BillDay | None:
        """Return the last closed day."""
        return next(iter(self.days(ring, None)), None)

    def days(self, ring: int, first: int | None = 0, stop: int = LATEST // DAY, limit: int = 1 << 30) -> list[BillDay]:
        """Return closed days in order, from a day to before another; without a first one, the last day of all."""
        rows = self.unit.rows("bill_days", ring=ring, first=first, stop=stop, limit=limit)
        return [BillDay(*row) for row in rows]

    def leaves(self, ring: int, tenant: str, first: int, stop: int) -> list[Leaf]:
        """Return what bills of a tenant contain, from a day to before another."""
        return [*map(_leaf, self.unit.rows("bill_leaves", ring=ring, tenant=tenant, first=first, stop=stop))]

    def leaves_of(self, ring: int, day: int) -> Iterator[Leaf]:
        """Yield what the bills of a day contain, tenant by tenant."""
        tenant = ""
        while rows := self.unit.rows("bill_leaves_of", ring=ring, day=day, tenant=tenant, limit=LEAVES):
            yield from map(_leaf, rows)
            tenant = rows[-1][4] + "\x01"  # no tenant has control characters, and one may have no name


def _leaf(row: tuple[Any, ...]) -> Leaf:
    place, salt, path, data = row[0], *map(bytes, row[1:4])
    return Leaf(place, salt, [path[at : at + 32] for at in range(0, len(path), 32)], data)


def date_of(day: int) -> date:
    """Return a day since 1970 as a date."""
    return EPOCH + timedelta(day)
