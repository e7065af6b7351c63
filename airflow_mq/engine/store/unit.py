"""A unit of work: one transaction on a store, with a repository per noun."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from .blocks import Blocks
from .books import Books, Pages
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


class _Noun(Generic[Repo]):
    """A repository of a unit.

    A repository has no state. Each use makes one, so that no cycle of references keeps a connection alive.
    """

    def __init__(self, make: Callable[[Unit], Repo]) -> None:
        self.make = make

    def __get__(self, unit: Unit, owner: type[Unit]) -> Repo:
        return self.make(unit)


class Unit(Primitives):
    """One transaction on a store, or a series of reads outside of one."""

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

    rings = _Noun(Rings)
    books = _Noun(Books)
    pages = _Noun(Pages)
    inbox = _Noun(Inbox)
    blocks = _Noun(Blocks)
    events = _Noun(Events)
    set_aside = _Noun(SetAside)
    origins = _Noun(Origins)
    ledger = _Noun(Ledger)
    keys = _Noun(Keys)
    payloads = _Noun(Payloads)
    server = _Noun(Server)
