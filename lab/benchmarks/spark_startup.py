"""Where the seconds of a small Spark block go, and what helps: a part of `python -m lab.benchmarks.spark_throughput`.

Each way processes a block of 100 messages on `local[2]`, from submitting the job to its end; ways take turns, so
that what else the machine does meets all of them.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from airflow_mq import Block, MessageQueue, Processor, Processors
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.operators.spark.processes import end_tree
from airflow_mq.spark import job
from airflow_mq.spark.java import java_home, local_conf, spark_environment
from airflow_mq.spark.store_side import run_in_place
from lab.benchmarks.stats import Sample
from tests.spark.connecting import bound, connect_server

ROOT = Path(__file__).resolve().parents[2]
ROUTES = Processors([
    Processor("first", "tests.spark.functions:process", ("first/*",)),
    Processor("second", "tests.spark.functions:process", ("second/*",)),
])  # fmt: skip
MESSAGES = 100
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Run(NamedTuple):
    """Seconds: of all, until the job's own code began, until Spark was there, until all was tried."""

    total: float
    began: float = 0.0
    there: float = 0.0
    tried: float = 0.0


Way = Callable[[MessageQueue, str, Block], Run]


def submit(conf: dict[str, str], jobs: tuple[str, ...] = ("first,second",)) -> Way:
    """A way by `spark-submit`, of one job or of one after the other."""

    def run(queue: MessageQueue, uri: str, block: Block) -> Run:
        said = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        command = ["spark-submit", "--master", "local[2]", *said]
        return _add(_job(command, uri, block, names) for names in jobs)

    return run


def _job(command: list[str], uri: str, block: Block, names: str, **more: str) -> Run:
    environment = {
        **os.environ, **spark_environment(), "PYTHONPATH": str(ROOT), "AIRFLOW_MQ_STORE": uri,
        "AIRFLOW_MQ_BLOCK": block.token, **more,
    }  # fmt: skip
    words = [job.__file__, "--routes", ROUTES.routes_json(), "--processors", names]
    begun, at = time.monotonic(), time.time()
    with subprocess.Popen(
        bound([*command, *words]), env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            said, _ = process.communicate()
        finally:
            if process.poll() is None:
                end_tree(process.pid)
    total = time.monotonic() - begun
    if process.returncode:
        sys.exit(said)
    there, tried = (float(found) for found in re.findall(r"after ([0-9.]+) s", said)[:2])
    told = re.search(r"job begins at ([0-9.]+)", said)
    return Run(total, float(told[1]) - at if told else 0.0, there, tried)


def _add(runs: Iterator[Run]) -> Run:
    return Run(*(sum(parts) for parts in zip(*runs)))


def remote(port: int) -> Way:
    """A way by a Spark Connect server that is warm."""

    def run(queue: MessageQueue, uri: str, block: Block) -> Run:
        return _job([sys.executable], uri, block, "first,second", SPARK_REMOTE=f"sc://127.0.0.1:{port}")

    return run


def in_place(queue: MessageQueue, uri: str, block: Block) -> Run:
    """Without Spark."""
    begun = time.monotonic()
    part = ROUTES.parts({origin: MESSAGES // 4 for origin in block.origins})[0]
    run_in_place(queue, block.token, ROUTES, part)
    return Run(time.monotonic() - begun)


@contextmanager
def nothing_left() -> Iterator[None]:
    """Unwind on a signal to end, and on every exit end all processes that this one started."""

    def unwind(number: int, _frame: object) -> None:
        # Once is enough: a second signal would cut short the ending of what the first one ends.
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    before = {number: signal.signal(number, unwind) for number in SIGNALS}
    try:
        yield
    finally:
        for child in psutil.Process().children():
            end_tree(child.pid)
        for number, handler in before.items():
            signal.signal(number, handler)


def measure(ways: dict[str, Way], turns: int, folder: Path) -> dict[str, list[Run]]:
    """Let the ways take turns."""
    uri = f"sqlite:///{folder / 'store.db'}"
    upgrade(parse(uri))
    found: dict[str, list[Run]] = {name: [] for name in ways}
    with MessageQueue(uri) as queue:
        # The first turn warms up files and servers; it does not count.
        for turn in range(-1, turns):
            for name, way in ways.items():
                for origin in ("first/a", "first/b", "second/a", "second/b"):
                    queue.enqueue_messages(origin, [b"plain"] * (MESSAGES // 4))
                block = queue.blocks.plan()
                run = way(queue, uri, block)
                settled = queue.blocks.settle(block)
                assert settled.processed == MESSAGES, settled
                print(f"{turn:2} {name}: {run}", flush=True)
                if turn >= 0:
                    found[name].append(run)
    return found


def table(found: dict[str, list[Run]], turns: int) -> str:
    """The report."""
    lines = [
        "## Where the seconds of a small block go",
        "",
        f"A block of {MESSAGES} messages of two processors on "
        f"`local[2]`, medians of {turns} turns, seconds. *JVM* is until the job's own code begins, *session* until "
        "Spark is there, *work* until all messages are tried, *end* until `spark-submit` has gone.",
        "",
        "| way | all | JVM | session | work | end |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, runs in found.items():
        mid = Run(*(median(values) for values in zip(*runs)))
        parts = [mid.began, mid.there, mid.tried - mid.there, mid.total - mid.began - mid.tried]
        shown = [f"{part:.1f}" if mid.tried else "" for part in parts]
        lines.append(f"| {name} | {mid.total:.1f} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n\n"


def startup(turns: int, folder: Path) -> tuple[str, list[Sample]]:
    """Measure all ways; return their section of the report, and their samples."""
    os.environ["XDG_CACHE_HOME"] = str(folder)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["JAVA_HOME"] = str(java_home())
    with connect_server(folder, small=False) as port:
        ways = {
            "plain, a job for each of two processors": submit({}, ("first", "second")),
            "plain, a shared job": submit({}),
            "C1 and serial collector (the default, `local_conf`)": submit(local_conf()),
            "warm Spark Connect server": remote(port),
            "in place, without Spark": in_place,
        }
        found = measure(ways, turns, folder)
    samples = [
        {"measure": "spark_start", "contender": "ours", "variant": name, "seconds": run.total}
        for name, runs in found.items()
        for run in runs
    ]
    return table(found, turns), samples
