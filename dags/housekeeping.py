"""## What is to be done from time to time

Blocks that died are released (the next plan would do that, too), and what is kept no longer goes: events, keys,
ledgers, and what was set aside too long ago, where the ring has a policy that says so. Once a day everything stored
is looked over; the run fails if anything is not as it should be.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_mq.operators.queues import HousekeepingOperator

with DAG("housekeeping", schedule="@daily", catchup=False, doc_md=__doc__, tags=["airflow_mq"]):
    HousekeepingOperator(task_id="housekeep", check=True)
