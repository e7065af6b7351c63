"""The last id drawn: no reading of it is ever ahead of the ids that were drawn by then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from airflow_mq import MessageQueue
from airflow_mq.store import parse, statements, upgrade
from airflow_mq.store.postgres import PostgresStore

pytestmark = [pytest.mark.concurrency, pytest.mark.postgres]

#: Reads in a loop on the server and counts how often a value is smaller than the one before.
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
    """Draw ids beside, as fast as the server gives them."""
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


def test_no_reading_is_ahead_of_the_ids_drawn(pg_uri: str) -> None:
    """`nextval` puts a value up to 32 ahead into the sequence for a moment, while it writes its log."""
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as queue:
        assert isinstance(queue.store, PostgresStore)
        statement, prefix = queue.store.text("last_id").decode(), queue.store.prefix
    with drawing(pg_uri, f"{prefix}id_seq"), psycopg.connect(pg_uri, autocommit=True) as connection:
        connection.execute(COUNT_STEPS_BACK.format(statement=statement))
        (steps_back,) = connection.execute("SELECT current_setting('mq.steps_back')::bigint").fetchone() or (None,)
    assert steps_back == 0


def test_no_statement_reads_the_row_of_the_sequence() -> None:
    code = {name: statements.statement("postgres", name, "{s}") for name in statements.names("postgres")}
    assert len(code) > 100
    assert [name for name, text in code.items() if "FROM {s}id_seq" in text or "is_called" in text] == []
