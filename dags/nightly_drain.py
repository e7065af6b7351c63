"""## Blocks until the ring is empty, every night

At two, the schedule starts a block. While messages are left that the next block would take, settling emits the asset,
which starts that block. The drain ends when nothing is left that can be serviced now: paused queues, messages that wait
for their next attempt, and those above the limit wait for the next night. It ends after 50 blocks, too, and with a
block that takes longer than an hour.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset, AssetOrTimeSchedule, CronTriggerTimetable
from processing_rules import RULES

from airflow_mq.block import block

left = Asset("airflow-mq-left")
schedule = AssetOrTimeSchedule(timetable=CronTriggerTimetable("0 2 * * *", timezone="UTC"), assets=[left])

# One run at a time: a second chain of blocks would count its rounds from the start.
with DAG(
    "nightly_drain", schedule=schedule, catchup=False, max_active_runs=1, dagrun_timeout=timedelta(hours=1),
    doc_md=__doc__, tags=["airflow_mq"],
):  # fmt: skip
    block(processors=RULES, outlet=left, rounds=50)
