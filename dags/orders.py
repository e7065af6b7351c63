"""## Orders: files of many tenants become one data set, a block at a time

Tenants drop files of orders (`airflow_mq/examples/orders.py` makes some). Each run takes in what was dropped, and then
services one block: the queues of all tenants in turn, as much as fits the ring's service weight. Spark converts the
files; what no block can carry is set aside, and waits for a person and `overweight_by_hand`.
"""

from __future__ import annotations

from airflow.sdk import dag, task
from processing_rules import RULES

from airflow_mq.block import block


@dag(schedule=None, doc_md=__doc__, tags=["airflow_mq", "example"])
def orders() -> None:
    @task
    def take_in() -> int:
        """Make a message of each file that was dropped since."""
        from airflow_mq.examples.orders import enqueue_new_files, folder
        from airflow_mq.hooks import MessageQueueHook

        with MessageQueueHook().queue() as queue:
            return enqueue_new_files(queue, folder()).count

    @task
    def add_up() -> dict[str, dict[str, int]]:
        """What each tenant has in the data set by now."""
        from airflow_mq.examples.orders import folder, totals

        return totals(folder())

    take_in() >> block(processors=RULES) >> add_up()


orders()
