"""## A block on each shard of a sharded queue

The connection `mq_fleet` names the connections of the shards in its extra: `{"shards": "mq_one, mq_two"}`. Each shard
has a block of its own in every run. If a database is down, the tasks of its block fail, and so does the run; the blocks
of the other shards go on. The task `drain` releases origins whose former shard has no more messages of them. It depends
on no block, so that the state of a run is that of its blocks.

Airflow cannot map a group that maps tasks itself, so the shards are named here. To add a shard, add its connection here
and to `mq_fleet`, and run `airflow-mq --conn-id mq_fleet shards apply`.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, task
from processing_rules import RULES

from airflow_mq.block import block

SHARDS = ["mq_one", "mq_two"]


@task
def drain() -> dict[str, int]:
    """Release origins that have left their former shard; return how many are still there."""
    from airflow_mq.hooks import MessageQueueHook

    with MessageQueueHook("mq_fleet").sharded_queue() as queue:
        return dict(queue.drain().pinned)


with DAG(
    "sharded_blocks", schedule=timedelta(minutes=5), catchup=False, doc_md=__doc__, tags=["airflow_mq", "example"]
):
    drain()
    for shard in SHARDS:
        block(f"block_{shard}", mq_conn_id=shard, processors=RULES)
