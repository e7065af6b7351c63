"""Rules that report on, settle, release and renew blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from airflow_mq import Done, Overweight, Report, Weight, Yield
from airflow_mq.engine.rules.outcome import Outcome
from airflow_mq.processors import Part, Processor, Processors
from airflow_mq.spark.share import run_share
from airflow_mq.spark.store_side import StoreSide, live_block, tasks_of, terms_of
from airflow_mq.testing import Script

from .clock import SECOND
from .drawn import origins, outcomes, standings
from .plain import Refusal
from .planning import Planning
from .settling import Held, processed, settle
from .sides import Side

ALL = Processors([Processor("all", "airflow_mq:Done")])
WHOLE = Part(name="all", processors=["all"], part=0, parts=1, messages=0, where="in place")


#: Outcomes that stop an ordered queue, unless a limit of its origin or of the ring sets the message aside.
STOPPING = [Yield("later"), Overweight(Weight(2, 2)), Overweight(Weight(6, 7))]


def answer_to(payload: bytes, chance: int) -> Outcome:
    """Return the scripted outcome, or for one payload of three an outcome that stops its queue."""
    lot = sum(payload) * chance
    return Script.read(payload).outcome() if lot % 3 != 1 else STOPPING[sum(payload) % len(STOPPING)]


def process_in_pieces(side: Side, number: int, width: int, chance: int) -> list[tuple[str, bytes]]:
    """Process a block in shares, as jobs do, and return the processed messages."""
    block, tried = live_block(side.queue, side.blocks[number].token), []

    def process(payload: bytes, origin: str) -> object:
        tried.append((origin, payload))
        return answer_to(payload, chance)

    terms = terms_of(side.queue, block)
    for task in tasks_of(block, terms, ALL, WHOLE, width):
        share = StoreSide(side.queue, block.token, task.share)
        assert run_share(task.processor, share, terms, again=True, function=process).refused is None
    return sorted(tried)


class Ending(Planning):
    """Rules that end blocks in time, late, in part, twice, and after each other."""

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def report(self, data: st.DataObject) -> None:
        """Report on some, all or no messages; twice, late, and on unclaimed messages."""
        self.report_on(data, data.draw(st.sampled_from(self.held), "block"))

    def report_on(self, data: st.DataObject, block: Held) -> None:
        handed = block.handed_out()
        chosen = data.draw(st.lists(st.sampled_from(handed), max_size=8) if handed else st.just([]), "which")
        reports = []
        for origin, page, at, _ in chosen:
            outcome = data.draw(outcomes)
            if isinstance(outcome, Done) and data.draw(st.integers(0, 4)) == 0:
                fresh = (data.draw(origins), f"w=1,1;u{next(self.serial)}".encode())
                outcome = Done(outcome.success, None, outcome.used, (fresh,))
            reports.append(Report(origin, page, at, at, outcome))
        if handed and data.draw(st.booleans()):
            origin, page, first, _ = data.draw(st.sampled_from(handed), "from")
            last = first
            while any(item[:3] == (origin, page, last + 1) for item in handed):
                last += 1
            reports.append(Report(origin, page, first, last, data.draw(outcomes)))

        def plain() -> None:
            if not reports:
                return
            if not self.living(block):
                raise Refusal("TokenRefused")
            for report in reports:
                for at in range(report.first, report.last + 1):
                    block.answer(report.origin, report.page, at, report.outcome)

        self.both(lambda side: side.queue.blocks.report(side.blocks[block.number], reports), plain)

    @precondition(lambda self: any(block.state == "planned" for block in self.held))
    @rule(data=st.data())
    def settle_living(self, data: st.DataObject) -> None:
        """Report on a live block, or on a part of it, and settle it."""
        self.settle_one(
            data, data.draw(st.sampled_from([block for block in self.held if block.state == "planned"]), "block")
        )

    @precondition(lambda self: self.plain.ring)
    @rule(data=st.data(), scripted=st.booleans())
    def work(self, data: st.DataObject, scripted: bool) -> None:
        """Run a block from its plan to its end, which single drawn steps seldom reach."""
        self.plan_one(None, None, scripted, None)
        self.settle_one(data, self.held[-1])

    @rule(data=st.data(), origin=origins, settings=standings, count=st.integers(3, 6),
          width=st.sampled_from([1, 2, 8]), begun=st.sampled_from([False, False, True]), chance=st.integers(0, 6))  # fmt: skip
    def process(
        self, data: st.DataObject, origin: str, settings: dict[str, Any], count: int, width: int, begun: bool,
        chance: int,
    ) -> None:  # fmt: skip
        """Process a block in shares, perhaps after a report on some of its messages."""
        self.set_origin_at(origin, **settings)
        self.send_row(origin, count)
        self.plan_one((200, 200), None, False, None)
        block = self.held[-1]
        if begun:
            self.report_on(data, block)
        self.interleave(data)
        if self.living(block):
            tried = self.sides.do(lambda side: process_in_pieces(side, block.number, width, chance))
            outcomes_by_run = processed(self.plain, block, lambda payload: answer_to(payload, chance))
            assert tried == sorted((run.origin, item.payload) for run, _, item, _ in outcomes_by_run)
            for run, at, _, outcome in outcomes_by_run:
                block.answer(run.origin, run.page, at, outcome)
            self.met["processed, ordered alone"] += any(run.ordered != self.plain.config.ordered for run in block.runs)
        self.end_one(block, False)

    def settle_one(self, data: st.DataObject, block: Held) -> None:
        if not block.meanwhile or data.draw(st.booleans(), "something more happens"):
            self.interleave(data)
        if not self.living(block):
            pass
        else:
            how = data.draw(st.sampled_from(["done", "each", "some"]), "what is reported")
            if how == "some":
                self.report_on(data, block)
            else:
                self.report_all(block, lambda: Done() if how == "done" else data.draw(outcomes))
        self.end_one(block, False)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """Settle or release a block in time, late, twice, or after the other operation."""
        block = data.draw(st.sampled_from(self.held), "block")
        if block.state == "planned" and not block.meanwhile:
            self.interleave(data)
        release = data.draw(st.sampled_from([False, False, True]), "release")
        self.end_one(block, release)

    def report_all(self, block: Held, outcome: Callable[[], Any]) -> None:
        reports = [Report(origin, page, at, at, outcome()) for origin, page, at, _ in block.handed_out()]
        assert self.sides.do(lambda side: side.queue.blocks.report(side.blocks[block.number], reports)) is None
        for report in reports:
            block.answer(report.origin, report.page, report.first, report.outcome)

    def end_one(self, block: Held, release: bool) -> None:
        before = list(self.plain.ring)
        late = "late, " if block.deadline <= self.clock.now else ""
        self.met[f"{late}{block.state}, then {'released' if release else 'settled'}"] += 1
        if block.runs and len(block.answers) < len(block.handed_out()):
            self.met["answered in part"] += bool(block.answers)

        def real(side: Side) -> None:
            (side.queue.blocks.release if release else side.queue.blocks.settle)(side.blocks[block.number])

        def plain() -> None:
            settle(self.plain, block, "released" if release else "settled")

        self.both(real, plain)
        if release:
            self.happened()
        self.adopt_newcomers([origin for origin in before if origin in self.plain.ring])

    @precondition(lambda self: self.held)
    @rule(data=st.data(), lease=st.sampled_from([None, 5.0, 40.0]))
    def renew(self, data: st.DataObject, lease: float | None) -> None:
        block = data.draw(st.sampled_from(self.held), "block")

        def real(side: Side) -> float:
            return side.queue.blocks.renew(side.blocks[block.number], lease).timestamp()

        def plain() -> float:
            if not self.living(block):
                raise Refusal("TokenRefused")
            seconds = block.seconds if lease is None else lease
            block.deadline = max(block.deadline, self.clock.now + int(seconds * SECOND))
            return block.deadline / SECOND

        self.both(real, plain)

    @precondition(lambda self: len(self.held) == 2)
    @rule(token=st.sampled_from(["", "no token", "00" * 16]))
    def wrong_token(self, token: str) -> None:
        report = [Report("0", 0, 0, 0, Done())]
        for call in (
            lambda side: side.queue.blocks.report(token, report),
            lambda side: side.queue.blocks.settle(token),
            lambda side: side.queue.blocks.release(token),
            lambda side: side.queue.blocks.renew(token),
        ):
            assert self.sides.do(call) == "UnknownBlock"

    @rule(seconds=st.sampled_from([1.0, 1.0, 12.0, 30.0, 120.0]))
    def wait(self, seconds: float) -> None:
        """Advance the clock: leases, delays and pauses end, and messages expire."""
        before = list(self.plain.ring)
        late = bool(self.plain.delayed)
        self.clock.advance(seconds)
        self.plain.join_due()
        if late:
            self.joins()
            self.adopt_newcomers(before)
