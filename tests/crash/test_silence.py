"""Processes and servers that stop without a word: whoever waits for them goes on within a bound."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.core.errors import Busy, StoreBusy, StoreUnreachable
from airflow_mq.core.message import Message
from airflow_mq.store import parse, upgrade
from airflow_mq.store import postgres_errors as known
from tests.crash.children import end_child, start_child
from tests.waiting import eventually

PLENTY = Weight(1 << 40, 1 << 40)
pytestmark = pytest.mark.postgres


@pytest.fixture
def store(pg_uri: str) -> str:
    upgrade(parse(pg_uri))
    return pg_uri


def stop_at(queue: MessageQueue, at: str) -> None:
    """Stop this process before a statement, as a debugger or a full machine would."""

    def probe(name: str) -> None:
        if name == at:
            queue.store.probe = None
            os.kill(os.getpid(), signal.SIGSTOP)

    queue.store.probe = probe


@contextmanager
def stopped_planner(uri: str, at: str) -> Iterator[None]:
    """A process that is stopped while it plans; at the end it goes on, and learns that its transaction was ended."""

    def plan() -> None:
        with MessageQueue(uri) as queue:
            stop_at(queue, at)
            with pytest.raises(StoreUnreachable) as caught:
                queue.plan_block(limit=PLENTY)
            assert str(caught.value) == known.IDLE_TRANSACTION.text

    child = start_child(plan)
    try:
        assert os.WIFSTOPPED(os.waitpid(child[0], os.WUNTRACED)[1])
        yield
    finally:
        os.kill(child[0], signal.SIGCONT)
        end_child(child)


@pytest.mark.parametrize("at", ["insert_block", "commit"])
def test_a_stopped_planner_does_not_keep_the_ring_locked(store: str, at: str) -> None:
    address = replace(parse(store), idle_in_transaction_session_timeout=1)
    with MessageQueue(store, busy_timeout=0.2) as queue:
        queue.enqueue_message("a", b"x")
        with stopped_planner(address.uri, at):
            with pytest.raises(Busy):
                queue.plan_block(limit=PLENTY)

            def planned() -> Any:
                try:
                    return queue.plan_block(limit=PLENTY)
                except (Busy, StoreBusy):
                    return None

            block = eventually(planned)
            assert block.messages == 1
        assert [one.id for one in queue.blocks("planned")] == [block.id]
        assert queue.check() == []


def test_every_session_has_the_time_outs_of_its_address(store: str) -> None:
    given = "statement_timeout=11&idle_in_transaction_session_timeout=12&tcp_user_timeout=13"
    given += "&keepalives_idle=14&keepalives_interval=15&keepalives_count=16"
    with MessageQueue(f"{store}?{given}") as queue:
        names = [*(part.partition("=")[0] for part in given.split("&"))]
        names = [f"tcp_{name}" if name.startswith("keepalives") else name for name in names]
        shown = [queue.store.connection().execute(f"SHOW {name}").fetchone()[0] for name in names]
    assert shown == ["11s", "12s", "13000", "14", "15", "16"]


def test_a_statement_is_cancelled_after_its_time_out(store: str) -> None:
    with MessageQueue(f"{store}?statement_timeout=1", busy_timeout=30) as queue, psycopg.connect(store) as other:
        other.execute(b"LOCK TABLE airflow_mq.state IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreBusy) as caught:
            queue.plan_block(limit=PLENTY)
        assert str(caught.value) == known.CANCELLED.text
        other.rollback()
        assert queue.check() == []


def test_a_stream_of_messages_has_no_statement_time_out(store: str) -> None:
    """The caller may take its time between two messages; so does what else a transaction writes have its time-out."""
    with MessageQueue(f"{store}?statement_timeout=1") as queue, psycopg.connect(store, autocommit=True) as other:

        def messages() -> Iterator[Message]:
            for number in range(2_000):
                if number == 1_500:
                    other.execute("SELECT pg_sleep(1.2)")
                yield Message(b"%d" % number)

        assert queue.enqueue_messages("a", messages()).count == 2_000
        with queue.store.writing() as unit:
            assert unit.connection.execute("SHOW statement_timeout").fetchone()[0] == "1s"  # type: ignore[attr-defined]
