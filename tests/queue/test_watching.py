"""Watcher: repeated bounded reads of a ring."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.queue.inspect import top as watching
from airflow_mq.queue.inspect.order import SORTS
from airflow_mq.queue.inspect.top import Look, Watcher
from airflow_mq.store import parse, upgrade


@pytest.fixture
def queue(store_uri: str) -> Iterator[MessageQueue]:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        queue.admin.change_ring(service_weight=Weight(1000, 100))
        yield queue


def names(look: Look) -> list[str]:
    return [turn.origin for turn in look.turns]


def settle(queue: MessageQueue) -> int:
    block = queue.blocks.plan()
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    return queue.blocks.settle(block).processed


def test_look_at_an_empty_ring(queue: MessageQueue) -> None:
    look = Watcher(queue.session).look()

    assert (look.turns, look.waits, look.blocks, look.oldest, look.rate_in, look.rate_out) == (
        [],
        [],
        [],
        None,
        None,
        0,
    )
    assert look.totals is not None and look.totals.queues == look.totals.waiting == 0


def test_turns_equal_ring_order_in_inbox_and_pages(queue: MessageQueue) -> None:
    for number in range(30):
        queue.enqueue_messages(f"o{(number * 7) % 30:02}", [b"x" * 10] * (number + 1))
    watcher = Watcher(queue.session)
    before = watcher.look(100)
    assert names(before) == queue.inspect.ring_order(100) and len(before.turns) == 30
    assert {turn.origin: (turn.messages, turn.size) for turn in before.turns} == {
        origin: (footprint.count, footprint.size) for origin, footprint in queue.footprints()
    }
    assert names(watcher.look(7)) == queue.inspect.ring_order(7)

    settle(queue)
    queue.enqueue_message("late", b"x")
    queue.enqueue_message(before.turns[-1].origin, b"x")

    after = watcher.look(100)
    assert names(after) == queue.inspect.ring_order(100) and names(after)[-1] == "late"
    assert names(watcher.look(3)) == queue.inspect.ring_order(3)
    assert {turn.origin: turn.messages for turn in after.turns} == {
        origin: footprint.count for origin, footprint in queue.footprints() if footprint.ready_pages
    }


def test_high_queues_come_first(queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"x", b"x"])
    queue.enqueue_message("b", b"x", priority="high")
    settle(queue)
    queue.enqueue_messages("a", [b"x"])
    queue.enqueue_message("b", b"x", priority="high")
    queue.enqueue_message("c", b"x", priority="high")

    turns = Watcher(queue.session).look().turns

    assert [(turn.origin, turn.priority) for turn in turns] == [("b", "high"), ("c", "high"), ("a", "regular")]


def test_turns_follow_paths(queue: MessageQueue) -> None:
    queue.admin.change_ring(paths=True)
    for origin in ("acme/a", "acme/b", "birch"):
        queue.enqueue_messages(origin, [b"x"] * 3)
    queue.admin.pause("acme", below=True)

    look = Watcher(queue.session).look()

    assert names(look) == queue.inspect.ring_order()
    assert {turn.origin for turn in look.turns if turn.paused} == {"acme/a", "acme/b"}


def test_look_sorts_and_searches(queue: MessageQueue) -> None:
    for origin, count in (("b", 1), ("a", 2), ("ab", 9)):
        queue.enqueue_messages(origin, [b"x"] * count)
    watcher = Watcher(queue.session)

    orders = {sort: names(watcher.look(sort=sort)) for sort in SORTS}
    assert orders == {"turn": ["b", "a", "ab"], "backlog": ["ab", "a", "b"], "oldest": ["b", "a", "ab"],
                      "name": ["a", "ab", "b"]}  # fmt: skip
    queue.blocks.release(queue.blocks.plan())
    for sort in SORTS:
        assert set(names(watcher.look(sort=sort, search="b"))) == {"b", "ab"}
        assert set(names(watcher.look(sort=sort))) == {"a", "ab", "b"}


def test_look_counts_messages_by_state(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    # Count again at each look, even if the previous count was slow.
    monkeypatch.setattr(watching, "_REST", 0)
    queue.enqueue_messages("a", [b"x" * 10] * 20)
    queue.enqueue_message("heavy", b"x", weight=Weight(5000, 1))
    queue.enqueue_message("quiet", b"x")
    queue.admin.pause("quiet", "a reason")
    watcher = Watcher(queue.session)
    first = watcher.look()
    assert first.totals is not None
    assert (first.totals.queues, first.totals.waiting, first.paused) == (3, 22, 1)

    block = queue.blocks.plan()
    planned = watcher.look()
    assert planned.totals is not None and planned.totals.in_flight == block.messages > 0
    assert [(block.state, block.messages) for block in planned.blocks] == [("planned", block.messages)]
    flying = {turn.origin: turn.in_flight for turn in planned.turns}
    assert flying["a"] == block.messages and flying["quiet"] == 0
    assert [turn.origin for turn in planned.turns if turn.paused] == ["quiet"]

    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    done = queue.blocks.settle(block)
    look = watcher.look()
    assert look.totals is not None
    assert (look.totals.set_aside, look.totals.in_flight) == (1, 0)
    assert look.totals.waiting == 21 - done.processed
    assert (look.blocks[0].state, look.blocks[0].result["processed"], look.blocks[0].used) == (
        "settled",
        done.processed,
        done.weight,
    )
    assert look.rate_out is not None and round(look.rate_out * 60) == done.processed
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

    assert Watcher(queue.session).look().rate_out == pytest.approx(9 / 60)


def test_oldest_is_the_first_waiting_message(queue: MessageQueue) -> None:
    for number in range(20):
        queue.enqueue_message("a", b"%019d" % number)
    queue.enqueue_message("b", b"x")
    settle(queue)
    first = queue.inspect.peek("a", limit=1)[0]

    look = Watcher(queue.session).look()

    assert {wait.origin: wait.oldest for wait in look.waits}["a"] == first.sent_at
    assert look.oldest == min(turn.oldest for turn in look.turns if turn.oldest)


def test_look_reads_a_bounded_number_of_queues(queue: MessageQueue) -> None:
    """A look reads as many queues as it shows, regardless of the number of origins."""
    for number in range(300):
        queue.enqueue_message(f"o{number:03}", b"x")
    queue.blocks.release(queue.blocks.plan())
    watcher, asked = Watcher(queue.session), []
    watcher.look(5)
    queue.store.probe = asked.append
    look = watcher.look(5, totals=False, waits=0)

    assert len(look.turns) == 5
    assert asked.count("books") <= 5 and asked.count("page") + asked.count("pages") <= 5
