"""SIGKILL of a process that closes several days: between them, and at each statement of closing one."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from itertools import pairwise

import pytest

from airflow_mq import MessageQueue
from airflow_mq.bills import EPOCH, verify
from airflow_mq.engine.rules.charging import DAY
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.testing import assert_sound
from tests.proofs.model.clock import Clock, stopped_clock

from .children import probed, run_child

pytestmark = pytest.mark.crash

MONTH, TENANTS = date(2026, 11, 1), ("acme", "bolt", "cedar")
FIRST = (MONTH - EPOCH).days * DAY


def three_days(uri: str, ring: str, clock: Clock) -> None:
    """Charge three tenants on the first day and the third one, and end on the fourth."""
    clock.now = FIRST
    with MessageQueue(uri) as queue:
        queue.admin.create_ring(ring)
    with MessageQueue(uri, ring) as queue:
        for number in (0, 2):
            clock.now = FIRST + number * DAY
            queue.enqueue_messages([(tenant, b"x") for tenant in TENANTS])
            queue.service_queues(lambda delivery: None)
    clock.now = FIRST + 3 * DAY


def closing(uri: str, ring: str) -> Callable[[Callable[[str], None]], None]:
    def work(probe: Callable[[str], None]) -> None:
        probed(MessageQueue(uri, ring, busy_timeout=5), probe).admin.housekeep()

    return work


def test_closing_goes_on_after_a_kill_at_each_point(store_uri: str) -> None:
    """Published headers stay and form one chain; each tenant has one leaf a day, and verifies its bill."""
    upgrade(parse(store_uri))
    with stopped_clock() as clock:
        three_days(store_uri, "whole", clock)
        points = run_child(closing(store_uri, "whole")).points
        closes = [number for number, name in enumerate(points) if name.endswith("close_bill_day")]
        assert len(closes) == 3, points
        # From before the first day is closed until after the last one is committed.
        last = closes[-1] + points[closes[-1] :].index("commit") + 2
        closed = set()
        for number in range(closes[0] - 3, min(last, len(points))):
            ring = f"killed-{number}"
            three_days(store_uri, ring, clock)
            assert run_child(closing(store_uri, ring), kill_at=number).killed, points[number]
            with MessageQueue(store_uri, ring, busy_timeout=5) as queue:
                before = queue.inspect.bill_headers()
                closed.add(len(before))
                assert_sound(queue)
                queue.admin.housekeep()
                headers = queue.inspect.bill_headers()
                assert headers[: len(before)] == before and [one.leaves for one in headers] == [3, 0, 3]
                for one, following in pairwise(headers):
                    assert following.before == one.hash
                for tenant in TENANTS:
                    bill = json.dumps(queue.inspect.bill(tenant, MONTH))
                    proof = verify(bill, [headers[-1].hash])
                    assert proof.is_proven and proof.total["messages"] == 2 and proof.days == 2
                assert [event.id for event in queue.inspect.events(name="DayClosed")] == [one.hash for one in headers]
                assert_sound(queue)
        assert closed == {0, 1, 2, 3}
