"""A block for each ring, on YARN in each deploy mode; its messages travel through HDFS."""

from __future__ import annotations

import os
import sys
from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_mq.block import block
from airflow_mq.processors import Processor
from airflow_mq.spark.java import spark_home
from tests.live import processors

#: The containers find what tests need, and bind to loopback alone.
ENVIRONMENT = {
    "PYTHONPATH": os.environ["PYTHONPATH"],
    processors.VARIABLE: os.environ[processors.VARIABLE],
    "SPARK_LOCAL_IP": "127.0.0.1",
}
CONF = {
    "spark.yarn.jars": f"local:{spark_home()}/jars/*",
    "spark.executor.cores": "1",
    "spark.ui.enabled": "false",
    **{f"spark.executorEnv.{name}": value for name, value in ENVIRONMENT.items()},
    **{f"spark.yarn.appMasterEnv.{name}": value for name, value in ENVIRONMENT.items()},
}
#: What each mode needs beside that.
CLIENT = {"conf": {**CONF, "spark.driver.host": "127.0.0.1"}}
CLUSTER = {"conf": {**CONF, "spark.pyspark.python": sys.executable}, "yarn_track_via_rm_api": True}

for mode, arguments in {"client": CLIENT, "cluster": CLUSTER}.items():
    with DAG(
        f"yarn_{mode}",
        schedule=None,
        params={"ring": Param("default", type="string")},
        default_args={"retry_delay": timedelta(seconds=1)},
    ):
        block(
            ring="{{ params.ring }}",
            processors=Processor("slow", "tests.live.processors:slow"),
            spark_conn_id=f"spark_yarn_{mode}",
            exchange="hdfs:///queues/orders",
            lease=600,
            retries=2,
            process_args={
                "num_executors": 2, "executor_memory": "512m", "driver_memory": "512m", "name": "{{ params.ring }}",
                **arguments,
            },
        )  # fmt: skip
