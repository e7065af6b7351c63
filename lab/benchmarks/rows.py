"""Rows of the report's table: a ratio of medians, its bound, and whether it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.benchmarks.stats import Figure, Sample, pick, rates

NOT_PEERS = ("ours", "bare")


@dataclass(frozen=True)
class Row:
    """A ratio of medians, or a figure with a unit, and its bound; a row without bound only stands beside."""

    group: str
    what: str
    ratio: float | None
    bound: float | None = None
    at_least: bool = True
    detail: str = ""
    unit: str = "x"

    @property
    def met(self) -> bool | None:
        if self.bound is None or self.ratio is None:
            return None
        return self.ratio >= self.bound if self.at_least else self.ratio <= self.bound

    @property
    def target(self) -> str:
        return "-" if self.bound is None else f"{'≥' if self.at_least else '≤'} {self.bound:g} {self.unit}"

    @property
    def verdict(self) -> str:
        if self.ratio is None:
            return "not measured"
        if self.met is None:
            return ""
        if self.met:
            return "met"
        assert self.bound
        missed = 1 - self.ratio / self.bound if self.at_least else self.ratio / self.bound - 1
        return f"**missed by {missed:.0%}**"


def best_peer(samples: Sequence[Sample], measure: str, **which: object) -> tuple[str, Figure] | None:
    """The peer with the highest median rate."""
    names = {sample["contender"] for sample in pick(samples, measure, **which)} - set(NOT_PEERS)
    found = [(name, figure) for name in names if (figure := rates(pick(samples, measure, name, **which)))]
    return max(found, key=lambda pair: pair[1].median) if found else None


def ratio(ours: Figure | None, theirs: Figure | None) -> float | None:
    """Return the ratio of two medians."""
    return ours.median / theirs.median if ours and theirs else None
