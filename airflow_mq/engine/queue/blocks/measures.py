"""Measured weights of messages, as the sums of a least-squares fit."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_high
from typing import TypeAlias

from ...rules.characters import quoted
from ...rules.weight import PER, LinearWeigher, Weight
from ...store import codec
from ...store.unit import Unit

log = logging.getLogger("airflow_mq.blocks")

#: Number of measurements from which a prediction that is off by the factor `DRIFT` causes a warning.
ENOUGH, DRIFT = 20, 1.25
#: A use of more than so many times the usual one is absurd, perhaps of another unit. It counts as `ODD` times the usual
#: one: a few such reports change no prediction, and if most are such, predictions follow within a few blocks.
ABSURD, ODD = 1_000, 16
#: Sums as the databases return them: JSON text, or the value that it describes.
Sums: TypeAlias = "str | bytes | dict[str, int]"
#: Length of a processed message, its use, and the use that was predicted.
Measured = tuple[int, Weight, Weight]
_SUMS = ("count", "length", "length2", "time", "time_length", "size", "size_length", "predicted")


@dataclass(frozen=True)
class Fit:
    """A straight line through measured weights."""

    processor: str
    origin: str
    count: int
    weigher: LinearWeigher
    #: Measured time per predicted time; far from 1, the ring's weigher is off.
    drift: float | None
    #: The measured weights as sums, which may be added to others.
    sums: Mapping[str, int] = field(repr=False)


def remember(unit: Unit, ring: int, origin: str, measured: Sequence[Measured], processor: str, full: Weight) -> None:
    """Add measured weights of messages of one origin, and warn if predictions are off.

    :param full: the weight of a full block, which no message exceeds
    """
    if not measured:
        return
    sums = dict.fromkeys(_SUMS, 0)
    for _, _, known in unit.origins.measures(ring, processor, origin):
        sums = _sums(known)
    for length, used, predicted in _plausible(measured, sums, full):
        fresh = (1, length, length * length, used[0], used[0] * length, used[1], used[1] * length, predicted[0])
        for name, value in zip(_SUMS, fresh):
            sums[name] += value
    unit.origins.save_measure(ring, processor, origin, sums)
    drift = fit(processor, origin, sums).drift
    if drift is not None and sums["count"] >= ENOUGH and not 1 / DRIFT < drift < DRIFT:
        log.warning(
            "messages of %s take %.2f times what was predicted; see `airflow-mq admin fit-weigher` for this ring",
            quoted(origin),
            drift,
        )


def _plausible(measured: Sequence[Measured], sums: Mapping[str, int], full: Weight) -> list[Measured]:
    """Return measurements without absurd uses, which would decide every later prediction alone."""
    bounds = []
    for part, name in enumerate(("time", "size")):
        if sums["count"] >= ENOUGH:
            usual = -(-sums[name] // sums["count"])
        else:
            usual = median_high(used[part] for _, used, _ in measured)
        usual = max(usual, max(predicted[part] for *_, predicted in measured), 1)
        bounds.append((min(usual * ABSURD, full[part]), min(usual * ODD, full[part])))
    return [
        (length, Weight(*(odd if part > most else part for part, (most, odd) in zip(used, bounds))), predicted)
        for length, used, predicted in measured
    ]


def fit(processor: str, origin: str, data: Sums) -> Fit:
    """Return the least-squares lines for time and size; neither falls below zero."""
    sums = _sums(data)
    time, size = (_line(sums, part) for part in ("time", "size"))
    weigher = LinearWeigher(Weight(time[0], size[0]), Weight(time[1], size[1]))
    drift = sums["time"] / sums["predicted"] if sums["predicted"] else None
    return Fit(processor, origin, sums["count"], weigher, drift, sums)


def together(fits: Sequence[Fit]) -> Fit:
    """Return the fit to the measured weights of several fits."""
    return fit("", "", {name: sum(one.sums[name] for one in fits) for name in _SUMS})


def _line(sums: dict[str, int], part: str) -> tuple[int, int]:
    count, length, length2 = sums["count"], sums["length"], sums["length2"]
    spread = count * length2 - length * length
    if spread == 0:
        return -(-sums[part] // max(count, 1)), 0
    slope = max((count * sums[f"{part}_length"] - length * sums[part]) / spread, 0.0)
    base = max((sums[part] - slope * length) / count, 0.0)
    return round(base), round(slope * PER)


def _sums(data: Sums) -> dict[str, int]:
    with codec.reading("the measures of an origin"):
        plain = codec.read_json(data)
        return {name: int(plain[name]) for name in _SUMS}
