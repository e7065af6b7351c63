"""Facts that idempotence needs reach every shape of function: id, address, attempt, headers, block, sent_at."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from airflow_mq import (
    Address,
    Batch,
    Delivery,
    Message,
    MessageQueue,
    Part,
    Processor,
    Processors,
    batch_processor,
)
from airflow_mq.engine.rules.message import message_id
from airflow_mq.spark.exchange import FolderChannel, hand_over, take_back
from airflow_mq.spark.frames import Shares
from airflow_mq.spark.share import run_share
from airflow_mq.spark.store_side import StoreChannel, run_in_place, tasks_of, terms_of

MakeRing = Callable[..., MessageQueue]
#: What functions were given.
seen: list[tuple[Any, ...]] = []


def one_by_one(payload: bytes, origin: str, message: Delivery) -> None:
    see(origin, payload, message)


def typed(value: str, origin: str, message: Delivery) -> None:
    see(origin, value.encode(), message)


def see(origin: str, payload: bytes, message: Any) -> None:
    facts = (message.id, str(message.address), message.attempt, dict(message.headers), message.sent_at, message.block)
    seen.append((origin, payload, *facts))


@batch_processor
def by_batch(batch: Batch) -> None:
    headers = batch.headers or [{}] * len(batch)
    sides: Sequence[Sequence[Any]] = (
        batch.payloads, batch.ids, [str(one) for one in batch.addresses], batch.attempts, headers, batch.sent_at,
    )  # fmt: skip
    seen.extend((batch.origin, *row, batch.block) for row in zip(*sides))


def by_arrow(batches: Iterable[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        see_rows(batch)
        columns = [batch.column(name) for name in ("origin", "priority", "page", "item")]
        nothing = pa.nulls(batch.num_rows, pa.string())
        yield pa.RecordBatch.from_arrays([*columns, nothing], ["origin", "priority", "page", "item", "outcome"])


def see_rows(batch: Any) -> None:
    names = ("origin", "payload", "id", "address", "attempt", "headers", "sent_at", "block")
    for row in zip(*(batch.column(name).to_pylist() for name in names)):
        seen.append((*row[:5], dict(row[5]), *row[6:]))


SHAPES = {"one_by_one": "message", "typed": "message", "by_batch": "message", "by_arrow": "arrow"}


def routes_of(name: str) -> tuple[Processors, Part]:
    codec = "airflow_mq.codecs:text_codec" if name == "typed" else None
    processor = Processor("all", f"tests.spark.test_facts:{name}", shape=SHAPES.get(name, "dataframe"), codec=codec)
    return Processors([processor]), Part(name="all", processors=["all"], part=0, parts=1, messages=0, where="spark")


@pytest.fixture
def queue(either_store: str, make_ring: MakeRing) -> MessageQueue:
    """A message that was tried once, one with headers, and one of high priority."""
    queue = make_ring(either_store, ordered=False)
    queue.enqueue_messages("a", [b"tried", Message(b"with headers", headers={"order": "17"})])
    queue.enqueue_message("a", b"high", priority="high")
    block = queue.blocks.plan()
    (high,) = (batch for batch in block.batches() if batch.priority == "high")
    queue.blocks.report(block, [high.answer()])
    queue.blocks.settle(block)
    queue.enqueue_message("a", b"high again", priority="high")
    seen.clear()
    return queue


def check_seen(block: int | None) -> None:
    assert [(*row[:2], *row[3:6]) for row in sorted(seen, key=lambda row: row[1])] == [
        ("a", b"high again", str(Address("a", 1, 0, "high")), 1, {}),
        ("a", b"tried", "a:0:0", 2, {}),
        ("a", b"with headers", "a:0:1", 2, {"order": "17"}),
    ]
    for row in seen:
        assert row[2] == message_id(row[1])
        assert abs(datetime.now(timezone.utc) - row[6]) < timedelta(minutes=10)
        assert row[7] == block


@pytest.mark.parametrize("name", SHAPES)
def test_functions_of_a_part_get_the_facts(queue: MessageQueue, tmp_path: Path, name: str) -> None:
    routes, part = routes_of(name)
    block = queue.blocks.plan()

    assert run_in_place(queue, block.token, routes, part).processed == 3
    check_seen(block.id)


@pytest.mark.parametrize("name", SHAPES)
def test_functions_of_a_job_get_the_facts_through_a_folder(queue: MessageQueue, tmp_path: Path, name: str) -> None:
    routes, part = routes_of(name)
    block = queue.blocks.plan()
    channel = FolderChannel(hand_over(queue, block.token, routes, part, str(tmp_path / "exchange")))

    for task in channel.tasks(routes):
        with channel.open(task.share) as side:
            run_share(task.processor, side, channel.terms())

    assert take_back(queue, block.token, channel.path) == 3
    check_seen(block.id)


def test_a_dataframe_has_the_facts(queue: MessageQueue) -> None:
    import pyarrow as pa

    routes, part = routes_of("frame")
    block = queue.blocks.plan()
    terms = terms_of(queue, block)
    channel = StoreChannel(queue.store.address.uri, queue.ring, block.token)
    tasks = tasks_of(block, terms, routes, part, 1)
    numbers = pa.RecordBatch.from_pydict({"id": list(range(len(tasks)))})

    for batch in Shares(channel, [task.share for task in tasks], terms).messages([numbers]):
        see_rows(batch)

    check_seen(block.id)


def test_a_service_in_place_gives_the_facts(queue: MessageQueue) -> None:
    def remember(delivery: Delivery) -> None:
        see(delivery.origin, delivery.payload, delivery)

    queue.service_queues(remember)

    check_seen(None)


def test_a_service_of_batches_gives_the_facts(queue: MessageQueue) -> None:
    queue.service_queues(by_batch)

    check_seen(None)


def test_a_repeated_message_is_upserted_once(make_ring: MakeRing, tmp_path: Path) -> None:
    """As docs/processing.md has it: the second attempt finds the row of the first."""
    queue = make_ring()
    queue.enqueue_messages("a", [b"1", b"2"])
    target = tmp_path / "orders.db"
    with closing(sqlite3.connect(target)) as connection, connection:
        connection.execute("CREATE TABLE orders (id BLOB PRIMARY KEY, origin TEXT, payload BLOB, attempt INTEGER)")

    def process(payload: bytes, origin: str, message: Delivery) -> None:
        with closing(sqlite3.connect(target)) as connection, connection:
            connection.execute(
                "INSERT INTO orders (id, origin, payload, attempt) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET attempt = excluded.attempt",
                (message.id, origin, payload, message.attempt),
            )
        if message.attempt == 1:
            raise ConnectionError("lost before the answer")

    for _ in range(3):
        queue.service_queues(lambda delivery: process(delivery.payload, delivery.origin, delivery))

    with closing(sqlite3.connect(target)) as connection, connection:
        assert connection.execute("SELECT payload, attempt FROM orders ORDER BY payload").fetchall() == [
            (b"1", 2), (b"2", 2)]  # fmt: skip
