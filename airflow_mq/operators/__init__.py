"""Operators: enqueue, plan a block, process it, settle it; and what people decide, as DAGs.

    enqueue     EnqueueMessagesOperator
    blocks      PlanBlockOperator (plan), ProcessMessagesOperator, SettleBlockOperator
    overweight  ExecuteOverweightOperator, RequeueSetAsideOperator, DiscardSetAsideOperator
    queues      PauseQueueOperator, ResumeQueueOperator, ReapPageOperator, HousekeepingOperator

Each is a thin skin over the hook. What they have in common is in `base`.
"""

from __future__ import annotations
