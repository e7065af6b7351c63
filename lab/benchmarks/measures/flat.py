"""Whether a block costs the same whatever waits behind it.

A block of 10,000 messages over 100 origins, 100 of each: sent singly, in tens and in one call of
the rest, after a page that is half full. What waits behind differs. Each first block starts from a
copy of a prepared database in which nothing but the half-full pages is cut; the next block in the
same copy is measured too.
"""

from __future__ import annotations

import psycopg

from lab.benchmarks.contenders import OURS, Contender, Running
from lab.benchmarks.drivers.common import ORIGINS
from lab.benchmarks.lab import Lab

# What an origin earns per round is a hundredth of the block, and a little more, so that rounding leaves none out.
ROUNDS = ORIGINS - 1
DEPTHS = ("few", "many", "crowd")


def flat(lab: Lab, contenders: list[Contender]) -> None:
    """`block`: seconds of a block with few, many, and many over a crowd of origins waiting."""
    if OURS not in contenders:
        return
    for turn in range(lab.sizes.blocks):
        lab.say(f"blocks at depth, round {turn + 1} of {lab.sizes.blocks}")
        for depth in DEPTHS if turn % 2 else DEPTHS[::-1]:
            with lab.trying("block", OURS, depth), lab.clone(_waiting(lab, depth), OURS) as (_, driver):
                for state in ("first", "next"):
                    if state == "next":
                        _front(lab, driver)
                    driver("head")
                    told = driver("block", count=lab.sizes.block)
                    lab.note("block", "ours", depth, state=state, round=turn, **told)
    for depth in DEPTHS[1:]:
        lab.forget(f"ours, {depth} waiting")


def held(lab: Lab, contenders: list[Contender]) -> None:
    """`held`: seconds of one block after the other, beside a reader that holds a transaction open, and without."""
    if OURS not in contenders:
        return
    lab.say(f"{lab.sizes.held} blocks with a transaction held open, and without")
    prepared = _waiting(lab, "few")
    with (
        lab.trying("held", OURS, ""),
        lab.clone(prepared, OURS) as (uri, with_reader),
        lab.clone(prepared, OURS) as (_, without),
        psycopg.connect(uri) as reader,
    ):
        # What it keeps from being vacuumed is only what is in its own database.
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("SELECT count(*) FROM pg_class")
        for turn in range(lab.sizes.held):
            pair = [("held open", with_reader), ("none", without)]
            for variant, driver in pair if turn % 2 else pair[::-1]:
                if turn:
                    _front(lab, driver)
                driver("head")
                lab.note("held", "ours", variant, round=turn, **driver("block", count=lab.sizes.block))
        reader.execute("SELECT 1")


def passed(lab: Lab, contenders: list[Contender]) -> None:
    """`passed`: seconds of a block that skips origins that are paused or in flight, and of one that skips none."""
    if OURS not in contenders:
        return
    first, last = ORIGINS, ORIGINS + lab.sizes.passed
    for turn in range(lab.sizes.blocks):
        lab.say(f"skipping, round {turn + 1} of {lab.sizes.blocks}")
        for variant, number in (("none", 0), ("paused", first), ("in flight", first)):
            with lab.trying("passed", OURS, variant), lab.clone(_beside(lab, variant), OURS) as (_, driver):
                # From the first of the skipped origins on.
                driver("head", number=number)
                told = driver("block", count=lab.sizes.block)
                lab.note("passed", "ours", variant, round=turn, passed=last - first if number else 0, **told)


def _beside(lab: Lab, variant: str) -> str:
    """Measure a block behind many skipped origins of one message each."""
    if variant == "none":
        return _waiting(lab, "few")
    first, last = ORIGINS, ORIGINS + lab.sizes.passed

    def prepare(uri: str) -> None:
        with Running(OURS, uri) as driver:
            _configure(lab, driver)
            driver("fill_many", each=1, first=first, last=last)
            driver("pause" if variant == "paused" else "claim", first=first, last=last)
            _take_in(lab, driver)

    return lab.prepared(f"ours, origins that are {variant}", prepare)


def _waiting(lab: Lab, depth: str) -> str:
    def prepare(uri: str) -> None:
        with Running(OURS, uri) as driver:
            _configure(lab, driver)
            _take_in(lab, driver)
            if depth == "many":
                deep = (lab.sizes.many - lab.sizes.few) // ORIGINS
                driver("fill", each=deep // 50, call=1)
                driver("fill", each=deep // 10, call=10)
                driver("fill", each=deep - deep // 50 - deep // 10, call=1000)
            elif depth == "crowd":
                each = (lab.sizes.many - lab.sizes.few) // (lab.sizes.crowd - ORIGINS)
                driver("fill_many", each=each, first=ORIGINS, last=lab.sizes.crowd)

    return lab.prepared(f"ours, {depth} waiting", prepare)


def _configure(lab: Lab, driver: Running) -> None:
    driver("setup", block=lab.sizes.block, rounds=ROUNDS)


def _take_in(lab: Lab, driver: Running) -> None:
    driver("half_full")
    _front(lab, driver)


def _front(lab: Lab, driver: Running) -> None:
    """Measure a block that takes, of each origin, a fifth sent singly, two fifths in tens, two fifths in one call."""
    each = lab.sizes.block // ORIGINS
    driver("fill", each=each // 5, call=1)
    driver("fill", each=each * 2 // 5, call=10)
    driver("fill", each=each - each // 5 - each * 2 // 5, call=1000)
