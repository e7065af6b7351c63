"""A block as tasks: plan what fits, process it, settle it. `airflow_mq.block.block` puts them together.

The plan claims messages and moves nothing; its answer is a list of parts, plain and small however many
messages there are, over which the processing task is mapped. Settling always runs, whatever became of the
jobs. Each of the three may be retried, and cleared, at any time and in any order:

* a plan that is asked again while its block lives gets the same block, and a new one when that has ended;
* a part whose block has ended is skipped: its messages went back to their queues, for whoever comes next;
* a block that is settled twice is settled once.
"""

from __future__ import annotations

from airflow_mq.operators.blocks.planning import ServiceQueuesOperator
from airflow_mq.operators.blocks.processing import ProcessMessagesOperator
from airflow_mq.operators.blocks.settling import SettleBlockOperator

__all__ = ["ProcessMessagesOperator", "ServiceQueuesOperator", "SettleBlockOperator"]
