"""Last drawn id: no read of it is ahead of the ids drawn so far."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.store import parse, statements, upgrade
from airflow_mq.engine.store.postgres import PostgresStore
from tests.statement_names import names

pytestmark = [pytest.mark.concurrency, pytest.mark.postgres]

#: A loop on the server that counts how often a value is smaller than the previous one.
COUNT_STEPS_BACK = """
DO $$
DECLARE
    now_last bigint; last bigint := 0; steps_back bigint := 0;
    stop timestamptz := clock_timestamp() + interval '4 seconds';
BEGIN
    WHILE clock_timestamp() < stop LOOP
        now_last := (SELECT l FROM ({statement}) AS s(l, began));
        steps_back := steps_back + (now_last < last)::int;
        last := now_last;
    END LOOP;
    PERFORM set_config('mq.steps_back', steps_back::text, false);
END $$
"""


@contextmanager
def drawing(uri: str, sequence: str) -> Iterator[None]:
    """Draw ids in another thread, as fast as the server allows."""
    stop = threading.Event()

    def draw() -> None:
        with psycopg.connect(uri, autocommit=True) as connection:
            while not stop.is_set():
                connection.execute(f"SELECT count(nextval('{sequence}')) FROM generate_series(1, 50000)")

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_last_id_is_never_ahead_of_drawn_ids(pg_uri: str) -> None:
    """While it writes its log, `nextval` briefly sets the sequence up to 32 values ahead."""
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as queue:
        assert isinstance(queue.store, PostgresStore)
        statement, prefix = queue.store.text("last_id").decode(), queue.store.prefix
    with drawing(pg_uri, f"{prefix}id_seq"), psycopg.connect(pg_uri, autocommit=True) as connection:
        connection.execute(COUNT_STEPS_BACK.format(statement=statement))
        (steps_back,) = connection.execute("SELECT current_setting('mq.steps_back')::bigint").fetchone() or (None,)
    assert steps_back == 0


def test_no_statement_reads_the_sequence_row() -> None:
    code = {name: statements.statement("postgres", name, "{s}") for name in names("postgres")}
    assert len(code) > 100
    assert [name for name, text in code.items() if "FROM {s}id_seq" in text or "is_called" in text] == []
