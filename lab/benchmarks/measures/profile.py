"""Where the microseconds of a message go, in and out, and the physical limits beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.benchmarks import install
from lab.benchmarks.contenders import OURS, Contender, Running
from lab.benchmarks.lab import Lab
from lab.benchmarks.rows import Row
from lab.benchmarks.stats import Sample, pick

DRIVER = Contender("profiled", lambda: install.own_driver("profiled"), ())
ORDERS: dict[str, dict[str, Any]] = {
    "single sends": {"do": "single"},
    "bulk sends, calls of 1,000": {"do": "bulk"},
    "out in place, sent one by one": {"do": "out", "call": 1, "mode": "batch"},
    "out in place, calls of 1,000": {"do": "out", "call": 1000, "mode": "batch"},
    "out in place by a callable, calls of 1,000": {"do": "out", "call": 1000, "mode": "callable"},
    "blocks, calls of 1,000": {"do": "out", "call": 1000, "mode": "block"},
}
LIMIT = "binary COPY of rows of 128 bytes"
#: Modules and statements of each way that have a line of their own.
SHOWN = 6


def profile(lab: Lab, contenders: list[Contender]) -> None:
    """`profile`: seconds by module and by statement of each way, and `limits`."""
    if OURS not in contenders:
        return
    for variant, order in ORDERS.items():
        lab.say(f"profile: {variant}")
        count = lab.sizes.profiled_single if order["do"] == "single" else lab.sizes.profiled
        _ask(lab, "profile", variant, count=count, **order)
    lab.say("profile: physical limits")
    _ask(lab, "limits", "", do="limits", count=lab.sizes.profiled)


def _ask(lab: Lab, measure: str, variant: str, **order: Any) -> None:
    uri = lab.server.create_database()
    try:
        with lab.trying(measure, DRIVER, variant), Running(DRIVER, uri) as driver:
            driver("setup")
            lab.note(measure, "ours", variant, **driver(**order))
    finally:
        lab.server.drop_database(uri)


def parts(sample: Sample) -> dict[str, float]:
    """Return the microseconds of a message by its parts; waits are for the disk, the network and processors."""
    each = 1e6 / sample["count"]
    client, statements = sample["client_cpu"] * each, sum(sample["statements"].values()) * each
    rest = sample["seconds"] * each - client - statements
    return {"client": client, "statements": statements, "commits, protocol and waits": max(rest, 0.0)}


def rows(samples: Sequence[Sample]) -> list[Row]:
    """Show each way beside the raw COPY of as many rows; a physical limit is no bound."""
    limits = pick(samples, "limits")
    if not limits:
        return []
    return [
        Row("profile", f"{s['variant']}, time beside a raw COPY", s["seconds"] / s["count"] * 1e6 / limits[0][LIMIT])
        for s in pick(samples, "profile")
    ]


def section(samples: Sequence[Sample]) -> str:
    """Return the tables of the report, or nothing if the samples have none."""
    taken = pick(samples, "profile")
    if not taken:
        return ""
    note = (
        "Microseconds a message. The client's CPU is by module, as a sampling timer found it; the server's time is by "
        "statement. The rest is protocol, commits with their waits for the disk, and what the timer cannot see."
    )
    return "\n".join(["## Where the microseconds go", "", note, "", *_wholes(taken), "", *_details(taken), "",
                      *_limits(samples)])  # fmt: skip


def _wholes(taken: Sequence[Sample]) -> Iterator[str]:
    yield "| way | µs | client CPU | statements | commits, protocol, waits | server CPU, whole |"
    yield "|---|---:|---:|---:|---:|---:|"
    for s in taken:
        each = 1e6 / s["count"]
        shown = " | ".join(f"{part:,.2f}" for part in parts(s).values())
        yield f"| {s['variant']} | {s['seconds'] * each:,.2f} | {shown} | {s['server_cpu'] * each:,.2f} |"


def _details(taken: Sequence[Sample]) -> Iterator[str]:
    yield "| way | client, by module | server, by statement |"
    yield "|---|---|---|"
    for s in taken:
        each = 1e6 / s["count"]
        yield f"| {s['variant']} | {_most(s['modules'], each)} | {_most(s['statements'], each)} |"


def _most(found: Mapping[str, float], each: float) -> str:
    ordered = sorted(found.items(), key=lambda entry: -entry[1])
    shown = [f"`{name}` {seconds * each:,.2f}" for name, seconds in ordered[:SHOWN]]
    rest = sum(seconds for _, seconds in ordered[SHOWN:])
    return "<br>".join([*shown, *([f"others {rest * each:,.2f}"] if rest else [])])


def _limits(samples: Sequence[Sample]) -> Iterator[str]:
    yield "| physical limit | µs |"
    yield "|---|---:|"
    for sample in pick(samples, "limits"):
        for name, value in sample.items():
            if name not in ("measure", "contender", "variant"):
                yield f"| {name} | {value:,.2f} |"
