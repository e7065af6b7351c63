"""From enqueue to processed under a steady load, in blocks by event and by the clock; and a flood in a pool of Airflow.

python -m lab.benchmarks.airflow.latency              into lab/benchmarks/report/latency.md; ten minutes
python -m lab.benchmarks.airflow.latency --minutes 2  shorter
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from airflow_mq import MessageQueue, RingConfig
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.testing.live import LiveAirflow
from lab.benchmarks.about import machine
from lab.benchmarks.airflow.__main__ import HERE, ORIGINS, PLENTY, REPOSITORY, moment, say
from lab.benchmarks.drivers.common import SIZE, stamped
from lab.benchmarks.measures.latency import SHARES, quantile

#: Slots of the pool that the flood fills.
SLOTS = 4
#: Messages of the flood that is extrapolated to.
FLOOD = 1_000_000


def main() -> int:
    options, facts = _options(), machine()
    with tempfile.TemporaryDirectory(prefix="mq-bench-") as place:
        store = f"sqlite:///{place}/store.db"
        upgrade(parse(store))
        with MessageQueue(store) as queue:
            for ring in ("by_event", "by_clock"):
                queue.admin.create_ring(ring, RingConfig(service_weight=PLENTY))
        connection = {"conn_type": "airflow_mq", "extra": {"driver": "sqlite", "path": f"{place}/store.db"}}
        airflow = LiveAirflow(
            Path(place) / "airflow",
            HERE / "dags",
            connections={"airflow_mq_default": connection},
            environment={
                "PYTHONPATH": str(REPOSITORY),
                "MQ_BENCH_WAITS": place,
                "AIRFLOW__CORE__DEFAULT_POOL_TASK_SLOT_COUNT": str(SLOTS),
            },
        )
        with airflow:
            waits = {ring: load(airflow, store, ring, options, Path(place)) for ring in ("by_event", "by_clock")}
            pool = flood(airflow, options.tasks)
    text = report(options, waits, pool, facts)
    options.out.write_text(text, "utf-8")
    print(text)
    return 0


def load(airflow: LiveAirflow, store: str, ring: str, options: argparse.Namespace, place: Path) -> list[float]:
    """Send at a steady rate while blocks run; return the sorted seconds that the messages waited."""
    airflow.wait_dag(ring)
    airflow.unpause(ring)
    count = int(options.minutes * 60 * options.rate)
    with MessageQueue(store, ring) as queue:
        # The first message wakes processes that were never used; it does not count.
        queue.enqueue_message(f"{ring}-000", stamped(bytes(SIZE)))
        _wait_empty(queue)
        due = time.monotonic()
        for number in range(count):
            time.sleep(max(due - time.monotonic(), 0))
            queue.enqueue_message(f"{ring}-{number % ORIGINS:03d}", stamped(bytes(SIZE)))
            due += 1 / options.rate
        _wait_empty(queue)
    airflow.unpause(ring, paused=True)
    files = sorted(place.glob(f"{ring}-*.waits"), key=lambda file: file.stat().st_mtime)
    waits = sorted([int(line) / 1e6 for file in files for line in file.read_text().split()][1:])
    assert len(waits) >= count
    say(f"{ring}: {len(waits):,} messages, {waits[len(waits) // 2]:.1f} s")
    return waits


def _wait_empty(queue: MessageQueue) -> None:
    deadline = time.monotonic() + 180
    while len(queue):
        assert time.monotonic() < deadline, f"{len(queue)} messages of ring {queue.ring} were not processed"
        time.sleep(0.5)


def flood(airflow: LiveAirflow, count: int) -> dict[str, float]:
    """Queue so many tasks in the pool, then one of another DAG; return when that one began, and what began before."""
    for dag in ("flood", "quiet"):
        airflow.wait_dag(dag)
    run = _scheduled(airflow, "flood", {"count": count})
    while not any(task["task_id"] == "work" and task["start_date"] for task in airflow.tasks("flood", run)):
        time.sleep(0.5)
    sent = time.time()
    other = _scheduled(airflow, "quiet", {})
    assert airflow.wait("quiet", other, timeout=3_600) == "success"
    began = moment(airflow.tasks("quiet", other)[0]["start_date"])
    airflow.wait("flood", run, timeout=3_600)
    tasks = [task for task in airflow.tasks("flood", run) if task["task_id"] == "work"]
    starts = [moment(task["start_date"]) for task in tasks if task["start_date"]]
    before = sum(start < began for start in starts)
    return {"seconds": began - sent, "before": before, "tasks": count, "all": max(starts) - min(starts)}


def _scheduled(airflow: LiveAirflow, dag: str, conf: dict[str, int]) -> str:
    """Start a run with a logical date, by which the scheduler orders tasks: runs of a schedule have one."""
    airflow.unpause(dag)
    body = {"conf": conf, "logical_date": datetime.now(timezone.utc).isoformat()}
    return str(airflow.call("POST", f"dags/{dag}/dagRuns", body)["dag_run_id"])


def report(
    options: argparse.Namespace,
    waits: Mapping[str, Sequence[float]],
    pool: Mapping[str, float],
    facts: Mapping[str, str],
) -> str:
    names = {"by_event": "started by events", "by_clock": "every minute"}
    rate = pool["tasks"] / pool["all"]
    lines = [
        "# Latency of blocks in Airflow, measured",
        "",
        f"Made on {time.strftime('%Y-%m-%d')} by `{_command(options)}`: one Airflow (SQLite metadata, LocalExecutor, four"
        f" slots), the store is SQLite, {options.rate:g} messages/s over {ORIGINS} origins for {options.minutes:g} minutes.",
        "",
        "| blocks | messages | " + " | ".join(f"{share} in seconds" for share in SHARES) + " |",
        "|---|---:|" + "---:|" * len(SHARES),
        *(
            f"| {names[ring]} | {len(found):,} | "
            + " | ".join(f"{quantile(found, part):.1f}" for part in SHARES.values())
            + " |"
            for ring, found in waits.items()
        ),
        "",
        "## A flood in a pool",
        "",
        f"{pool['tasks']:,} mapped tasks of one DAG fill a pool of {SLOTS} slots. Then a task of another DAG is queued in the"
        f" same pool. It began after {pool['seconds']:.0f} s, and {pool['before']:,.0f} of the {pool['tasks']:,} tasks began"
        f" before it: the scheduler orders the tasks that it has found ready by priority weight, logical date and map index."
        f" The pool began"
        f" {rate:.2f} tasks/s. It works through {FLOOD:,} tasks at this rate in {FLOOD / rate / 86_400:.1f} days. This is a"
        " linear extrapolation.",
        "",
        "## Machine",
        "",
        *(f"- {name}: {value}" for name, value in facts.items()),
        "",
    ]
    return "\n".join(lines)


def _command(options: argparse.Namespace) -> str:
    return (
        f"python -m lab.benchmarks.airflow.latency --minutes {options.minutes:g} --rate {options.rate:g}"
        f" --tasks {options.tasks}"
    )


def _options() -> Any:
    parser = argparse.ArgumentParser(
        prog="python -m lab.benchmarks.airflow.latency", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=3, help="length of each load (default: 3)")
    parser.add_argument("--rate", type=float, default=20, help="messages a second (default: 20)")
    parser.add_argument("--tasks", type=int, default=100, help="tasks of the flood (default: 100)")
    parser.add_argument("--out", type=Path, default=HERE.parent / "report" / "latency.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
