"""Kubernetes as far as an API server goes: a driver's pod is submitted, followed and deleted by the provider's own means.

`make soak` runs this file. No node takes part (`tests.airflow.kube`): nothing here shows that an image has what a job
needs, that a driver gets executors and reaches them, or what the controllers of a cluster do.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mq import MessageQueue
from airflow_mq.processors import Processor, Processors
from airflow_mq.spark.java import spark_environment
from tests.airflow.kube import NAMESPACE, Kubernetes, can_build
from tests.airflow.stage import CONN_ID, Airflow, Run, fill, processed
from tests.spark.conftest import QUICK, ROOT, run_job
from tests.waiting import eventually

pytestmark = [
    pytest.mark.soak, pytest.mark.airflow, pytest.mark.spark,
    pytest.mark.skipif(not can_build(), reason="an API server is built with Go"),
    pytest.mark.skipif(find_spec("kubernetes") is None, reason="the extra kubernetes is not installed"),
]  # fmt: skip

PROCESSORS = Processors([Processor("all", "tests.spark.functions:process")])
COUNT = 8


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    made = Kubernetes(tmp_path_factory.mktemp("kubernetes"))
    yield made
    made.close()


class Task:
    """A task that processes a part of a block on Kubernetes."""

    def __init__(self, run: Run, exchange: Path, **options: Any) -> None:
        from airflow_mq.operators.blocks import ProcessMessagesOperator

        self.run = run
        conf = {
            "spark.kubernetes.container.image": "orders:1",
            "spark.kubernetes.authenticate.driver.serviceAccountName": "spark",
            "spark.kubernetes.file.upload.path": f"file://{exchange.parent}/upload",
        }
        self.operator = ProcessMessagesOperator(
            task_id="process", part=run.xcoms["plan", "return_value"][0], processors=PROCESSORS, mq_conn_id=CONN_ID,
            spark_conn_id="spark_kubernetes", exchange=str(exchange), conf=conf, **options,
        )  # fmt: skip

    def execute(self, known: dict[str, Any] | None = None) -> None:
        """Execute the task; `known` is what it keeps for its retries."""
        kept = {} if known is None else known
        context = self.run.context("process", 0)
        context["ti"].stats_tags = {}
        store = SimpleNamespace(get=kept.get, set=kept.__setitem__)
        try:
            self.operator.execute({**context, "task_state_store": store})
        except BaseException:
            self.run.states["process_0"] = "failed"
            raise
        self.run.states["process_0"] = "success"


@pytest.fixture
def begin(
    kubernetes: Kubernetes, sqlite_queue: MessageQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[Task, Future[None]]]]:
    """Plans a block, and executes its task in a thread."""
    extra = {"deploy-mode": "cluster", "namespace": NAMESPACE}
    connection = {"conn_type": "spark", "host": f"k8s://{kubernetes.address}", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_KUBERNETES", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW_VAR_AIRFLOW_MQ_INSTALLATION", "here")
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.kubeconfig))
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER", "False")
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE", str(kubernetes.kubeconfig))
    run = Airflow().run()
    fill(sqlite_queue, {origin: [b"1", b"2", b"3", b"bad"] for origin in ("a", "b")})
    run.plan(PROCESSORS)
    tasks: list[Task] = []
    with ThreadPoolExecutor(2) as pool:

        def begin(known: dict[str, Any] | None = None, **options: Any) -> tuple[Task, Future[None]]:
            tasks.append(Task(run, tmp_path / "exchange", **options))
            return tasks[-1], pool.submit(tasks[-1].execute, known)

        yield begin
    for task in tasks:
        # The provider leaves it to the end of the process.
        if submit := task.operator._hook._submit_sp:
            submit.stdout.close()
    for pod in kubernetes.pods():
        kubernetes.core.delete_namespaced_pod(pod.metadata.name, NAMESPACE)


def driver(kubernetes: Kubernetes, future: Future[None], number: int = 1) -> Any:
    """Wait for the pod of a driver, and return it."""

    def there() -> bool:
        if future.done():
            future.result()
        return len(kubernetes.pods()) == number

    eventually(there, 300)
    return kubernetes.pods()[-1]


def run_driver(kubernetes: Kubernetes, pod: Any, tmp_path: Path) -> None:
    """Run the command of a driver's pod, as a node would, and report its phases."""
    kubernetes.set_phase(pod.metadata.name, "Running")
    words = pod.spec.containers[0].args
    command = words[words.index("org.apache.spark.deploy.PythonRunner") + 1 :]
    conf = [word for name, value in QUICK.items() for word in ("--conf", f"{name}={value}")]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    code, said = run_job(
        ["spark-submit", "--master", "local[2]", *conf, *command],
        {**plain, **spark_environment(), "PYTHONPATH": str(ROOT)},
    )
    assert code == 0, said
    kubernetes.set_phase(pod.metadata.name, "Succeeded")


