"""Rows of the matrix: each is a fault at a point of a block."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from airflow_mq.testing.live import COMPONENTS
from airflow_mq.testing.loopback import Refused

from . import faults
from .faults import Fault, Scene, component
from .points import POINTS
from .stage import COUNT, EVENTS, PATIENCE, TRIGGERER, Stage, wait_until
from .verdict import Verdict, judge

#: Blocks after the fault in which a ring must be drained.
MOST_BLOCKS = 4
#: Leases in seconds of blocks that survive a restart, and of blocks that other blocks replace.
LONG, SHORT = 180.0, 20.0


class Row(Protocol):
    """A fault at a point."""

    @property
    def title(self) -> str:
        """The fault."""

    @property
    def point(self) -> str:
        """The point of a block."""

    def run(self, stage: Stage, ring: str, logs: Path | None = None) -> Verdict:
        """Begin a block, let the fault happen, and judge the ring when it is drained."""


@dataclass
class BlockRow:
    """A fault of a block that a run of `dag` began; if it lasts, runs of `beside` drain the ring."""

    fault: Fault
    place: str
    dag: str = "in_place"
    lease: float = LONG

    @property
    def title(self) -> str:
        return self.fault.title

    @property
    def point(self) -> str:
        return POINTS[self.place][0]

    def run(self, stage: Stage, ring: str, logs: Path | None = None) -> Verdict:
        stage.make_ring(ring, self.lease)
        stage.wait_healthy(self.fault.needs)
        if self.dag == "on_cluster":
            stage.start_cluster()
        with POINTS[self.place][1](stage, self.dag, ring) as run:
            scene, struck = Scene(stage, self.dag, ring, run), time.monotonic()
            self.fault.strike(scene)
        airflow, runs = stage.airflow, [(self.dag, run)]
        if self.fault.lasts:
            wait_until(lambda: all(block.deadline.timestamp() < time.time() for block in stage.planned(ring)), "leases")
            runs += drain(stage, "beside", ring)
            drained = time.monotonic()
            wait_until(lambda: time.monotonic() > struck + 2 * self.lease, "twice the lease")
            self.fault.mend(scene)
        elif not self.fault.spans:
            self.fault.mend(scene)
        if any(known["dag_run_id"] == run for known in airflow.runs(self.dag)):
            airflow.wait(self.dag, run, PATIENCE)
        else:
            runs.pop(0)
        if self.fault.spans:
            self.fault.mend(scene)
        if not self.fault.lasts:
            runs += drain(stage, self.dag, ring)
            drained = time.monotonic()
        verdict = judge(stage, ring)
        verdict.blocks, verdict.recovered_in = len(runs), drained - struck
        texts = [text for one in runs for text in task_logs(stage, *one)]
        verdict.problems += stage.canaries.found()
        if logs is not None:
            (logs / f"{ring}.log").write_text("\n\n".join(texts))
        if not any(self.fault.logged in text for text in texts):
            verdict.problems.append(f"no log has {self.fault.logged!r}")
        return verdict


def drain(stage: Stage, dag: str, ring: str) -> list[tuple[str, str]]:
    """Run blocks until the ring is drained, and return the runs."""
    runs: list[tuple[str, str]] = []
    while not stage.is_drained(ring) and len(runs) < MOST_BLOCKS:
        runs.append((dag, stage.airflow.trigger(dag, {"ring": ring})))
        stage.airflow.wait(*runs[-1], PATIENCE)
    return runs


def task_logs(stage: Stage, dag: str, run: str) -> list[str]:
    """Return the logs of all attempts of a run's tasks."""
    return [
        f"=== {dag} {run} {task['task_id']} attempt {attempt}, {task['state']} at last\n"
        + stage.airflow.log(dag, run, task["task_id"], map_index=task["map_index"], attempt=attempt)
        for task in stage.airflow.tasks(dag, run)
        for attempt in range(1, task["try_number"] + 1)
    ]


