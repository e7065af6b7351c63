"""Expired events, ledger entries, blocks and keys are deleted once, and by every process that comes later."""

from __future__ import annotations

import pytest

from airflow_mq import MessageQueue
from airflow_mq.queue import session
from airflow_mq.store import parse, upgrade
from airflow_mq.store.events import Events

HOUR = 3_600_000_000


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return the ranges of time from which events are deleted."""
    ranges: list[tuple[int, int]] = []
    expire = Events.expire

    def noted(self: Events, ring: int, after: int, before: int) -> None:
        ranges.append((after, before))
        expire(self, ring, after, before)

    monkeypatch.setattr(Events, "expire", noted)
    monkeypatch.setattr(session, "FORGET_EVERY", 0.0)
    return ranges


def test_what_was_deleted_is_not_looked_for_again(store_uri: str, asked: list[tuple[int, int]]) -> None:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        kept = int(queue.config.keep_events * 1_000_000)
        forget(queue, HOUR)
        forget(queue, 2 * HOUR)
        queue.admin.change_ring(keep_events=queue.config.keep_events / 2)
        forget(queue, 3 * HOUR)
    with MessageQueue(store_uri) as another:
        forget(another, 3 * HOUR)
    always = session.BEGINNING - session.AGAIN
    assert asked == [
        (always, HOUR - kept),
        (HOUR - kept - session.AGAIN, 2 * HOUR - kept),
        # A shorter time to keep rows: all that became old by the change.
        (2 * HOUR - kept - session.AGAIN, 3 * HOUR - kept // 2),
        (always, 3 * HOUR - kept // 2),
    ]


def test_housekeeping_looks_at_all(store_uri: str, asked: list[tuple[int, int]]) -> None:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        for _ in range(2):
            queue.admin.housekeep()
        assert [after for after, _ in asked] == [session.BEGINNING] * 2


def forget(queue: MessageQueue, now: int) -> None:
    with queue.store.writing() as unit:
        queue.session.forget_old(unit, now)
