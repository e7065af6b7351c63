"""A unit of work: one transaction on a store, with a repository per noun."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from .blocks import Blocks
from .books import Books
from .events import Events
from .inbox import Inbox
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
