"""Upgrades to a next version: a second migration, applied whole or not at all, beside processes of this version."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.rules.errors import MessageQueueError, SchemaTooNew, SchemaTooOld
from airflow_mq.engine.store import StoreAddress, parse, schema_status, upgrade, upgrade_sql
from tests.proofs.model.clock import SECOND, Clock
from tests.store import killed_upgrades
from tests.store.successor import NAME, NUMBER, WRONG, drain, fill, next_version
from tests.store.successor import SECOND as MIGRATION
from tests.store.test_migrations import run
from tests.waiting import eventually


@pytest.fixture
def store(store_uri: str, clock: Clock) -> tuple[StoreAddress, str, list[str]]:
    """Return a filled store of this version, the token of its block in flight, and its payloads."""
    with MessageQueue(store_uri) as queue:
        return parse(store_uri), *fill(queue)


Filled = tuple[StoreAddress, str, list[str]]


def finish(queue: MessageQueue, token: str, clock: Clock) -> list[str]:
    """Settle the block in flight, and process all else."""
    assert queue.blocks.settle(token).processed == 2
    queue.admin.resume("hooli")
    clock.now += 3_600 * SECOND
    return drain(queue)


def test_a_store_of_this_version_is_refused_until_it_is_upgraded(store: Filled) -> None:
    address, _, _ = store
    with next_version():
        assert schema_status(address).state == "older"
        with pytest.raises(SchemaTooOld) as refused:
            MessageQueue(address)
    assert str(refused.value) == (
        f"the store has schema version {NUMBER - 1}, this client expects {NUMBER}; run `airflow-mq store upgrade`"
    )


def test_an_upgraded_store_keeps_everything(store: Filled, clock: Clock) -> None:
    address, token, payloads = store
    with next_version():
        assert upgrade(address) == [NAME]
        assert upgrade(address) == []
        assert schema_status(address).state == "current"
        with MessageQueue(address) as queue:
            assert queue.check() == []
            assert (queue.config.max_attempts, queue.config.key_window) == (3, 1e6)
            assert queue.inspect.origin_settings("acme").share == 3
            assert [(pause.origin, pause.reason) for pause in queue.admin.paused()] == [("hooli", "audit")]
            assert queue.enqueue_message("initech", b"an order", key="order-1").repeated == 1
            assert queue.blocks.plan("in flight").token == token
            assert finish(queue, token, clock) == payloads
            assert [aside.address.origin for aside in queue.set_aside.list()] == ["heavy"]
            assert queue.check() == []
    with pytest.raises(SchemaTooNew, match=f"schema version {NUMBER}, this client expects {NUMBER - 1}"):
        MessageQueue(address)
    with pytest.raises(SchemaTooNew, match="upgrade airflow-mq here"):
        upgrade(address)


@pytest.mark.slow
def test_an_upgrade_that_is_killed_at_any_statement_runs_again(store: Filled, clock: Clock) -> None:
    address, token, payloads = store
    with next_version():
        statements = killed_upgrades.interrupt_everywhere(address)
        assert statements > MIGRATION["sqlite"].count(";")
        assert upgrade(address) == []
        with MessageQueue(address) as queue:
            assert finish(queue, token, clock) == payloads
            assert queue.check() == []


def test_a_migration_that_fails_changes_nothing(store: Filled) -> None:
    address, _, _ = store
    before = killed_upgrades.contents(address)
    wrong = {dialect: text + WRONG for dialect, text in MIGRATION.items()}
    with next_version(wrong), pytest.raises(MessageQueueError, match="nothing"):
        upgrade(address)
    assert killed_upgrades.contents(address) == before
    MessageQueue(address).close()
    with next_version():
        assert upgrade(address) == [NAME]


def test_two_upgrades_at_once(store: Filled) -> None:
    with next_version(), ThreadPoolExecutor(4) as threads:
        applied = list(threads.map(upgrade, [store[0]] * 4))
    assert sorted(applied) == [[], [], [], [NAME]]


def test_a_person_upgrades_by_hand(store: Filled) -> None:
    address, _, _ = store
    with next_version():
        script = upgrade_sql("sqlite" if address.driver == "sqlite" else "postgres", address.schema, NUMBER - 1)
        run(address, script)
        assert schema_status(address).state == "current"
        assert upgrade(address) == []
        MessageQueue(address).close()


def test_a_sender_of_this_version_goes_on_and_loses_nothing(store: Filled, clock: Clock) -> None:
    address, token, payloads = store
    with MessageQueue(address) as old:
        with next_version():
            upgrade(address)
        assert old.enqueue_message("acme", b"sent plainly").count == 1
        assert old.enqueue_message("acme", b"sent with a key", key="key").count == 1
        assert old.enqueue_messages("acme", [b"one of several", b"one of several"]).count == 2
        for refused in (old.blocks.plan, lambda: old.blocks.settle(token), lambda: old.service_queues(lambda _: None)):
            with pytest.raises(SchemaTooNew, match="upgrade airflow-mq here"):
                refused()
    sent = ["sent plainly", "sent with a key", "one of several", "one of several"]
    with next_version(), MessageQueue(address) as queue:
        assert finish(queue, token, clock) == sorted([*payloads, *sent])
        assert queue.check() == []


def test_an_upgrade_waits_for_an_open_transaction_of_a_sender(store: Filled, clock: Clock) -> None:
    address, token, payloads = store
    with MessageQueue(address) as old, ThreadPoolExecutor(1) as threads, caller(address) as connection:
        old.commands(connection).push("acme", b"sent meanwhile").execute()
        with next_version():
            upgrading = threads.submit(upgrade, address)
            eventually(lambda: upgrading.done() or is_waiting(address, connection))
            assert not upgrading.done()
            connection.commit()
            assert upgrading.result(60) == [NAME]
    with next_version(), MessageQueue(address) as queue:
        assert finish(queue, token, clock) == sorted([*payloads, "sent meanwhile"])
        assert queue.check() == []


@contextmanager
def caller(address: StoreAddress) -> Iterator[Any]:
    """Yield a connection of an application to the database of a store."""
    connection: Any = sqlite3.connect(address.path) if address.path is not None else psycopg.connect(address.uri)
    with closing(connection):
        connection.execute("BEGIN IMMEDIATE" if address.path is not None else "SELECT 1")
        yield connection


def is_waiting(address: StoreAddress, sender: Any) -> bool:
    """Return whether another session waits for a sender. A file of SQLite does not reveal this."""
    if address.driver == "sqlite":
        return True
    with psycopg.connect(address.uri) as connection:
        text = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
        row = connection.execute(text, (sender.info.backend_pid,)).fetchone()
        return row is not None and row[0] > 0
