"""Blocks that start by events and by the clock, and a flood of tasks in one pool."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset, AssetOrTimeSchedule, AssetWatcher, DeltaTriggerTimetable, Param, task

from airflow_mq import Processor
from airflow_mq.block import block
from airflow_mq.triggers import QueueReadyTrigger

NOTE = [Processor("note", "lab.benchmarks.airflow.work:note", where="in place")]

ready = Asset(
    "load-ready", watchers=[AssetWatcher(name="load", trigger=QueueReadyTrigger(ring="by_event", poll_interval=0.5))]
)
schedule = AssetOrTimeSchedule(timetable=DeltaTriggerTimetable(timedelta(hours=6)), assets=[ready])
with DAG("by_event", schedule=schedule, catchup=False, max_active_runs=1):
    block(processors=NOTE, ring="by_event")

with DAG("by_clock", schedule="* * * * *", catchup=False, max_active_runs=1):
    block(processors=NOTE, ring="by_clock")


@task
def numbers(params: dict[str, int]) -> list[int]:
    return list(range(params["count"]))


@task
def work(number: int) -> None:
    """Do nothing."""


@task
def quiet() -> None:
    """Do nothing."""


with DAG("flood", schedule=None, params={"count": Param(100, type="integer")}):
    work.expand(number=numbers())

with DAG("quiet", schedule=None):
    quiet()
