"""Rules for set-aside messages that are judged again, dropped in bulk, or expire."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from airflow_mq import Address, Weight

from .deciding import Deciding
from .drawn import origins
from .plain import ASIDE, GONE, WAITING, Item, Pair, Refusal
from .sides import Side

#: What a block may cost in a ring that does not say.
GIVEN = (50, 50)


class Judging(Deciding):
    """What goes back, or goes for good, without being executed."""

    @precondition(lambda self: self.plain.set_aside())
    @rule(data=st.data())
    def judge_again(self, data: st.DataObject) -> None:
        """By what it weighs now, or by the weight that it was set aside for."""
        weigh = data.draw(st.booleans(), "weigh anew")
        origin, page, at = self.address(data)
        self.happened()
        before = list(self.plain.ring)

        def real(side: Side) -> Pair | None:
            found = side.queue.set_aside.requeue(Address(origin, page, at), limit=Weight(*GIVEN), weigh=weigh)
            (moved,) = [one.moved for one in (*found.moved, *found.stayed)]
            return (moved.page, moved.index) if moved else None

        self.both(real, lambda: self.judged(origin, page, at, weigh))
        self.adopt_newcomers([one for one in before if one in self.plain.ring])

    def judged(self, origin: str, page: int, at: int, weigh: bool) -> Pair | None:
        plain, book = self.plain, self.plain.book(origin)
        its = book.pages.get(page)
        if its and at < len(its.items) and its.items[at].held is not None:
            raise Refusal("InFlight")
        item, most = plain.find(origin, page, at), plain.config.max_attempts
        now = plain.weight(item)
        weight = now if weigh or item.state != ASIDE or item.weighed is None else item.weighed
        if plain.whys(origin, weight, GIVEN, len(item.payload)):
            return None
        if most is not None and item.attempts >= most:
            return None
        plain.emit("Rejudged", origin, page, at)
        # Its old place is as good as processed; the message itself goes on at the end.
        book.pages[page].items[at] = ghost = Item(item.payload, origin, state=GONE)
        item.state, item.declared = WAITING, item.declared if weight == now else weight
        plain.append(item)
        last = book.pages[book.end - 1]
        plain.take_away(ghost, page)
        return last.index, len(last.items) - 1

    @precondition(lambda self: self.plain.set_aside())
    @rule(origin=st.none() | origins, weigh=st.booleans(),
          reason=st.sampled_from([None, None, "size", "fraction", "overweight", "swept"]))  # fmt: skip
    def judge_all_again(self, origin: str | None, weigh: bool, reason: str | None) -> None:
        """All that are meant, one after the other; what was swept only if that is said."""
        self.happened()
        before = list(self.plain.ring)
        found = self.sides.do(lambda side: [(one.address, one.reason) for one in side.queue.set_aside.list(limit=500)])
        wanted = [one for one in found if origin in (None, one[0].origin) and reason in (None, one[1])]

        def real(side: Side) -> tuple[Any, ...]:
            judged = side.queue.set_aside.requeue_all(limit=Weight(*GIVEN), weigh=weigh, origin=origin, reason=reason)
            moved = [(str(one.address), (one.moved.page, one.moved.index)) for one in judged.moved if one.moved]
            return moved, sorted(str(one.address) for one in judged.stayed)

        def plain() -> tuple[Any, ...]:
            moved, stayed = [], []
            for address, why in wanted:
                if why == "swept" and reason != "swept":
                    continue
                try:
                    place = self.judged(address.origin, address.page, address.index, weigh)
                except Refusal:
                    place = None
                stayed.append(str(address)) if place is None else moved.append((str(address), place))
            return moved, sorted(stayed)

        self.both(real, plain)
        self.adopt_newcomers([one for one in before if one in self.plain.ring])

    @precondition(lambda self: self.plain.set_aside())
    @rule(origin=origins)
    def discard_all(self, origin: str) -> None:
        self.happened()
        self.both(
            lambda side: side.queue.set_aside.discard_all("not wanted", origin=origin),
            lambda: self.dropped("Discarded", [one for one in self.plain.set_aside() if one[0] == origin]),
        )

    @precondition(lambda self: self.plain.set_aside())
    @rule()
    def expire(self) -> None:
        self.happened()
        self.sides.do(lambda side: side.queue.admin.change_ring(set_aside_expires=1.0))
        self.both(lambda side: side.queue.set_aside.expire(), lambda: self.dropped("Expired", self.plain.set_aside()))
        self.sides.do(lambda side: side.queue.admin.change_ring(set_aside_expires=None))

    def dropped(self, name: str, wanted: list[tuple[str, int, int]]) -> int:
        count = 0
        for origin, page, at in wanted:
            try:
                item = self.plain.find(origin, page, at)
            except Refusal:
                continue
            if item.held is None:
                self.plain.gone(name, page, at, item)
                self.plain.take_away(item, page)
                count += 1
        return count
