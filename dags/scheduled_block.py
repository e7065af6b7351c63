"""## A block every five minutes

Each run services the queues of all senders fairly, within the ring's weight. Runs may overlap: one plans at a time, and
each claims messages that are not in flight.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG
from processing_rules import RULES

from airflow_mq.block import block

with DAG("scheduled_block", schedule=timedelta(minutes=5), catchup=False, doc_md=__doc__, tags=["airflow_mq"]):
    block(processors=RULES)
