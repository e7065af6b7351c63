"""Repository of charges: what queues paid for their messages, one row for each save."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import NamedTuple

from ..rules.charging import DAY, Charge, add_charges
from . import codec
from .primitives import Repository

#: Charges by book, processor and server.
Sums = dict[tuple[str, ...], Charge]
#: Rows of charges that are read at once.
ROWS = 64


class ChargeRow(NamedTuple):
    """Packed charges of one save, by book and processor."""

    id: int
    block: int | None
    #: The DAG or program that serviced the messages; empty if unknown.
    server: str
    at: int
    data: bytes

    @property
    def charges(self) -> dict[tuple[str, ...], Charge]:
        return codec.unpack_charges(bytes(self.data))

    @property
    def sums(self) -> Sums:
        """The charges, with the server in their keys."""
        return {(*key, self.server): charge for key, charge in self.charges.items()}


class Charges(Repository):
    """Charges of a ring."""

    __slots__ = ()

    def insert(
        self, ring: int, charges: Mapping[tuple[str, ...], Charge], now: int, block: int | None, server: str
    ) -> None:
        """Write the charges of one save; requires the ring lock."""
        drawn = {"id": self.unit.fresh_ids(1)[0]} if self.unit.draws_ids else {}
        self.unit.put(
            "insert_charge", ring=ring, block=block, server=server, at=now, data=codec.pack_charges(charges), **drawn
        )

    def after(self, ring: int, after: int, limit: int = ROWS) -> list[ChargeRow]:
        """Return charges after an id, in the order in which they were committed."""
        return [ChargeRow(*row) for row in self.unit.rows("charges", ring=ring, after=after, limit=limit)]

    def each(self, ring: int, after: int = 0) -> Iterator[ChargeRow]:
        """Yield charges after an id, in order."""
        while rows := self.after(ring, after):
            yield from rows
            after = rows[-1].id

    def rolled_up(self, ring: int) -> int:
        """Return the id of the last row that is in the sums of its day; all rows before it are."""
        return int(self.unit.rows("rolled_up", ring=ring)[0][0])

    def days(self, ring: int, first: int, stop: int) -> Iterator[tuple[int, Sums]]:
        """Yield days with the sums of their rows, from a day to before another."""
        # One by one: a day may have sums of many queues, and a probe may end the reading.
        while first < stop and (rows := self.unit.rows("usage_days", ring=ring, first=first, stop=stop)):
            ((day, data),) = rows
            yield day, codec.unpack_charges(bytes(data))
            first = day + 1

    def roll_up(self, ring: int, today: int) -> bool:
        """Add the next rows of other days than today to the sums of their days; return whether more may follow."""
        if not self._over(ring, today, 1):
            return False
        # Another process may roll up the same rows.
        self.unit.rows("hold_config", ring=ring)
        rows = self._over(ring, today, ROWS)
        days: dict[int, Sums] = {}
        for row in rows:
            add_charges(days.setdefault(row.at // DAY, {}), row.sums)
        for day, fresh in days.items():
            sums = dict(self.days(ring, day, day + 1)).get(day, {})
            add_charges(sums, fresh)
            self.unit.put("save_usage", ring=ring, day=day, last=rows[-1].id, data=codec.pack_charges(sums))
        return len(rows) == ROWS

    def _over(self, ring: int, today: int, limit: int) -> list[ChargeRow]:
        """Return the next rows that are in no sums yet, until one of today. Those ahead are of a wrong clock."""
        rows = self.after(ring, self.rolled_up(ring), limit)
        return [*takewhile(lambda row: row.at // DAY != today, rows)]
