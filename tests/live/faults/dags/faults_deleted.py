"""A DAG whose file a test deletes."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_mq.block import block
from tests.live.faults.rules import ARGUMENTS, IN_PLACE, RING

with DAG("deleted", schedule=None, params=RING):
    block(processors=IN_PLACE, **ARGUMENTS)
