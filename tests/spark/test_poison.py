"""A message that ends the process that tries it costs no other message its attempts."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_mq import Delivery, Done, MessageQueue, Report
from airflow_mq.engine.rules.outcome import BEGUN
from airflow_mq.spark import exchange
from airflow_mq.spark.share import run_share
from airflow_mq.spark.store_side import run_in_place
from tests.spark.conftest import processors, whole

MakeRing = Callable[..., MessageQueue]


def try_part(uri: str, token: str, function: str, shape: str, folder: str) -> None:
    """Try a block in a process of its own."""
    routes = processors(function=function, shape=shape)
    if folder:
        channel = exchange.FolderChannel(folder)
        for task in channel.tasks(routes):
            with channel.open(task.share) as side:
                run_share(task.processor, side, channel.terms(), again=True)
        return
    with MessageQueue(uri, "test") as queue:
        run_in_place(queue, token, routes, whole(routes))


def try_block(queue: MessageQueue, function: str, shape: str, base: str) -> int | None:
    """Plan a block, try it in another process, and settle what that reported; return its exit code."""
    block, routes = queue.blocks.plan(reports_begin=True), processors(function=function, shape=shape)
    folder = exchange.hand_over(queue, block.token, routes, whole(routes), base) if base else ""
    words = queue.store.address.uri, block.token, function, shape, folder
    worker = multiprocessing.get_context("spawn").Process(target=try_part, args=words)
    worker.start()
    worker.join()
    if folder:
        exchange.take_back(queue, block.token, folder)
    queue.blocks.settle(block)
    return worker.exitcode


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "shape", "most", "way"),
    [
        ("process", "message", 3, "store"), ("process", "message", 1, "store"), ("batched", "message", 2, "store"),
        ("arrow", "arrow", 2, "exchange"),
    ],
)  # fmt: skip
def test_a_message_that_kills_its_worker_is_set_aside_alone(
    make_ring: MakeRing, tmp_path: Path, function: str, shape: str, most: int, way: str
) -> None:
    queue = make_ring(ordered=False, max_attempts=most)
    queue.enqueue_messages("a", [b"1", b"2", b"die", b"3", b"4"])
    queue.enqueue_messages("c", [b"1", b"2"])
    base = str(tmp_path) if way == "exchange" else ""

    for block in range(most):
        assert try_block(queue, function, shape, base) != 0
        # Newcomers share later blocks with it, as in a queue that is used.
        queue.enqueue_messages(f"new {block}", [b"1", b"2"])
    assert try_block(queue, function, shape, base) == 0

    assert [str(one.address) for one in queue.set_aside.list()] == ["a:0:2"]
    assert sum(footprint.count for _, footprint in queue.footprints()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("most", "shape"), [(None, "message"), (2, "message"), (None, "arrow")])
def test_a_message_that_kills_its_worker_holds_up_no_other_queue(
    make_ring: MakeRing, most: int | None, shape: str
) -> None:
    """Each death leaves at least half of what was tried before it, and later blocks try the killer last."""
    queue = make_ring(max_attempts=most)
    queue.enqueue_messages("a", [b"%d" % number for number in range(60)] + [b"die", b"behind"])
    queue.enqueue_messages("b", [b"1", b"2"])
    function = "process" if shape == "message" else shape

    for _ in range(8):
        try_block(queue, function, shape, "")
    queue.enqueue_messages("b", [b"3"])
    try_block(queue, function, shape, "")

    left = {origin: footprint.count for origin, footprint in queue.footprints() if footprint.count}
    assert left == ({"a": 2} if most is None else {"a": 1})
    assert len(queue.set_aside.list()) == (most is not None)


def test_a_repeated_part_tries_what_it_began_last(make_ring: MakeRing) -> None:
    queue, seen = make_ring(), list[bytes]()
    queue.enqueue_messages([("a", b"1"), ("a", b"2"), ("b", b"3"), ("b", b"4"), ("c", b"5")])
    block, routes = queue.blocks.plan(reports_begin=True), processors()
    queue.blocks.report(block.token, [Report("a", 0, 0, 0, Done()), Report("a", 0, 1, 1, BEGUN)])

    def process(payload: bytes, origin: str, message: Delivery) -> None:
        seen.append(payload)

    tally = run_in_place(queue, block.token, routes, whole(routes), function=process)

    assert seen == [b"3", b"4", b"5", b"2"]
    assert (tally.processed, tally.before) == (4, 1)
    queue.blocks.settle(block)
