"""Rules for what people decide."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from airflow_mq import (
    Address,
    StackLimitReached,
    Weight,
)
from airflow_mq.engine.rules.weight import Meter as RealMeter
from airflow_mq.testing import RecordingProcessor, Script

from .clock import SECOND
from .drawn import fractions, limits, origins, sizes, standings, troubled
from .ground import Ground
from .ladder import Meter, answered
from .plain import Item, Pair, Refusal, exceeds, plus
from .settling import Held, Run
from .sides import Side


class Deciding(Ground):
    """Set-aside messages, pauses, sweeps, the head, settings."""

    def address(self, data: st.DataObject) -> tuple[str, int, int]:
        aside = self.plain.set_aside()
        if aside and data.draw(st.integers(0, 3)):
            return data.draw(st.sampled_from(aside), "set aside")
        return data.draw(st.tuples(origins, st.integers(0, 5), st.integers(0, 4)), "address")

    @precondition(lambda self: self.plain.all)
    @rule(data=st.data())
    def execute_overweight(self, data: st.DataObject) -> None:
        self.execute(data)

    def execute(self, data: st.DataObject) -> None:
        origin, page, at = self.address(data)
        limit = data.draw(limits)
        whole = data.draw(st.booleans(), "the limit pays for everything")
        self.happened()
        before = list(self.plain.ring)

        def real(side: Side) -> Pair:
            address = Address(origin, page, at)
            return tuple(
                side.queue.execute_overweight(address, RecordingProcessor(), Weight(*limit), for_everything=whole)
            )

        def plain() -> Pair:
            costs = [self.plain.cost(f"execute_overweight_page_{name}") for name in ("updated", "removed")]
            left = limit
            if whole:
                left = (limit[0] - max(c[0] for c in costs), limit[1] - max(c[1] for c in costs))
                if min(left) < 0:
                    raise Refusal("InsufficientWeight")
            try:
                return self.executed(origin, page, at, left, whole)
            except Refusal as refusal:
                coarse = {"NoPage": "NotFound", "NoMessage": "NotFound", "Queued": "NotFound",
                          "TemporarilyUnprocessable": "Refused"}  # fmt: skip
                raise Refusal(coarse.get(str(refusal), str(refusal)) if whole else str(refusal)) from None

        self.both(real, plain)
        self.adopt_newcomers([one for one in before if one in self.plain.ring])

    def executed(self, origin: str, page: int, at: int, limit: Pair, whole: bool) -> Pair:
        plain = self.plain
        item, meter = plain.find(origin, page, at), Meter(limit)
        if item.held is not None:
            raise Refusal("InFlight")
        (word, _), sent = answered(item, meter)
        if word == "over":
            raise Refusal("InsufficientWeight")
        if word == "yield":
            raise Refusal("TemporarilyUnprocessable")
        if Script.read(item.payload).answer == StackLimitReached():
            if whole:
                plain.emit("ProcessingFailed", origin, page, at)
            raise Refusal("TemporarilyUnprocessable")
        plain.charge(item, planned=meter.used)
        plain.charge_attempt(item, plain.weight(item), meter.used, finished=True)
        plain.gone("Processed" if word == "done" else "ProcessingFailed", page, at, item)
        plain.emit("Executed", origin, page, at)
        for whose, payload in sent:
            fresh = Item(payload, whose)
            plain.all.append(fresh)
            plain.append(fresh)
        return plus(meter.used, plain.take_away(item, page))

    @precondition(lambda self: self.plain.set_aside())
    @rule(data=st.data(), lease=st.sampled_from([None, 15.0]))
    def plan_overweight(self, data: st.DataObject, lease: float | None) -> None:
        origin, page, at = self.address(data)
        limit = data.draw(limits)
        self.happened()

        def real(side: Side) -> None:
            side.blocks.append(
                side.queue.blocks.plan_overweight(Address(origin, page, at), Weight(*limit), lease=lease)
            )

        def plain() -> None:
            item = self.plain.find(origin, page, at)
            if item.held is not None:
                raise Refusal("InFlight")
            seconds = self.plain.config.lease if lease is None else lease
            block = Held(len(self.held), limit, self.clock.now + int(seconds * SECOND), seconds, by_hand=True)
            block.runs.append(Run(origin, page, False, [(at, item, "process")]))
            item.held, block.weights[item] = block.number, self.plain.weight(item)
            self.held.append(block)

        self.both(real, plain)

    @precondition(lambda self: self.plain.set_aside())
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        origin, page, at = self.address(data)
        self.happened()

        def plain() -> int:
            its = self.plain.book(origin).pages.get(page)
            if its and at < len(its.items) and its.items[at].held is not None:
                raise Refusal("InFlight")
            item = self.plain.find(origin, page, at)
            self.plain.gone("Discarded", page, at, item)
            self.plain.take_away(item, page)
            return 1

        self.both(lambda side: side.queue.set_aside.discard(Address(origin, page, at), "not wanted"), plain)

    @precondition(lambda self: any(len(book.pages) > book.end - book.begin for book in self.plain.books.values()))
    @rule(origin=origins, page=st.integers(0, 8))
    def reap(self, origin: str, page: int) -> None:
        self.happened()

        def plain() -> None:
            # A block also holds a page that it passed, and of which it took nothing.
            if any(
                (run.origin, run.page) == (origin, page)
                for block in self.held
                if block.state == "planned"
                for run in block.runs
            ):
                raise Refusal("InFlight")
            self.plain.reap(origin, page)

        self.both(lambda side: side.queue.reap_page(origin, page), plain)

    @rule(origin=troubled, until=st.sampled_from([None, None, 10.0, 0.0]))
    def pause(self, origin: str, until: float | None) -> None:
        self.happened()
        book = self.plain.book(origin)
        book.paused, book.until = True, None if until is None else self.clock.now + int(until * SECOND)
        assert self.sides.do(lambda side: side.queue.admin.pause(origin, "for a while", until)) is None

    @precondition(lambda self: any(book.paused or self.plain.waits(name) for name, book in self.plain.books.items()))
    @rule(origin=troubled)
    def resume(self, origin: str) -> None:
        self.resumes(origin, self.plain.book(origin).paused)

    def resumes(self, origin: str, was_paused: bool) -> None:
        """A pause ends, and a backoff; what waited aside joins its queue with the next change of the ring."""
        self.happened()
        self.plain.join_due()
        self.joins()
        book, waited = self.plain.book(origin), self.plain.waits(origin)
        self.met["a backoff was ended"] += waited
        book.paused, book.until = False, None
        self.plain.end_backoff(origin)
        assert self.sides.do(lambda side: side.queue.admin.resume(origin)) is (was_paused or waited)
        self.plain.join_due()
        self.joins()

    @rule(origin=troubled)
    def sweep(self, origin: str) -> None:
        self.happened()
        self.both(lambda side: side.queue.sweep_queue(origin), lambda: self.plain.sweep(origin))

    @rule(origin=origins, meter=st.none() | st.just((0, 0)) | st.just((9, 9)))
    def force_head(self, origin: str, meter: Pair | None) -> None:
        self.happened()

        def plain() -> bool | None:
            if meter is not None and exceeds(self.plain.cost("set_service_head"), meter):
                return None
            return self.plain.force_head(origin)

        self.both(
            lambda side: side.queue.admin.force_set_head(origin, RealMeter(Weight(*meter)) if meter else None), plain
        )

    @rule(data=st.data())
    def change_ring(self, data: st.DataObject) -> None:
        self.change(data)

    def change(self, data: st.DataObject) -> None:
        self.happened()
        draw, config = data.draw, self.plain.config
        kinds = (
            "order",
            "ordered",
            "max_attempts",
            "heap_size",
            "service_weight",
            "rounds_per_block",
            "max_stale",
            "lease",
            "max_message_size",
            "most_of_limit",
        )
        changes: dict[str, Any] = {}
        for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=2, unique=True), "what changes"):
            changes[kind] = draw({
                "order": st.sampled_from(["rotation", "deficit", "shuffle"]), "ordered": st.booleans(),
                "max_attempts": st.sampled_from([None, 1, 2, 3]), "heap_size": st.sampled_from([40, 64, 150, 200]),
                "service_weight": st.sampled_from([Weight(12, 12), Weight(15, 25), Weight(100, 100), None]),
                "rounds_per_block": st.sampled_from([1, 2, 8]), "max_stale": st.integers(0, 3),
                "lease": st.sampled_from([20.0, 60.0]), "max_message_size": sizes, "most_of_limit": fractions,
            }[kind])  # fmt: skip
        refused = changes.get("heap_size", config.heap_size) < config.heap_size
        found = self.sides.do(lambda side: side.queue.admin.change_ring(**changes))
        if refused:
            assert found == "ConfigRefused"
        else:
            self.plain.config = config.changed(**changes)
            assert found == self.plain.config
        assert all(side.queue.config == self.plain.config for side in self.sides.all)

    @rule(
        origin=origins,
        said=standings,
        unset=st.none() | st.sets(st.sampled_from(["share", "most", "least", "ordered"])),
    )
    def set_origin(self, origin: str, said: dict[str, Any], unset: set[str] | None) -> None:
        self.set_origin_at(origin, **said, unset=unset)

    def set_origin_at(
        self, origin: str, share: int | None, most: Pair | None, least: Pair | None, ordered: bool | None,
        unset: set[str] | None = None,
    ) -> None:  # fmt: skip
        """Change the named settings; by default, the others return to the ring's."""
        self.happened()
        given = {"share": share, "most": most, "least": least, "ordered": ordered}
        if unset is None:
            unset = {name for name, value in given.items() if value is None}
        found = self.sides.do(lambda side: side.queue.admin.set_origin(
            origin, share=share, ordered=ordered, most=Weight(*most) if most else None,
            least=Weight(*least) if least else None, unset=unset,
        ))  # fmt: skip
        if any(given[name] is not None for name in unset):
            assert found == "ConfigRefused"
            return
        book, changed = self.plain.book(origin), {}
        for name, value in given.items():
            was = getattr(book, name)
            now = {"share": 1}.get(name) if name in unset else was if value is None else value
            setattr(book, name, now)
            if was != now:
                changed[name] = (was, now)
        assert found == changed
