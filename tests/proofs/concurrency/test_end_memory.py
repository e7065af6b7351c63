"""Memory of ending a block: it does not grow with the bytes of the block's messages."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_mq import MessageQueue, RingConfig, Weight
from airflow_mq.engine.queue.blocks import settling
from airflow_mq.engine.queue.blocks.block import Block
from airflow_mq.engine.queue.values import Delivery
from airflow_mq.engine.store import parse, upgrade
from tests.holding import drop_lease, take_lease
from tests.peak import peak_of

pytestmark = pytest.mark.concurrency

TOKEN = b"live" * 4
LENGTH, FEW, MANY, PART_SIZE = 16_000, 150, 800, 1 << 20


def end_at_once(queue: MessageQueue, other: MessageQueue, block: Block) -> int:
    return peak_of(lambda: queue.blocks.release(block))


def apply_alone(queue: MessageQueue, other: MessageQueue, block: Block) -> int:
    take_lease(queue.session, TOKEN)
    other.blocks.release(block)
    drop_lease(queue.session, TOKEN)
    return peak_of(queue.session.hold.apply_soon)


def apply_in_a_service(queue: MessageQueue, other: MessageQueue, block: Block) -> int:
    """Return the peak of a service that applies the end between its first two messages."""
    with ThreadPoolExecutor(1) as threads:

        def processor(delivery: Delivery) -> None:
            if delivery.payload == b"first":
                threads.submit(other.blocks.release, block).result()

        return peak_of(lambda: queue.service_queues(processor, slice_messages=1, origins=["served"]))


@pytest.mark.slow
@pytest.mark.sqlite_first
@pytest.mark.parametrize(
    ("how", "backoff"),
    [
        pytest.param(end_at_once, 60.0, id="at once, waits aside"),
        pytest.param(apply_alone, 0.0, id="alone, goes back"),
        pytest.param(apply_in_a_service, 60.0, id="in a service, waits aside"),
        pytest.param(end_at_once, 0.0, id="at once, goes back", marks=pytest.mark.soak),
        pytest.param(apply_alone, 60.0, id="alone, waits aside", marks=pytest.mark.soak),
        pytest.param(apply_in_a_service, 0.0, id="in a service, goes back", marks=pytest.mark.soak),
    ],
)
def test_the_memory_of_an_end_does_not_grow_with_its_bytes(
    store_uri: str,
    how: Callable[[MessageQueue, MessageQueue, Block], int],
    backoff: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settling, "PART_SIZE", PART_SIZE)
    monkeypatch.setattr("airflow_mq.engine.queue.service.HELD", PART_SIZE)
    upgrade(parse(store_uri))
    config = RingConfig(service_weight=Weight(10_000, 1 << 40), ordered=False, order="rotation", backoff=backoff)
    peaks = []
    for count in (FEW, MANY):
        with MessageQueue(store_uri) as admin:
            admin.admin.create_ring(f"r{count}", config)
        with MessageQueue(store_uri, f"r{count}") as queue, MessageQueue(store_uri, f"r{count}") as other:
            queue.enqueue_messages("held", [b"%d" % number * (LENGTH // 4) for number in range(1_000, 1_000 + count)])
            block = queue.blocks.plan()
            assert block.messages == count
            queue.enqueue_messages("served", [b"first", b"second"])
            peaks.append(how(queue, other, block))
            assert queue.check() == []
    # Each message has an event and a place.
    assert peaks[1] < 1.2 * peaks[0] + MANY * 1_000, peaks
