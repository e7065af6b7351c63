"""A real YARN: every message is settled once, although applications, nodes, tasks and processes end.

`make soak` runs this file. Airflow's tasks call `spark-submit`, which brings the drivers and executors to the nodes of
`tests.live.yarn.cluster`; messages and outcomes are in its HDFS.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_mq.cli.dev import connection_of
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.spark.exchange import Folder
from airflow_mq.testing.live import LiveAirflow
from tests.live import processors
from tests.live.conftest import REPOSITORY, World
from tests.live.faults.stage import SETTINGS
from tests.live.yarn.cluster import NODES, Yarn
from tests.postgres_server import Servers
from tests.waiting import eventually

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.postgres]

COUNT = 40
#: The message that is held: without it no application ends before its fault, however busy the machine is.
LAST = COUNT - 1
PATIENCE = 600.0
PROCESS = "block.process"


@dataclass
class Site(World):
    """A world whose Spark jobs run on YARN."""

    yarn: Yarn

    def begin(self, mode: str, ring: str) -> str:
        """Trigger a block, and wait until some of its messages were processed; return the run."""
        self.make_ring(ring)
        self.send(ring, range(COUNT))
        run = self.airflow.trigger(f"yarn_{mode}", {"ring": ring})
        self.wait_processed(ring, 5)
        return run

    def wait_processed(self, ring: str, count: int) -> None:
        eventually(lambda: self.processed(ring).total() >= count, PATIENCE)

    def applications(self, ring: str) -> list[dict[str, Any]]:
        """Return the applications of a ring's blocks, the earliest first."""
        return [application for application in self.yarn.applications() if application["name"] == ring]

    def running(self, ring: str) -> list[dict[str, Any]]:
        return [application for application in self.yarn.running() if application["name"] == ring]

    def finish(self, mode: str, ring: str, run: str) -> str:
        """Wait for the end of a run, let more blocks do the rest, and require that all is settled once."""
        state = self.airflow.wait(f"yarn_{mode}", run, PATIENCE)
        with self.queue(ring) as queue:
            is_left = bool(queue.inspect.ring_order(1))
        if is_left:
            assert self.run_block(f"yarn_{mode}", ring, PATIENCE) == "success"
        self.assert_all_settled_once(ring, COUNT)
        assert self.running(ring) == []
        return state

    def task(self, mode: str, run: str, states: set[str]) -> dict[str, Any]:
        return self.airflow.wait_task(f"yarn_{mode}", run, PROCESS, states, PATIENCE)

    def fail_task(self, mode: str, run: str) -> None:
        """Mark the running task as failed, as a person does in the UI."""
        path = f"dags/yarn_{mode}/dagRuns/{run}/taskInstances/{PROCESS}/0"
        self.airflow.call("PATCH", path, {"new_state": "failed"})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, postgres_servers: Servers) -> Iterator[Site]:
    place = tmp_path_factory.mktemp("yarn")
    with contextlib.ExitStack() as stack:
        yarn = Yarn(place)
        stack.callback(yarn.close)
        store, metadata = (stack.enter_context(postgres_servers["embedded"].database()) for _ in range(2))
        upgrade(parse(store))
        own = {"conn_type": "spark", "host": "yarn"}
        extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": f"http://{yarn.web}"}
        airflow = LiveAirflow(
            place / "airflow",
            Path(__file__).parent / "dags",
            metadata=metadata,
            settings=SETTINGS | {"core.xcom_backend": "airflow.sdk.execution_time.xcom.BaseXCom"},
            connections={
                "airflow_mq_default": connection_of(parse(store)),
                "spark_yarn_client": own,
                "spark_yarn_cluster": {**own, "extra": extra},
            },
            environment={
                "PYTHONPATH": str(REPOSITORY),
                "HADOOP_CONF_DIR": str(yarn.conf),
                "SPARK_LOCAL_IP": "127.0.0.1",
                processors.VARIABLE: str(place / "diary"),
            },
        )
        yield Site(stack.enter_context(airflow), store, place, None, yarn)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def whole_cluster(site: Site) -> Iterator[None]:
    """Let each test begin with all nodes."""
    yield
    for host in set(NODES) - set(site.yarn.daemons):
        site.yarn.start_node(host)
    eventually(lambda: len(site.yarn.running_nodes()) == len(NODES), PATIENCE)


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_block_without_a_fault(site: Site, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = f"plain-{mode}"
    run = site.begin(mode, ring)

    assert site.finish(mode, ring, run) == "success"

    (application,) = site.applications(ring)
    assert application["finalStatus"] == "SUCCEEDED"
    assert site.processed(ring).total() == COUNT
    assert site.airflow.xcom(f"yarn_{mode}", run, PROCESS, "spark_job", map_index=0)["id"] == application["id"]
    monkeypatch.setenv("HADOOP_CONF_DIR", str(site.yarn.conf))
    assert Folder("hdfs:///queues/orders").names() == [], "the settling task deletes the folder"


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_an_application_is_killed(site: Site, mode: str) -> None:
    ring = f"killed-{mode}"
    with site.holding(ring, LAST):
        run = site.begin(mode, ring)
        site.yarn.kill(site.applications(ring)[0]["id"])
        eventually(lambda: len(site.applications(ring)) == 2, PATIENCE)

    assert site.finish(mode, ring, run) == "success", "a retry submits another application"
    first, second = site.applications(ring)
    assert (first["finalStatus"], second["finalStatus"]) == ("KILLED", "SUCCEEDED")


@pytest.mark.parametrize("containers", [True, False], ids=["with its containers", "alone"])
def test_the_node_of_a_driver_is_killed(site: Site, containers: bool) -> None:
    """A second driver begins; if only the node manager died, the first one still works for a while."""
    ring = f"driver-{containers}"
    with site.holding(ring, LAST):
        run = site.begin("cluster", ring)
        application = site.applications(ring)[0]["id"]
        site.yarn.kill_node(site.yarn.host_of(application), containers=containers)
        eventually(lambda: len(site.yarn.attempts(application)) == 2, PATIENCE)
        eventually(lambda: site.yarn.get(f"apps/{application}")["app"]["state"] == "RUNNING", PATIENCE)

    assert site.finish("cluster", ring, run) == "success"
    assert [one["finalStatus"] for one in site.applications(ring)] == ["SUCCEEDED"]


def test_a_node_with_executors_is_killed(site: Site) -> None:
    ring = "executors"
    with site.holding(ring, LAST):
        run = site.begin("client", ring)
        application = site.applications(ring)[0]["id"]
        driver = site.yarn.host_of(application)
        (other,) = set(NODES) - {driver}
        # Executors are where there was room; the first process of the application survives.
        victim = other if site.yarn.containers(other) else driver
        site.yarn.kill_node(victim, containers=True)
        eventually(lambda: len(site.yarn.running_nodes()) == 1, PATIENCE)

    site.finish("client", ring, run)


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_task_is_cleared(site: Site, mode: str) -> None:
    ring = f"cleared-{mode}"
    with site.holding(ring, LAST):
        run = site.begin(mode, ring)
        (first,) = site.applications(ring)
        site.airflow.clear(f"yarn_{mode}", run, [PROCESS])
        eventually(lambda: len(site.applications(ring)) == 2, PATIENCE)
        eventually(lambda: first["id"] not in [one["id"] for one in site.running(ring)], PATIENCE)

    assert site.finish(mode, ring, run) == "success"
    assert len(site.applications(ring)) == 2


def test_a_retry_finds_its_application_and_can_end_it(site: Site) -> None:
    ring = "found"
    with site.holding(ring, LAST):
        run = site.begin("cluster", ring)
        os.kill(site.task("cluster", run, {"running"})["pid"], signal.SIGKILL)
        eventually(
            lambda: any(
                (task["state"], task["try_number"]) == ("running", 2) and task["task_id"] == PROCESS
                for task in site.airflow.tasks("yarn_cluster", run)
            ),
            PATIENCE,
        )
        eventually(_polls(site, run), PATIENCE)
        (application,) = site.running(ring)
        assert len(site.applications(ring)) == 1

        site.fail_task("cluster", run)
        eventually(lambda: site.running(ring) == [], PATIENCE)
    assert site.yarn.get(f"apps/{application['id']}")["app"]["finalStatus"] == "KILLED"

    assert site.finish("cluster", ring, run) == "failed"


def _polls(site: Site, run: str) -> Callable[[], bool]:
    """Return whether the retry follows the application that it found."""

    def polls() -> bool:
        log = site.airflow.log("yarn_cluster", run, PROCESS, map_index=0, attempt=2)
        return "Reconnecting to existing job" in log and "Tracking YARN application" in log

    return polls


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_task_that_is_marked_failed_ends_its_application(site: Site, mode: str) -> None:
    ring = f"failed-{mode}"
    with site.holding(ring, LAST):
        run = site.begin(mode, ring)
        site.fail_task(mode, run)
        eventually(lambda: site.running(ring) == [], PATIENCE)

    assert site.finish(mode, ring, run) == "failed"
