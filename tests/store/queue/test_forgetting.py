"""Expired events, ledger entries, blocks and keys are deleted once, and by every process that comes later."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta

import pytest

from airflow_mq import Message, MessageQueue, Weight
from airflow_mq.engine.queue import session
from airflow_mq.engine.rules.errors import Busy
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.engine.store.rings import Rings
from tests.proofs.model.clock import Clock

HOUR = 3_600_000_000


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return the ranges of time from which events are deleted."""
    ranges: list[tuple[int, int]] = []
    expire = Rings.expire

    def noted(self: Rings, kind: str, ring: int, after: int, before: int, limit: int) -> int:
        if kind == "events":
            ranges.append((after, before))
        return expire(self, kind, ring, after, before, limit)

    monkeypatch.setattr(Rings, "expire", noted)
    monkeypatch.setattr(session, "FORGET_EVERY", 0.0)
    return ranges


def test_what_was_deleted_is_not_looked_for_again(store_uri: str, asked: list[tuple[int, int]], clock: Clock) -> None:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        kept = int(queue.config.keep_events * 1_000_000)
        first = forget(queue, clock)
        second = forget(queue, clock)
        queue.admin.change_ring(keep_events=queue.config.keep_events / 2)
        third = forget(queue, clock)
    with MessageQueue(store_uri) as another:
        fourth = forget(another, clock)
    always = -session.LATEST
    assert asked == [
        (always, first - kept),
        (first - kept - session.AGAIN, second - kept),
        # A shorter time to keep rows: all that became old by the change.
        (second - kept - session.AGAIN, third - kept // 2),
        (always, fourth - kept // 2),
    ]


def test_housekeeping_looks_at_all(store_uri: str, asked: list[tuple[int, int]]) -> None:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        for _ in range(2):
            queue.admin.housekeep()
        assert [after for after, _ in asked] == [-session.LATEST] * 2


def test_many_rows_take_many_transactions(
    store_uri: str, asked: list[tuple[int, int]], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade(parse(store_uri))
    monkeypatch.setattr(session, "MOST_FORGOTTEN", 2)
    monkeypatch.setattr(session, "FORGET_EVERY", 1e9)
    with MessageQueue(store_uri) as queue:
        send_with_keys(queue, 7)
        clock.advance(queue.config.key_window + 1)
        left = []
        for _ in range(5):
            queue.session.forget_old()
            left.append(keys_of(queue))
        # A call that deleted as many rows as it may is followed by the next one at once.
        assert left == [5, 3, 1, 0, 0]
        send_with_keys(queue, 7)
        clock.advance(queue.config.key_window + 1)
        queue.admin.housekeep()
        assert keys_of(queue) == 0


@pytest.mark.parametrize("end", ["settle", "release", "service", "housekeep"])
def test_an_open_transaction_of_a_sender_holds_up_no_end(store_uri: str, end: str, clock: Clock) -> None:
    """An open transaction uses an expired key again; blocks and services end without waiting for it."""
    upgrade(parse(store_uri))
    is_postgres = store_uri.startswith("postgres")
    with MessageQueue(store_uri, busy_timeout=0.5) as queue, MessageQueue(store_uri) as sender, ExitStack() as stack:
        send_with_keys(queue, 3)
        clock.advance(queue.config.key_window + 1)
        block = None if end == "service" else queue.blocks.plan(limit=Weight(100, 10_000))
        if is_postgres:
            unit = stack.enter_context(sender.store.writing())
            window, now = int(queue.config.key_window * 1_000_000), unit.now()
            assert unit.keys.claim(queue.session.ring_id, "key 1", "a", b"digest", now, window)
        if end == "service":
            assert queue.service_queues(lambda delivery: None, Weight(100, 10_000)).processed == 3
        elif end == "housekeep":
            queue.admin.housekeep()
        else:
            assert block is not None
            assert getattr(queue.blocks, end)(block).returned == 3
        assert keys_of(queue) == (1 if is_postgres else 0)
        stack.close()
        assert queue.check() == []


def test_a_store_in_use_delays_no_end(sqlite_uri: str, clock: Clock) -> None:
    """Another process writes to the file after the commit: the next call deletes what has expired."""
    with MessageQueue(sqlite_uri, busy_timeout=0.5) as queue, MessageQueue(sqlite_uri) as other, ExitStack() as stack:
        send_with_keys(queue, 1)
        clock.advance(queue.config.key_window + 1)
        block = queue.blocks.plan(limit=Weight(100, 10_000))

        def occupy(step: str) -> None:
            if step == "committed":
                queue.store.probe = None
                stack.enter_context(other.store.writing())

        queue.store.probe = occupy
        assert queue.blocks.settle(block).returned == 1
        assert queue.blocks.list("settled")
        stack.close()
        assert keys_of(queue) == 1
        queue.session._forgot_at = -session.FORGET_EVERY
        queue.session.forget_old()
        assert keys_of(queue) == 0


def forget(queue: MessageQueue, clock: Clock) -> int:
    """Let an hour pass, delete what has expired, and return the store's time."""
    clock.advance(timedelta(hours=1).total_seconds())
    queue.session.forget_old()
    with queue.store.loose() as unit:
        return unit.now()


def send_with_keys(queue: MessageQueue, count: int) -> None:
    queue.enqueue_messages("a", [Message(b"x", f"key {number}") for number in range(count)])


def keys_of(queue: MessageQueue) -> int:
    with queue.store.reading() as unit:
        connection = unit.connection  # type: ignore[attr-defined]
        count: int = connection.execute(f"SELECT count(*) FROM {queue.store.prefix}sent_key").fetchone()[0]
        return count


@pytest.mark.postgres
def test_charges_that_another_adds_up_hold_up_no_other_rows(pg_uri: str, clock: Clock) -> None:
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri, busy_timeout=0.5) as queue, MessageQueue(pg_uri) as other:
        send_with_keys(queue, 3)
        block = queue.blocks.plan(limit=Weight(100, 10_000))
        queue.blocks.report(block, [batch.answer() for batch in block.batches()])
        queue.blocks.settle(block)
        clock.advance(queue.config.key_window + 90_000)
        queue.session._forgot_at = -session.FORGET_EVERY
        with other.store.writing() as unit:
            unit.rows("hold_config", ring=other.session.ring_id)
            queue.session.forget_old()
            assert keys_of(queue) == 0
            send_with_keys(queue, 3)
            clock.advance(queue.config.key_window + 90_000)
            with pytest.raises(Busy):
                queue.admin.housekeep()
            assert keys_of(queue) == 0
        queue.admin.housekeep()
