"""Table of runs in Markdown: one row for each scenario and server, and the file to which each run appends a line."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from .scenarios import SCENARIOS
from .verdict import Verdict

HEADER = (
    "| fault | PostgreSQL | runs | faults | accepted | lost | settled twice | recovered in: median, longest | scenario |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
)


@dataclass
class Row:
    """Runs of one scenario on one server."""

    scenario: str
    store: str
    postgres: int
    verdicts: list[Verdict] = field(default_factory=list)

    def __str__(self) -> str:
        names = ("accepted", "lost", "settled_twice")
        totals = [f"{sum(getattr(verdict, name) for verdict in self.verdicts):,}" for name in names]
        fault = (SCENARIOS[self.scenario].__doc__ or "").rstrip(".")
        command = f"`--scenario {self.scenario} --store {self.store}`"
        cells = [fault, str(self.postgres), str(len(self.verdicts)), self._faults(), *totals, self._recovery(), command]
        return f"| {' | '.join(cells)} |"

    def _faults(self) -> str:
        return str(sum(len(verdict.recoveries) for verdict in self.verdicts))

    def _recovery(self) -> str:
        if any(verdict.recovered_in is None for verdict in self.verdicts):
            return "never"
        times = [seconds for verdict in self.verdicts for seconds in verdict.recoveries]
        return f"{median(times):.1f} s, {max(times):.1f} s"


def append(path: Path, scenario: str, store: str, postgres: int, seconds: float, verdict: Verdict) -> None:
    """Append a run to a file of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = {"scenario": scenario, "store": store, "postgres": postgres, "seconds": seconds, **asdict(verdict)}
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def read(path: Path) -> list[Row]:
    """Return the rows of the runs in a file, in the order of the scenarios."""
    rows: dict[tuple[str, str, int], list[Verdict]] = defaultdict(list)
    for text in path.read_text().splitlines():
        line = json.loads(text)
        key = (line.pop("scenario"), line.pop("store"), line.pop("postgres"))
        line.pop("seconds")
        rows[key].append(Verdict(**line))
    places = list(SCENARIOS)
    return [Row(*key, rows[key]) for key in sorted(rows, key=lambda key: (places.index(key[0]), key[1:]))]


def table(rows: Iterable[Row]) -> str:
    """Return the table of all rows."""
    return "\n".join([HEADER, *map(str, rows)])


def totals(rows: Sequence[Row]) -> str:
    """Return the figures of all runs together."""
    verdicts = [verdict for row in rows for verdict in row.verdicts]
    names = ("accepted", "lost", "settled_twice", "stored_twice", "order_broken", "weight_exceeded", "findings")
    figures = [f"{name} {sum(getattr(verdict, name) for verdict in verdicts):,}" for name in (*names, "stuck", "torn")]
    return f"{len(verdicts)} runs, {sum(verdict.is_clean for verdict in verdicts)} clean: {', '.join(figures)}"
