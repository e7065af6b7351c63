"""Databases whose default isolation is stricter than the package needs."""

from __future__ import annotations

import threading

import psycopg
import pytest
from psycopg import sql

from airflow_mq import MessageQueue, Weight
from airflow_mq.engine.store import parse, upgrade
from tests.waiting import eventually

pytestmark = [pytest.mark.concurrency, pytest.mark.postgres]

WAITING = "SELECT 1 FROM pg_locks WHERE NOT granted"


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_plan_that_waits_for_the_ring_is_not_refused(pg_uri: str, level: str) -> None:
    upgrade(parse(pg_uri))
    with psycopg.connect(pg_uri, autocommit=True) as other:
        database = sql.Identifier(other.info.dbname)
        statement = sql.SQL("ALTER DATABASE {} SET default_transaction_isolation = {}")
        other.execute(statement.format(database, sql.Literal(level)))
        with MessageQueue(pg_uri) as queue:
            queue.enqueue_message("acme", b"an order")
            planned: list[int] = []
            with other.transaction():
                other.execute("UPDATE airflow_mq.ring_state SET version = version + 1")
                plan = threading.Thread(target=lambda: planned.append(queue.blocks.plan(limit=Weight(9, 9)).messages))
                plan.start()
                eventually(lambda: other.execute(WAITING).fetchone())
            plan.join()
            assert planned == [1]
