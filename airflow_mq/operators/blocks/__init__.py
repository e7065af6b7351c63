"""A block as tasks: plan what fits, process it, settle it. `airflow_mq.block.block` puts them together.

The plan claims messages and moves nothing. It returns a list of parts, plain and small however many messages there are,
over which the processing task is mapped. Settling always runs, whatever the jobs' states. Each task may be retried and
cleared at any time, in any order:

* a plan that runs again while its block lives returns the same block, and a new one after that block has ended;
* a part whose block was settled is skipped, and one whose block was released fails: later blocks take its messages;
* a block that is settled twice is settled once.

`ServiceQueuesOperator` does all three in one task, without a Spark job.
"""

from __future__ import annotations

from airflow_mq.operators.blocks.plan import PlanBlockOperator
from airflow_mq.operators.blocks.process import ProcessMessagesOperator
from airflow_mq.operators.blocks.service import ServiceQueuesOperator
from airflow_mq.operators.blocks.settle import SettleBlockOperator

__all__ = ["PlanBlockOperator", "ProcessMessagesOperator", "ServiceQueuesOperator", "SettleBlockOperator"]
