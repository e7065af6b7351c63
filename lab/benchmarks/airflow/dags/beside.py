"""Equal work as a block of messages, as mapped tasks, and as blocks that start after an enqueue."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset, AssetOrTimeSchedule, AssetWatcher, DeltaTriggerTimetable, Param, task

from airflow_mq import Processor
from airflow_mq.block import block
from airflow_mq.triggers import QueueReadyTrigger

NOTHING = [Processor("nothing", "lab.benchmarks.airflow.work:nothing", where="in place")]

with DAG("one_block", schedule=None):
    block(processors=NOTHING)


@task
def numbers(params: dict[str, int]) -> list[int]:
    return list(range(params["count"]))


@task
def work(number: int) -> None:
    """Nothing, as the processor does."""


with DAG("mapped_tasks", schedule=None, params={"count": Param(1_000, type="integer")}):
    work.expand(number=numbers())

ready = Asset(
    "bench-ready", watchers=[AssetWatcher(name="ring", trigger=QueueReadyTrigger(ring="events", poll_interval=0.5))]
)
schedule = AssetOrTimeSchedule(timetable=DeltaTriggerTimetable(timedelta(hours=6)), assets=[ready])
with DAG("event_block", schedule=schedule, catchup=False, max_active_runs=1):
    block(processors=NOTHING, ring="events")
