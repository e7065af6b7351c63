"""Rules that plan blocks, and the properties of a plan."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from airflow_mq import (
    Weight,
)
from airflow_mq.testing import RecordingProcessor, Script

from .clock import SECOND
from .drawn import ORIGINS, limits
from .ground import Ground
from .ladder import Meter, OnPaper
from .plain import WAITING, Item, Pair, exceeds, plus
from .settling import Held, Run, settle
from .sides import Side, block_facts


class Planning(Ground):
    """Rules that plan in each order, with the ring's weigher or a custom one."""

    @precondition(lambda self: self.plain.ring)
    @rule(limit=st.none() | limits, lease=st.sampled_from([None, None, 0.0, 15.0]), scripted=st.booleans(),
          keyed=st.sampled_from([None, None, "morning"]))  # fmt: skip
    def plan(self, limit: Pair | None, lease: float | None, scripted: bool, keyed: str | None) -> None:
        self.plan_one(limit, lease, scripted, keyed)

    @precondition(lambda self: self.plain.ring)
    @rule(limit=limits)
    def plan_more(self, limit: Pair) -> None:
        self.plan_one(limit, None, False, None)

    def plan_one(self, limit: Pair | None, lease: float | None, scripted: bool, keyed: str | None) -> None:
        plain, config = self.plain, self.plain.config
        if config.service_weight is None and limit is None:
            limit = (12, 12)
        given: Pair = limit or tuple(config.service_weight)  # type: ignore[arg-type]
        living = next((b for b in self.held if keyed and b.key == keyed and b.state == "planned"), None)
        if living and living.deadline > self.clock.now:
            self.sides.do(lambda side: block_again(side, keyed, living.number))
            return
        dead = [b for b in self.held if b.state == "planned" and b.deadline <= self.clock.now]
        for block in dead:
            settle(plain, block, "released")
        self.happened()
        before = list(plain.ring)
        deficits = self.sides.all[0].deficits(ORIGINS)

        def real(side: Side) -> tuple[Any, ...]:
            weigher = RecordingProcessor.weigh if scripted else None
            block = side.queue.blocks.plan(keyed, Weight(*given), lease=lease, weigher=weigher, seed=b"shuffled")
            side.blocks.append(block)
            return block_facts(block)

        facts = self.sides.do(real)
        note(f"planned {facts}")
        paper = OnPaper(plain, Meter(given), lambda item: self.weigh(item, scripted))
        if config.order == "rotation":
            paper.run()
            self.check_rotation(facts, paper)
        else:
            order = self.sides.do(lambda side: side.queue.inspect.ring_order(100))
            assert sorted(order) == sorted(before)
            plain.ring = order
        seconds = config.lease if lease is None else lease
        block = Held(len(self.held), given, self.clock.now + int(seconds * SECOND), seconds, key=keyed)
        self.hold(block, facts, scripted)
        self.check_limits(block, facts, scripted, given)
        # The plan first charges what messages of dead blocks used beyond their weight.
        self.check_ledger(block, facts, None if dead else deficits)
        self.met[f"{config.order}: {'claimed' if facts[3] else 'nothing claimed'}"] += 1
        self.met.update(decision for run in block.runs for *_, decision in run.items)
        for origin in {run.origin for run in block.runs if run.items}:
            holders = {item.held for _, _, item in plain.book(origin).window()} - {None}
            self.met["held by two blocks"] += len(holders) > 1

    def weigh(self, item: Item, scripted: bool) -> Pair:
        if item.declared or not scripted:
            return self.plain.weight(item)
        script = Script.read(item.payload)
        return (0, 0) if script.answer else tuple(script.weight)  # type: ignore[return-value]

    def check_rotation(self, facts: tuple[Any, ...], paper: OnPaper) -> None:
        _, planned, overhead, messages, claims = facts
        names = {"SET_ASIDE": "aside", "EXPIRED": "expired"}
        runs_of_block = [
            (origin, page, at, names.get(dict(decisions).get(at, ""), "process"))
            for origin, runs in claims
            for page, first, count, _, decisions in runs
            for at in range(first, first + count)
        ]
        expected = [(claim.origin, page, at, d) for claim in paper.claims for page, at, _, d in claim.items]
        assert runs_of_block == expected
        assert planned == paper.planned
        assert plus(planned, overhead) == paper.meter.used
        assert messages == sum(d == "process" for *_, d in expected)

    def hold(self, block: Held, facts: tuple[Any, ...], scripted: bool) -> None:
        """Record the claims: each is the next unclaimed message of its queue, in order."""
        plain = self.plain
        held_before = {
            origin
            for origin, book in plain.books.items()
            if any(item.held is not None and item.state == WAITING for _, _, item in book.window())
        }
        for origin, runs in facts[4]:
            book = plain.book(origin)
            assert not plain.is_paused(book) and book.wake_at <= self.clock.now
            assert not (plain.is_ordered(origin) and origin in held_before), "two blocks hold an ordered origin"
            for page, first, count, closed, decisions in runs:
                run = Run(origin, page, closed, [], plain.is_ordered(origin), book.most)
                decided = {at: {"SET_ASIDE": "aside", "EXPIRED": "expired"}[name] for at, name in decisions}
                for at in range(first, first + count):
                    free = next((p, i) for p, i, item in book.window() if item.state == WAITING and item.held is None)
                    assert free == (page, at), "claimed out of order, or twice"
                    item = book.pages[page].items[at]
                    item.held, block.weights[item] = block.number, self.weigh(item, scripted)
                    run.items.append((at, item, decided.get(at, "process")))
                block.runs.append(run)
        self.held.append(block)

    def check_limits(self, block: Held, facts: tuple[Any, ...], scripted: bool, limit: Pair) -> None:
        """Check that each part is within the limit, and that no message was left out that fits."""
        plain = self.plain
        _, planned, overhead, messages, _ = facts
        assert planned == plus((0, 0), *(self.weigh(item, scripted) for *_, item in block.handed_out()))
        assert messages == len(block.handed_out())
        used = plus(planned, overhead)
        assert not exceeds(used, limit)
        for run in block.runs:
            for _, item, decision in run.items:
                weight, expired = (
                    self.weigh(item, scripted),
                    item.expires is not None and item.expires <= self.clock.now,
                )
                assert expired == (decision == "expired")
                reasons = plain.reasons_now(item, weight, limit, fits=decision == "process")
                assert bool(reasons) == (decision == "aside") or expired
                if decision == "aside":
                    item.reasons, item.weighed = reasons, weight
        if plain.config.order == "rotation":
            return
        spent: dict[str, Pair] = {}
        for origin, *_, item in block.handed_out():
            spent[origin] = plus(spent.get(origin, (0, 0)), self.weigh(item, scripted))
        for origin in plain.ring:
            book = plain.book(origin)
            most = book.most if plain.config.order == "deficit" else None
            assert not (most and exceeds(spent.get(origin, (0, 0)), most)), "more than the most of an origin"
            others = any(
                item.held not in (None, block.number) and item.state == WAITING for _, _, item in book.window()
            )
            if plain.is_paused(book) or book.wake_at > self.clock.now or (others and plain.is_ordered(origin)):
                continue
            front = next((item for _, _, item in book.window() if item.state == WAITING and item.held is None), None)
            if front is None:
                continue
            need = plus(used, self.weigh(front, scripted), plain.overhead)
            own = most and exceeds(plus(spent.get(origin, (0, 0)), self.weigh(front, scripted)), most)
            assert exceeds(need, limit) or own, f"{front.payload!r} of {origin} would have fitted"

    def check_ledger(self, block: Held, facts: tuple[Any, ...], before: dict[str, int] | None) -> None:
        """Check that the ledger records the granted weights and the resulting deficits."""
        plain, config = self.plain, self.plain.config
        ledgers = [side.queue.inspect.ledger(block=real.id) for side in self.sides.all for real in [side.blocks[-1]]]
        entries_by_store = [
            [
                (e.origin, e.offered, e.granted, e.messages, e.deficit, e.reason, e.visits)
                for ledger_page in ledger
                for e in ledger_page.entries
            ]
            for ledger in ledgers
        ]
        assert all(entries == entries_by_store[0] for entries in entries_by_store)
        counts = Counter(run.origin for run in block.runs for *_, d in run.items if d in ("process", "expired"))
        after = self.sides.all[0].deficits(ORIGINS)
        granted: Pair = (0, 0)
        for entry in (e for ledger_page in ledgers[0] for e in ledger_page.entries):
            granted = plus(granted, entry.granted)
            assert entry.messages == counts.pop(entry.origin, 0)
            if config.order == "deficit" and not config.paths:
                assert entry.deficit == after[entry.origin]
        assert not counts
        if ledgers[0] and ledgers[0][0].entries:
            assert plus(granted, plain.cost("bump_service_head")) == plus(facts[1], facts[2])
        if config.order != "deficit" and before is not None:
            assert before == after


def block_again(side: Side, key: str | None, number: int) -> None:
    """Check that a plan with the key of a live block returns the same block."""
    assert side.queue.blocks.plan(key).id == side.blocks[number].id
