"""A unit of work: one transaction on a store, with a repository per noun."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from .blocks import Blocks
from .books import Books
from .events import Events
from .inbox import Inbox, blob_attributes
from .keys import Keys
from .ledger import Ledger
from .loans import Loans
from .origins import Origins
from .pages import Pages
from .payloads import Payloads
from .primitives import Primitives
from .rings import Rings
from .rows import Locked
from .set_aside import SetAside

if TYPE_CHECKING:
    from .store import Store

#: Until the queue imports `blob_attributes`.
said_of_blobs = blob_attributes


class Unit(Primitives):
    """One transaction on a store, or a series of reads outside of one."""

    #: The last id drawn when the ring was locked.
    last_id = 0
    #: The store of this transaction.
    store: Store[Any]

    @abstractmethod
    def lock(self, ring: int) -> Locked:
        """Hold the ring lock until the end of this transaction."""

    @abstractmethod
    def try_lock(self, ring: int) -> Locked | None:
        """Hold the ring lock; return `None` if another transaction holds it."""

    # Repositories have no state: a unit makes one per use, so that no cycle of references keeps a connection alive.

    @property
    def rings(self) -> Rings:
        """Rings of the store."""
        return Rings(self)

    @property
    def books(self) -> Books:
        """Books: queues and their places in the ring."""
        return Books(self)

    @property
    def pages(self) -> Pages:
        """Pages."""
        return Pages(self)

    @property
    def inbox(self) -> Inbox:
        """Inbox rows."""
        return Inbox(self)

    @property
    def blocks(self) -> Blocks:
        """Blocks, their claims and reports."""
        return Blocks(self)

    @property
    def events(self) -> Events:
        """Events."""
        return Events(self)

    @property
    def set_aside(self) -> SetAside:
        """Set-aside messages."""
        return SetAside(self)

    @property
    def origins(self) -> Origins:
        """Origins: pauses, settings, groups and measures."""
        return Origins(self)

    @property
    def ledger(self) -> Ledger:
        """The ledger."""
        return Ledger(self)

    @property
    def keys(self) -> Keys:
        """Idempotency keys."""
        return Keys(self)

    @property
    def payloads(self) -> Payloads:
        """External payloads."""
        return Payloads(self)

    @property
    def loans(self) -> Loans:
        """Loans between inbox rows."""
        return Loans(self)

    # Until the queue uses the repositories.

    def ring(self, name: str) -> Any:
        """Return a ring."""
        return self.rings.named(name)

    def claims_of(self, ring: int, origins: Any) -> Any:
        """Return claims."""
        return self.blocks.claims_on(ring, origins)

    def next_block(self, ring: int) -> int:
        """Return a number."""
        return self.blocks.next_number(ring)

    def insert_block(self, ring: int, block: Any, claims: Any) -> None:
        """Write a block."""
        self.blocks.insert(ring, block, claims)

    def block(self, statement: str, **values: Any) -> Any:
        """Return a block."""
        return self.blocks._block(statement, **values)

    def mail(self, ring: int, wanted: Any, limit: int, inline: int = 0) -> Any:
        """Return rows."""
        return self.inbox.after(ring, wanted, limit, inline)

    def mail_between(self, ring: int, wanted: Any) -> list[tuple[str, list[int]]]:
        """Return ids."""
        return self.inbox.ids_between(ring, wanted)

    def standings(self, ring: int, origins: Any) -> Any:
        """Return settings."""
        return self.origins.settings(ring, origins)
