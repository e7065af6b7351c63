"""## Orders: files of many tenants become one data set, a block at a time

Tenants drop files of orders (`airflow_mq/examples/orders.py` makes some). Each run enqueues the new files, and then
services one block: the queues of all tenants in turn, as much as fits the service weight of the ring. Spark converts
the files. Messages that no block can carry are set aside; a person executes them with `overweight_by_hand`.
"""

from __future__ import annotations

from airflow.sdk import dag, task
from processing_rules import RULES

from airflow_mq.block import block


@dag(schedule=None, doc_md=__doc__, tags=["airflow_mq", "example"])
def orders() -> None:
    @task
    def take_in() -> int:
        """Enqueue each new file as a message."""
        from airflow_mq.examples.orders import enqueue_new_files, folder
        from airflow_mq.hooks import MessageQueueHook

        with MessageQueueHook().queue() as queue:
            return enqueue_new_files(queue, folder()).count

    @task
    def add_up() -> dict[str, dict[str, int]]:
        """Return the totals of each tenant in the data set."""
        from airflow_mq.examples.orders import folder, totals

        return totals(folder())

    take_in() >> block(processors=RULES) >> add_up()


orders()
