"""Pages of the ledger: what each block offered and granted, queue by queue."""

from __future__ import annotations

from ..store import codec
from ..store.rows import LATEST
from ..store.unit import Unit
from .servers import server_of
from .values import LedgerBlock, moment


def ledger_pages(unit: Unit, ring: int, limit: int, first: int = 0, last: int = LATEST - 1) -> list[LedgerBlock]:
    """Return the pages of the blocks from `first` to `last`, latest first."""
    rows = unit.ledger.latest(ring, limit, first, last + 1)
    return [_page(*row) for row in rows]


def _page(block: int, at: int, data: bytes, id_: int) -> LedgerBlock:
    entries, record = codec.unpack_ledger(data), codec.unpack_ledger_head(data).get("server")
    skipped = codec.unpack_ledger_skipped(data)
    if record is None:
        return LedgerBlock(block, moment(at), entries, skipped=skipped, id=id_)
    server = server_of(record, block, at)
    return LedgerBlock(block, moment(at), entries, server.name, server.limit, server.patterns, skipped, id_)
