"""DAGs of the faults, and one beside them whose blocks drain a ring when a fault lasts."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset, AssetOrTimeSchedule, AssetWatcher, DeltaTriggerTimetable

from airflow_mq.block import block
from airflow_mq.triggers import QueueReadyTrigger
from tests.live.faults.rules import ARGUMENTS, IN_PLACE, ON_CLUSTER, ON_SPARK, RING

for name in ("in_place", "beside"):
    with DAG(name, schedule=None, params=RING):
        block(processors=IN_PLACE, **ARGUMENTS)

with DAG("on_spark", schedule=None, params=RING):
    block(processors=ON_SPARK, **ARGUMENTS)

with DAG("on_cluster", schedule=None, params=RING):
    block(processors=ON_CLUSTER, spark_conn_id="spark_cluster", **ARGUMENTS)

ready = Asset("faults-ready", watchers=[AssetWatcher(name="ring", trigger=QueueReadyTrigger(ring="events"))])
schedule = AssetOrTimeSchedule(timetable=DeltaTriggerTimetable(timedelta(seconds=20)), assets=[ready])

with DAG("events", schedule=schedule, catchup=False, max_active_runs=1, params={**RING, "ring": "events"}):
    block(processors=IN_PLACE, outlet=ready, **ARGUMENTS)
