"""Stage of the demo: a folder with a store, files of many tenants, and an Airflow."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...examples import orders
from ...queue import MessageQueue
from ...store import parse, upgrade
from ...testing.live import LiveAirflow

#: The DAGs folder: in the wheel beside this module, in a checkout at its top.
DAGS = next(
    (path for path in (Path(__file__).with_name("dags"), Path(__file__).parents[3] / "dags") if path.is_dir()), None
)
#: Components that a block requires. The triggerer, which no task needs at first, starts beside the first block.
FIRST = ("api-server", "scheduler", "dag-processor")


@dataclass
class Stage:
    """A folder, a store, and an Airflow that has connections to both."""

    place: Path
    store: str
    airflow: LiveAirflow

    @classmethod
    def embedded(cls) -> Stage:
        """Return a stage on this machine alone: SQLite, and Spark inside the tasks."""
        assert DAGS is not None, "the package lacks the demo's DAGs"
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
        """Create the store and the files; return the manifest of the files."""
        upgrade(parse(self.store))
        with self.queue() as queue:
            queue.admin.change_ring(service_weight=orders.BLOCK)
        return orders.generate(self.place, **sizes)

    def start_airflow(self) -> None:
        """Start what a block needs, without waiting."""
        self.airflow.start(FIRST, wait=False)

    def queue(self) -> MessageQueue:
        """Open the queue."""
        return MessageQueue(self.store)
