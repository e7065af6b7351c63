"""Ready ring: the circle of all ready queues, beginning with the head.

A store may hold a hundred thousand ready books, and a block visits a few. The ring loads itself during the walk: it is
a line from the head with a gap for the stretch that is not loaded yet. A book that is knit in or bumped goes behind the
gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

_START = "\0start"
_GAP = "\0gap"


class Ring:
    """A circular line with a head, a gap that loads itself, and an end at which to knit in."""

    def __init__(self, more: Callable[[], list[str]]) -> None:
        """:param more: returns the next ready origins in the ring's order, or an empty list at the end."""
        self._more = more
        self._next = {_START: _GAP, _GAP: _START}
        self._prev = {_START: _GAP, _GAP: _START}
        #: Origins that moved to the end, in that order.
        self.moved: dict[str, None] = {}
        self.unknitted: set[str] = set()
        #: Origins that come before the head, in this order.
        self.favoured: list[str] = []
        #: Origins that entered, if a caller collects them; and origins that will be needed soon, if the walk knows
        #: them.
        self.entrants: list[str] | None = None
        self.soon: Sequence[str] = ()
        #: Filter of the origins that this walk services. The others keep their places outside of the circle.
        self.takes: Callable[[str], bool] | None = None
        #: Origins that entered before the walk loaded the stretch that holds them.
        self._early: set[str] = set()

    def only(self, takes: Callable[[str], bool]) -> None:
        """Remove from the circle the origins that this walk does not service. Their places stay as they are."""
        self.takes = takes
        for origin in [name for name in self._next if name not in (_START, _GAP) and not takes(name)]:
            self._unlink(origin)

    def __contains__(self, origin: str) -> bool:
        """Return whether the loaded part holds this origin."""
        return origin in self._next

    def __iter__(self) -> Iterator[str]:
        """Iterate once around the circle from the head."""
        origin = self.head()
        while origin is not None:
            yield origin
            origin = self.next_in_line(origin)

    def head(self) -> str | None:
        """Return the queue whose turn is next."""
        return self.next_in_line(_START)

    def successor(self, origin: str) -> str | None:
        """Return the queue after this one; after the last comes the head."""
        return self.next_in_line(origin) or self.head()

    def bump(self, origin: str) -> None:
        """Move this origin to the end. If it is the head, its successor becomes the head."""
        if origin in self._next:
            self._unlink(origin)
            self.knit(origin)

    def knit(self, origin: str) -> None:
        """Enter at the end, which is directly before the head."""
        if self.takes is None or self.takes(origin):
            self._link(origin, before=_START)
            if self.entrants is not None:
                self.entrants.append(origin)
        self.unknitted.discard(origin)
        self.moved.pop(origin, None)
        self.moved[origin] = None

    def queue_up(self, origin: str) -> None:
        """Give an origin that had no turn a place at the end, for the next walk if this one does not come to it."""
        self.moved.setdefault(origin)

    def meet(self, origin: str) -> None:
        """Enter a ready origin that the walk has not loaded yet. It keeps its place in the store."""
        if origin not in self._next and (self.takes is None or self.takes(origin)):
            self._link(origin, before=_START)
            self._early.add(origin)

    def unknit(self, origin: str) -> None:
        """Leave the ring."""
        self._unlink(origin)
        self.unknitted.add(origin)

    def favour(self, origins: list[str]) -> None:
        """Move these origins to the front, in this order; the first of them becomes the head."""
        self.favoured = origins
        for origin in reversed(origins):
            self._unlink(origin)
            self.moved.pop(origin, None)
            self._link(origin, before=self._next[_START])

    def upcoming(self, origin: str, most: int) -> Iterator[str]:
        """Iterate over the loaded origins that follow this one, to prefetch them."""
        if self.soon:
            yield from islice((name for name in self.soon if name != origin), most)
            return
        following = self._next.get(origin, _GAP)
        while most and following not in (_GAP, origin):
            if following is not _START:
                yield following
                most -= 1
            following = self._next[following]

    def next_in_line(self, origin: str) -> str | None:
        """Return the queue after this one, or None after the last."""
        while (following := self._next[origin]) is _GAP:
            fresh = self._more()
            for name in fresh if self.takes is None else filter(self.takes, fresh):
                if name in self._early and name in self._next and name not in self.moved:
                    self._unlink(name)
                    self._link(name, before=_GAP)
                elif name not in self._next and name not in self.unknitted:
                    self._link(name, before=_GAP)
            if not fresh:
                self._unlink(_GAP)
        return None if following is _START else following

    def _link(self, origin: str, *, before: str) -> None:
        previous = self._prev[before]
        self._next[previous] = self._prev[before] = origin
        self._prev[origin], self._next[origin] = previous, before

    def _unlink(self, origin: str) -> None:
        previous, following = self._prev.pop(origin), self._next.pop(origin)
        self._next[previous], self._prev[following] = following, previous
