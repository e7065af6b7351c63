"""Stage of the faults: an Airflow on PostgreSQL, a store, a folder of gates, and a Spark cluster when a row needs it."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from airflow_mq import Block, Message, MessageQueue, RingConfig, Weight
from airflow_mq.cli.dev import connection_of
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.testing.live import COMPONENTS, ENDED, LiveAirflow
from tests.live import processors
from tests.postgres_server import running_postgres
from tests.spark.cluster import Cluster

from . import gates
from .canaries import PAYLOAD, Canaries
from .gates import EVENT_LOGS, Gate

#: Ring of the DAG that begins at events.
EVENTS = "events"

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
#: Airflow notices a dead task within seconds, and is quiet otherwise.
SETTINGS = {
    "core.xcom_backend": "tests.live.faults.xcoms.UnreliableXCom",
    "dag_processor.min_file_process_interval": "3600",
    "scheduler.task_instance_heartbeat_timeout": "15",
    "scheduler.task_instance_heartbeat_timeout_detection_interval": "1",
    "scheduler.job_heartbeat_sec": "1",
    "scheduler.scheduler_heartbeat_sec": "1",
    "scheduler.orphaned_tasks_check_interval": "5",
    "scheduler.scheduler_idle_sleep_time": "1",
    "scheduler.scheduler_health_check_threshold": "15",
    "workers.min_heartbeat_interval": "1",
}
TRIGGERER = "triggerer"
#: Seconds after which a condition will not be met, even on a busy machine.
PATIENCE = 600.0
#: Messages of a row and their origins; together they use the limit of a block.
COUNT, ORIGINS = 15, 3
MESSAGE_WEIGHT = Weight(100, 1_000)
LIMIT = Weight(1_500, 1 << 20)


@dataclass
class Stage:
    """Parts that the rows share."""

    airflow: LiveAirflow
    store: str
    folder: Path
    canaries: Canaries
    resources: contextlib.ExitStack = field(repr=False)
    #: Number of messages sent to each ring.
    sent: Counter[str] = field(default_factory=Counter)

    def queue(self, ring: str) -> MessageQueue:
        return MessageQueue(self.store, ring)

    def gate(self, ring: str, name: str) -> Gate:
        return Gate(self.folder, ring, name)

    def make_ring(self, ring: str, lease: float) -> None:
        with self.queue("default") as queue:
            queue.admin.create_ring(ring, RingConfig(service_weight=LIMIT, lease=lease))

    def send(self, ring: str, gated: int | None = None, quoting: int | None = None, count: int = COUNT) -> None:
        """Send numbered messages of several origins.

        :param gated: this message waits at the gate of messages
        :param quoting: the first attempt at this message fails, with an error that quotes it
        """
        sent = self.sent[ring]
        texts = [
            {"ring": ring, "number": n, "seconds": 0.02, "gate": n == gated, "quote": n == quoting, "canary": PAYLOAD}
            for n in range(sent, sent + count)
        ]
        messages = [Message(json.dumps(text).encode(), weight=MESSAGE_WEIGHT) for text in texts]
        with self.queue(ring) as queue:
            queue.enqueue_messages([(f"origin-{n % ORIGINS}", message) for n, message in enumerate(messages, sent)])
        self.sent[ring] += count

    def diary(self, ring: str) -> list[dict[str, Any]]:
        """Return what processors wrote down, in order."""
        return processors.read(self.folder / "diary", ring)

    def planned(self, ring: str) -> list[Block]:
        """Return the live blocks."""
        with self.queue(ring) as queue:
            return queue.blocks.list("planned")

    def has_ended(self, dag: str, run: str) -> bool:
        return self.airflow.state(dag, run) in ENDED

    def is_drained(self, ring: str) -> bool:
        with self.queue(ring) as queue:
            left = sum(footprint.count for _, footprint in queue.footprints(limit=100))
            return not left and not queue.blocks.list("planned")

    @contextlib.contextmanager
    def locked_table(self, table: str) -> Iterator[Callable[[], bool]]:
        """Let readers only use a table of the store; yield a function that returns whether a writer waits."""
        address = parse(self.store)
        with (
            psycopg.connect(self.store.partition("?")[0]) as holder,
            psycopg.connect(self.store.partition("?")[0], autocommit=True) as observer,
        ):
            name = f"{address.schema}.{table}"
            holder.execute(f"LOCK TABLE {name} IN EXCLUSIVE MODE".encode())

            def is_awaited() -> bool:
                waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
                return bool(observer.execute(waiting, (name,)).fetchall())

            yield is_awaited

    def start_cluster(self) -> None:
        """Start a cluster with two workers, which Airflow knows as `spark_cluster`, unless there is one."""
        folder = self.folder / "cluster"
        if folder.exists():
            return
        folder.mkdir()
        cluster = Cluster(folder, self.environment(self.folder))
        self.resources.callback(cluster.close)
        connection = {"connection_id": "spark_cluster", "conn_type": "spark"}
        place = {"host": "spark://127.0.0.1", "port": cluster.port}
        self.airflow.call("POST", "connections", {**connection, **place})

    def repair(self) -> None:
        """Open all gates, and restart what a row that failed left dead."""
        for bar in [*self.folder.glob("*.closed"), *self.folder.glob("xcom-fails")]:
            bar.unlink()
        self.wait_healthy()

    def wait_healthy(self, *components: str) -> None:
        """Start components that do not run, and wait until all that run are healthy."""
        wanted = {"api-server", "scheduler", "dag-processor", *components}
        for component in wanted:
            self.airflow.ensure(component)
        self.airflow.wait_healthy(wanted, PATIENCE)

    @staticmethod
    def environment(folder: Path) -> dict[str, str]:
        """Return the variables that processors need."""
        return {processors.VARIABLE: str(folder / "diary"), gates.VARIABLE: str(folder)}


@contextlib.contextmanager
def open_stage() -> Iterator[Stage]:
    """Start everything but the cluster."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mq-faults-")))
        server = stack.enter_context(running_postgres("embedded", volatile=True))
        store, metadata = (stack.enter_context(server.database()) for _ in range(2))
        upgrade(parse(store))
        (folder / EVENT_LOGS).mkdir()
        with MessageQueue(store) as queue:
            queue.admin.create_ring(EVENTS, RingConfig(service_weight=LIMIT))
        shutil.copytree(HERE / "dags", folder / "dags", ignore=shutil.ignore_patterns("__pycache__"))
        airflow = LiveAirflow(
            folder / "airflow",
            folder / "dags",
            metadata=metadata,
            parallelism=6,
            settings=SETTINGS,
            connections={
                "airflow_mq_default": connection_of(parse(store)),
                "spark_default": {"conn_type": "spark", "host": "local[2]"},
            },
            environment={"PYTHONPATH": str(REPOSITORY), **Stage.environment(folder)},
        )
        canaries = Canaries(folder, metadata, server.password)
        stack.callback(canaries.close)
        stack.callback(airflow.stop)
        # A busy machine takes longer than the usual patience. Most rows need no triggerer.
        airflow.start([one for one in COMPONENTS if one != TRIGGERER], wait=False)
        stage = Stage(airflow, store, folder, canaries, stack)
        stage.wait_healthy()
        yield stage


def wait_until(done: Callable[[], object], what: str, timeout: float = PATIENCE, pause: float = 0.1) -> None:
    """Wait for a condition; an error names it."""
    deadline = time.monotonic() + timeout
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout:.0f} s: {what}")
        time.sleep(pause)