def assert_settled_once(queue: MessageQueue, task: Task, tmp_path: Path) -> None:
    task.run.settle(exchange=str(tmp_path / "exchange"))
    assert len(processed(queue)) == COUNT - 2, "two are bad"
    counts = Counter((event.origin, event.page, event.index) for event in queue.inspect.events())
    assert len(counts) == COUNT and set(counts.values()) == {1}
    assert sum(footprint.count for _, footprint in queue.footprints()) == 0


def test_a_driver_is_submitted_followed_and_deleted(
    kubernetes: Kubernetes, sqlite_queue: MessageQueue, tmp_path: Path, begin: Callable[..., tuple[Task, Future[None]]]
) -> None:
    task, future = begin(track_driver_via_k8s_api=True)
    pod = driver(kubernetes, future)
    token = task.run.xcoms["plan", "block"]["token"]
    assert token not in str(pod) and "store.db" not in str(pod)
    assert pod.spec.service_account_name == "spark"

    run_driver(kubernetes, pod, tmp_path)
    future.result(300)

    assert task.run.xcoms["process", "spark_job"]["id"] == pod.metadata.name
    assert kubernetes.pods() == [], "the provider deletes a pod that has succeeded"
    assert_settled_once(sqlite_queue, task, tmp_path)


@pytest.mark.parametrize("options", [{"track_driver_via_k8s_api": True}, {}], ids=["followed", "watched"])
def test_the_end_of_a_task_deletes_its_driver(
    kubernetes: Kubernetes,
    sqlite_queue: MessageQueue,
    tmp_path: Path,
    begin: Callable[..., tuple[Task, Future[None]]],
    options: dict[str, Any],
) -> None:
    task, future = begin(**options)
    pod = driver(kubernetes, future)
    kubernetes.set_phase(pod.metadata.name, "Running")
    eventually(lambda: task.run.xcoms.get(("process", "spark_job")), 120)

    task.operator.on_kill()

    eventually(lambda: kubernetes.pods() == [], 60)
    future.exception(300)
    task.run.states["process_0"] = "failed"
    with pytest.raises(Exception, match=r"^all \(process_0\) failed"):
        task.run.settle(exchange=str(tmp_path / "exchange"))
    assert sum(footprint.count for _, footprint in sqlite_queue.footprints()) == COUNT, "all go back"


def test_a_retry_after_a_failed_driver_submits_another(
    kubernetes: Kubernetes, sqlite_queue: MessageQueue, tmp_path: Path, begin: Callable[..., tuple[Task, Future[None]]]
) -> None:
    known: dict[str, Any] = {}
    _, future = begin(known, track_driver_via_k8s_api=True)
    first = driver(kubernetes, future)
    kubernetes.set_phase(first.metadata.name, "Failed")
    with pytest.raises(Exception, match="phase=Failed"):
        future.result(300)

    task, future = begin(known, track_driver_via_k8s_api=True)
    second = driver(kubernetes, future, 2)
    assert second.metadata.name != first.metadata.name
    run_driver(kubernetes, second, tmp_path)
    future.result(300)
    assert_settled_once(sqlite_queue, task, tmp_path)


def test_a_retry_finds_a_driver_that_runs(
    kubernetes: Kubernetes, sqlite_queue: MessageQueue, tmp_path: Path, begin: Callable[..., tuple[Task, Future[None]]]
) -> None:
    known: dict[str, Any] = {}
    _, lost = begin(known, track_driver_via_k8s_api=True)
    pod = driver(kubernetes, lost)
    eventually(lambda: known, 300)

    # Airflow takes the first task for dead, and it goes on for a while.
    task, future = begin(known, track_driver_via_k8s_api=True)
    run_driver(kubernetes, pod, tmp_path)
    future.result(300)
    assert kubernetes.pods() == []
    assert_settled_once(sqlite_queue, task, tmp_path)
    lost.exception(300)
