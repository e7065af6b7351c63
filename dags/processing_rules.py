"""Rules that these DAGs share: which processor takes which origin. This file makes no DAG.

The first processor that matches an origin takes it. Functions are given by name, and loaded where they run.
"""

from __future__ import annotations

from airflow_mq.processors import Processor, Processors

RULES = Processors(
    [
        Processor("log", "airflow_mq.examples.simple:log", origins=("log/*",), where="in place"),
        Processor("orders", "airflow_mq.examples.orders:process", shape="arrow", spark={"driver_memory": "1g"}),
    ]
)
