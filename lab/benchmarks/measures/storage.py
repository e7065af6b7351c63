"""Bytes of a block by three ways to store, beside what they were calculated to be before any was built.

Read and written are bytes on the connection: texts of statements, values that the client binds and rows that the
server returns. The server's own work stands beside: its log, and its pages of 8 KiB that were found, fetched and
changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lab.benchmarks import install
from lab.benchmarks.contenders import OURS, Contender, Running
from lab.benchmarks.lab import Lab
from lab.benchmarks.rows import Row
from lab.benchmarks.stats import Figure, Sample, pick

KB = 1000
WAYS = ("one value", "row per message", "pages, in place", "pages, by blocks")
DRIVER = Contender("storage", lambda: install.own_driver("storage"), ())
#: Columns of the table: the name of a figure, and the unit that it is divided by.
FIGURES = {
    "read": KB, "written": KB, "beyond": KB, "wal": KB,
    "buffers_hit": 1, "buffers_read": 1, "buffers_dirtied": 1,
    "seconds": 1e-3, "client_cpu": 1e-3, "server_cpu": 1e-3,
}  # fmt: skip
#: Statements of each way that are shown.
SHOWN = 8


@dataclass(frozen=True)
class Load:
    """Messages that a block receives and processes, and KB by one value, a row for each, and pages, as calculated."""

    sent: int
    taken: int
    waiting: int
    calculated: tuple[int, int, int]

    @property
    def order(self) -> dict[str, int]:
        return {"sent": self.sent, "taken": self.taken, "waiting": self.waiting}


LOADS = {
    "mostly processing": Load(100, 1000, 10_000, (1200, 3300, 400)),
    "mostly receiving": Load(1000, 500, 2000, (240, 4500, 460)),
}


def storage(lab: Lab, contenders: list[Contender]) -> None:
    """`storage`: the account of each block. Statements are means of all blocks."""
    if OURS not in contenders:
        return
    for name, load in LOADS.items():
        for way in WAYS:
            lab.say(f"storage: {name}, {way}")
            variant = f"{name}, {way}"
            uri = lab.server.create_database()
            try:
                with lab.trying("storage", DRIVER, variant), Running(DRIVER, uri) as driver:
                    driver("setup")
                    told = driver("blocks", way=way, rounds=lab.sizes.storage, **load.order)
                    for block in told["blocks"]:
                        lab.note("storage", "ours" if way.startswith("pages") else "bare", variant, **block)
                    for statement, counters in told["statements"].items():
                        lab.note("storage_statement", "", variant, statement=statement, **counters)
            finally:
                lab.server.drop_database(uri)


def figure(samples: Sequence[Sample], name: str) -> Figure | None:
    if name == "beyond":
        return Figure.of(s["read"] + s["written"] - s["payload"] for s in samples)
    return Figure.of(s[name] for s in samples)


def rows(samples: Sequence[Sample]) -> list[Row]:
    """Compare what we read and write beyond the payloads with the best of the calculated figures."""
    found = []
    for name, load in LOADS.items():
        best = min(load.calculated) * KB
        for way in WAYS[2:]:
            beyond = figure(pick(samples, "storage", variant=f"{name}, {way}"), "beyond")
            detail = f"{beyond.median / KB:,.0f} KB of {best // KB:,} KB" if beyond else ""
            what = f"{name}, {way}: bytes beyond the payloads, against the best calculated"
            found.append(Row("storage", what, beyond.median / best if beyond else None, 0.5, False, detail))
    return found


def section(samples: Sequence[Sample]) -> str:
    """Return the tables of the report, or nothing if the samples have none."""
    if not pick(samples, "storage"):
        return ""
    return "\n".join(["## Bytes of a block by three ways to store", "", _meaning(), "", *_table(samples), "",
                      "The statements that move most, per block:", "", *_statements(samples)])  # fmt: skip


def _meaning() -> str:
    return (
        "Read and written are KB on the connection between client and server, statements and protocol included; "
        "*beyond* is their sum without the payloads themselves. Log is KB of write-ahead log. Buffers are pages of "
        "8 KiB. Messages have 64 to 256 bytes, 128 on average, and one in 1,000 has 16 KiB."
    )


def _table(samples: Sequence[Sample]) -> Iterator[str]:
    yield (
        "| load | way | calculated KB | read | written | beyond | log | hit | fetched | dirtied "
        "| ms | client CPU ms | server CPU ms |"
    )
    yield "|---|---|" + "---:|" * 11
    for name, load in LOADS.items():
        for way, calculated in zip(WAYS, (*load.calculated, load.calculated[2]), strict=True):
            taken = pick(samples, "storage", variant=f"{name}, {way}")
            if not taken:
                continue
            shown = []
            for key, unit in FIGURES.items():
                found = figure(taken, key)
                if found and key == "server_cpu":
                    # The kernel counts this in ticks of 10 ms, so only its mean has a meaning.
                    found = Figure.of([sum(s[key] for s in taken) / len(taken)])
                assert found
                shown.append(f"{found.median / unit:,.{0 if unit != 1e-3 else 1}f}")
            yield f"| {name} | {way} | {calculated:,} | {' | '.join(shown)} |"


def _statements(samples: Sequence[Sample]) -> Iterator[str]:
    yield "| load, way | statement | calls | rows | KB written | KB read | buffers | dirtied | KB of log |"
    yield "|---|---|" + "---:|" * 7

    def moved(sample: Sample) -> float:
        return float(sample.get("bytes_in", 0) + sample.get("bytes_out", 0) + sample.get("wal", 0))

    for name in LOADS:
        for way in WAYS[2:]:
            taken = pick(samples, "storage_statement", variant=f"{name}, {way}")
            for sample in sorted(taken, key=moved, reverse=True)[:SHOWN]:
                counts = " | ".join(f"{sample.get(key, 0):,.1f}" for key in ("calls", "rows"))
                wire = " | ".join(f"{sample.get(key, 0) / KB:,.1f}" for key in ("bytes_in", "bytes_out"))
                buffers = f"{sample.get('hit', 0) + sample.get('read', 0):,.0f} | {sample.get('dirtied', 0):,.0f}"
                log = f"{sample.get('wal', 0) / KB:,.1f}"
                yield f"| {sample['variant']} | `{sample['statement']}` | {counts} | {wire} | {buffers} | {log} |"
