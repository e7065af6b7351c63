"""A transaction of any other program that stays open: what a queue remembers meanwhile is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random

import pytest

from airflow_mq import MessageQueue, RingConfig, Weight
from airflow_mq.engine.rules.outcome import DONE
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.engine.store.working_set import writer

pytestmark = [pytest.mark.concurrency, pytest.mark.postgres]
MANY = 16


@pytest.fixture
def queue(pg_uri: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[MessageQueue]:
    monkeypatch.setattr(writer, "MANY_AHEAD", MANY)
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as admin:
        admin.admin.create_ring("small", RingConfig(heap_size=64))
    with MessageQueue(pg_uri, "small") as queue:
        yield queue


@contextmanager
def open_transaction(queue: MessageQueue) -> Iterator[None]:
    """Keep a transaction open that has written something, somewhere in the cluster."""
    with MessageQueue(queue.store.address) as other, ExitStack() as stack:
        unit = stack.enter_context(other.store.writing())
        unit.rows("snapshot", ring=1)
        yield


def ahead(queue: MessageQueue, origin: str = "a") -> int:
    with queue.session.snapshot() as (_, working_set):
        working_set.book(origin)
        return len(working_set.stored[origin].cut.ahead)


def test_rows_ahead_of_the_floor_are_forgotten_once_deleted(queue: MessageQueue) -> None:
    with open_transaction(queue):
        most = 0
        for number in range(6 * MANY):
            queue.enqueue_message("a", b"%d" % number)
            assert queue.service_queues(lambda delivery: None).processed == 1
            most = max(most, ahead(queue))
        # Without the open transaction, the floor would pass them.
        assert MANY // 2 < most < 2 * MANY
        assert queue.check() == []
    queue.enqueue_message("a", b"last")
    assert queue.service_queues(lambda delivery: None).processed == 1
    assert (ahead(queue), queue.check()) == (0, [])


def test_a_service_of_many_slices_forgets_them_too(queue: MessageQueue) -> None:
    with open_transaction(queue):
        for number in range(10 * MANY):
            queue.enqueue_message("a", b"%d" % number)
        done: list[bytes] = []
        queue.service_queues(lambda delivery: done.append(delivery.payload), slice_messages=3)
        assert done == [b"%d" % number for number in range(10 * MANY)]
        assert ahead(queue) < 4 * MANY
        assert queue.check() == []


@pytest.mark.parametrize("seed", range(4))
def test_no_row_is_cut_twice_or_lost(queue: MessageQueue, seed: int) -> None:
    """Calls of several messages share pages, blocks hold some of them, outcomes send more, and services go on."""
    random, sent, done = Random(seed), 0, list[bytes]()
    blocks = []
    with open_transaction(queue):
        for _ in range(60):
            for _ in range(random.randrange(4)):
                count = random.randrange(1, 7)
                queue.enqueue_messages("a", [b"%d" % number for number in range(sent, sent + count)])
                sent += count
            if random.random() < 0.5:
                blocks.append(queue.blocks.plan(limit=Weight(random.randrange(1, 8), 1 << 20)))
            elif blocks and random.random() < 0.8:
                block = blocks.pop()
                for batch in block.batches():
                    queue.blocks.report(block, batch.answers([DONE] * len(batch)))
                    done.extend(batch.payloads)
                queue.blocks.settle(block)
            else:
                limit = Weight(random.randrange(1, 12), 1 << 20)
                queue.service_queues(lambda delivery: done.append(delivery.payload), limit)
            assert queue.check() == []
    for block in blocks:
        queue.blocks.release(block)
    queue.service_queues(lambda delivery: done.append(delivery.payload))
    assert sorted(done, key=int) == [b"%d" % number for number in range(sent)]
    assert queue.check() == []
