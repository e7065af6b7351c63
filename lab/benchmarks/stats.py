"""Medians and what is made of them; nothing is thrown away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Sample = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """A median with the least and the most that it was made of."""

    median: float
    least: float
    most: float
    samples: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Figure | None:
        found = sorted(values)
        return cls(median(found), found[0], found[-1], len(found)) if found else None


def pick(samples: Sequence[Sample], measure: str, contender: str | None = None, **which: Any) -> list[Sample]:
    """The samples of one measure, by whom and which."""
    wanted = {"measure": measure, **({"contender": contender} if contender else {}), **which}
    return [sample for sample in samples if all(sample.get(name) == value for name, value in wanted.items())]


def rate(sample: Sample) -> float:
    """Messages a second, until the last row was gone and vacuum was done."""
    return float(sample["count"] / (sample["seconds"] + sample.get("vacuum", 0.0)))


def rates(samples: Sequence[Sample]) -> Figure | None:
    return Figure.of(map(rate, samples))


def values(samples: Sequence[Sample], name: str) -> Figure | None:
    return Figure.of(float(sample[name]) for sample in samples)
