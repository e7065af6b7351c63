"""Late commits: inbox rows with smaller ids than rows that are already cut into pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from airflow_mq import MessageQueue, RingConfig, Weight
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.engine.store.rows import InboxRow
from airflow_mq.engine.store.unit import Unit
from airflow_mq.engine.store.working_set import read_ahead

pytestmark = [pytest.mark.concurrency, pytest.mark.postgres]


@pytest.fixture
def queues(pg_uri: str) -> Iterator[tuple[MessageQueue, MessageQueue]]:
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as sender:
        sender.admin.create_ring("small", RingConfig(heap_size=64, order="rotation"))
        with MessageQueue(pg_uri, "small") as queue, MessageQueue(pg_uri, "small") as sender:
            yield queue, sender


def send(queue: MessageQueue, stack: ExitStack, origin: str, *payloads: bytes) -> None:
    """Send in a transaction that stays open as long as the stack."""
    send_in(stack.enter_context(queue.store.writing()), queue, origin, *payloads)


def send_in(unit: Unit, queue: MessageQueue, origin: str, *payloads: bytes) -> None:
    for payload in payloads:
        queue.store.send(unit, queue.session.ring_id, [InboxRow(origin, 0, len(payload), 1, False, b"", b"", payload)])


@pytest.mark.parametrize("ready", ["never seen", "seen", "ready"])
def test_late_commit_of_the_latest_transaction_is_read(queues: tuple[MessageQueue, MessageQueue], ready: str) -> None:
    """During the reads, the open transaction is the latest one, and all earlier ones have ended."""
    queue, sender = queues
    if ready != "never seen":
        queue.enqueue_message("a", b"before")
        if ready == "seen":
            queue.service_queues(lambda delivery: None)
    with ExitStack() as stack:
        send(sender, stack, "a", b"late")
        for _ in range(3):
            queue.blocks.settle(queue.blocks.plan())
            queue.service_queues(lambda delivery: None)
    assert queue.footprint("a").count == 1
    assert queue.check() == []
    assert queue.service_queues(lambda delivery: None).processed == 1
    assert queue.check() == []


def test_late_rows_share_pages_with_earlier_ones(queues: tuple[MessageQueue, MessageQueue]) -> None:
    """A row that spans two pages stays until both are deleted."""
    queue, sender = queues
    with ExitStack() as stack:
        send(sender, stack, "a", b"late 1", b"late 2", b"late 3")
        queue.enqueue_messages("a", [b"early %d" % n for n in range(5)])
        assert queue.service_queues(lambda delivery: None, Weight(2, 1 << 20)).processed == 2
        assert queue.service_queues(lambda delivery: None, Weight(2, 1 << 20)).processed == 2
        queue.enqueue_messages("a", [b"more %d" % n for n in range(4)])
        queue.blocks.settle(queue.blocks.plan())
    queue.enqueue_messages("a", [b"last %d" % n for n in range(12)])
    for _ in range(20):
        queue.service_queues(lambda delivery: None, Weight(1, 1 << 20))
        assert queue.check() == []
    queue.service_queues(lambda delivery: None)
    assert queue.check() == []
    ids = [event.id for event in queue.inspect.events(name="Processed")]
    assert len(ids) == len(set(ids)) == 5 + 4 + 3 + 12
    with queue.store.loose() as unit:
        assert unit.rows("uncut", ring=queue.session.ring_id, after=-1, limit=10) == []


@pytest.mark.parametrize("waiting", [0, 5, 40])
@pytest.mark.parametrize("look", range(1, 5))
def test_late_commit_between_two_reads_keeps_order(
    queues: tuple[MessageQueue, MessageQueue], waiting: int, look: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The late transaction has ids before and after the rows read so far; its order is kept."""
    queue, sender = queues
    queue.enqueue_messages("a", [b"waiting"] * waiting)
    looks = 0
    with ExitStack() as stack:
        unit = stack.enter_context(sender.store.writing())
        send_in(unit, sender, "a", b"late 1")
        for number in range(200):
            queue.enqueue_message("a", b"%d" % number)
        send_in(unit, sender, "a", b"late 2")

        def commit_before(statement: str) -> None:
            nonlocal looks
            is_look = statement == "inbox_rows"
            looks += is_look
            if is_look and looks == look:
                stack.close()
                sender.enqueue_message("a", b"late 3")

        monkeypatch.setattr(queue.store, "probe", commit_before)
        # Otherwise the second look brings all rows.
        monkeypatch.setattr(read_ahead, "MOST_ROWS", 16)
        done: list[bytes] = []
        queue.service_queues(lambda delivery: done.append(delivery.payload))
        monkeypatch.undo()
        stack.close()
    queue.service_queues(lambda delivery: done.append(delivery.payload))
    assert looks >= look
    assert [payload for payload in done if payload.isdigit()] == [b"%d" % number for number in range(200)]
    assert [payload for payload in done if payload.startswith(b"late")] == [b"late 1", b"late 2", b"late 3"]
    assert len(done) == waiting + 203
    assert queue.check() == []