@dataclass
class EventRow:
    """Events of an asset that are lost, or arrive many times."""

    title: str
    times: int
    point: str = "whenever"
    #: Calls of a sender, each with an equal part of the messages.
    calls: int = 5

    def run(self, stage: Stage, ring: str, logs: Path | None = None) -> Verdict:
        airflow, dag = stage.airflow, "events"
        stage.wait_healthy(TRIGGERER)
        airflow.wait_dag(dag, PATIENCE)
        before = len(airflow.runs(dag))
        airflow.unpause(dag)
        if not self.times:
            airflow.kill(TRIGGERER)
        asset = airflow.get("assets", name_pattern="faults-ready")["assets"][0]["id"]
        began = time.monotonic()
        for _ in range(self.calls):
            stage.send(EVENTS, count=COUNT // self.calls)
            for _ in range(self.times):
                airflow.call("POST", "assets/events", {"asset_id": asset, "extra": {}})
        wait_until(lambda: self._forget_events(stage, asset) and stage.is_drained(EVENTS), "the ring is drained")
        recovered_in = time.monotonic() - began
        if not self.times:
            stage.wait_healthy(TRIGGERER)
        wait_until(lambda: rests(stage, dag), "the DAG rests")
        verdict = judge(stage, EVENTS)
        verdict.recovered_in, verdict.blocks = recovered_in, len(airflow.runs(dag)) - before
        most = self.calls * max(self.times, 2) // 2
        if verdict.blocks > most:
            verdict.problems.append(f"{verdict.blocks} runs: expected at most {most}")
        return verdict

    def _forget_events(self, stage: Stage, asset: int) -> bool:
        """Lose the events that settling emits, too."""
        with suppress(Refused):  # There may be none.
            if not self.times:
                stage.airflow.call("DELETE", f"assets/{asset}/queuedEvents")
        return True


def rests(stage: Stage, dag: str) -> bool:
    """Pause a DAG that has no active run; return whether it has none."""

    def is_active() -> bool:
        return any(run["state"] in ("queued", "running") for run in stage.airflow.runs(dag))

    if is_active():
        return False
    stage.airflow.unpause(dag, paused=True)
    if is_active():
        stage.airflow.unpause(dag)
        return False
    return True


TASK = Fault("SIGKILL of the task's process", faults.kill_task)
WORKER = Fault("SIGKILL of the executor's worker, the task's parent", faults.kill_worker)
GROUP = Fault("SIGKILL of the executor's worker, the task and all that it started", faults.kill_group)
DRIVER = Fault("SIGKILL of Spark's driver", faults.kill_driver)
PYTHON = Fault("SIGKILL of a Python worker of Spark", faults.kill_python)
EXECUTOR = Fault("SIGKILL of an executor's JVM", faults.kill_executor)
SPECULATION = Fault("Speculative execution: two attempts at the same messages", faults.await_rival)
WATCHED = Fault("None; all that others can read is searched for a payload and a password", faults.read_pages)
LATE = "back in their queues"
STOPPED = Fault(
    "SIGSTOP of the task for twice its lease, then SIGCONT",
    faults.stop_task,
    faults.wake_task,
    lasts=True,
    logged=LATE,
)
PAUSED = Fault("DAG paused", faults.pause, faults.unpause, lasts=True)
DELETED_FILE = Fault("DAG's file deleted, and restored later", faults.delete_file, faults.restore_file, lasts=True)
DELETED_RUN = Fault("Run deleted", faults.delete_run, lasts=True)
AWAY = "the XCom service cannot be reached"


def xcom(way: str) -> Fault:
    """Return an XCom back end that fails now and then in one way, until the run ends."""
    title = f"XCom back end fails at each third {way}"
    return Fault(title, faults.fail_xcoms(way), faults.mend_xcoms, spans=True, logged=AWAY)


def _rows() -> dict[str, Row]:
    rows: dict[str, Row] = {}
    kills = {name: component(name) for name in COMPONENTS} | {"task": TASK, "worker": WORKER}
    for place in ("planning", "submitting", "processing", "processed", "settling"):
        dag = "on_spark" if place in ("submitting", "processing") else "in_place"
        for name, fault in kills.items():
            rows[f"{name}-{place}"] = BlockRow(fault, place, dag)
    rows["group-processing"] = BlockRow(GROUP, "processing", "on_spark")
    rows["driver-processing"] = BlockRow(DRIVER, "processing", "on_spark")
    rows["python-processing"] = BlockRow(PYTHON, "processing", "on_spark")
    rows["executor-processing"] = BlockRow(EXECUTOR, "processing", "on_cluster")
    rows["speculation-processing"] = BlockRow(SPECULATION, "processing", "on_cluster")
    rows["canaries"] = BlockRow(WATCHED, "failing", "on_cluster")
    rows["stopped-processing"] = BlockRow(STOPPED, "processing", "in_place", SHORT)
    rows["stopped-spark"] = BlockRow(STOPPED, "processing", "on_spark", SHORT)
    rows["stopped-settling"] = BlockRow(STOPPED, "processed", "in_place", SHORT)
    for place in ("processing", "processed"):
        rows[f"paused-{place}"] = BlockRow(PAUSED, place, "in_place", SHORT)
        rows[f"deleted-run-{place}"] = BlockRow(DELETED_RUN, place, "in_place", SHORT)
    rows["deleted-file-processing"] = BlockRow(DELETED_FILE, "processing", "deleted", SHORT)
    rows["xcom-write"] = BlockRow(xcom("write"), "planning")
    rows["xcom-read"] = BlockRow(xcom("read"), "submitting")
    rows["lost-events"] = EventRow("Asset's events lost; the time schedule remains", 0)
    rows["tenfold-events"] = EventRow("Asset's events arrive ten times", 10)
    return rows


ROWS = _rows()
