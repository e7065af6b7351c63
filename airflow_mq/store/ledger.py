"""Repository of the ledger."""

from __future__ import annotations

from typing import NamedTuple

from .primitives import Repository
from .rows import LATEST


class LedgerRow(NamedTuple):
    """The entry of a block in the ledger."""

    block: int
    at: int
    data: bytes
    id: int


class LedgerHeadRow(NamedTuple):
    """The beginning of an entry in the ledger."""

    block: int
    at: int
    data: bytes


class Ledger(Repository):
    """The ledger of a ring."""

    __slots__ = ()

    def insert(self, ring: int, block: int, id_: int, data: bytes, now: int) -> None:
        """Write the entry of a block."""
        self._write("insert_ledger", ("block", "id", "data"), [(block, id_, data)], ring=ring, at=now)

    def latest(self, ring: int, limit: int, first: int = 0, before: int = LATEST) -> list[LedgerRow]:
        """Return entries from block `first` to before block `before`, the latest first."""
        rows = self.unit.rows("ledger", ring=ring, before=before, first=first, limit=limit)
        return [LedgerRow(*row) for row in rows]

    def heads(self, ring: int, limit: int) -> list[LedgerHeadRow]:
        """Return the beginnings of the latest entries."""
        return [LedgerHeadRow(*row) for row in self.unit.rows("ledger_heads", ring=ring, before=LATEST, limit=limit)]

    def expire(self, ring: int, before: int) -> None:
        """Delete entries at or before a time."""
        self.unit.run("expire_ledger", ring=ring, before=before)
