"""Statements of the plain path: unused features add none.

A new feature must leave these lists as they are.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from types import FrameType

import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.queue.service import Service, service_lease
from airflow_mq.engine.store import parse, upgrade

#: How a ring is held, and what a settled page leaves behind, where the two stores differ.
HOLD = {"postgresql": "begin last_id lock_ring snapshot promote_due", "sqlite": "begin lock_ring now delayed"}
SEND = {"postgresql": "insert_inbox_row", "sqlite": "begin fresh_ids insert_inbox_row commit committed"}
SEND_ROWS = {"postgresql": "insert_inbox_rows", "sqlite": SEND["sqlite"]}
EVENT = {"postgresql": "insert_event insert_charge", "sqlite": "fresh_ids insert_event fresh_ids insert_charge"}
WALK = "ready_books news_by_id"
#: PostgreSQL counts a round in one statement.
ROUND = {"postgresql": "insert_round", "sqlite": "fresh_ids next_block insert_ledger"}
LOOK = {"postgresql": "begin rings {} commit committed", "sqlite": "rings {}"}
REPORT = {"postgresql": "now report", "sqlite": "now fresh_ids report"}


@pytest.fixture
def queue(store_uri: str) -> Iterator[MessageQueue]:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        # What is kept no longer is looked for now and then; not while statements are counted.
        queue.admin.housekeep()
        yield queue


@pytest.fixture
def kind(store_uri: str) -> str:
    return "".join(takewhile(str.isalpha, store_uri))


def statements(queue: MessageQueue, work: Callable[[], object]) -> str:
    seen: list[str] = []
    queue.store.probe = seen.append
    try:
        work()
    finally:
        queue.store.probe = None
    return " ".join(seen)


def calls(work: Callable[[], object]) -> int:
    """How many functions of Python's own this calls."""
    count = 0

    def tell(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    # Skip callbacks of the garbage collector: they are not part of this work.
    gc.disable()
    sys.setprofile(tell)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


def test_a_send(queue: MessageQueue, kind: str) -> None:
    assert statements(queue, lambda: queue.enqueue_message("a", b"one")) == SEND[kind]
    assert statements(queue, lambda: queue.enqueue_messages("a", [b"1", b"2"])) == SEND[kind]
    calls_of_two = [("a", b"1"), ("b", b"2"), ("b", b"3")]
    assert statements(queue, lambda: queue.enqueue_messages(calls_of_two)) == SEND_ROWS[kind]


def test_a_service(queue: MessageQueue, kind: str) -> None:
    queue.enqueue_messages("a", [b"%d" % number for number in range(5)])
    assert statements(queue, lambda: queue.service_queues(lambda delivery: None, slice_seconds=600)) == " ".join([
        HOLD[kind], "take_lease commit committed", WALK, "books inbox_rows", "news_by_id",
        HOLD[kind], "delete_page delete_inbox_rows inbox_between save_book", EVENT[kind],
        "save_state", ROUND[kind], "change_lease commit committed",
    ])  # fmt: skip


class Trips:
    """Round trips to PostgreSQL: how often its server was ready for the next request of this thread."""

    def __init__(self, queue: MessageQueue, file: Path) -> None:
        self._file, self._wire = file, queue.store.lent().connection.pgconn

    def of(self, work: Callable[[], object]) -> int:
        self._wire.trace(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        work()
        self._wire.untrace()
        return self._file.read_text("latin-1").count("ReadyForQuery")


@pytest.mark.postgres
def test_round_trips_of_a_service(pg_uri: str, tmp_path: Path) -> None:
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as queue:
        trips, count = Trips(queue, tmp_path / "trace"), 0

        def service() -> None:
            assert queue.service_queues(lambda delivery: None, slice_seconds=600).processed == 2

        for _ in range(5):
            # By now each statement is prepared.
            queue.enqueue_messages([("a", b"one"), ("b", b"two")])
            count = trips.of(service)
    # Lock; lease and commit; ready books; newcomers; books; inboxes; newcomers; lock; writes; commit.
    assert count == 10


@pytest.mark.postgres
def test_round_trips_of_a_worker(pg_uri: str, tmp_path: Path) -> None:
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as queue, service_lease(queue.session, keeps=True) as lease:
        trips, count = Trips(queue, tmp_path / "trace"), 0

        def service() -> None:
            assert lease.newest()
            done = Service(queue.session, lambda delivery: None, None, lease, slice_seconds=600).run()
            assert done.processed == 2

        for _ in range(6):
            queue.enqueue_messages([("a", b"one"), ("b", b"two")])
            count = trips.of(service)
        # Pulse and ring; ready books; newcomers; books; inboxes; lock; writes; commit.
        assert count == 8


def test_a_block(queue: MessageQueue, kind: str) -> None:
    queue.enqueue_messages("a", [b"%d" % number for number in range(5)])
    block = queue.blocks.plan()
    queue.blocks.release(block)
    assert statements(queue, queue.blocks.plan) == " ".join([
        "now dead_blocks", HOLD[kind], WALK, "pages inbox_heads news_by_id",
        "fresh_ids next_block insert_block insert_claim insert_ledger fresh_ids inbox_between save_book save_state commit committed",
    ])  # fmt: skip
    block = queue.blocks.get(queue.blocks.list(limit=1)[0].token)
    batches = list(block.batches())
    assert statements(queue, lambda: list(block.batches())) == LOOK[kind].format("books pages inbox_rows")
    assert statements(queue, lambda: queue.blocks.report(block, [batch.answer() for batch in batches])) == (
        f"begin {REPORT[kind]} commit committed"
    )
    assert statements(queue, lambda: queue.blocks.settle(block)) == " ".join([
        HOLD[kind], "lock_block claims outcomes books pages inbox_heads",
        "delete_page delete_inbox_rows inbox_between save_book", EVENT[kind],
        "save_state end_block delete_claims delete_outcomes commit committed",
    ])  # fmt: skip
    queue.footprint("a")  # The first one asks the database for the user's rights.
    assert statements(queue, lambda: queue.footprint("a")) == LOOK[kind].format("books inbox_heads due_rows claims_of")


def test_an_answer_and_what_is_done_for_it(queue: MessageQueue) -> None:
    """A block has a hundred thousand answers: what is done for each is worth counting."""
    queue.enqueue_messages([(f"origin-{number}", b"one") for number in range(8)])
    block = queue.blocks.plan()
    batches = list(block.batches())
    reports = [batch.answer() for batch in batches]
    queue.blocks.report(block, reports)
    # The page and two places, the outcome and the ids twice (checked, and written), the origin, and all of it together.
    # Where a server is slow to answer, its driver looks again and again: the fewest count.
    whole = min(calls(lambda: queue.blocks.report(block, reports)) for _ in range(3))
    half = min(calls(lambda: queue.blocks.report(block, reports[:4])) for _ in range(3))
    assert whole - half <= 9 * 4
    assert calls(lambda: batches[0].answer()) <= 8


@pytest.mark.postgres
def test_the_server_parses_no_condition_of_a_trigger(pg_uri: str) -> None:
    """A trigger's condition is parsed in each statement: for rows that refer to no external payload it is a flag."""
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as queue:
        queue.enqueue_message("single", b"1")
        queue.enqueue_messages("call", [b"1", b"2"])
        queue.enqueue_messages([("few", b"1"), ("few else", b"1")])
        queue.enqueue_messages([("mixed", b"1"), ("more", b"1"), ("more", b"2")])
        queue.enqueue_messages((f"copy {number}", b"1") for number in range(33))
        queue.enqueue_message("with headers", b"1", headers={"a": "b"})
        queue.payloads.enqueue("external", io.BytesIO(b"x" * 100_000))
        connection = queue.store.lent().connection
        rows = connection.execute("SELECT origin, refers FROM airflow_mq.inbox").fetchall()
        assert len(rows) == 41
        assert {origin for origin, refers in rows if refers} == {"with headers", "external"}
        condition = "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = 'inbox_uses_blobs'"
        assert "WHEN (new.refers)" in connection.execute(condition).fetchone()[0]


@pytest.mark.postgres
def test_a_row_without_the_flag_is_examined(pg_uri: str) -> None:
    """References of a row count, also if its writer does not know the flag."""
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as queue:
        queue.payloads.enqueue("a", io.BytesIO(b"x" * 100_000))
        connection = queue.store.lent().connection
        connection.execute(
            "INSERT INTO airflow_mq.inbox (ring, size, items, more, origin, lengths, attributes, heap) "
            "SELECT ring, size, items, more, 'b', lengths, attributes, heap FROM airflow_mq.inbox"
        )
        uses = connection.execute(
            "SELECT m.origin FROM airflow_mq.inbox m JOIN airflow_mq.blob_use u ON u.inbox_row = m.id ORDER BY 1"
        )
        assert [origin for (origin,) in uses] == ["a", "b"]
        assert not queue.check()
