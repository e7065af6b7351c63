"""Rules that requeue set-aside messages, discard them in bulk, or let them expire."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from airflow_mq import Address, Weight

from .deciding import Deciding
from .drawn import origins
from .plain import ASIDE, GONE, WAITING, Item, Pair, Refusal
from .sides import Side

#: The limit of a block in a ring without a service weight.
GIVEN = (50, 50)


class Judging(Deciding):
    """Rules that end a set-aside state without an execution."""

    @precondition(lambda self: self.plain.set_aside())
    @rule(data=st.data())
    def judge_again(self, data: st.DataObject) -> None:
        """Requeue by the current weight, or by the weight for which the message was set aside."""
        weigh = data.draw(st.booleans(), "weigh anew")
        origin, page, at = self.address(data)
        self.happened()
        before = list(self.plain.ring)

        def real(side: Side) -> Pair | None:
            requeued = side.queue.set_aside.requeue(Address(origin, page, at), limit=Weight(*GIVEN), weigh=weigh)
            (moved,) = [aside.moved for aside in (*requeued.moved, *requeued.stayed)]
            return (moved.page, moved.index) if moved else None

        self.both(real, lambda: self.requeued_place(origin, page, at, weigh))
        self.adopt_newcomers([name for name in before if name in self.plain.ring])

    def requeued_place(self, origin: str, page: int, at: int, weigh: bool) -> Pair | None:
        plain, book = self.plain, self.plain.book(origin)
        stored_page = book.pages.get(page)
        if stored_page and at < len(stored_page.items) and stored_page.items[at].held is not None:
            raise Refusal("InFlight")
        item, most = plain.find(origin, page, at), plain.config.max_attempts
        current_weight = plain.weight(item)
        weight = current_weight if weigh or item.state != ASIDE or item.weighed is None else item.weighed
        if plain.reasons(origin, weight, GIVEN, len(item.payload)):
            return None
        if most is not None and item.attempts >= most:
            return None
        plain.emit("Requeued", origin, page, at)
        # The old place counts as processed; the message continues at the end.
        book.pages[page].items[at] = ghost = Item(item.payload, origin, state=GONE)
        item.state, item.declared = WAITING, item.declared if weight == current_weight else weight
        plain.append(item)
        last = book.pages[book.end - 1]
        plain.take_away(ghost, page)
        return last.index, len(last.items) - 1

    @precondition(lambda self: self.plain.set_aside())
    @rule(origin=st.none() | origins, weigh=st.booleans(),
          reason=st.sampled_from([None, None, "size", "fraction", "overweight", "swept"]))  # fmt: skip
    def judge_all_again(self, origin: str | None, weigh: bool, reason: str | None) -> None:
        """Requeue all matching messages in turn; swept ones only if the reason is given."""
        self.happened()
        before = list(self.plain.ring)
        asides = self.sides.do(
            lambda side: [(aside.address, aside.reason) for aside in side.queue.set_aside.list(limit=500)]
        )
        wanted = [pair for pair in asides if origin in (None, pair[0].origin) and reason in (None, pair[1])]

        def real(side: Side) -> tuple[Any, ...]:
            requeued = side.queue.set_aside.requeue_all(limit=Weight(*GIVEN), weigh=weigh, origin=origin, reason=reason)
            moved = [
                (str(aside.address), (aside.moved.page, aside.moved.index)) for aside in requeued.moved if aside.moved
            ]
            return moved, sorted(str(aside.address) for aside in requeued.stayed)

        def plain() -> tuple[Any, ...]:
            moved, stayed = [], []
            for address, why in wanted:
                if why == "swept" and reason != "swept":
                    continue
                try:
                    place = self.requeued_place(address.origin, address.page, address.index, weigh)
                except Refusal:
                    place = None
                stayed.append(str(address)) if place is None else moved.append((str(address), place))
            return moved, sorted(stayed)

        self.both(real, plain)
        self.adopt_newcomers([name for name in before if name in self.plain.ring])

    @precondition(lambda self: self.plain.set_aside())
    @rule(origin=origins)
    def discard_all(self, origin: str) -> None:
        self.happened()
        self.both(
            lambda side: side.queue.set_aside.discard_all("not wanted", origin=origin),
            lambda: self.dropped("Discarded", [place for place in self.plain.set_aside() if place[0] == origin]),
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
