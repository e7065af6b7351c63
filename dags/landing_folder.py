"""## Files that land become messages, and are processed at once

Tenants drop files into folders of their own: `landing/acme/17.json` becomes a message of `acme`, once, and is moved to
`landing/.received`. The same run services the messages, fairly and within the ring's weight. After a run is killed, its
retry or the next run continues.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG
from processing_rules import RULES

from airflow_mq.block import block
from airflow_mq.operators.receive import ReceiveFilesOperator

#: Not a param: a form must not choose which files of the worker are received.
FOLDER = "/var/lib/airflow-mq/landing"

with DAG(
    "landing_folder",
    schedule=timedelta(minutes=5),
    catchup=False,
    doc_md=__doc__,
    tags=["airflow_mq"],
):
    received = ReceiveFilesOperator(task_id="receive", folder=FOLDER, pattern="{origin}/*.json", retries=2, settle=5)
    received >> block(processors=RULES)
