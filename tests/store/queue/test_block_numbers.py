"""Block numbers: counted from 1 per ring, and the same in each place that shows or accepts them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from airflow_mq import MessageQueue, RingConfig, Weight
from airflow_mq.cli import main
from airflow_mq.engine.queue.blocks import plan as planning
from airflow_mq.engine.queue.blocks.block import Block
from airflow_mq.engine.rules.errors import TokenRefused
from airflow_mq.engine.store import parse, upgrade
from tests.store.test_migrations import run, table

RINGS = ("east", "west")
HEAVY = Weight(5_000, 1)


@pytest.fixture
def queues(store_uri: str) -> Iterator[dict[str, MessageQueue]]:
    """Yield two rings of one store."""
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as first:
        for ring in RINGS:
            first.admin.create_ring(ring, RingConfig(service_weight=Weight(1_000, 1_000)))
    opened = {ring: MessageQueue(store_uri, ring) for ring in RINGS}
    yield opened
    for queue in opened.values():
        assert queue.check() == []
        queue.close()


def settle_block(queue: MessageQueue) -> Block:
    """Settle a block with one processed and one set-aside message, and return it."""
    queue.enqueue_message("acme", b"x")
    queue.enqueue_message("heavy", b"y", weight=HEAVY)
    block = queue.blocks.plan()
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)
    return block


def test_rings_number_their_blocks_from_one(queues: dict[str, MessageQueue]) -> None:
    east, west = queues.values()

    assert [settle_block(queue).id for queue in (east, west, east, west, east)] == [1, 1, 2, 2, 3]
    for queue, numbers in ((east, [3, 2, 1]), (west, [2, 1])):
        assert [block.id for block in queue.blocks.list()] == numbers
        assert [page.block for page in queue.inspect.ledger()] == numbers
        assert [summary.id for summary in queue.blocks.list(entries=True)] == numbers
        assert [summary.id for summary in queue.blocks.list(before=2)] == [1]
        assert all(summary.entries for summary in queue.blocks.list(entries=True))
        assert sorted({event.block for event in queue.inspect.events()}) == numbers[::-1]
        assert {event.block for event in queue.inspect.events(block=2)} == {2}
        assert {aside.block for aside in queue.set_aside.list()} == set(numbers)
        assert [aside.block for aside in queue.set_aside.list(block=2)] == [2]
        assert [aside.block for aside in queue.set_aside.list(arrived=2)] == [2]
        assert {step.block for step in queue.inspect.history(queue.set_aside.list()[0].address).steps} - {None} == {1}


def test_rounds_of_service_between_blocks_hide_no_page_of_the_ledger(queues: dict[str, MessageQueue]) -> None:
    east = queues["east"]
    settle_block(east)
    for _ in range(3):
        east.enqueue_message("acme", b"x")
        east.service_queues(lambda delivery: None)
    settle_block(east)
    found = east.blocks.list(limit=2, entries=True)
    assert [(block.id, bool(block.entries)) for block in found] == [(5, True), (1, True)]


def test_planned_block_is_named_by_its_number(queues: dict[str, MessageQueue]) -> None:
    east, west = queues.values()
    settle_block(east)
    for queue, number in ((east, 2), (west, 1)):
        queue.enqueue_message("acme", b"x")
        block = queue.blocks.plan("key")
        assert (block.id, queue.blocks.plan("key").id, queue.blocks.get(block.token).id) == (number, number, number)
        assert f"block {number}, which lives until" in queue.inspect.explain("acme").sentence
        reports = [batch.answer() for batch in block.batches()]
        queue.blocks.release(block)
        with pytest.raises(TokenRefused, match=f"^block {number} was released"):
            queue.blocks.report(block, reports)


def test_executions_and_service_rounds_are_numbered(queues: dict[str, MessageQueue]) -> None:
    east = queues["east"]
    settle_block(east)
    (aside,) = east.set_aside.list()
    assert east.blocks.plan_overweight(aside.address, HEAVY).id == 2
    east.enqueue_messages("acme", [b"x", b"y"])
    assert east.service_queues(lambda delivery: None, Weight(1, 1_000)).processed == 1
    assert east.inspect.ledger()[0].block == 3
    assert east.service_queues(lambda delivery: None).processed == 1
    east.service_queues(lambda delivery: None)
    assert east.blocks.plan().id == 5, "a round without ready queues has no number"


def test_rolled_back_plan_leaves_no_gap(queues: dict[str, MessageQueue], monkeypatch: pytest.MonkeyPatch) -> None:
    east = queues["east"]
    east.enqueue_message("acme", b"x")
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(planning, "warn_of_stuck", lambda *_: (_ for _ in ()).throw(RuntimeError("before the commit")))
        east.blocks.plan()
    assert east.blocks.plan().id == 1


def test_numbers_of_deleted_blocks_are_not_reused(queues: dict[str, MessageQueue], store_uri: str) -> None:
    settle_block(queues["east"])
    address = parse(store_uri)
    for name in ("ledger", "event", "block"):
        run(address, f"DELETE FROM {table(address, name)}")
    assert settle_block(queues["east"]).id == 2


def test_command_line_shows_and_accepts_block_numbers(
    queues: dict[str, MessageQueue], store_uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for queue in queues.values():
        settle_block(queue)

    def lines(*words: str) -> list[dict[str, object]]:
        capsys.readouterr()
        assert main(["--store", store_uri, "--ring", "west", "--json", *words]) == 0
        return [row for line in capsys.readouterr().out.splitlines() for row in _listed(json.loads(line))]

    assert [row["block"] for row in lines("report", "ledger", "--block", "1")] == [1]
    assert {row["block"] for row in lines("message", "events", "--block", "1")} == {1}
    assert [row["block"] for row in lines("set-aside", "list", "--block", "1")] == [1]
    assert lines("message", "events", "--block", "2") == []


def _listed(value: object) -> list[dict[str, object]]:
    return value if isinstance(value, list) else [value]  # type: ignore[list-item]
