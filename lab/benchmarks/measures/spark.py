"""Spark's rows: blocks, start-up and the data source. `python -m lab.benchmarks.spark_throughput` takes the samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from lab.benchmarks.contenders import Contender
from lab.benchmarks.lab import Lab
from lab.benchmarks.rows import Row
from lab.benchmarks.stats import Sample, pick, values

SAMPLES = Path(__file__).resolve().parents[1] / "report" / "spark.json"
#: Largest number of seconds of a warm start.
STARTS = {"warm Spark Connect server": 3.0, "C1 and serial collector (the default, `local_conf`)": 5.0}


def spark(lab: Lab, contenders: list[Contender]) -> None:
    """Add the samples of Spark's own benchmark, if it was run."""
    for sample in json.loads(SAMPLES.read_text("utf-8")) if SAMPLES.exists() else ():
        lab.note(sample.pop("measure"), sample.pop("contender"), sample.pop("variant"), **sample)


def rows(samples: Sequence[Sample]) -> list[Row]:
    """Return the rows with the bounds of the start and of the data source."""
    found = []
    for way in ("write", "read"):
        for figure in ("cpu", "seconds"):
            jdbc = values(pick(samples, "spark_source", "jdbc", variant=way), figure)
            ours = values(pick(samples, "spark_source", "ours", variant=way), figure)
            name = "CPU time" if figure == "cpu" else "time"
            ratio = jdbc.median / ours.median if jdbc and ours else None
            bound = 3 if figure == "seconds" else None
            found.append(Row("spark", f"data source, {way}, against JDBC ({name})", ratio, bound))
    for variant, most in STARTS.items():
        start = values(pick(samples, "spark_start", variant=variant), "seconds")
        found.append(
            Row("spark", f"a small block, {variant}", start.median if start else None, most, at_least=False, unit="s")
        )
    return [row for row in found if row.ratio is not None]
