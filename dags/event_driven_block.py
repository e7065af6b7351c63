"""## A block as soon as something is sent

The trigger watches the ring and emits the asset; settling emits it again while the next block finds messages. Airflow
may merge or lose events without harm: an event is a hint that there is something to do, and the queue holds the truth.
The time schedule is the safety net: if every event is lost, each message waits five minutes at most.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset, AssetOrTimeSchedule, AssetWatcher, DeltaTriggerTimetable
from processing_rules import RULES

from airflow_mq.block import block
from airflow_mq.triggers import QueueReadyTrigger

ready = Asset("airflow-mq-ready", watchers=[AssetWatcher(name="ring", trigger=QueueReadyTrigger())])
schedule = AssetOrTimeSchedule(timetable=DeltaTriggerTimetable(timedelta(minutes=5)), assets=[ready])

# One run at a time is enough, and avoids empty runs; no guarantee depends on it.
with DAG(
    "event_driven_block", schedule=schedule, catchup=False, max_active_runs=1, doc_md=__doc__, tags=["airflow_mq"]
):
    block(processors=RULES, outlet=ready)
