"""Process all that an upgraded store holds."""

from __future__ import annotations

from airflow_mq import Delivery, MessageQueue
from airflow_mq.core.blob import Reference

from . import Dump


def finish(queue: MessageQueue, dump: Dump) -> list[str]:
    """Settle the block in flight, end the lease and the pause, and return the payloads of all that is left."""
    queue.admin.resume("hooli")
    assert queue.blocks.settle(dump.facts["block"]).processed == 1
    if dump.facts["lease"]:
        queue.leases.give_back(dump.facts["lease"])
    return drain(queue)


def drain(queue: MessageQueue) -> list[str]:
    """Process all ready messages; return their payloads."""
    payloads: list[bytes] = []

    def process(delivery: Delivery) -> None:
        payload = delivery.payload
        payloads.append(queue.payloads.open(delivery).read() if isinstance(payload, Reference) else payload)

    while queue.service_queues(process).processed:
        pass
    return sorted(payload.decode() for payload in payloads)
