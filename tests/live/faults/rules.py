"""Rules of processing of the DAGs in this folder, and the arguments of their blocks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import Param

from airflow_mq.processors import Processor

from .gates import EVENT_LOGS, gates_folder, wait_at_own_gate

FUNCTION = "tests.live.faults.processors:process"
RING = {"ring": Param("default", type="string")}
IN_PLACE = Processor("in-place", FUNCTION, where="in place")
ON_SPARK = Processor("on-spark", FUNCTION, spark={"driver_memory": "512m"})
#: The attempt that is slower than half of the others gets a rival.
ON_CLUSTER = Processor(
    "on-cluster",
    FUNCTION,
    spark={
        "driver_memory": "512m",
        "executor_memory": "512m",
        "conf": {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.port": "0",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (gates_folder() / EVENT_LOGS).as_uri(),
            "spark.speculation": "true",
            "spark.speculation.interval": "200ms",
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.quantile": "0.5",
        },
    },
)
#: A task that died is tried again soon, and twice.
ARGUMENTS: dict[str, Any] = {
    "ring": "{{ params.ring }}",
    "default_args": {"retries": 2, "retry_delay": timedelta(seconds=1), "pre_execute": wait_at_own_gate},
}
