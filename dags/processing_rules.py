"""Who processes what: the rules that these DAGs share. No DAG is made here.

The first processor that matches an origin takes it. A function is named, and loaded where it runs.
"""

from __future__ import annotations

from airflow_mq.processors import Processor, Processors

RULES = Processors(
    [
        Processor("log", "airflow_mq.examples.simple:log", origins=("log/*",), where="in place"),
        Processor("orders", "airflow_mq.examples.orders:process", shape="arrow", spark={"driver_memory": "1g"}),
    ]
)
