"""Full disks and read-only stores: named errors, no changes, and recovery."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.engine.rules.errors import StoreFull, StoreReadOnly
from airflow_mq.engine.store import parse, upgrade
from tests.proofs.crash.states import everything

PLENTY = Weight(1 << 40, 1 << 40)


@pytest.fixture
def queue(store_uri: str) -> Iterator[MessageQueue]:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        queue.enqueue_messages("here", [b"one", b"two"])
        yield queue


@pytest.mark.parametrize("store_uri", ["sqlite"], indirect=True)
def test_full_disk_raises_store_full(queue: MessageQueue) -> None:
    """SQLite reports a full disk if its file may have no further page."""
    before = everything(queue)
    connection = queue.store.lent().connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreFull, match="full"):
        queue.enqueue_messages("here", (b"x" * 1_000 for _ in range(1_000)))
    assert everything(queue) == before
    # Stored messages can still be processed, which frees space.
    seen: list[bytes] = []
    queue.service_queues(lambda delivery: seen.append(delivery.payload), PLENTY)
    connection.execute("PRAGMA max_page_count = 1000000")
    queue.enqueue_messages("here", (b"x" * 1_000 for _ in range(1_000)))
    assert seen == [b"one", b"two"] and queue.footprint("here").count == 1_000 and queue.check() == []


def test_read_only_store_raises_store_read_only(queue: MessageQueue, store_uri: str) -> None:
    before = everything(queue)
    connection = queue.store.lent().connection
    if store_uri.startswith("sqlite"):
        connection.execute("PRAGMA query_only = on")
    else:
        # A sender that finds a standby connects anew, so it holds for later sessions as well.
        name = connection.execute("SELECT quote_ident(current_database())").fetchone()[0]
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        connection.execute("SET default_transaction_read_only = on")
    for call in (
        lambda: queue.enqueue_message("here", b"three"),
        lambda: queue.enqueue_messages("here", [b"three"] * 1_000),
        lambda: queue.enqueue_message("here", b"three", key="k"),
        lambda: queue.blocks.plan(limit=PLENTY),
        lambda: queue.service_queues(lambda delivery: None, PLENTY),
        lambda: queue.admin.pause("here", "no reason"),
    ):
        with pytest.raises(StoreReadOnly, match="read-only|cannot write"):
            call()
    assert everything(queue) == before and [message.payload for message in queue.inspect.peek("here")] == [
        b"one",
        b"two",
    ]


@pytest.mark.postgres
def test_read_only_user_can_read(pg_uri: str) -> None:
    upgrade(parse(pg_uri))
    with psycopg.connect(pg_uri, autocommit=True) as admin:
        admin.execute("CREATE ROLE looker LOGIN PASSWORD 'look'")
        admin.execute("GRANT USAGE ON SCHEMA airflow_mq TO looker")
        admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA airflow_mq TO looker")
    try:
        with MessageQueue(pg_uri) as queue:
            queue.enqueue_message("here", b"one")
        uri = "postgresql://looker:look@" + pg_uri.rpartition("@")[2]
        with MessageQueue(uri) as queue:
            assert queue.footprint("here").count == 1 and queue.check() == []
            with pytest.raises(StoreReadOnly, match="written"):
                queue.enqueue_message("here", b"two")
            with pytest.raises(StoreReadOnly, match="written"):
                queue.blocks.plan(limit=PLENTY)
    finally:
        with psycopg.connect(pg_uri, autocommit=True) as admin:
            admin.execute("DROP OWNED BY looker")
            admin.execute("DROP ROLE looker")
