"""Operators of the message queue.

    enqueue     EnqueueMessagesOperator, EnqueueFilesOperator, EnqueueSqlOperator
    receive     ReceiveFilesOperator, ReceiveKafkaOperator, ReceiveMessagesOperator
    blocks      PlanBlockOperator, ProcessMessagesOperator, SettleBlockOperator; ServiceQueuesOperator
    set_aside   ExecuteOverweightOperator, RequeueSetAsideOperator, DiscardSetAsideOperator
    queues      PauseQueueOperator, ResumeQueueOperator, ReapPageOperator, HousekeepingOperator
    fairness    CheckFairnessOperator

Each wraps the hook; `base` is their common base.
"""

from __future__ import annotations
