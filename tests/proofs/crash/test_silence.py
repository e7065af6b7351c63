"""Stopped processes and silent servers: calls that wait for them end within a bound."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.cli import main
from airflow_mq.engine.rules.errors import Busy, CommitInDoubt, StoreBusy, StoreUnreachable
from airflow_mq.engine.rules.message import Message
from airflow_mq.engine.store import parse
from airflow_mq.engine.store import postgres_errors as known
from airflow_mq.engine.store.pipelined import within
from tests.proofs.crash.children import end_child, start_child
from tests.proofs.crash.proxy import Proxy
from tests.waiting import eventually

PLENTY = Weight(1 << 40, 1 << 40)
pytestmark = pytest.mark.postgres


def stop_at(queue: MessageQueue, statement: str) -> None:
    """Stop this process before a statement, as a debugger or an overloaded machine would."""

    def probe(name: str) -> None:
        if name == statement:
            queue.store.probe = None
            os.kill(os.getpid(), signal.SIGSTOP)

    queue.store.probe = probe


@contextmanager
def stopped_planner(uri: str, at: str) -> Iterator[None]:
    """Run a process that stops while it plans; it resumes at the end and finds its transaction ended."""

    def plan() -> None:
        with MessageQueue(uri) as queue:
            stop_at(queue, at)
            with pytest.raises(StoreUnreachable) as caught:
                queue.blocks.plan(limit=PLENTY)
            assert str(caught.value) == str(known.IDLE_TRANSACTION)

    child = start_child(plan)
    try:
        assert os.WIFSTOPPED(os.waitpid(child[0], os.WUNTRACED)[1])
        yield
    finally:
        os.kill(child[0], signal.SIGCONT)
        end_child(child)


@pytest.mark.parametrize("at", ["insert_block", "commit"])
def test_stopped_planner_loses_its_lock(pg_uri: str, at: str) -> None:
    address = replace(parse(pg_uri), idle_in_transaction_session_timeout=5)
    with MessageQueue(pg_uri, busy_timeout=0.2) as queue:
        queue.enqueue_message("a", b"x")
        with stopped_planner(address.uri, at):
            with pytest.raises(Busy):
                queue.blocks.plan(limit=PLENTY)

            def planned() -> Any:
                try:
                    return queue.blocks.plan(limit=PLENTY)
                except (Busy, StoreBusy):
                    return None

            block = eventually(planned)
            assert block.messages == 1
        assert [planned_block.id for planned_block in queue.blocks.list("planned")] == [block.id]
        assert queue.check() == []


def test_sessions_apply_timeouts_of_the_address(pg_uri: str) -> None:
    query = "statement_timeout=11&idle_in_transaction_session_timeout=12&tcp_user_timeout=13"
    query += "&keepalives_idle=14&keepalives_interval=15&keepalives_count=16"
    with MessageQueue(f"{pg_uri}?{query}") as queue:
        names = [*(part.partition("=")[0] for part in query.split("&"))]
        names = [f"tcp_{name}" if name.startswith("keepalives") else name for name in names]
        shown = [queue.store.lent().connection.execute(f"SHOW {name}").fetchone()[0] for name in names]
    assert shown == ["11s", "12s", "13000", "14", "15", "16"]


def test_statement_is_cancelled_after_its_timeout(pg_uri: str) -> None:
    with MessageQueue(f"{pg_uri}?statement_timeout=1", busy_timeout=30) as queue, psycopg.connect(pg_uri) as other:
        other.execute(b"LOCK TABLE airflow_mq.ring_state IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreBusy) as caught:
            queue.blocks.plan(limit=PLENTY)
        assert str(caught.value) == str(known.CANCELLED)
        other.rollback()
        assert queue.check() == []


def test_stream_of_messages_has_no_statement_timeout(pg_uri: str) -> None:
    """The sender may pause between messages; other statements of the transaction keep the timeout."""
    with MessageQueue(f"{pg_uri}?statement_timeout=1") as queue, psycopg.connect(pg_uri, autocommit=True) as other:

        def messages() -> Iterator[Message]:
            for number in range(2_000):
                if number == 1_500:
                    other.execute("SELECT pg_sleep(1.2)")
                yield Message(b"%d" % number)

        assert queue.enqueue_messages("a", messages()).count == 2_000
        with queue.store.writing() as unit:
            assert unit.connection.execute("SHOW statement_timeout").fetchone()[0] == "1s"  # type: ignore[attr-defined]


# Silent servers.

#: Three seconds for a statement, two for its answer, one for an unanswered cancel, and time for a busy machine.
SOON = 40.0


@pytest.fixture
def wire(pg_uri: str) -> Iterator[Proxy]:
    with MessageQueue(pg_uri) as queue:
        queue.enqueue_messages("a", [b"x" * 100] * 50)
    with Proxy(pg_uri) as proxy:
        proxy.uri += "?statement_timeout=3&connect_timeout=6"
        yield proxy


@contextmanager
def soon() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < SOON


def test_server_silent_after_connecting_raises_store_unreachable(wire: Proxy) -> None:
    wire.fall_silent(b"search_path")
    with soon(), pytest.raises(StoreUnreachable) as caught:
        MessageQueue(wire.uri)
    assert str(caught.value) == str(known.NO_REPLY)
    # The server still accepts connections, but does not ask for a password.
    with soon(), pytest.raises(StoreUnreachable) as refused:
        MessageQueue(wire.uri)
    assert str(refused.value) == str(known.NO_CONNECTION)


@pytest.mark.parametrize("midway", [False, True], ids=["before the answer", "in mid-row"])
@pytest.mark.parametrize("operation", ["look", "plan", "send"])
def test_server_silent_during_a_call_raises_store_unreachable(wire: Proxy, operation: str, midway: bool) -> None:
    with MessageQueue(wire.uri) as queue:
        calls: dict[str, tuple[bytes, Callable[[], object]]] = {
            "look": (b"SELECT", lambda: list(queue.inspect.peek("a"))),
            "plan": (b"SELECT", lambda: queue.blocks.plan(limit=PLENTY)),
            "send": (b"INSERT", lambda: queue.enqueue_message("a", b"y", key="k")),
        }
        word, call = calls[operation]
        wire.fall_silent(word, midway=midway)
        with soon(), pytest.raises(StoreUnreachable) as caught:
            call()
        assert wire.is_silent.is_set() and str(caught.value) == str(known.NO_REPLY)


def test_server_silent_at_a_commit_raises_commit_in_doubt(wire: Proxy, pg_uri: str) -> None:
    with MessageQueue(wire.uri) as queue:
        wire.fall_silent(b"COMMIT")
        with soon(), pytest.raises(CommitInDoubt):
            queue.enqueue_message("b", b"y", key="k")
    with MessageQueue(pg_uri) as queue:
        assert queue.enqueue_message("b", b"y", key="k").repeated + queue.footprint("b").count >= 1


def test_within_bounds_all_calls_of_a_thread(wire: Proxy) -> None:
    with MessageQueue(wire.uri.replace("statement_timeout=3", "statement_timeout=300")) as queue:
        wire.fall_silent()
        with soon(), within(0.5), pytest.raises(StoreUnreachable):
            queue.footprint("a")
        with soon(), within(0.5), pytest.raises(StoreUnreachable):
            MessageQueue(wire.uri)


def test_server_cancels_an_abandoned_statement(pg_uri: str) -> None:
    """A slow server is asked to cancel the statement."""
    with MessageQueue(pg_uri) as queue, psycopg.connect(pg_uri, autocommit=True) as other:
        with within(0.3), pytest.raises(StoreUnreachable), queue.store.loose() as unit:
            unit.connection.execute("SELECT pg_sleep(600)")  # type: ignore[attr-defined]
        running = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(6%' AND pid <> pg_backend_pid()"
        eventually(lambda: not other.execute(running).fetchone())
        assert queue.footprint("a").count == 0


def test_answer_received_while_the_client_was_stopped_counts(pg_uri: str) -> None:
    address = replace(parse(pg_uri), statement_timeout=3)

    def look() -> None:
        with MessageQueue(address) as queue, queue.store.loose() as unit:
            unit.connection.execute("SELECT pg_sleep(2)")  # type: ignore[attr-defined]

    child = start_child(look)
    running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = 'SELECT pg_sleep(2)'"
    with psycopg.connect(pg_uri, autocommit=True) as other:
        eventually(lambda: other.execute(running).fetchone() == (1,))
        os.kill(child[0], signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(child[0], os.WUNTRACED)[1])
        eventually(lambda: other.execute(running).fetchone() == (0,))
    time.sleep(4)  # longer than the client waits for an answer after the timeout
    os.kill(child[0], signal.SIGCONT)
    assert not end_child(child).error


def test_command_line_exits_on_a_silent_server(wire: Proxy, capsys: pytest.CaptureFixture[str]) -> None:
    wire.fall_silent(b"SELECT")
    with soon():
        assert main(["--store", wire.uri, "queue", "list"]) == 4
    assert str(known.NO_REPLY) in capsys.readouterr().err
