"""Planning a large block, against reading the same inbox rows and walking its lengths."""

from __future__ import annotations

from lab.benchmarks.contenders import OURS, Contender, Running
from lab.benchmarks.drivers.common import ORIGINS
from lab.benchmarks.lab import Lab
from lab.benchmarks.measures.flat import ROUNDS
from lab.benchmarks.measures.throughput import CALLS


def planning(lab: Lab, contenders: list[Contender]) -> None:
    """`plan` and `baseline`: seconds for the same messages, in the same copy, nothing cut beforehand."""
    if OURS not in contenders:
        return
    for turn in range(lab.sizes.blocks):
        lab.say(f"planning, round {turn + 1} of {lab.sizes.blocks}")
        for call in CALLS:
            variant = f"sent in calls of {call:,}"
            each = lab.sizes.planned // ORIGINS
            with lab.trying("plan", OURS, variant), lab.clone(_waiting(lab, call), OURS) as (_, driver):
                # The first reading only brings the tables into memory, for both.
                driver("baseline", each=each, payloads=True)
                for payloads in (True, False):
                    told = driver("baseline", each=each, payloads=payloads)
                    lab.note("baseline", "ours", variant, round=turn, payloads=payloads, **told)
                lab.note("plan", "ours", variant, round=turn, **driver("plan", count=lab.sizes.planned))


def _waiting(lab: Lab, call: int) -> str:
    def prepare(uri: str) -> None:
        with Running(OURS, uri) as driver:
            driver("setup", block=lab.sizes.planned, rounds=ROUNDS)
            driver("half_full")
            driver("fill", each=lab.sizes.planned // ORIGINS, call=call)

    return lab.prepared(f"ours, to be planned, by calls of {call}", prepare)
