"""## Daily housekeeping

The run releases dead blocks (the next plan would as well) and deletes expired events, keys and ledgers. Set-aside
messages expire if the ring has a policy for it. The run checks everything that is stored, and fails on an integrity
problem.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_mq.operators.queues import HousekeepingOperator

with DAG("housekeeping", schedule="@daily", catchup=False, doc_md=__doc__, tags=["airflow_mq"]):
    HousekeepingOperator(task_id="housekeep", check=True)
