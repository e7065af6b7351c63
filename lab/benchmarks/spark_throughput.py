"""Spark, measured: `python -m lab.benchmarks.spark_throughput` writes `report/spark.md` and `report/spark.json`.

The start of a small block, messages per second through whole blocks, the point from which Spark pays, and the data
source against Spark's own JDBC source. `--sizes` sets the messages of the blocks, up to 10 million; `--only` leaves
parts out, and keeps their samples of an earlier run.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from lab.benchmarks import spark_blocks, spark_source
from lab.benchmarks.about import machine
from lab.benchmarks.measures.spark import rows
from lab.benchmarks.spark_startup import nothing_left, startup
from lab.benchmarks.stats import Sample, pick
from tests.postgres_server import running_postgres

REPORT = Path(__file__).resolve().parent / "report"
PARTS = ("source", "blocks", "startup")
MEASURES = {"spark_start": "startup", "spark_blocks": "blocks", "spark_source": "source"}
#: Microseconds of work for each message for which the break-even is computed.
WORKS = (0, 100, 1_000, 10_000)
CORES = {"`local[2]`": 2, "cluster, 1 worker": 1, "cluster, 2 workers": 2}
SETTINGS = {"shared_buffers": "256MB", "max_wal_size": "8GB"}


def source_text(samples: Sequence[Sample]) -> Iterator[str]:
    """Yield the lines on the data source."""
    yield "## The data source against Spark's JDBC source"
    yield ""
    yield (
        f"The same rows of 1 KB, from Parquet to PostgreSQL and back, on `local[2]` with two partitions for each. JDBC "
        f"has `reWriteBatchedInserts`, batches of {10_000:,}, two ranges of the primary key and a fetch size of {10_000:,}. "
        "The tables are vacuumed before each read. CPU time is that of Spark, Python and PostgreSQL together. Memory is the "
        "peak of Spark and Python."
    )
    yield ""
    yield "| way | source | rows/s | µs of CPU a row | of it PostgreSQL | MiB |"
    yield "| --- | --- | ---: | ---: | ---: | ---: |"
    for way in ("write", "read"):
        for who, name in (("ours", "`airflow_mq`"), ("jdbc", "JDBC")):
            if found := pick(samples, "spark_source", who, variant=way):
                yield f"| {way} | {name} | {_line(found)} |"


def _line(found: Sequence[Sample]) -> str:
    rate = median(one["count"] / one["seconds"] for one in found)
    cpu, database = (median(1e6 * one[name] / one["count"] for one in found) for name in ("cpu", "database_cpu"))
    memory = median(one["memory"] for one in found)
    # A run of a fraction of a second may end before its memory is read once.
    return f"{rate:,.0f} | {cpu:.1f} | {database:.1f} | {f'{memory:,.0f}' if memory else ''}"


def blocks_text(samples: Sequence[Sample]) -> Iterator[str]:
    """Yield the lines on whole blocks."""
    yield "## Whole blocks"
    yield ""
    yield (
        "Messages of 1 KB over 100 origins on PostgreSQL; a block is planned, processed and settled. The clusters are a "
        "master and workers of one core each on this machine. *Work* keeps a core busy for each message."
    )
    yield ""
    yield "| where | messages | work, µs | messages/s | µs of CPU | of it PostgreSQL | MiB | plan, s | job, s |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for one in pick(samples, "spark_blocks"):
        steps = f"{one['plan']:.1f} | {one['job']:.1f}"
        yield f"| {one['variant']} | {one['count']:,} | {one['work']:,} | {_line([one])} | {steps} |"
    yield ""
    yield from break_even_text(samples)


def break_even_text(samples: Sequence[Sample]) -> Iterator[str]:
    """Yield the lines on the point from which Spark pays."""
    samples = _everywhere(samples)
    place = _cost(samples, spark_blocks.IN_PLACE)
    if place is None:
        return
    yield (
        "Below this number of messages a block in place is faster; computed from the smallest and the largest block above "
        "that all have, one run of each. One worker of one core has no more cores than a block in place, so work does not "
        "move its threshold. All workers share two cores with PostgreSQL and the driver."
    )
    yield ""
    yield f"| where | start, s | µs a message | {' | '.join(f'{work:,} µs of work' for work in WORKS)} |"
    yield f"| --- | ---: | ---: | {' | '.join('---:' for _ in WORKS)} |"
    yield f"| in place | {place[0]:.1f} | {1e6 * place[1]:.1f} | {' | '.join('' for _ in WORKS)} |"
    for name, cores in CORES.items():
        if cost := _cost(samples, name):
            found = [_break_even(place, cost, cores, work / 1e6) for work in WORKS]
            yield f"| {name} | {cost[0]:.1f} | {1e6 * cost[1]:.1f} | {' | '.join(found)} |"


def _everywhere(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples of blocks without work whose size was measured in each way."""
    found = pick(samples, "spark_blocks", work=0)
    ways = {one["variant"] for one in found}
    common = {one["count"] for one in found if {o["variant"] for o in found if o["count"] == one["count"]} == ways}
    return [one for one in found if one["count"] in common]


