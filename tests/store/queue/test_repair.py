"""Stranded messages: the check reports them, a save refuses to make any, and a repair returns them to their queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_mq import Done, MessageQueue, RingConfig, Weight
from airflow_mq.cli import main
from airflow_mq.engine.queue.values import Report
from airflow_mq.engine.rules.errors import StoreCorrupt
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.engine.store.postgres import PostgresUnit
from airflow_mq.engine.store.working_set.inbox import Cut, Inbox


@pytest.fixture
def queue(store_uri: str) -> Iterator[MessageQueue]:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as first:
        first.admin.create_ring("small", RingConfig(heap_size=64, service_weight=Weight(1_000, 1 << 20)))
    with MessageQueue(store_uri, "small") as queue:
        yield queue


def move_floor(queue: MessageQueue, origin: str, floor: int) -> None:
    """Write a floor into the stored book, as the fault of 0.2 did."""
    with queue.store.writing() as unit:
        unit.connection.execute(f"UPDATE {queue.store.prefix}book SET floor = {floor} WHERE origin = '{origin}'")


def last_id(queue: MessageQueue) -> int:
    with queue.store.loose() as unit:
        return unit.rings.latest_id()


def strand(queue: MessageQueue) -> None:
    """Strand three inbox rows below the floor of their book; one more message is in a page."""
    queue.enqueue_message("a", b"in a page")
    queue.blocks.plan(limit=Weight(1, 1 << 20))
    queue.enqueue_messages("b", [b"other"])
    for payload in (b"lost 1", b"lost 2", b"lost 3"):
        queue.enqueue_message("a", payload)
    move_floor(queue, "a", last_id(queue) + 1)


def processed(queue: MessageQueue, origin: str) -> list[bytes]:
    payloads: list[bytes] = []
    queue.service_queues(lambda delivery: payloads.append(delivery.payload) if delivery.origin == origin else None)
    return payloads


def test_repair_returns_stranded_messages_in_order(queue: MessageQueue) -> None:
    strand(queue)
    assert len([violation for violation in queue.check() if "would never be cut" in violation.what]) == 3
    for block in queue.blocks.list("planned"):
        queue.blocks.release(block)
    (dry_run,) = queue.repair(dry_run=True)
    assert (dry_run.book, dry_run.messages, len(dry_run.rows)) == ("a", 3, 3)
    assert len(queue.check()) == 3, "a dry run changes nothing"
    assert [stranded.rows for stranded in queue.repair()] == [dry_run.rows]
    assert queue.check() == []
    assert queue.repair() == []
    queue.enqueue_message("a", b"later")
    assert processed(queue, "a") == [b"in a page", b"lost 1", b"lost 2", b"lost 3", b"later"]
    assert queue.check() == []


def test_repaired_queue_rejoins_the_ring(queue: MessageQueue) -> None:
    """The book is idle: no message is in a page, and no read would find the row."""
    queue.enqueue_message("a", b"done")
    assert processed(queue, "a") == [b"done"]
    queue.enqueue_message("a", b"lost")
    move_floor(queue, "a", last_id(queue) + 1)
    queue.enqueue_message("b", b"other")
    assert processed(queue, "a") == []
    assert queue.check() != []
    queue.repair()
    assert queue.check() == []
    assert processed(queue, "a") == [b"lost"]


def test_floor_above_the_last_id_is_a_violation(queue: MessageQueue) -> None:
    queue.enqueue_message("a", b"one")
    queue.blocks.plan(limit=Weight(1, 1 << 20))
    move_floor(queue, "a", last_id(queue) + 20)
    assert [violation for violation in queue.check() if "above the last id drawn" in violation.what]
    queue.repair()
    assert queue.check() == []
    queue.enqueue_messages("a", [b"two", b"three"])
    for block in queue.blocks.list("planned"):
        queue.blocks.release(block)
    assert processed(queue, "a") == [b"one", b"two", b"three"]


def test_save_that_would_strand_rows_changes_nothing(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = [b"%d" % number for number in range(60)]
    for payload in sent:
        queue.enqueue_message("a", payload)
    real = Inbox.cut_now

    def past_all(inbox: Inbox) -> Cut:
        return Cut(inbox.horizon, real(inbox).ahead) if inbox.rows else real(inbox)

    monkeypatch.setattr(Inbox, "cut_now", past_all)
    with pytest.raises(StoreCorrupt, match="would strand messages of 'a': inbox rows .* nothing was changed"):
        queue.blocks.plan(limit=Weight(1, 1 << 20))
    monkeypatch.undo()
    assert queue.check() == []
    assert processed(queue, "a") == sent


def test_command_shows_the_repair_before_applying_it(queue: MessageQueue, capsys: pytest.CaptureFixture[str]) -> None:
    strand(queue)
    for block in queue.blocks.list("planned"):
        queue.blocks.release(block)
    where = ["--store", queue.store.address.uri, "--ring", "small"]
    assert main(["check", *where]) == 1
    assert main(["admin", "repair", *where]) == 1
    shown = capsys.readouterr()
    assert "3 stranded messages found; nothing was changed" in shown.out + shown.err
    assert main(["check", "--apply", *where]) == 2
    assert main(["admin", "repair", "--apply", *where]) == 0
    assert main(["check", *where]) == 0
    assert main(["admin", "repair", *where]) == 0
    shown = capsys.readouterr()
    assert "3 stranded messages returned to their queues" in shown.out + shown.err
    assert "nothing to repair in ring small" in shown.out + shown.err


@pytest.mark.postgres
def test_last_id_read_ahead_fails_a_settle_and_strands_nothing(pg_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect of 0.2: outcomes enqueue four messages to an idle queue, and the horizon is above their ids."""
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as queue:
        queue.enqueue_message("parent", b"p")
        block = queue.blocks.plan()
        children = [("children", b"%d" % number) for number in range(4)]
        reports = [Report("parent", 0, 0, 0, Done(enqueue=children))]
        queue.blocks.report(block, reports)
        real = PostgresUnit.soon

        def ahead(unit: PostgresUnit, statement: str, *columns: Any, **values: Any) -> Callable[[], list[Any]]:
            rows = real(unit, statement, *columns, **values)
            return (lambda: [(rows()[0][0] + 32, rows()[0][1])]) if statement == "last_id" else rows

        monkeypatch.setattr(PostgresUnit, "soon", ahead)
        with pytest.raises(StoreCorrupt, match="was drawn below the horizon .* nothing was changed"):
            queue.blocks.settle(block)
        monkeypatch.undo()
        assert queue.check() == []
        assert queue.blocks.settle(block).processed == 1
        assert queue.check() == []
        assert processed(queue, "children") == [b"0", b"1", b"2", b"3"]
