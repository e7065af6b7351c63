"""Repository of charges: what queues paid for their messages, one row for each save."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..rules.charging import Charge
from . import codec
from .primitives import Repository


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
        """The charges."""
        return codec.unpack_charges(bytes(self.data))


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

    def after(self, ring: int, after: int, limit: int) -> list[ChargeRow]:
        """Return charges after an id, in the order in which they were committed."""
        return [ChargeRow(*row) for row in self.unit.rows("charges", ring=ring, after=after, limit=limit)]
