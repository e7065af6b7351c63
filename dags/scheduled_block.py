"""## A block every five minutes

The whole of it: whatever was enqueued, by whomever, is serviced fairly and within the ring's weight. Runs that overlap
do no harm: one plans at a time, and each takes what is not in flight.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG
from processing_rules import RULES

from airflow_mq.block import block

with DAG("scheduled_block", schedule=timedelta(minutes=5), catchup=False, doc_md=__doc__, tags=["airflow_mq"]):
    block(processors=RULES)
