"""CPU of looking at a ring of very many queues: the first plan, and what the page, the metrics and the commands read."""

from __future__ import annotations

from collections.abc import Sequence

from lab.benchmarks.contenders import OURS, Contender, Running
from lab.benchmarks.lab import Lab
from lab.benchmarks.rows import Row
from lab.benchmarks.stats import Figure, Sample, pick

#: A block has so many messages, two of each queue that it meets first; so many are settled before the first look.
BLOCK, ROUNDS, BLOCKS = 1_000, 500, 20
#: How often each way to look is measured.
LOOKS = 3
#: Seconds of CPU, of client and server together.
BOUND = 1.0
#: What the driver can do, and its name in the report.
STEPS = {
    "first": "first plan before new queues",
    "ring": "the page's ring",
    "queues": "the page's first queues",
    "backlog": "the backlog's metrics",
    "forecast": "a forecast of 3 blocks",
    "explain": "explain the last queue",
    "fairness": "fairness of 100 blocks",
}


def inspection(lab: Lab, contenders: list[Contender]) -> None:
    """`inspect`: seconds of CPU of each way to look at a ring, by the number of queues."""
    if OURS not in contenders:
        return
    for queues in lab.sizes.inspected:
        lab.say(f"looking at {queues:,} queues")
        with lab.trying("inspect", OURS, f"{queues:,}"), lab.clone(_many(lab, queues), OURS) as (_, driver):
            for step in STEPS:
                for turn in range(1 if step == "first" else LOOKS):
                    with lab.server_time() as used:
                        told = driver("inspect", step=step, last=queues - 1)
                    lab.note("inspect", "ours", step, queues=queues, round=turn, **told, **used)
                if step == "first":
                    driver("blocks", count=BLOCKS)
        lab.forget(_name(queues))


def _many(lab: Lab, queues: int) -> str:
    def prepare(uri: str) -> None:
        with Running(OURS, uri) as driver:
            driver("setup", block=BLOCK, rounds=ROUNDS)
            driver("fill_many", each=2 * lab.sizes.inspected[-1] // queues, first=0, last=queues)

    return lab.prepared(_name(queues), prepare)


def _name(queues: int) -> str:
    return f"ours, {queues:,} new queues"


def rows(samples: Sequence[Sample]) -> list[Row]:
    """Show client and server CPU together; on the largest number only the first plan has a bound."""
    counts, found = sorted({sample["queues"] for sample in pick(samples, "inspect", "ours")}), []
    for queues in counts:
        for step, name in STEPS.items():
            own = pick(samples, "inspect", "ours", variant=step, queues=queues)
            figure = Figure.of(sample["client"] + sample["server"] for sample in own)
            if figure is None:
                continue
            client = Figure.of(sample["client"] for sample in own)
            detail = f"{client.median:.2f} s of it the client's, {max(s['memory'] for s in own):,.0f} MiB at most"
            if any(sample["partial"] for sample in own):
                detail += ", a part of the queues"
            bound = BOUND if step == "first" or queues == counts[0] else None
            what = f"{name}, {queues:,} queues"
            found.append(Row("many queues", what, figure.median, bound, False, detail, "s of CPU"))
    return found
