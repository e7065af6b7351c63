"""Many messages of one origin, then one of a quiet origin: what is handled before the quiet one.

The peers hand out messages in the order of arrival, so the quiet message is the last one. They get a smaller flood, and
the row extrapolates their seconds in proportion. pgmq can also read groups in turn, which is measured with the whole
flood: each read looks at all messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from lab.benchmarks.contenders import BARE, OURS, Contender, Running
from lab.benchmarks.lab import Lab
from lab.benchmarks.measures.throughput import empty
from lab.benchmarks.rows import Row
from lab.benchmarks.stats import Figure, Sample, pick

#: Messages in a block.
BLOCK = 10_000
#: Peers that stand for the others; the rest have the same order.
SHOWN = ("pgmq", "river", "procrastinate")
GROUPED = "groups in turn"


def flood(lab: Lab, contenders: list[Contender]) -> None:
    """`flood`: seconds, and messages handled, until the message of a quiet origin is handled."""
    lab.say(f"a flood of {lab.sizes.flood:,} messages, then one of a quiet origin")
    for contender in contenders:
        with lab.trying("flood", contender, ""):
            if contender is OURS:
                _ours(lab)
            elif contender is not BARE and contender.name in SHOWN:
                _peer(lab, contender)
                if contender.name == "pgmq":
                    _grouped(lab, contender)


def _ours(lab: Lab) -> None:
    def prepare(uri: str) -> None:
        with Running(OURS, uri) as driver:
            lab.versions["ours"] = driver("setup", block=BLOCK)["version"]
            driver("flood", count=lab.sizes.flood)

    with lab.clone(lab.prepared("ours, flooded", prepare), OURS) as (_, driver):
        told = driver("until_quiet", block=BLOCK)
        lab.note("flood", "ours", "", count=lab.sizes.flood, whole=lab.sizes.flood, **told)
    lab.forget("ours, flooded")


def _peer(lab: Lab, contender: Contender) -> None:
    count = max(lab.sizes.least, lab.sizes.flood_peers // contender.slow)
    with lab.clone(empty(lab, contender), contender) as (_, driver):
        driver("bulk_in", count=count - 1, call=contender.call)
        driver("single_in", count=1, clients=1)
        told = driver("out_all", count=count)
        seconds = told.get("acknowledged", told["seconds"])
        lab.note("flood", contender.name, "", seconds=seconds, count=count, before=count - 1, whole=lab.sizes.flood)


def _grouped(lab: Lab, contender: Contender) -> None:
    with lab.clone(empty(lab, contender), contender) as (_, driver):
        driver("flood", count=lab.sizes.flood)
        told = driver("until_quiet", block=BLOCK)
        lab.note("flood", contender.name, GROUPED, count=lab.sizes.flood, whole=lab.sizes.flood, **told)


def rows(samples: Sequence[Sample]) -> list[Row]:
    """Show our blocks, and the seconds of each as a part of ours."""
    ours = pick(samples, "flood", "ours")
    blocks = Figure.of(s["blocks"] for s in ours)
    own = Figure.of(s["seconds"] for s in ours)
    if not (blocks and own):
        return [Row("flood", "blocks until a quiet origin is serviced", None, 1, False)]
    found = [
        Row(
            "flood",
            f"blocks of {BLOCK:,} until a quiet origin is serviced, behind {ours[0]['whole']:,} messages of another",
            blocks.median,
            1,
            False,
            f"{own.median:.2f} s, {ours[0]['before']:,} messages before it",
        )
    ]
    for contender in SHOWN:
        taken = pick(samples, "flood", contender, variant="")
        theirs = Figure.of(s["seconds"] / s["count"] * s["whole"] for s in taken)
        if theirs:
            detail = f"{theirs.median:,.0f} s, all messages before it; extrapolated from {taken[0]['count']:,}"
            found.append(
                Row(
                    "flood",
                    f"seconds of {contender} in order of arrival, against ours",
                    theirs.median / own.median,
                    detail=detail,
                )
            )
    for sample in pick(samples, "flood", variant=GROUPED):
        what = f"seconds of {sample['contender']} that reads {GROUPED}, {BLOCK:,} at a time, against ours"
        detail = f"{sample['seconds']:.2f} s, {sample['before']:,} messages before it"
        found.append(Row("flood", what, sample["seconds"] / own.median, detail=detail))
    return found
