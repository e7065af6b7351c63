"""Where the demo takes place: a folder with a store, files of many tenants, and an Airflow."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..examples import orders
from ..queue import MessageQueue
from ..store import parse, upgrade
from ..testing.live import AirflowFailed, LiveAirflow

DAGS = Path(__file__).parents[2] / "dags"
#: What a block needs; the triggerer, for which nothing waits, comes up beside the first block.
FIRST = ("api-server", "scheduler", "dag-processor")


class Stage:
    """A folder, a store, an Airflow."""

    def __init__(self, place: Path | None = None) -> None:
        if not DAGS.is_dir():
            raise SystemExit(f"the demo runs the DAGs of the repository, and {DAGS} is not there; run it in a checkout")
        self.place = place or Path(tempfile.mkdtemp(prefix="airflow-mq-demo-"))
        self.store = f"sqlite:///{self.place / 'store.db'}"
        self.airflow = LiveAirflow(
            self.place / "airflow",
            DAGS,
            parallelism=4,
            connections={
                "airflow_mq_default": {
                    "conn_type": "airflow_mq",
                    "extra": {"driver": "sqlite", "path": self.store[10:]},
                },
                "spark_default": {"conn_type": "spark", "host": "local[*]"},
            },
            environment={orders.VARIABLE: str(self.place)},
        )

    def set_up(self) -> dict[str, Any]:
        """Make the store and the files, and tell what the files add up to."""
        upgrade(parse(self.store))
        with self.queue() as queue:
            queue.change_ring(service_weight=orders.BLOCK)
        return orders.generate(self.place)

    def start_airflow(self) -> None:
        """Start what a block needs, without waiting."""
        self.airflow.start(FIRST, wait=False)

    def queue(self) -> MessageQueue:
        return MessageQueue(self.store)

    def still_there(self) -> list[int]:
        """The ids of processes that should be gone."""
        with suppress(AirflowFailed):
            self.airflow.stop()
        return [process.pid for process in self.airflow.processes()]
