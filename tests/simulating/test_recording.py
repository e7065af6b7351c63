"""Recorded arrivals of a queue are replayed: waiting and processed messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_mq import BadFormat, LinearWeigher, MessageQueue, Weight
from airflow_mq.core.book import Standing
from airflow_mq.core.errors import InvalidInput
from airflow_mq.simulating import Arrival, read_scenario, record, simulate, write_scenario
from tests.crash.states import everything
from tests.queue.conftest import Maker
from tests.queue.test_foreseeing import complete_block


@pytest.fixture
def queue(store_uri: str) -> Iterator[MessageQueue]:
    queue = Maker(store_uri)(
        order="rotation", service_weight=Weight(10, 1 << 20), weigher=LinearWeigher(Weight(1, 0), Weight(0, 1000))
    )
    with queue:
        yield queue
        assert queue.check() == []


def arrivals(queue: MessageQueue, blocks: int = 100) -> list[tuple[int, str, int]]:
    before = everything(queue)
    found = record(queue, blocks)
    assert everything(queue) == before
    return [(one.block, one.origin, one.count) for one in found.arrivals]


def test_nothing(queue: MessageQueue) -> None:
    told = record(queue)
    assert (told.arrivals, told.blocks, told.name) == ([], 1, "test")
    with pytest.raises(InvalidInput, match="at least 1"):
        record(queue, 0)


def test_what_waits(queue: MessageQueue) -> None:
    queue.admin.set_origin("acme", share=3)
    queue.enqueue_messages("acme", [b"xx"] * 25)
    queue.enqueue_message("heavy", b"x", weight=Weight(7, 7))
    complete_block(queue, queue.blocks.plan())
    queue.enqueue_message("late", b"x")
    told = record(queue)
    assert told.arrivals == [
        Arrival(1, "acme", 25, 2, Weight(1, 2)), Arrival(1, "heavy", 1, 1, Weight(7, 7)),
        Arrival(2, "late", 1, 1, Weight(1, 1)),
    ]  # fmt: skip
    assert told.standings == {"acme": Standing(share=3)} and told.ring == queue.config
    # The first of its blocks, simulated, is the one that ran.
    assert simulate(told)[0].blocks[0].origins == ["acme"]


def test_a_backlog_came_at_once(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"x"] * 12)
    for _ in range(2):
        complete_block(queue, queue.blocks.plan())
    queue.enqueue_messages("acme", [b"x"] * 5)
    complete_block(queue, queue.blocks.plan())
    assert arrivals(queue) == [(1, "acme", 12), (3, "acme", 5)]
    assert arrivals(queue, 1) == [(1, "acme", 5)]


def test_no_clock_decides_the_block_of_a_message(queue: MessageQueue) -> None:
    for count in (2, 3):
        queue.enqueue_messages("acme", [b"x"] * count)
        queue.service_queues(lambda delivery: None)
        queue.enqueue_messages("globex", [b"x"] * count)
        complete_block(queue, queue.blocks.plan())
    told = [(1, "acme", 2), (2, "globex", 2), (3, "acme", 3), (4, "globex", 3)]
    with queue.store.writing() as unit:
        prefix = queue.store.prefix
        for table in ("event", "ledger"):  # As if all of it had been within one tick of the clock.
            unit.connection.execute(f"UPDATE {prefix}{table} SET at = 1")  # type: ignore[attr-defined]
    for blocks in range(1, 5):
        assert arrivals(queue, blocks) == [(at - 4 + blocks, *rest) for at, *rest in told[-blocks:]]


def test_a_block_that_is_settled_late_is_not_taken_for_a_later_one(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"x"] * 2)
    early = queue.blocks.plan()
    queue.enqueue_messages("globex", [b"x"] * 3)
    complete_block(queue, queue.blocks.plan())
    complete_block(queue, early)
    assert arrivals(queue, 1) == [(1, "globex", 3)]
    assert arrivals(queue) == [(1, "acme", 2), (2, "globex", 3)]


def test_what_was_served_in_place_and_what_failed(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"x"] * 3)
    queue.service_queues(lambda delivery: None)
    queue.enqueue_messages("globex", [b"x"] * 2)
    queue.service_queues(lambda delivery: BadFormat())
    queue.enqueue_message("heavy", b"x", weight=Weight(99, 0))
    complete_block(queue, queue.blocks.plan())
    (aside,) = queue.set_aside.list()
    queue.execute_overweight(aside.address, lambda delivery: None)
    assert arrivals(queue)[-1] == (2, "globex", 2)


def test_what_was_written_is_read_again(queue: MessageQueue, tmp_path: Path) -> None:
    queue.admin.set_origin("acme", least=Weight(1, 1), most=Weight(9, 9), ordered=False)
    queue.enqueue_messages("acme", [b"x"] * 25)
    queue.enqueue_messages("globex", [b"x", b"yy"])
    complete_block(queue, queue.blocks.plan())
    told = record(queue, name="monday")
    write_scenario(told, tmp_path / "monday.jsonl")
    again = read_scenario(tmp_path / "monday.jsonl")
    assert again == told
    assert simulate(again) == simulate(told)
    with pytest.raises(InvalidInput, match="cannot write scenario"):
        write_scenario(told, tmp_path / "nowhere" / "monday.jsonl")


def test_priorities(queue: MessageQueue, tmp_path: Path) -> None:
    queue.enqueue_messages("acme", [b"x"] * 12, priority="high")
    queue.enqueue_messages("acme", [b"x"] * 12)
    for _ in range(2):
        complete_block(queue, queue.blocks.plan())
    told = record(queue)
    high = [one for one in told.arrivals if one.priority == "high"]
    assert {one.block for one in high} == {1} and sum(one.count for one in high) == 12
    assert sum(one.count for one in told.arrivals) == 24
    write_scenario(told, tmp_path / "a.jsonl")
    assert read_scenario(tmp_path / "a.jsonl") == told
