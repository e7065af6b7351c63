"""The costs of steps, measured beside an idle store; nothing of the measurement remains."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace

import psycopg
import pytest

from airflow_mq import Costs, MessageQueue, RingConfig, Weight
from airflow_mq.engine.rules.errors import InvalidInput, Refused
from airflow_mq.engine.store import StoreAddress, parse, upgrade
from airflow_mq.testing import weights as steps
from airflow_mq.testing.scratch import beside
from airflow_mq.testing.weights import METHODS, Measured, costs_of, measure
from tests.proofs.crash.states import everything
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the measurement: its figures do not matter here."""
    for name, number in (("QUEUES", 6), ("PAGES", 4), ("ITEMS", 20)):
        monkeypatch.setattr(steps, name, number)


@pytest.fixture
def queue(store_uri: str) -> Iterator[MessageQueue]:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        queue.enqueue_messages("acme", [b"x"] * 5)
        queue.blocks.plan()
        yield queue
        assert queue.check() == []


def places(address: StoreAddress) -> list[str]:
    """Everything of ours that lies where this store does."""
    if address.path is not None:
        return sorted(path.name for path in address.path.parent.iterdir() if not path.name.endswith(("-wal", "-shm")))
    with psycopg.connect(**address.conninfo()) as connection:
        return sorted(
            row[0] for row in connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE '%mq%'")
        )


def test_every_step_is_measured_and_nothing_is_touched(queue: MessageQueue) -> None:
    address = queue.store.address
    before, there = everything(queue), places(address)
    told: list[str] = []
    found = measure(address, 3, lambda text, part: told.append(text))
    assert {one.step for one in found} == {field.name for field in fields(Costs)} == set(METHODS)
    assert all(0 <= one.low <= one.high and one.median >= 0 and one.how == METHODS[one.step] for one in found)
    assert all(one.median > 0 for one in found if one.step.startswith(("bump", "set", "execute", "reap")))
    assert told == ["1 of 3", "2 of 3", "3 of 3"]
    assert everything(queue) == before and places(address) == there


def test_nothing_is_left_of_what_went_wrong(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    address = queue.store.address
    there = places(address)
    monkeypatch.setattr(steps._Bench, "reaped", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        measure(address, 3)
    assert places(address) == there
    with pytest.raises(InvalidInput, match="3 to 1,000"):
        measure(address, 2)


HOLD = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
from airflow_mq.testing.scratch import beside
from airflow_mq.engine.store import parse
with beside(parse(sys.argv[1])) as made:
    print(made.schema, flush=True)
    time.sleep(600)
"""


def test_what_was_left_behind_is_removed_by_the_next(queue: MessageQueue) -> None:
    """Killed in the middle, a measurement leaves its store; the next one removes it, and no other's."""
    address = queue.store.address
    there = places(address)
    children = [
        subprocess.Popen([sys.executable, "-c", HOLD, address.uri], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    try:
        for child in children:
            assert child.stdout is not None and child.stdout.readline()
        assert len(places(address)) == len(there) + 2
        children[0].kill()
        children[0].wait()

        def one_is_left() -> bool:
            # A server may take a moment to find that the one who was killed is gone.
            with beside(address):
                pass
            return len(places(address)) == len(there) + 1

        assert eventually(one_is_left)
        children[1].terminate()
        children[1].wait(60)
        assert places(address) == there
    finally:
        for child in children:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()


@pytest.mark.postgres
def test_without_the_right_to_create_a_schema_the_error_names_the_grant(pg_uri: str) -> None:
    address = parse(pg_uri)
    with psycopg.connect(autocommit=True, **address.conninfo()) as connection:
        connection.execute(f"CREATE ROLE small{os.getpid()} LOGIN PASSWORD 'small'".encode())
        try:
            with (
                pytest.raises(Refused, match="GRANT CREATE ON DATABASE"),
                beside(replace(address, user=f"small{os.getpid()}", password="small")),
            ):
                pass
        finally:
            connection.execute(f"DROP ROLE small{os.getpid()}".encode())


def test_costs_are_medians_rounded_up() -> None:
    found = [Measured("bump_service_head", 1.2, 1, 2, ""), Measured("service_page_item", 0.0, 0, 0, "")]
    assert costs_of(found) == Costs(bump_service_head=Weight(2, 0))
    assert costs_of(found, 1000).bump_service_head == Weight(1200, 0)
    assert RingConfig().changed(costs=costs_of(found)).costs.overhead == Weight(2, 0)
