"""Connections of threads: each has one while it lives, and leaves none behind."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.queue import holding
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.engine.store.rows import InboxRow
from tests.waiting import eventually


@pytest.fixture
def queue(store_uri: str) -> Iterator[MessageQueue]:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        queue.enqueue_message("a", b"one")
        yield queue


def in_a_thread(call: Callable[[], Any]) -> Any:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()
    thread.join()
    return answers[0]


def opened(queue: MessageQueue) -> int:
    return len(queue.store._open)


def test_threads_that_ended_leave_no_connection(queue: MessageQueue) -> None:
    gc.disable()
    try:
        for _ in range(30):
            assert in_a_thread(lambda: queue.footprint("a").count) == 1
            assert opened(queue) == 1
    finally:
        gc.enable()
    address = queue.store.address
    if address.driver == "postgresql":
        asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        with psycopg.connect(address.uri.partition("?")[0], autocommit=True) as other:
            eventually(lambda: other.execute(asked).fetchone() == (1,))


def test_the_thread_that_renews_a_lease_leaves_no_connection(
    queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "RING_LEASE", 0.03)
    seen: list[int] = []

    def slowly(delivery: object) -> None:
        eventually(lambda: opened(queue) == 2)
        seen.append(opened(queue))

    queue.service_queues(slowly)
    assert seen == [2] and opened(queue) == 1


def test_what_a_thread_began_may_be_read_on_after_it_ended(queue: MessageQueue) -> None:
    for begin in (queue.store.reading, queue.store.loose, queue.store.writing):

        def start(begin: Any = begin) -> Any:
            work = begin()
            return work, work.__enter__()

        work, unit = in_a_thread(start)
        assert len(unit.rows("rings", name=None)) == 1
        work.__exit__(None, None, None)
        del work, unit
        assert opened(queue) == 1


def test_a_closed_store_is_closed_once(queue: MessageQueue) -> None:
    """Neither a thread that ends after the close nor the end of this one closes anything twice."""
    closed: list[object] = []
    disconnect = queue.store._disconnect
    queue.store._disconnect = lambda one: (closed.append(one), disconnect(one))  # type: ignore[method-assign, func-returns-value]
    gone, go = threading.Event(), threading.Event()

    def look() -> None:
        queue.footprint("a")
        gone.set()
        go.wait(30)

    thread = threading.Thread(target=look)
    thread.start()
    assert gone.wait(30)
    queue.close()
    go.set()
    thread.join()
    assert len(closed) == len({id(one) for one in closed}) == 2
    assert queue.footprint("a").count == 1


def test_a_read_within_a_transaction_leaves_it_open(queue: MessageQueue) -> None:
    row = InboxRow("a", 0, 3, 1, False, b"", b"", b"two")
    with queue.store.writing() as unit:
        queue.store.send(unit, queue.session.ring_id, [row])
        with queue.store.loose() as other:
            assert other.now() > 0
        queue.store.send(unit, queue.session.ring_id, [row])
    assert queue.footprint("a").count == 3 and opened(queue) == 1
