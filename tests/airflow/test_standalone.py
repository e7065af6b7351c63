"""Blocks through their operators on a standalone cluster: a master and two workers, which `spark-submit` reaches."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_mq import MessageQueue, Processor, Processors
from tests.airflow.stage import Airflow, Run, fill
from tests.spark.cluster import Cluster
from tests.spark.functions import all_tried
from tests.waiting import eventually

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.soak]

CONF = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _closed_output(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the output of spark-submit, which the provider leaves open."""
    started: list[Any] = []

    class Recorded(subprocess.Popen[Any]):
        def __init__(self, *arguments: Any, **how: Any) -> None:
            super().__init__(*arguments, **how)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    yield
    for process in started:
        if process.stdout:
            process.stdout.close()


@pytest.fixture
def run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    return run_on(cluster, monkeypatch)


def run_on(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a DAG run whose Spark connection names a cluster."""
    connection = {"conn_type": "spark", "host": "spark://127.0.0.1", "port": cluster.port}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_STAGE", json.dumps(connection))
    monkeypatch.setenv("PYTHONPATH", cluster.environment["PYTHONPATH"])
    return Airflow().run()


def processed(queue: MessageQueue, run: Run, *processors: Processor, **how: Any) -> dict[str, int]:
    """Process one block, which is a single part, and return its counts."""
    rules = Processors(processors)
    (_,) = run.plan(rules)
    run.process(0, rules, spark_conn_id="spark_stage", conf=CONF, **how)
    settled: dict[str, int] = run.settle()
    return settled


@pytest.mark.parametrize("with_exchange", [False, True])
def test_a_block_on_the_cluster(
    sqlite_queue: MessageQueue, run: Run, cluster: Cluster, tmp_path: Path, with_exchange: bool
) -> None:
    """The SQLite store works here because all workers are on this machine."""
    fill(sqlite_queue, {origin: [b"1", b"bad", b"poison"] for origin in "abcd"})
    exchange = str(tmp_path / "exchange") if with_exchange else None
    settled = processed(
        sqlite_queue, run, Processor("all", "tests.spark.functions:process"), exchange=exchange, lease=60
    )
    assert (settled["processed"], settled["failed"], settled["returned"]) == (4, 4, 4)
    assert run.xcoms["process", "spark_job"]["id"].startswith("app-")
    assert {event.why for event in sqlite_queue.inspect.events(name="Returned")} == {"ValueError"}
    assert sqlite_queue.check() == []


def test_a_dataframe_that_fails_on_an_executor_fails_its_task_with_the_reason(
    sqlite_queue: MessageQueue, run: Run
) -> None:
    fill(sqlite_queue, {"a": [b"1"]})
    once = {"conf": {"spark.task.maxFailures": "1"}}
    short = Processor("all", "tests.spark.test_failures:frame_without_outcomes", shape="dataframe", spark=once)
    with pytest.raises(Exception, match="InvalidOutcome: outcomes need the columns .*; outcome is missing"):
        processed(sqlite_queue, run, short)


def test_cluster_mode_is_refused_with_sparks_reason(
    sqlite_queue: MessageQueue, run: Run, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = {"conn_type": "spark", "host": cluster.master, "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_STAGE", json.dumps(connection))
    fill(sqlite_queue, {"a": [b"1"]})
    plain = Processor("all", "tests.spark.functions:process")
    with pytest.raises(Exception, match="Cluster deploy mode is currently not supported for python applications"):
        processed(sqlite_queue, run, plain, exchange=str(tmp_path / "exchange"), durable=False)
    with pytest.raises(Exception, match=r"^all \(process_0\) failed"):
        run.settle()
    assert [one.attempts for one in sqlite_queue.inspect.peek("a")] == [0]


def test_a_job_outlives_a_worker_and_the_master(
    sqlite_queue: MessageQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(sqlite_queue, {origin: [b"slow 1"] * 4 for origin in "abcdef"})
    with closing(Cluster(tmp_path)) as cluster:

        def kill() -> None:
            eventually(lambda: all_tried(tmp_path / "tried"), 300)
            master, worker = (psutil.Process(process.pid) for process in cluster.processes[:2])
            for process in (*worker.children(recursive=True), worker, master):
                process.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        run = run_on(cluster, monkeypatch)
        settled = processed(sqlite_queue, run, Processor("all", "tests.spark.functions:process"), lease=60)
        killer.join()
    assert (settled["processed"], settled["messages"]) == (24, 24)
    assert not psutil.pid_exists(cluster.processes[0].pid)
