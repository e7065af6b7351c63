"""Where the demo takes place: a folder with a store, files of many tenants, and an Airflow."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..examples import orders
from ..queue import MessageQueue
from ..store import parse, upgrade
from ..testing.live import LiveAirflow

DAGS = Path(__file__).parents[2] / "dags"
#: What a block needs; the triggerer, for which nothing waits, comes up beside the first block.
FIRST = ("api-server", "scheduler", "dag-processor")


@dataclass
class Stage:
    """A folder, a store, and an Airflow that knows both."""

    place: Path
    store: str
    airflow: LiveAirflow

    @classmethod
    def embedded(cls) -> Stage:
        """What needs nothing but this machine: SQLite, and Spark inside the tasks."""
        if not DAGS.is_dir():
            raise SystemExit(f"the demo runs the DAGs of the repository, and {DAGS} is not there; run it in a checkout")
        place = Path(tempfile.mkdtemp(prefix="airflow-mq-demo-"))
        file = place / "store.db"
        connections = {
            "airflow_mq_default": {"conn_type": "airflow_mq", "extra": {"driver": "sqlite", "path": str(file)}},
            "spark_default": {"conn_type": "spark", "host": "local[*]"},
        }
        environment = {orders.VARIABLE: str(place)}
        airflow = LiveAirflow(place / "airflow", DAGS, connections=connections, environment=environment)
        return cls(place, f"sqlite:///{file}", airflow)

    def set_up(self, **sizes: int) -> dict[str, Any]:
        """Make the store and the files, and tell what the files add up to."""
        upgrade(parse(self.store))
        with self.queue() as queue:
            queue.admin.change_ring(service_weight=orders.BLOCK)
        return orders.generate(self.place, **sizes)

    def start_airflow(self) -> None:
        """Start what a block needs, without waiting."""
        self.airflow.start(FIRST, wait=False)

    def queue(self) -> MessageQueue:
        return MessageQueue(self.store)
