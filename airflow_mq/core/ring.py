"""The ready ring: the circle of all queues with something to service, from the head on.

A store may hold a hundred thousand ready books, and a block looks at a few. So the ring
is loaded as the walk goes: it is a line from the head, with a gap in it for the stretch
that nobody has looked at yet. Who is knit in, or moves on from the head, goes behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

_START = "\0start"
_GAP = "\0gap"


class Ring:
    """A circular line with a head, a gap that loads itself, and an end at which to knit in."""

    def __init__(self, more: Callable[[], list[str]]) -> None:
        """`more` gives the next ready origins in the ring's order, or none when that was all."""
        self._more = more
        self._next = {_START: _GAP, _GAP: _START}
        self._prev = {_START: _GAP, _GAP: _START}
        #: Origins that took a new place at the end, in that order.
        self.moved: dict[str, None] = {}
        self.unknitted: set[str] = set()
        #: Origins that come before the head now, the first of them first.
        self.favoured: list[str] = []
        #: Who enters, while somebody wants to hear of it; and who is wanted soon, where the walk knows better.
        self.entrants: list[str] | None = None
        self.soon: Sequence[str] = ()
        #: Which origins this walk services: the others keep their places, and are not in the circle for it.
        self.takes: Callable[[str], bool] | None = None
        #: Origins that were met before the walk came to the stretch in which they stand.
        self._early: set[str] = set()

    def only(self, takes: Callable[[str], bool]) -> None:
        """Leave out of the circle the origins that this walk does not service; their places stay as they are."""
        self.takes = takes
        for origin in [one for one in self._next if one not in (_START, _GAP) and not takes(one)]:
            self._unlink(origin)

    def __contains__(self, origin: str) -> bool:
        """Whether the part that is loaded holds this origin."""
        return origin in self._next

    def __iter__(self) -> Iterator[str]:
        """From the head on, once round."""
        origin = self.head()
        while origin is not None:
            yield origin
            origin = self.next_in_line(origin)

    def head(self) -> str | None:
        """The queue whose turn is next."""
        return self._after(_START)

    def successor(self, origin: str) -> str | None:
        """The queue after this one; after the last comes the head."""
        return self._after(origin) or self.head()

    def next_in_line(self, origin: str) -> str | None:
        """The queue after this one; none after the last."""
        return self._after(origin)

    def bump(self, origin: str) -> None:
        """Let this origin take its place at the end. The head that is bumped hands on its turn."""
        if origin in self._next:
            self._unlink(origin)
            self.knit(origin)

    def knit(self, origin: str) -> None:
        """Enter at the end, which is just before the head."""
        if self.takes is None or self.takes(origin):
            self._link(origin, before=_START)
            if self.entrants is not None:
                self.entrants.append(origin)
        self.unknitted.discard(origin)
        self.moved.pop(origin, None)
        self.moved[origin] = None

    def meet(self, origin: str) -> None:
        """Take in a ready origin to which the walk has not come yet. It keeps its place."""
        if origin not in self._next and (self.takes is None or self.takes(origin)):
            self._link(origin, before=_START)
            self._early.add(origin)

    def unknit(self, origin: str) -> None:
        """Leave the ring."""
        self._unlink(origin)
        self.unknitted.add(origin)

    def drop(self, origin: str) -> None:
        """Remove an origin that another process took out of the ring; it may enter again at any time."""
        if origin in self._next:
            self._unlink(origin)
        self.moved.pop(origin, None)
        self.favoured = [other for other in self.favoured if other != origin]
        self._early.discard(origin)

    def favour(self, origins: list[str]) -> None:
        """Let these origins come first, in this order; the first of them is the head."""
        self.favoured = origins
        for origin in reversed(origins):
            self._unlink(origin)
            self.moved.pop(origin, None)
            self._link(origin, before=self._next[_START])

    def upcoming(self, origin: str, most: int) -> Iterator[str]:
        """The origins after this one, round the circle, as far as they are loaded: who is wanted soon."""
        if self.soon:
            yield from islice((one for one in self.soon if one != origin), most)
            return
        following = self._next.get(origin, _GAP)
        while most and following not in (_GAP, origin):
            if following is not _START:
                yield following
                most -= 1
            following = self._next[following]

    def _after(self, origin: str) -> str | None:
        while (following := self._next[origin]) is _GAP:
            fresh = self._more()
            for one in fresh if self.takes is None else filter(self.takes, fresh):
                if one in self._early and one in self._next and one not in self.moved:
                    self._unlink(one)
                    self._link(one, before=_GAP)
                elif one not in self._next and one not in self.unknitted:
                    self._link(one, before=_GAP)
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
