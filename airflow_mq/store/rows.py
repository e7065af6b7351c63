"""Rows that repositories return."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ..core.weight import Weight
from . import codec

#: Above every id and time.
LATEST = 1 << 62
#: States of a block.
PLANNED, SETTLED, RELEASED = 0, 1, 2


class RingRow(NamedTuple):
    """A ring with its settings, and the database's clock."""

    id: int
    name: str
    config: Any
    now: int


class FloorsRow(NamedTuple):
    """Floors and version of a ring."""

    ticket_floor: int
    look_floor: int
    version: int


class StateRow(NamedTuple):
    """The state of a ring, which changes with every block."""

    version: int
    ticket_floor: int
    look_floor: int
    marks: Any
    lease_token: bytes | None
    lease_until: int
    lease_holder: str


class Locked(NamedTuple):
    """A ring whose lock this transaction holds."""

    state: StateRow
    #: An inbox row with a smaller id is visible now, or never will be.
    horizon: int
    config: Any
    now: int


class BookRow(NamedTuple):
    """A book, with what keeps it from being serviced, and the settings of its origin."""

    origin: str
    begin_page: int
    end_page: int
    pages: int
    messages: int
    size: int
    ticket: int | None
    deficit: int
    floor: int
    ahead: bytes
    wake_at: int
    paused: bool
    in_flight: bool
    standing: Any


class PageRow(NamedTuple):
    """A page, packed."""

    origin: str
    page: int
    items: int
    used: int
    first_index: int
    remaining: int
    remaining_size: int
    slices: bytes
    lengths: bytes
    marks: bytes
    notes: bytes


class StoredInboxRow(NamedTuple):
    """An inbox row; its bytes only where the statement reads them."""

    origin: str
    id: int
    size: int
    items: int
    more: bool
    lengths: bytes
    attributes: bytes
    heap: bytes | None = None


class FirstRow(NamedTuple):
    """A queue, and an inbox row of it."""

    origin: str
    id: int


class Arrival(NamedTuple):
    """When a message was sent, and the number of the first block planned after that."""

    at: int
    block: int | None


class LoanRow(NamedTuple):
    """An inbox row that borrows its bytes, and the row that has them."""

    ring: int
    origin: str
    row_id: int
    lender_ring: int
    lender_origin: str
    lender_mail: int
    #: Whether no page of the lender needs its row.
    let_go: bool

    @property
    def lender(self) -> tuple[int, str, int]:
        """The row that has the bytes."""
        return self.lender_ring, self.lender_origin, self.lender_mail


class BlockRow(NamedTuple):
    """A block. `id` is the store's; `number` counts the blocks of its ring and is for display."""

    id: int
    number: int
    key: str | None
    token: bytes
    state: int
    by_hand: bool
    seconds: float
    deadline: int
    planned_at: int
    ended_at: int | None
    details: Any

    @property
    def details_json(self) -> dict[str, Any]:
        """The details, which SQLite returns as text."""
        with codec.reading(f"what is stored of block {self.number}"):
            plain = json.loads(self.details) if isinstance(self.details, str) else self.details
            weights = {name: Weight(*map(int, plain[name])) for name in ("limit", "planned", "overhead")}
            return {**plain, **weights, "messages": int(plain["messages"])}
