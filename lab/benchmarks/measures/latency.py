"""From the call that sends a message until its processor is called, under a steady load.

Four clients send at a steady rate, each message in a transaction of its own; one worker process handles what comes, as
the documentation of each queue describes a worker. A message begins with the time at which its send began.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lab.benchmarks.contenders import BARE, Contender, Running
from lab.benchmarks.lab import Lab
from lab.benchmarks.measures.throughput import empty
from lab.benchmarks.rows import NOT_PEERS, Row, ratio
from lab.benchmarks.stats import Figure, Sample, pick, values

CLIENTS = 4
NOTE = (
    "Milliseconds from the call that sends a message until its processor is called. The first tenth of a run does not "
    "count. Procrastinate's worker does not keep up with this load, so its figure is the age of its backlog."
)
#: Seconds until a worker that was started listens.
WARM = 2.0
#: Part of the messages, the first ones, that does not count.
IGNORED = 10
SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
POLLS = {"poll every 100 ms, the default": {"poll": 100}, "poll every 5 ms": {"poll": 5}}


def latency(lab: Lab, contenders: list[Contender]) -> None:
    """`latency`: milliseconds until a message is processed, at several quantiles."""
    for turn in range(lab.sizes.loads):
        lab.say(f"latency under load, round {turn + 1} of {lab.sizes.loads}")
        for contender in contenders if turn % 2 else contenders[::-1]:
            for name, order in _ways(contender):
                with lab.trying("latency", contender, name):
                    waits = _load(lab, contender, order)
                    counted = sorted(waits[len(waits) // IGNORED :])
                    found = {share: quantile(counted, part) for share, part in SHARES.items()}
                    lab.note("latency", contender.name, name, round=turn, count=len(counted), **found)


def _load(lab: Lab, contender: Contender, order: dict[str, Any]) -> list[float]:
    """Return the milliseconds that each message waited, in the order in which they were processed."""
    count = lab.sizes.load * lab.sizes.load_seconds
    with (
        lab.clone(empty(lab, contender), contender) as (uri, worker),
        Running(contender, uri) as sender,
        ThreadPoolExecutor(1) as thread,
    ):
        sender("open")
        working = thread.submit(worker, "work", count=count, **order)
        time.sleep(WARM)
        sender("steady", count=count, rate=lab.sizes.load, clients=CLIENTS)
        return [wait / 1000 for wait in working.result()["waits"]]


def quantile(ordered: Sequence[float], part: float) -> float:
    """Return a quantile of sorted values."""
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def _ways(contender: Contender) -> list[tuple[str, dict[str, Any]]]:
    if contender is BARE:
        return []
    return list(POLLS.items()) if contender.name == "pgmq" else [("", {})]


def rows(samples: Sequence[Sample]) -> list[Row]:
    """Compare each quantile with the least one of a peer."""
    found = []
    for share in SHARES:
        best = _best(samples, share)
        ours = values(pick(samples, "latency", "ours"), share)
        theirs = values(pick(samples, "latency", best[0], variant=best[1]), share) if best else None
        detail = f"{ours.median:.1f} ms; {best[0]} {theirs.median:.1f} ms" if best and ours and theirs else ""
        what = f"{share} from enqueue to the call of the processor, in place, against the best peer"
        found.append(Row("latency", what, ratio(ours, theirs), 2, False, detail))
    return found


def section(samples: Sequence[Sample]) -> str:
    """Show each worker's quantiles, the least p99 first."""
    kinds = dict.fromkeys((s["contender"], s["variant"]) for s in pick(samples, "latency"))
    lines: list[tuple[float, str]] = []
    for contender, variant in kinds:
        taken = pick(samples, "latency", contender, variant=variant)
        figures = [Figure.of(s[share] for s in taken) for share in SHARES]
        shown = " | ".join(f"{figure.median:,.1f}" for figure in figures if figure)
        order = figures[1].median if figures[1] else 0.0
        lines.append((order, f"| {contender} | {variant} | {shown} | {len(taken)} |"))
    if not lines:
        return ""
    titles = " | ".join(f"{share}, ms" for share in SHARES)
    head = [
        "## Latency under load",
        "",
        NOTE,
        "",
        f"| worker | how | {titles} | runs |",
        "|---|---|" + "---:|" * (len(SHARES) + 1),
    ]
    return "\n".join([*head, *(line for _, line in sorted(lines))])


def _best(samples: Sequence[Sample], share: str) -> tuple[str, str] | None:
    kinds = {(s["contender"], s["variant"]) for s in pick(samples, "latency") if s["contender"] not in NOT_PEERS}

    def median(kind: tuple[str, str]) -> float:
        figure = values(pick(samples, "latency", kind[0], variant=kind[1]), share)
        assert figure
        return figure.median

    return min(kinds, key=median, default=None)
