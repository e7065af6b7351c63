"""Mail of transactions that commit late: it has a smaller id than mail that was cut long before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from airflow_mq import MessageQueue, RingConfig, Weight
from airflow_mq.store import Outgoing, parse, upgrade

pytestmark = [pytest.mark.concurrency, pytest.mark.postgres]


@pytest.fixture
def queues(pg_uri: str) -> Iterator[tuple[MessageQueue, MessageQueue]]:
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as sender:
        sender.create_ring("small", RingConfig(heap_size=64, order="rotation"))
        with MessageQueue(pg_uri, "small") as queue, MessageQueue(pg_uri, "small") as sender:
            yield queue, sender


def send(queue: MessageQueue, stack: ExitStack, origin: str, *payloads: bytes) -> None:
    """Send in a transaction that stays open as long as the stack."""
    unit = stack.enter_context(queue.store.writing())
    for payload in payloads:
        queue.store.send(unit, queue.ring_id, [Outgoing(origin, len(payload), 1, False, b"", b"", payload)])


@pytest.mark.parametrize("ready", ["never seen", "seen", "ready"])
def test_a_sender_that_nobody_overtook(queues: tuple[MessageQueue, MessageQueue], ready: str) -> None:
    """The transaction is the latest that has begun, and all before it have ended, while the ring is looked at."""
    queue, sender = queues
    if ready != "never seen":
        queue.enqueue_message("a", b"before")
        if ready == "seen":
            queue.service_queues(lambda delivery: None)
    with ExitStack() as stack:
        send(sender, stack, "a", b"late")
        for _ in range(3):
            queue.settle_block(queue.plan_block())
            queue.service_queues(lambda delivery: None)
    assert queue.footprint("a").count == 1
    assert queue.check() == []
    assert queue.service_queues(lambda delivery: None).processed == 1
    assert queue.check() == []


def test_pages_over_mail_in_any_order(queues: tuple[MessageQueue, MessageQueue]) -> None:
    """Late mail shares pages with earlier mail; what lies across two pages stays until both are gone."""
    queue, sender = queues
    with ExitStack() as stack:
        send(sender, stack, "a", b"late 1", b"late 2", b"late 3")
        queue.enqueue_messages("a", [b"early %d" % n for n in range(5)])
        assert queue.service_queues(lambda delivery: None, Weight(2, 1 << 20)).processed == 2
        assert queue.service_queues(lambda delivery: None, Weight(2, 1 << 20)).processed == 2
        queue.enqueue_messages("a", [b"more %d" % n for n in range(4)])
        queue.settle_block(queue.plan_block())
    queue.enqueue_messages("a", [b"last %d" % n for n in range(12)])
    for _ in range(20):
        queue.service_queues(lambda delivery: None, Weight(1, 1 << 20))
        assert queue.check() == []
    queue.service_queues(lambda delivery: None)
    assert queue.check() == []
    ids = [event.id for event in queue.events(name="Processed")]
    assert len(ids) == len(set(ids)) == 5 + 4 + 3 + 12
    with queue.store.loose() as unit:
        assert unit.rows("uncut", ring=queue.ring_id, after=-1, limit=10) == []
