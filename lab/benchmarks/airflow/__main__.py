"""1,000 messages in one block against 1,000 mapped tasks; and from enqueue to processed, when events start blocks.

python -m lab.benchmarks.airflow                  into lab/benchmarks/report/airflow.md; a quarter of an hour
python -m lab.benchmarks.airflow --count 50       fewer, to see that it works
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from airflow_mq import MessageQueue, RingConfig
from airflow_mq.engine.rules.weight import Weight
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.testing.live import LiveAirflow

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
PLENTY = Weight(1 << 40, 1 << 40)
ORIGINS = 100


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.benchmarks.airflow", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--count", type=int, default=1_000, help="messages, and mapped tasks (default: 1000)")
    parser.add_argument("--blocks", type=int, default=5, help="how often the block is measured (default: 5)")
    parser.add_argument("--events", type=int, default=7, help="messages whose wait is measured (default: 7)")
    parser.add_argument("--out", type=Path, default=HERE.parent / "report" / "airflow.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mq-bench-") as place:
        store = f"sqlite:///{place}/store.db"
        upgrade(parse(store))
        with MessageQueue(store) as queue:
            queue.admin.change_ring(service_weight=PLENTY)
            queue.admin.create_ring("events", RingConfig(service_weight=PLENTY))
        connection = {"conn_type": "airflow_mq", "extra": {"driver": "sqlite", "path": f"{place}/store.db"}}
        airflow = LiveAirflow(
            Path(place) / "airflow",
            HERE / "dags",
            connections={"airflow_mq_default": connection},
            environment={"PYTHONPATH": str(REPOSITORY)},
        )
        with airflow:
            blocks = [one_block(airflow, store, options.count) for _ in range(options.blocks + 1)][1:]
            say(f"{options.count:,} messages in a block: {[round(one['seconds'], 1) for one in blocks]} s")
            waits = events(airflow, store, options.events)
            tasks = mapped_tasks(airflow, options.count)
            say(f"{options.count:,} mapped tasks: {tasks:.1f} s")
    text = report(options.count, blocks, tasks, waits)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text, "utf-8")
    print(text)
    return 0


def one_block(airflow: LiveAirflow, store: str, count: int) -> dict[str, float]:
    """Send so many messages of a hundred origins and run a block, from the first byte to the settled run."""
    began = time.time()
    with MessageQueue(store) as queue:
        queue.enqueue_messages((f"origin-{n % ORIGINS}", b"message %d" % n) for n in range(count))
        sent = time.time()
        run = airflow.trigger("one_block")
        assert airflow.wait("one_block", run) == "success"
        ended = time.time()
        assert sum(footprint.count for _, footprint in queue.footprints(limit=ORIGINS)) == 0
    assert airflow.xcom("one_block", run, "block.settle")["processed"] == count
    return {"enqueue": sent - began, "seconds": ended - began, **spans(airflow, "one_block", run, sent)}


def mapped_tasks(airflow: LiveAirflow, count: int) -> float:
    began = time.time()
    run = airflow.trigger("mapped_tasks", {"count": count})
    assert airflow.wait("mapped_tasks", run, timeout=3_600) == "success"
    return time.time() - began


def events(airflow: LiveAirflow, store: str, count: int) -> list[dict[str, float]]:
    """Send a message now and then, and see when it was processed and what the time went to."""
    airflow.wait_dag("event_block")
    airflow.unpause("event_block")
    found: list[dict[str, float]] = []
    with MessageQueue(store, "events") as queue:
        for number in range(count + 1):
            quiet(airflow)
            before = {run["dag_run_id"] for run in airflow.runs("event_block")}
            sent = time.time()
            queue.enqueue_message("origin", b"message %d" % number)
            while queue.footprint("origin").count:
                time.sleep(0.05)
            settled = time.time()
            fresh = [run for run in airflow.runs("event_block") if run["dag_run_id"] not in before]
            run = next(run for run in fresh if settled_by(airflow, run["dag_run_id"]))
            parts = spans(airflow, "event_block", run["dag_run_id"], sent)
            found.append({"seconds": settled - sent, "run made": moment(run["run_after"]) - sent, **parts})
            say(f"event {number}: {found[-1]['seconds']:.1f} s")
    # The first one wakes processes that were never used.
    return found[1:]


def settled_by(airflow: LiveAirflow, run: str) -> bool:
    """Whether this run had the message: later ones find nothing."""
    airflow.wait("event_block", run)
    said = airflow.xcom("event_block", run, "block.settle")
    return bool(said and said["processed"])


def quiet(airflow: LiveAirflow) -> None:
    """Wait until no run of the event-driven DAG is under way, nor comes."""
    since = time.monotonic()
    while time.monotonic() - since < 4:
        if any(run["state"] not in ("success", "failed") for run in airflow.runs("event_block")):
            since = time.monotonic()
        time.sleep(0.5)


def spans(airflow: LiveAirflow, dag: str, run: str, sent: float) -> dict[str, float]:
    """When each task began and ended, in seconds after the message was sent."""
    found: dict[str, float] = {}
    for task in airflow.tasks(dag, run):
        name = task["task_id"].rpartition(".")[2]
        for what in ("start_date", "end_date"):
            if task[what]:
                found[f"{name} {'begins' if what == 'start_date' else 'ends'}"] = moment(task[what]) - sent
    return found


def moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(timezone.utc).timestamp()


def median(rows: Sequence[dict[str, float]], name: str) -> float:
    return statistics.median(row[name] for row in rows if name in row)


STEPS = ["plan begins", "plan ends", "process begins", "process ends", "settle begins", "settle ends"]


def report(count: int, blocks: list[dict[str, float]], tasks: float, waits: list[dict[str, float]]) -> str:
    block = median(blocks, "seconds")
    lines = [
        "# A block in Airflow, measured",
        "",
        f"Made on {time.strftime('%Y-%m-%d')} by `python -m lab.benchmarks.airflow`: one Airflow (SQLite metadata,"
        " LocalExecutor, four slots), everything on one machine.",
        "",
        f"| {count:,} messages with a processor that does nothing | seconds | |",
        "|---|---:|---|",
        f"| in one block, enqueuing included | {block:.1f} | median of {len(blocks)},"
        f" {min(b['seconds'] for b in blocks):.1f} to {max(b['seconds'] for b in blocks):.1f} |",
        f"| as {count:,} mapped tasks | {tasks:.1f} | one run |",
        f"| ratio | **{tasks / block:.0f} x** | target: at least 20 x |",
        "",
        "## From enqueue to processed",
        "",
        f"A message is sent to an idle ring that an event-driven block watches; medians of {len(waits)}. The store is"
        " SQLite, where the trigger looks twice a second; on PostgreSQL it is notified.",
        "",
        "| | seconds after it was sent |",
        "|---|---:|",
        f"| the trigger saw it, and the run was made | {median(waits, 'run made'):.1f} |",
        *(f"| {step} | {median(waits, step):.1f} |" for step in STEPS),
        f"| no message left in the queue's footprint | **{median(waits, 'seconds'):.1f}** |",
        "",
        "All samples:",
        "",
        "```json",
        *(json.dumps({name: round(value, 2) for name, value in row.items()}) for row in (*blocks, *waits)),
        "```",
        "",
    ]
    return "\n".join(lines)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
