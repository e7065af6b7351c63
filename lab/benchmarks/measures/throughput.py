"""Bulk in, and out until the last row is deleted: everyone against everyone."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from lab.benchmarks.contenders import BARE, OURS, Contender, Running
from lab.benchmarks.drivers.common import ORIGINS
from lab.benchmarks.lab import Lab

CALLS = (1, 10, 1000)
# A batch processor, a callable for each message, and whole blocks.
MODES: dict[str, dict[str, Any]] = {
    "batch": {"mode": "batch"},
    "callable": {"mode": "callable"},
    "block": {"mode": "block"},
}


def bulk(lab: Lab, contenders: list[Contender]) -> None:
    """`bulk_in`: seconds for so many messages in bulk calls."""
    variants = [(contender, *variant) for contender in contenders for variant in _ways_in(contender)]
    for turn in range(lab.sizes.rounds):
        lab.say(f"bulk in, round {turn + 1} of {lab.sizes.rounds}")
        # Each round begins with another contender, so that the order does not favour any.
        for contender, name, order in _turned(variants, turn):
            count = amount(lab, contender)
            with lab.trying("bulk_in", contender, name), lab.clone(empty(lab, contender), contender) as (_, driver):
                with lab.server_time() as used:
                    told = driver("bulk_in", count=count, **order)
                lab.note("bulk_in", contender.name, name, round=turn, count=count, **told, **used)


def tens(lab: Lab, contenders: list[Contender]) -> None:
    """`ten_in`: seconds for so many messages in calls of ten, one transaction each; all take short turns."""
    with ExitStack() as stack:
        variants = [
            (contender, *variant, stack.enter_context(lab.clone(empty(lab, contender), contender))[1])
            for contender in contenders
            for variant in _ways_in_tens(contender)
        ]
        count = 10 * lab.sizes.turn
        # The first turn warms up; it does not count.
        for turn in range(-1, lab.sizes.turns):
            for contender, name, order, driver in _turned(variants, turn % len(variants)):
                with lab.trying("ten_in", contender, name), lab.server_time() as used:
                    told = driver("bulk_in", count=count, call=10, **order)
                if turn >= 0:
                    lab.note("ten_in", contender.name, name, round=turn, count=count, **told, **used)


def out(lab: Lab, contenders: list[Contender]) -> None:
    """`out`: seconds to fetch, process by doing nothing, acknowledge and delete all, and of the vacuum after it."""
    variants = [(contender, *variant) for contender in contenders for variant in _ways_out(contender)]
    for turn in range(lab.sizes.rounds):
        lab.say(f"out, round {turn + 1} of {lab.sizes.rounds}")
        for contender, name, call, order in _turned(variants, turn):
            with lab.trying("out", contender, name), lab.clone(full(lab, contender, call), contender) as (uri, driver):
                told = driver("out_all", count=amount(lab, contender), **order)
                vacuum = lab.vacuum(uri)
                lab.check_gone(uri, contender)
                lab.note("out", contender.name, name, round=turn, call=call, vacuum=vacuum, **told)


def amount(lab: Lab, contender: Contender) -> int:
    return max(lab.sizes.least, lab.sizes.bulk // contender.slow)


def empty(lab: Lab, contender: Contender) -> str:
    """A prepared database with the queue in it; in ours each origin's last page is half full."""

    def prepare(uri: str) -> None:
        with Running(contender, uri) as driver:
            if contender is not OURS:
                driver("open")
            lab.versions[contender.name] = driver("setup")["version"]
            if contender is OURS:
                driver("half_full")

    return lab.prepared(f"{contender.name}, empty", prepare)


def full(lab: Lab, contender: Contender, call: int) -> str:
    """Measure with messages waiting; our sent messages are not cut into pages."""

    def prepare(uri: str) -> None:
        with Running(contender, uri) as driver:
            if contender is OURS:
                driver("setup")
                driver("half_full")
                driver("fill", each=amount(lab, contender) // ORIGINS, call=call)
                return
            driver("open")
            driver("setup")
            driver("bulk_in", count=amount(lab, contender), call=call)

    return lab.prepared(f"{contender.name}, full by calls of {call}", prepare)


def _ways_in(contender: Contender) -> list[tuple[str, dict[str, Any]]]:
    if contender is OURS:
        return [
            ("calls of 1,000 to one origin", {"call": 1000, "spread": "one"}),
            ("calls of 1,000 to 100 origins", {"call": 1000, "spread": "many"}),
        ]
    if contender is BARE:
        return [("COPY of 1,000", {"call": 1000})]
    return [(f"calls of {contender.call:,}", {"call": contender.call})]


def _ways_in_tens(contender: Contender) -> list[tuple[str, dict[str, Any]]]:
    if contender is OURS:
        return [("to one origin", {"spread": "one"}), ("to ten origins", {"spread": "many"})]
    return [("COPY" if contender is BARE else "", {})]


def _ways_out(contender: Contender) -> list[tuple[str, int, dict[str, Any]]]:
    if contender is OURS:
        return [(f"{mode}, sent in calls of {call:,}", call, how) for mode, how in MODES.items() for call in CALLS]
    if contender is BARE:
        return [("IN (SELECT …)", 1000, {"form": "in"}), ("= ANY (ARRAY(SELECT …))", 1000, {"form": "array"})]
    return [("", contender.call, {})]


def _turned(variants: list[Any], turn: int) -> list[Any]:
    start = turn % len(variants)
    return variants[start:] + variants[:start]
