"""Table of runs in Markdown: one line for each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .matrix import ROWS
from .verdict import Verdict

HEADER = (
    "| fault | point | runs | accepted | lost | settled twice | out of order | over weight | findings | repeated | "
    "blocks | recovered in | row |\n" + "| --- | --- |" + " ---: |" * 10 + " --- |"
)
COUNTS = ("accepted", "lost", "settled_twice", "out_of_order", "over_weight", "findings", "repeated")


def table(verdicts: Mapping[str, Sequence[Verdict]]) -> str:
    """Return the table; counts are sums of all runs, blocks and times are the largest."""
    return "\n".join([HEADER, *(_line(name, found) for name, found in verdicts.items())])


def _line(name: str, found: Sequence[Verdict]) -> str:
    row = ROWS[name]
    totals = [f"{sum(getattr(verdict, count) for verdict in found):,}" for count in COUNTS]
    times = [verdict.recovered_in for verdict in found if verdict.recovered_in is not None]
    recovered = f"{max(times):.1f} s" if len(times) == len(found) else "never"
    blocks = str(max(verdict.blocks for verdict in found))
    return f"| {' | '.join([row.title, row.point, str(len(found)), *totals, blocks, recovered, f'`{name}`'])} |"
