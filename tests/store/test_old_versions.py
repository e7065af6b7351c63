"""Beside an open transaction, later rounds read hardly more pages than the first ones.

An open transaction keeps the old versions of all rows. The server analyzes tables now and then, and finds few live rows
in them; its plans must still end at the newest version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql

from airflow_mq import MessageQueue, batch_processor
from airflow_mq.engine.queue.values import Batch
from airflow_mq.engine.store import parse, upgrade
from tests.waiting import eventually

ORIGINS = [f"o{number:02}" for number in range(12)]
ROUNDS = 50
READ = """
SELECT sum(coalesce(heap_blks_hit, 0) + coalesce(heap_blks_read, 0)
           + coalesce(idx_blks_hit, 0) + coalesce(idx_blks_read, 0))
FROM pg_statio_all_tables WHERE schemaname = 'airflow_mq'
"""

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


@pytest.fixture
def watcher(pg_uri: str) -> Iterator[psycopg.Connection[tuple[int]]]:
    upgrade(parse(pg_uri))
    with psycopg.connect(pg_uri, autocommit=True) as connection:
        # Autovacuum reads pages, too.
        for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'airflow_mq'").fetchall():
            table = sql.Identifier("airflow_mq", name)
            connection.execute(sql.SQL("ALTER TABLE {} SET (autovacuum_enabled = off)").format(table))
        yield connection


def in_place(queue: MessageQueue) -> int:
    @batch_processor
    def process(batch: Batch) -> None:
        assert batch.payloads

    return queue.service_queues(process).processed


def in_a_block(queue: MessageQueue) -> int:
    block = queue.blocks.plan()
    queue.blocks.report(block, [batch.answer() for batch in block.batches() if batch.payloads])
    queue.blocks.settle(block)
    return block.messages


@pytest.mark.parametrize("work", [in_place, in_a_block])
def test_old_versions_are_not_read(
    pg_uri: str, watcher: psycopg.Connection[tuple[int]], work: Callable[[MessageQueue], int]
) -> None:
    with psycopg.connect(pg_uri) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("SELECT 1 FROM airflow_mq.book")
        parts = [pages_of(pg_uri, watcher, work) for _ in range(6)]
        reader.execute("SELECT 1 FROM airflow_mq.book")
    # Versions of the first rounds are there after the first part. Later ones cost a level of an index at most.
    assert parts[-1] < 1.2 * parts[1], parts


def pages_of(uri: str, watcher: psycopg.Connection[tuple[int]], work: Callable[[MessageQueue], int]) -> int:
    """Return how many pages of tables and indexes some rounds read."""
    watcher.execute("ANALYZE")
    before = pages_read(watcher)
    with MessageQueue(uri) as queue:
        for _ in range(ROUNDS):
            queue.enqueue_messages((origin, b"x" * 100) for origin in ORIGINS for _ in range(3))
            assert work(queue) == 3 * len(ORIGINS)
    return pages_read(watcher) - before


def pages_read(watcher: psycopg.Connection[tuple[int]]) -> int:
    """Return how many pages all sessions have read; a session's figures are there once it has ended."""
    active = "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'airflow_mq%'"
    eventually(lambda: watcher.execute(active).fetchone() is None)
    row = watcher.execute(READ).fetchone()
    assert row is not None
    return int(row[0] or 0)
