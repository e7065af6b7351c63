"""Blocks of a ring are numbered 1, 2, 3 ..., and every place that shows or takes a number agrees."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator

import psycopg
import pytest

from airflow_mq import MessageQueue, RingConfig, Weight
from airflow_mq.cli import main
from airflow_mq.core.errors import TokenRefused
from airflow_mq.queue import Block
from airflow_mq.queue.blocks import plan as planning
from airflow_mq.store import StoreAddress, parse, upgrade, upgrade_sql
from airflow_mq.store.statements import migrations
from tests.store.test_migrations import run, table

RINGS = ("east", "west")
HEAVY = Weight(5_000, 1)


@pytest.fixture
def queues(store_uri: str) -> Iterator[dict[str, MessageQueue]]:
    """Two rings of one store."""
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as first:
        for ring in RINGS:
            first.admin.create_ring(ring, RingConfig(service_weight=Weight(1_000, 1_000)))
    opened = {ring: MessageQueue(store_uri, ring) for ring in RINGS}
    yield opened
    for queue in opened.values():
        assert queue.check() == []
        queue.close()


def settled(queue: MessageQueue) -> Block:
    """A block with one message that is done and one that is set aside."""
    queue.enqueue_message("acme", b"x")
    queue.enqueue_message("heavy", b"y", weight=HEAVY)
    block = queue.blocks.plan()
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)
    return block


def test_each_ring_counts_its_blocks_from_one(queues: dict[str, MessageQueue]) -> None:
    east, west = queues.values()

    assert [settled(queue).id for queue in (east, west, east, west, east)] == [1, 1, 2, 2, 3]
    for queue, numbers in ((east, [3, 2, 1]), (west, [2, 1])):
        assert [block.id for block in queue.blocks.list()] == numbers
        assert [page.block for page in queue.inspect.ledger()] == numbers
        assert [glance.id for glance in queue.blocks.list(entries=True)] == numbers
        assert [glance.id for glance in queue.blocks.list(before=2)] == [1]
        assert all(glance.entries for glance in queue.blocks.list(entries=True))
        assert sorted({event.block for event in queue.inspect.events()}) == numbers[::-1]
        assert {event.block for event in queue.inspect.events(block=2)} == {2}
        assert {aside.block for aside in queue.set_aside.list()} == set(numbers)
        assert [aside.block for aside in queue.set_aside.list(block=2)] == [2]
        assert [aside.block for aside in queue.set_aside.list(arrived=2)] == [2]
        assert {step.block for step in queue.inspect.history(queue.set_aside.list()[0].address).steps} - {None} == {1}


def test_what_is_planned_is_told_by_its_number(queues: dict[str, MessageQueue]) -> None:
    east, west = queues.values()
    settled(east)
    for queue, number in ((east, 2), (west, 1)):
        queue.enqueue_message("acme", b"x")
        block = queue.blocks.plan("key")
        assert (block.id, queue.blocks.plan("key").id, queue.blocks.get(block.token).id) == (number, number, number)
        assert f"block {number}, which lives until" in queue.inspect.explain("acme").sentence
        reports = [batch.answer() for batch in block.batches()]
        queue.blocks.release(block)
        with pytest.raises(TokenRefused, match=f"^block {number} is released"):
            queue.blocks.report(block, reports)


def test_executions_by_hand_tokens_and_rounds_of_service_count_too(queues: dict[str, MessageQueue]) -> None:
    east = queues["east"]
    settled(east)
    (aside,) = east.set_aside.list()
    assert east.blocks.plan_overweight(aside.address, HEAVY).id == 2
    east.enqueue_messages("acme", [b"x", b"y"])
    assert east.service_queues(lambda delivery: None, Weight(1, 1_000)).processed == 1
    assert east.inspect.ledger()[0].block == 3
    assert east.service_queues(lambda delivery: None).processed == 1
    east.service_queues(lambda delivery: None)
    assert east.blocks.plan().id == 5, "a round in which nobody was ready has no number"


def test_a_plan_that_is_undone_leaves_no_gap(queues: dict[str, MessageQueue], monkeypatch: pytest.MonkeyPatch) -> None:
    east = queues["east"]
    east.enqueue_message("acme", b"x")
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(planning, "warn_of_stuck", lambda *_: (_ for _ in ()).throw(RuntimeError("before the commit")))
        east.blocks.plan()
    assert east.blocks.plan().id == 1


def test_forgotten_blocks_give_their_numbers_to_no_other(queues: dict[str, MessageQueue], store_uri: str) -> None:
    settled(queues["east"])
    address = parse(store_uri)
    for name in ("ledger", "event", "block"):
        run(address, f"DELETE FROM {table(address, name)}")
    assert settled(queues["east"]).id == 2


def test_the_command_line_shows_and_takes_the_number(
    queues: dict[str, MessageQueue], store_uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for queue in queues.values():
        settled(queue)

    def lines(*words: str) -> list[dict[str, object]]:
        capsys.readouterr()
        assert main(["--store", store_uri, "--ring", "west", "--json", *words]) == 0
        return [one for line in capsys.readouterr().out.splitlines() for one in _listed(json.loads(line))]

    assert [one["block"] for one in lines("report", "ledger", "--block", "1")] == [1]
    assert {one["block"] for one in lines("message", "events", "--block", "1")} == {1}
    assert [one["block"] for one in lines("set-aside", "list", "--block", "1")] == [1]
    assert lines("message", "events", "--block", "2") == []


def _listed(value: object) -> list[dict[str, object]]:
    return value if isinstance(value, list) else [value]  # type: ignore[list-item]


# An upgrade.


@pytest.mark.empty_store
def test_what_was_there_before_keeps_its_number_and_the_ring_goes_on_from_it(store_uri: str) -> None:
    """A store of the version before, in which blocks of two rings have ids of one sequence."""
    address, number_of = parse(store_uri), _version_of("block_numbers")
    dialect = "sqlite" if address.driver == "sqlite" else "postgres"
    script = upgrade_sql(dialect, address.schema)
    run(address, _before(script, number_of) + "\n\nCOMMIT;")
    with_ring = (
        f"INSERT INTO {table(address, 'ring')} (name, config) VALUES ('default', '{{}}'), ('new', '{{}}');"
        f"INSERT INTO {table(address, 'state')} (ring) SELECT id FROM {table(address, 'ring')};"
    )
    run(address, with_ring)
    (ring,) = _select(address, f"SELECT id FROM {table(address, 'ring')} WHERE name = 'default'")
    token, empty, details = ("x'%s'", "x''", "'{}'") if dialect == "sqlite" else ("'\\x%s'", "''", "'{}'")
    for id_ in (458_752, 458_760):
        run(
            address,
            f"INSERT INTO {table(address, 'block')} (id, ring, token, state, seconds, deadline, planned_at, ended_at, "
            f"details) VALUES ({id_}, {ring}, {token % f'{id_:08x}'}, 1, 1, 1, 1, 1, {details});"
            f"INSERT INTO {table(address, 'ledger')} (block, ring, at, data) VALUES ({id_}, {ring}, 1, {empty});",
        )
    run(
        address,
        f"INSERT INTO {table(address, 'event')} (id, ring, origin, block, at, events, data) VALUES "
        f"(458770, {ring}, 'acme', 458761, 1, 0, {empty});",
    )

    upgrade(address)
    numbers = _select(address, f"SELECT number FROM {table(address, 'block')} ORDER BY id")
    assert numbers == [458_752, 458_760]
    assert _select(address, f"SELECT block FROM {table(address, 'ledger')} ORDER BY block") == [458_752, 458_760]
    with MessageQueue(store_uri) as old, MessageQueue(store_uri, "new") as new:
        assert old.blocks.plan().id == 458_762, "after the largest that an event tells of"
        assert new.blocks.plan().id == 1


def _version_of(name: str) -> int:
    return next(version for version, title, _ in migrations("sqlite") if title.endswith(name))


def _before(script: str, version: int) -> str:
    """The statements of an upgrade up to this version."""
    previous = re.search(rf"INSERT INTO \S+migration \S.*VALUES \({version - 1}, .*;", script)
    assert previous is not None
    return script[: previous.end()]


def _select(address: StoreAddress, statement: str) -> list[int]:
    if address.driver == "sqlite":
        connection = sqlite3.connect(str(address.path))
        rows = connection.execute(statement).fetchall()
        connection.close()
    else:
        with psycopg.connect(address.uri) as prompt:
            rows = prompt.execute(statement.encode()).fetchall()
    return [row[0] for row in rows]
