"""A block for each ring that a test has for itself; the functions write down what they did."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_mq.block import block
from airflow_mq.operators.enqueue import EnqueueMessagesOperator
from airflow_mq.processors import Processor

AGAIN = {"retry_delay": timedelta(seconds=1)}
RING = {"ring": Param("default", type="string")}

with DAG("in_place", schedule=None, params=RING, default_args=AGAIN):
    block(ring="{{ params.ring }}", processors=Processor("slow", "tests.live.processors:slow", where="in place"))

with DAG("on_spark", schedule=None, params=RING, default_args=AGAIN):
    block(
        ring="{{ params.ring }}",
        processors=Processor("slow", "tests.live.processors:slow", spark={"driver_memory": "512m"}),
    )

with DAG("send", schedule=None, params=RING):
    EnqueueMessagesOperator(
        task_id="send",
        ring="{{ params.ring }}",
        origin="shop",
        messages=['{"ring": "{{ params.ring }}", "number": 0, "seconds": 0}'],
    )
