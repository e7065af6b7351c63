"""Measured time of blocks that Spark, or its code in place, processed: it is divided, and charged if the ring does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from airflow_mq import Batch, LinearWeigher, MessageQueue, Weight, batch_processor
from airflow_mq.engine.rules.charging import Charge
from airflow_mq.spark import exchange
from airflow_mq.spark.exchange import FolderChannel
from airflow_mq.spark.share import run_share
from airflow_mq.spark.store_side import run_in_place
from tests.spark.conftest import job_command, job_environment, processors, run_job, whole

MakeRing = Callable[..., MessageQueue]


def charges(queue: MessageQueue) -> dict[str, Charge]:
    with queue.store.reading() as unit:
        rows = unit.charges.after(queue.session.ring_id, 0, 1_000)
    found: dict[str, Charge] = {}
    for row in rows:
        for (book, _), charge in row.charges.items():
            found[book] = found.get(book, Charge()).plus(charge)
    return found


@batch_processor
def sleeping_batches(batch: Batch) -> None:
    """Sleep for what the messages ask for."""
    sleep(sum(float(payload) for payload in batch.payloads))


def sleeping(payload: bytes) -> None:
    """Sleep for what the message asks for."""
    sleep(float(payload))


def sleeping_frames(batches: Any) -> Iterator[Any]:
    """Sleep for what a record batch asks for; all of its messages are done."""
    import pyarrow as pa

    for batch in batches:
        sleep(sum(float(payload) for payload in batch.column("payload").to_pylist()))
        names = ["origin", "priority", "page", "item"]
        outcome = pa.array([None] * batch.num_rows, pa.string())
        yield pa.RecordBatch.from_arrays([*(batch.column(name) for name in names), outcome], [*names, "outcome"])


@pytest.mark.parametrize("way", ["in place", "folder"])
@pytest.mark.parametrize("shape", ["sleeping", "sleeping_batches"])
def test_each_queue_is_charged_what_its_own_messages_took(
    either_store: str, make_ring: MakeRing, tmp_path: Path, shape: str, way: str
) -> None:
    queue = make_ring(either_store, charges_time=True, weigher=LinearWeigher(Weight(1, 0), Weight(0, 0)))
    queue.enqueue_messages("a", [b"0.1", b"0.1"])
    queue.enqueue_messages("b", [b"0"] * 3)
    routes, block = processors(), queue.blocks.plan()
    function = f"tests.spark.test_times:{shape}"
    (routed,) = [type(one)(one.name, function) for one in routes.all]
    routes = type(routes)([routed])
    if way == "folder":
        folder = exchange.hand_over(queue, block.token, routes, whole(routes), str(tmp_path))
        channel = FolderChannel(folder)
        for task in channel.tasks(routes):
            with channel.open(task.share) as side:
                run_share(task.processor, side, channel.terms())
        for _ in range(2):
            exchange.take_back(queue, block.token, folder)
    else:
        run_in_place(queue, block.token, routes, whole(routes))
    queue.blocks.settle(block)
    found = charges(queue)
    assert 200_000 <= found["a"].measured < 1_000_000 and found["b"].measured < 100_000
    assert found["a"].charged.time == found["a"].measured // 1_000
    assert found["b"].planned.time <= found["b"].charged.time < 100


def test_a_call_that_mixes_queues_is_divided_by_planned_weight(make_ring: MakeRing) -> None:
    queue = make_ring(ordered=False, weigher=LinearWeigher(Weight(1, 0), Weight(0, 0)))
    queue.enqueue_messages("a", [b"0.05"] * 2)
    queue.enqueue_messages("b", [b"0.05"] * 6)
    routes, block = processors(), queue.blocks.plan()
    (one,) = routes.all
    routes = type(routes)([type(one)(one.name, "tests.spark.test_times:sleeping_frames", shape="arrow")])
    run_in_place(queue, block.token, routes, whole(routes))
    queue.blocks.settle(block)
    found = charges(queue)
    assert abs(found["b"].measured - 3 * found["a"].measured) <= 3
    assert 400_000 <= found["a"].measured + found["b"].measured < 1_500_000


@pytest.mark.spark
@pytest.mark.slow
def test_the_time_of_a_killed_executor_counts_once(either_store: str, make_ring: MakeRing) -> None:
    queue = make_ring(either_store, charges_time=True)
    queue.enqueue_messages("calm", [b"slow 0.3"] * 3)
    queue.enqueue_messages("deadly", [b"slow 1.5", b"die", b"2"])
    routes, block = processors(), queue.blocks.plan()
    code, output = run_job(job_command(routes), job_environment(either_store, block.token))
    settled = queue.blocks.settle(block)
    found = charges(queue)
    assert settled.processed == 4, (code, output)
    assert found["calm"].messages == 3 and found["deadly"].messages == 1
    assert 900_000 <= found["calm"].measured < 1_800_000
    assert 1_500_000 <= found["deadly"].measured < 3_000_000
    assert found["deadly"].charged.time >= found["deadly"].measured // 1_000
