"""Forked children on one store: nothing acknowledged is lost, and a child that cannot be safe is refused at once."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.rules.errors import StoreForked
from airflow_mq.engine.store import forks, parse, upgrade
from tests.proofs.crash.children import end_child, start_child

pytestmark = pytest.mark.concurrency
#: More than the cache of a connection holds.
LARGE = 40_000_000


class Gate:
    """A pipe on which one process waits for another."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def open(self) -> None:
        os.write(self.writer, b".")

    def wait(self) -> None:
        assert os.read(self.reader, 1)


def assert_stored(uri: str, **counts: int) -> None:
    with MessageQueue(uri) as queue:
        assert {origin: queue.footprint(origin).count for origin in counts} == counts
        assert queue.check() == []


@pytest.fixture
def sqlite_file(tmp_path: Path) -> str:
    uri = f"sqlite:///{tmp_path / 'store.db'}"
    upgrade(parse(uri))
    return uri


def test_what_a_child_sends_outlives_its_parents_queues(store_uri: str) -> None:
    """SQLite deletes its log with the last connection: the parent's must not count as the last one."""
    upgrade(parse(store_uri))
    sent, closed = Gate(), Gate()
    with MessageQueue(store_uri) as inherited, MessageQueue(store_uri) as unused:
        inherited.enqueue_message("parent", b"1")
        unused.enqueue_message("parent", b"2")

        def be_child() -> None:
            for number in range(12):
                inherited.enqueue_message("child", b"%d" % number)
                if number == 2:
                    sent.open()
                    closed.wait()
            inherited.close()

        child = start_child(be_child)
        sent.wait()
    closed.open()
    assert not end_child(child).error
    assert_stored(store_uri, parent=2, child=12)


def test_parent_and_children_send_at_the_same_time(store_uri: str) -> None:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri, busy_timeout=60) as queue:
        queue.enqueue_message("parent", b"before")

        def be_child(name: str, generation: int = 1) -> None:
            for number in range(30):
                queue.enqueue_message(name, b"%d" % number)
            if generation:
                assert not end_child(start_child(lambda: be_child("grandchild", generation - 1))).error

        children = [start_child(lambda: be_child("child")) for _ in range(3)]
        for number in range(30):
            queue.enqueue_message("parent", b"%d" % number)
        for child in children:
            assert not end_child(child).error
    assert_stored(store_uri, parent=31, child=90, grandchild=90)


@pytest.mark.slow
def test_child_of_a_service_that_holds_the_ring(store_uri: str) -> None:
    """A processor may fork: its thread uses the store, but no statement of it is running."""
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        queue.enqueue_message("a", b"x")

        def send() -> None:
            with MessageQueue(store_uri) as own:
                own.enqueue_message("child", b"y")

        queue.service_queues(lambda delivery: end_child(start_child(send)) and None)
    assert_stored(store_uri, a=0, child=1)


@contextmanager
def writing_thread(uri: str) -> Iterator[None]:
    """Run a block while another thread is within a write transaction that has changed many pages."""
    began, over = threading.Event(), threading.Event()

    def write() -> None:
        with MessageQueue(uri) as queue, queue.store.writing() as unit:
            # Part of the changes is in the log before the commit.
            unit.run("pause", ring=1, origin="spilled", reason="x" * LARGE, who="", now=0, until=None, below=False)
            began.set()
            over.wait()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert began.wait(60)
        yield
    finally:
        over.set()
        thread.join()


def refused_child(uri: str, queue: MessageQueue) -> None:
    """Neither the inherited queue nor a new one works."""
    with pytest.raises(StoreForked, match="spawn"):
        queue.enqueue_message("child", b"x")
    with pytest.raises(StoreForked, match="spawn"):
        MessageQueue(uri)


@pytest.mark.slow
def test_child_of_a_thread_that_stays_in_a_transaction_is_refused(
    sqlite_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fork does not wait for ever, and the transaction of the parent is not harmed."""
    monkeypatch.setattr(forks, "PATIENCE", 0.2)
    with MessageQueue(sqlite_file) as queue:
        queue.enqueue_message("parent", b"1")
        with writing_thread(sqlite_file):
            assert not end_child(start_child(lambda: refused_child(sqlite_file, queue))).error
        queue.enqueue_message("parent", b"2")
        with queue.store.loose() as unit:
            assert [len(row.reason) for row in unit.origins.paused(1, 0)] == [LARGE]
    assert_stored(sqlite_file, parent=2, child=0)


def test_child_that_a_transaction_itself_forks_is_refused(sqlite_file: str) -> None:
    with MessageQueue(sqlite_file) as queue:
        with queue.store.writing() as unit:
            unit.run("pause", ring=1, origin="parent", reason="why", who="", now=0, until=None, below=False)
            assert not end_child(start_child(lambda: refused_child(sqlite_file, queue))).error
        with queue.store.loose() as unit:
            assert [row.reason for row in unit.origins.paused(1, 0)] == ["why"]
    assert_stored(sqlite_file, child=0)


@pytest.mark.slow
def test_forks_beside_busy_threads_neither_hang_nor_lose(sqlite_file: str, tmp_path: Path) -> None:
    """Threads open, use and drop connections at the moment of the fork."""
    over, sent = threading.Event(), [0, 0]

    def keep_sending(number: int) -> None:
        while not over.is_set():
            with MessageQueue(sqlite_file, busy_timeout=60) as queue:
                queue.enqueue_message("thread", b"x")
                sent[number] += 1

    threads = [threading.Thread(target=keep_sending, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    with MessageQueue(sqlite_file, busy_timeout=60) as queue:

        def be_child() -> None:
            try:
                queue.enqueue_message("child", b"x")
            except StoreForked:
                return
            (tmp_path / f"sent-{os.getpid()}").touch()

        for _ in range(40):
            assert not end_child(start_child(be_child)).error
        over.set()
        for thread in threads:
            thread.join()
    assert_stored(sqlite_file, thread=sum(sent), child=len(list(tmp_path.glob("sent-*"))))


def test_a_thread_that_forks_may_collect_a_dropped_queue(sqlite_file: str) -> None:
    """Another hook of a fork collects garbage between the closing of the gate and the fork."""
    queue: MessageQueue | None = MessageQueue(sqlite_file)
    assert queue is not None
    queue.enqueue_message("a", b"x")
    cycle: list[object] = [queue]
    cycle.append(cycle)
    collected = threading.Event()

    def begin_to_fork() -> None:
        forks.GATE.close()
        gc.collect()
        collected.set()

    del queue, cycle
    thread = threading.Thread(target=begin_to_fork)
    thread.start()
    try:
        assert collected.wait(20)
    finally:
        forks.GATE.open()
        thread.join()
