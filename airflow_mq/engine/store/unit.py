"""A unit of work: one transaction on a store, with a repository per noun."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TypeVar, cast

from .bills import Bills
from .blocks import Blocks
from .books import Books, Pages
from .charges import Charges
from .events import Events, Ledger
from .inbox import Inbox, Keys
from .origins import Origins
from .payloads import Payloads
from .primitives import Primitives
from .rings import Rings
from .rows import Locked
from .server import Server
from .set_aside import SetAside

Repo = TypeVar("Repo")


def _noun(repository: Callable[[Unit], Repo]) -> Repo:
    """Return a property that makes a repository of a unit.

    A repository has no state. Each use makes one, so that no cycle of references keeps a connection alive.
    """
    return cast("Repo", property(repository))


class Unit(Primitives):
    """One transaction on a store, or single statements outside of one."""

    #: The last id drawn when the ring was locked.
    last_id = 0

    @abstractmethod
    def lock(self, ring: int) -> Locked:
        """Hold the ring lock until the end of this transaction."""

    @abstractmethod
    def try_lock(self, ring: int) -> Locked | None:
        """Hold the ring lock; return `None` if another transaction holds it."""

    @abstractmethod
    def leased(self, ring: int) -> Callable[[], Locked]:
        """Request the state of a ring that this process leases, and return the way to it."""

    rings = _noun(Rings)
    books = _noun(Books)
    pages = _noun(Pages)
    inbox = _noun(Inbox)
    blocks = _noun(Blocks)
    events = _noun(Events)
    charges = _noun(Charges)
    bills = _noun(Bills)
    set_aside = _noun(SetAside)
    origins = _noun(Origins)
    ledger = _noun(Ledger)
    keys = _noun(Keys)
    payloads = _noun(Payloads)
    server = _noun(Server)
