"""A second migration, which exists in tests only: it changes large tables, rewrites rows and adds a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest import mock

from airflow_mq import Delivery, MessageQueue, Weight
from airflow_mq.engine.rules.blob import Reference
from airflow_mq.engine.store.statements import migrations
from airflow_mq.engine.store.version import expected_version

FIRST = [name for _, name, _ in migrations("sqlite")]
NUMBER = len(FIRST) + 1
NAME = f"{NUMBER:04}_colours"
SECOND = {
    "sqlite": """
-- A colour for each queue.
ALTER TABLE {s}inbox ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey';
ALTER TABLE {s}book ADD COLUMN colour TEXT;
UPDATE {s}book SET colour = 'grey';
CREATE TABLE {s}colour (ring INTEGER NOT NULL, origin TEXT NOT NULL, PRIMARY KEY (ring, origin)) STRICT;
INSERT INTO {s}colour SELECT ring, origin FROM {s}book;
CREATE INDEX {s}colour_by_origin ON {s}colour (origin);
""",
    "postgres": """
-- A colour for each queue.
ALTER TABLE {s}inbox ADD COLUMN colour text NOT NULL DEFAULT 'grey';
ALTER TABLE {s}book ADD COLUMN colour text;
UPDATE {s}book SET colour = 'grey';
CREATE TABLE {s}colour (ring smallint NOT NULL, origin text COLLATE "C" NOT NULL, PRIMARY KEY (ring, origin));
INSERT INTO {s}colour SELECT ring, origin FROM {s}book;
CREATE INDEX colour_by_origin ON {s}colour (origin);
CREATE FUNCTION {s}colours() RETURNS bigint LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT count(*) FROM {s}colour
$$;
REVOKE ALL ON FUNCTION {s}colours FROM PUBLIC;
""",
}
#: A statement that no database accepts.
WRONG = "INSERT INTO {s}colour SELECT ring, nothing FROM {s}book;\n"


@contextmanager
def next_version(texts: Mapping[str, str] = SECOND) -> Iterator[None]:
    """Be the next version of the package, which has one migration more."""

    def both(dialect: str) -> list[tuple[int, str, str]]:
        return [*migrations(dialect), (NUMBER, NAME, texts[dialect])]

    with (
        mock.patch("airflow_mq.engine.store.schema.migrations", both),
        mock.patch("airflow_mq.engine.store.version.migrations", both),
    ):
        expected_version.cache_clear()
        try:
            yield
        finally:
            expected_version.cache_clear()


def fill(queue: MessageQueue) -> tuple[str, list[str]]:
    """Store something of everything; return the token of a block in flight, and the payloads that must be processed."""
    queue.admin.change_ring(max_attempts=3, lease=1e6, key_window=1e6)
    queue.admin.set_origin("acme", share=3)
    queue.enqueue_messages("acme", [b"acme 1", b"acme 2"])
    queue.enqueue_message("heavy", b"heavy", weight=Weight(10**12, 1))
    block = queue.blocks.plan("in flight")
    (batch,) = block.batches()
    queue.blocks.report(block, [batch.answer()])
    queue.enqueue_message("acme", b"acme 3", headers={"colour": "red"})
    queue.enqueue_message("initech", b"an order", key="order-1")
    queue.enqueue_message("globex", b"later", not_before=60)
    queue.enqueue_message("globex", b"soon", priority="high")
    queue.enqueue_message("hooli", b"paused")
    queue.payloads.enqueue("globex", b"large " * 20_000)
    queue.admin.pause("hooli", "audit")
    return block.token, sorted(["acme 3", "an order", "later", "soon", "paused", "large " * 20_000])


def drain(queue: MessageQueue) -> list[str]:
    """Process all ready messages; return their payloads."""
    payloads: list[bytes] = []

    def process(delivery: Delivery) -> None:
        payload = delivery.payload
        payloads.append(queue.payloads.open(delivery).read() if isinstance(payload, Reference) else payload)

    while queue.service_queues(process).processed:
        pass
    return sorted(payload.decode() for payload in payloads)
