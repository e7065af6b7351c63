"""Table of runs in Markdown: one row for each scenario."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .verdict import Verdict

HEADER = (
    "| fault | runs | accepted | lost | settled twice | stored twice | out of order | over weight | findings | stuck | "
    "recovered in |\n" + "| --- |" + " ---: |" * 10
)


@dataclass
class Row:
    """Runs of one scenario."""

    scenario: str
    store: str
    seconds: float
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def command(self) -> str:
        place = f"--scenario {self.scenario} --store {self.store}"
        return f"python -m tests.chaos {place} --runs {len(self.verdicts)} --seconds {self.seconds:g}"

    def __str__(self) -> str:
        names = ("accepted", "lost", "settled_twice", "stored_twice", "order_broken", "weight_exceeded", "findings")
        totals = [sum(getattr(verdict, name) for verdict in self.verdicts) for name in (*names, "stuck")]
        cells = [self.scenario, str(len(self.verdicts)), *(f"{total:,}" for total in totals), self._recovery()]
        return f"| {' | '.join(cells)} |"

    def _recovery(self) -> str:
        times = [verdict.recovered_in for verdict in self.verdicts if verdict.recovered_in is not None]
        never = len(self.verdicts) - len(times)
        return ("never" if never else f"{max(times):.1f} s") if self.verdicts else ""


def table(rows: Sequence[Row]) -> str:
    """Return the table of all rows."""
    return "\n".join([HEADER, *map(str, rows)])
