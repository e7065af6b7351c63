"""What statements return, by name."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ..core.weight import Weight
from . import codec

#: Above every id, and after every moment.
LATEST = 1 << 62
#: What a block's row says of its state.
PLANNED, SETTLED, RELEASED = 0, 1, 2


class RingRow(NamedTuple):
    """A ring, how it is set, and the database's clock."""

    id: int
    name: str
    config: Any
    now: int


class StateRow(NamedTuple):
    """What changes with every block of a ring."""

    version: int
    ticket_floor: int
    look_floor: int
    marks: Any
    lease_token: bytes | None
    lease_until: int
    lease_holder: str


class Locked(NamedTuple):
    """What is known of a ring by whoever holds it."""

    state: StateRow
    #: Mail with a smaller id is visible, or will never be.
    horizon: int
    config: Any
    now: int


class BookRow(NamedTuple):
    """A book, and what stands in the way of servicing it."""

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


class MailRow(NamedTuple):
    """A mail, with its bytes only where they were asked for."""

    origin: str
    id: int
    size: int
    items: int
    more: bool
    lengths: bytes
    attributes: bytes
    heap: bytes | None = None


class Arrival(NamedTuple):
    """When a message was sent, and the number of the first block that was planned after that, if there was any."""

    at: int
    block: int | None


class LoanRow(NamedTuple):
    """A mail that borrows its bytes, and the one that has them."""

    ring: int
    origin: str
    mail: int
    lender_ring: int
    lender_origin: str
    lender_mail: int
    #: Whether no page of the lender needs its mail any more.
    let_go: bool

    @property
    def lender(self) -> tuple[int, str, int]:
        """The mail that has the bytes."""
        return self.lender_ring, self.lender_origin, self.lender_mail


class BlockRow(NamedTuple):
    """A block; `id` is the store's, `number` counts the blocks of its ring and is what people see."""

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
        """The details, which SQLite hands over as text."""
        with codec.reading(f"what is stored of block {self.number}"):
            plain = json.loads(self.details) if isinstance(self.details, str) else self.details
            weights = {name: Weight(*map(int, plain[name])) for name in ("limit", "planned", "overhead")}
            return {**plain, **weights, "messages": int(plain["messages"])}