def _cost(samples: Sequence[Sample], variant: str) -> tuple[float, float] | None:
    """Return the seconds of an empty block and of each message, by the smallest and the largest block."""
    found = sorted((one["count"], one["seconds"]) for one in pick(samples, "spark_blocks", variant=variant, work=0))
    if not found or found[0][0] == found[-1][0]:
        return None
    (few, short), (many, long) = found[0], found[-1]
    each = (long - short) / (many - few)
    return max(0.0, short - few * each), each


def _break_even(place: tuple[float, float], cost: tuple[float, float], cores: int, work: float) -> str:
    saved = place[1] + work - cost[1] - work / cores
    return f"{float(f'{max(0.0, cost[0] - place[0]) / saved:.2g}'):,.0f}" if saved > 0 else "never"


def bounds_text(samples: Sequence[Sample]) -> Iterator[str]:
    """Yield the rows with their targets."""
    yield "## Targets"
    yield ""
    yield "| what | figure | target | |"
    yield "| --- | ---: | ---: | --- |"
    for row in rows(samples):
        yield f"| {row.what} | {row.ratio:.1f} | {row.target.removesuffix(' x')} | {row.verdict} |"


def write(folder: Path, samples: Sequence[Sample], command: str, started: str) -> None:
    """Write the samples and the page."""
    lines = "\n".join(
        f"  {json.dumps(sample)}{',' if at < len(samples) else ''}" for at, sample in enumerate(samples, 1)
    )
    folder.joinpath("spark.json").write_text(f"[\n{lines}\n]\n", "utf-8")
    parts = ["# Spark, measured", "", f"Made by `{command}`. All samples are in `spark.json`.", ""]
    parts += [*bounds_text(samples), "", *blocks_text(samples), "", *source_text(samples), "", started.strip(), ""]
    parts += [f"- {name}: {value}" for name, value in machine().items()]
    folder.joinpath("spark.md").write_text("\n".join(parts) + "\n", "utf-8")


def kept(folder: Path, only: Sequence[str]) -> list[Sample]:
    """Return the samples of an earlier run of the parts that are left out."""
    file = folder / "spark.json"
    earlier: list[Sample] = json.loads(file.read_text("utf-8")) if file.exists() else []
    return [sample for sample in earlier if MEASURES[sample["measure"]] not in only]


def _started(folder: Path) -> str:
    page = folder / "spark.md"
    text = page.read_text("utf-8") if page.exists() else ""
    start = text.find("## Where the seconds")
    return text[start:].partition("\n- processor")[0] if start >= 0 else ""


def main() -> None:
    """Measure, and write the report."""
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.spark_throughput", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}"
    )
    parser.add_argument("--sizes", nargs="+", type=int, default=[10_000, 100_000, 1_000_000], help="messages of blocks")
    parser.add_argument("--bytes", type=int, default=1_024, help="bytes of a message")
    parser.add_argument("--work", nargs="*", type=int, default=[1_000], help="microseconds of work for each message")
    parser.add_argument("--rows", type=int, default=500_000, help="rows of the data source")
    parser.add_argument("--turns", type=int, default=3, help="turns of the data source and of the start")
    parser.add_argument("--out", type=Path, default=REPORT, help="folder of the report")
    options = parser.parse_args()
    # Some containers set this, and each job would then compile pandas and PySpark. `pip install` compiles them once.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    samples, started = kept(options.out, options.only), _started(options.out)
    with tempfile.TemporaryDirectory() as name, nothing_left():
        folder = Path(name)
        with running_postgres("embedded", SETTINGS) as server:
            if "blocks" in options.only:
                samples += spark_blocks.measure(server, folder, sorted(options.sizes), options.bytes, options.work)
            if "source" in options.only:
                samples += spark_source.measure(server, folder, options.rows, options.bytes, options.turns)
        if "startup" in options.only:
            started, found = startup(options.turns, folder)
            samples += found
    command = shlex.join(["python", "-m", "lab.benchmarks.spark_throughput", *sys.argv[1:]])
    options.out.mkdir(parents=True, exist_ok=True)
    write(options.out, samples, command, started)
    print(options.out.joinpath("spark.md").read_text("utf-8"))


if __name__ == "__main__":
    main()
