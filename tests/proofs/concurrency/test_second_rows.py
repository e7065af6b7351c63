"""One row for each book and for the state of a ring, though their keys on PostgreSQL contain an age."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.engine.store.rows import BookRow
from airflow_mq.engine.store.unit import Unit
from airflow_mq.errors import Busy, StoreCorrupt
from tests.waiting import eventually

pytestmark = [pytest.mark.concurrency, pytest.mark.postgres]
RING = 1


@pytest.fixture
def queue(pg_uri: str) -> Iterator[MessageQueue]:
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as queue:
        yield queue


def save(unit: Unit, origin: str = "a") -> None:
    unit.books.save(RING, [BookRow(origin, 0, 0, 0, 0, 0, None, 0, 0, b"", 0, False, False, None)])


def test_the_check_finds_second_rows(queue: MessageQueue) -> None:
    queue.enqueue_message("a", b"x")
    queue.blocks.release(queue.blocks.plan())
    assert queue.check() == []
    with queue.store.writing() as unit:
        connection = unit.connection  # type: ignore[attr-defined]
        for table, row in (
            ("book", "(ring, origin, age) VALUES (1, 'a', 7)"),
            ("ring_state", "(ring, age) VALUES (1, 7)"),
        ):
            connection.execute(f"ALTER TABLE {queue.store.prefix}{table} DISABLE TRIGGER one_row".encode())
            connection.execute(f"INSERT INTO {queue.store.prefix}{table} {row}".encode())
    assert [(one.where, one.what.partition(":")[0]) for one in queue.check()] == [
        ("book 'a'", "it has 2 rows"), ("ring", "its state has 2 rows"),
    ]  # fmt: skip


@pytest.mark.parametrize("updated", [False, True])
def test_a_writer_without_the_lock_makes_no_second_row(queue: MessageQueue, updated: bool) -> None:
    """It reads that there is no book, waits for the holder of the ring, which writes the book, and is refused."""
    with ThreadPoolExecutor(1) as pool, MessageQueue(queue.store.address) as other:
        with queue.store.writing() as unit:
            unit.lock(RING)
            save(unit)
            if updated:
                save(unit)

            def write_late() -> None:
                with other.store.writing() as late:
                    save(late)
                    late.rows("now")

            late = pool.submit(write_late)
            eventually(lambda: late.done() or is_waiting(queue))
        with pytest.raises((StoreCorrupt, Busy)):
            late.result()
    assert rows_of(queue, "book") == 1
    assert queue.check() == []


def test_a_second_state_is_refused(queue: MessageQueue) -> None:
    queue.enqueue_message("a", b"x")
    queue.service_queues(lambda delivery: None)
    with pytest.raises(StoreCorrupt, match="second row of the state"), queue.store.writing() as unit:
        unit.run("insert_state", ring=RING)


def test_processes_that_meet_new_origins_at_a_time_write_one_row_for_each(queue: MessageQueue) -> None:
    def work(number: int) -> None:
        with MessageQueue(queue.store.address, busy_timeout=60) as own:
            for turn in range(8):
                own.enqueue_messages((f"o{(number + origin) % 20}-{turn}", b"x") for origin in range(20))
                own.blocks.settle(own.blocks.plan(limit=Weight(10, 1 << 20)))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    with queue.store.loose() as unit:
        assert unit.books.second_rows(RING) == []
    assert queue.check() == []


def is_waiting(queue: MessageQueue) -> bool:
    with MessageQueue(queue.store.address) as watcher, watcher.store.loose() as unit:
        connection = unit.connection  # type: ignore[attr-defined]
        return bool(connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()[0])


def rows_of(queue: MessageQueue, table: str) -> int:
    with queue.store.loose() as unit:
        connection = unit.connection  # type: ignore[attr-defined]
        count: int = connection.execute(f"SELECT count(*) FROM {queue.store.prefix}{table}".encode()).fetchone()[0]
        return count
