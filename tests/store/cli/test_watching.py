"""Watcher: repeated bounded reads of a ring, with rates."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.cli import watching
from airflow_mq.cli.watching import Look, Watcher
from airflow_mq.engine.store import parse, upgrade


@pytest.fixture
def queue(store_uri: str) -> Iterator[MessageQueue]:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        queue.admin.change_ring(service_weight=Weight(1000, 100))
        yield queue


def names(look: Look) -> list[str]:
    return [state.origin for state in look.queues]


def look_at(queue: MessageQueue, limit: int = 60) -> Look:
    return Watcher(lambda: queue, limit=limit).look()


def settle(queue: MessageQueue) -> int:
    block = queue.blocks.plan()
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    return queue.blocks.settle(block).processed


def test_look_at_an_empty_ring(queue: MessageQueue) -> None:
    look = look_at(queue)

    assert (look.queues, look.blocks, look.overdue, look.rate_in, look.rate_out) == ([], [], [], None, 0)
    assert look.backlog.queues == look.backlog.waiting == 0 and look.backlog.age is None


def test_turns_equal_ring_order_in_inbox_and_pages(queue: MessageQueue) -> None:
    for number in range(30):
        queue.enqueue_messages(f"o{(number * 7) % 30:02}", [b"x" * 10] * (number + 1))
    before = look_at(queue, 100)
    assert names(before) == queue.inspect.ring_order(100) and len(before.queues) == 30
    assert {turn.origin: (turn.messages, turn.size) for turn in before.queues} == {
        origin: (footprint.count, footprint.size) for origin, footprint in queue.footprints()
    }
    assert names(look_at(queue, 7)) == queue.inspect.ring_order(7)

    settle(queue)
    queue.enqueue_message("late", b"x")
    queue.enqueue_message(before.queues[-1].origin, b"x")

    after = look_at(queue, 100)
    assert names(after) == queue.inspect.ring_order(100) and names(after)[-1] == "late"
    assert names(look_at(queue, 3)) == queue.inspect.ring_order(3)
    assert {turn.origin: turn.messages for turn in after.queues} == {
        origin: footprint.count for origin, footprint in queue.footprints() if footprint.ready_pages
    }


def test_high_queues_come_first(queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"x", b"x"])
    queue.enqueue_message("b", b"x", priority="high")
    settle(queue)
    queue.enqueue_messages("a", [b"x"])
    queue.enqueue_message("b", b"x", priority="high")
    queue.enqueue_message("c", b"x", priority="high")

    turns = look_at(queue).queues

    assert [(turn.origin, turn.priority) for turn in turns] == [("b", "high"), ("c", "high"), ("a", "regular")]


def test_turns_follow_paths(queue: MessageQueue) -> None:
    queue.admin.change_ring(paths=True)
    for origin in ("acme/a", "acme/b", "birch"):
        queue.enqueue_messages(origin, [b"x"] * 3)
    queue.admin.pause("acme", below=True)

    look = look_at(queue)

    assert names(look) == queue.inspect.ring_order()
    assert {turn.origin for turn in look.queues if turn.paused} == {"acme/a", "acme/b"}


def test_look_counts_messages_by_state(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    # Count again at each look, even if the previous count was slow.
    monkeypatch.setattr(watching, "REST", 0)
    queue.enqueue_messages("a", [b"x" * 10] * 20)
    queue.enqueue_message("heavy", b"x", weight=Weight(5000, 1))
    queue.enqueue_message("quiet", b"x")
    queue.admin.pause("quiet", "a reason")
    watcher = Watcher(lambda: queue)
    first = watcher.look()
    assert (first.backlog.queues, first.backlog.waiting, len(first.pauses)) == (3, 22, 1)

    block = queue.blocks.plan()
    planned = watcher.look()
    assert planned.in_flight == planned.backlog.in_flight == block.messages > 0
    assert [(block.state, block.messages) for block in planned.blocks] == [("planned", block.messages)]
    flying = {turn.origin: turn.in_flight for turn in planned.queues}
    assert flying["a"] == block.messages and flying["quiet"] == 0
    assert [turn.origin for turn in planned.queues if turn.paused] == ["quiet"]

    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    done = queue.blocks.settle(block)
    look = watcher.look()
    assert (look.backlog.set_aside, look.in_flight) == (1, 0)
    assert look.backlog.waiting == 21 - done.processed
    assert (look.blocks[0].state, look.blocks[0].result["processed"], look.blocks[0].used) == (
        "settled",
        done.processed,
        done.weight,
    )
    assert look.rate_out is not None and 0 < look.rate_out * 60 <= done.processed
    assert look.rate_in == 0


def test_rate_counts_messages_that_ended_at_the_same_time(queue: MessageQueue) -> None:
    for origin in "abc":
        queue.enqueue_messages(origin, [b"x"] * 3)
        settle(queue)
    table = f"{queue.store.prefix}event"
    with queue.store.writing() as unit:
        execute, now = unit.connection.execute, unit.now()  # type: ignore[attr-defined]
        ids = [id_ for (id_,) in execute(f"SELECT id FROM {table} ORDER BY id").fetchall()]
        # Update the last row first, so that no index is in the order of ids.
        for id_ in reversed(ids):
            execute(f"UPDATE {table} SET at = {now} WHERE id = {id_}")

    assert look_at(queue).rate_out == pytest.approx(9 / 60)


def test_look_reads_a_bounded_number_of_queues(queue: MessageQueue) -> None:
    """A look reads as many queues as it shows, regardless of the number of origins."""
    for number in range(300):
        queue.enqueue_message(f"o{number:03}", b"x")
    queue.blocks.release(queue.blocks.plan())
    watcher, asked = Watcher(lambda: queue, limit=5), []
    watcher.look()
    queue.store.probe = asked.append
    look = watcher.look()

    assert len(look.queues) == 5
    assert asked.count("books") <= 5 and asked.count("page") + asked.count("pages") <= 5
