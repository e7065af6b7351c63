"""Upgrades of stores that the code of each schema version wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from airflow_mq import MessageQueue
from airflow_mq.core.errors import SchemaTooOld
from airflow_mq.store import StoreAddress, parse, upgrade
from tests.model.clock import SECOND, Clock, stopped_clock
from tests.store import versions
from tests.store.versions import NEWEST, VERSIONS, Dump, interruption
from tests.store.versions.processing import drain, finish
from tests.store.versions.senders import PAYLOADS, Sender, sent_by
from tests.store.versions.writer import BLOCK_KEY, SETTINGS, SHARE
from tests.waiting import eventually

pytestmark = pytest.mark.empty_store


@pytest.fixture(params=VERSIONS)
def dump(request: pytest.FixtureRequest, store_uri: str) -> Dump:
    """Fill the store as a version wrote it."""
    return versions.load(request.param, parse(store_uri))


@pytest.fixture
def clock(dump: Dump) -> Iterator[Clock]:
    """Yield a clock that begins two hours after the store was written."""
    with stopped_clock() as clock:
        clock.now = dump.facts["at"] + 7_200 * SECOND
        yield clock


def test_an_old_store_is_refused_with_the_command_that_upgrades_it(dump: Dump, store_uri: str) -> None:
    if dump.version == NEWEST:
        MessageQueue(store_uri).close()
        return
    with pytest.raises(SchemaTooOld) as refused:
        MessageQueue(store_uri)
    assert str(refused.value) == (
        f"the store has schema version {dump.version}, this client expects {NEWEST}; run `airflow-mq store upgrade`"
    )


def test_an_upgraded_store_keeps_everything(dump: Dump, store_uri: str, clock: Clock) -> None:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        assert queue.check() == []
        config = queue.config.to_json()
        assert {name: config[name] for name in SETTINGS} == SETTINGS
        with queue.store.reading() as unit:
            ((origin, settings),) = unit.origins.all_settings(queue.session.ring_id)
        assert (origin, settings if isinstance(settings, dict) else json.loads(settings)) == ("acme", {"share": SHARE})
        assert [(pause.origin, pause.reason) for pause in queue.admin.paused()] == [("hooli", "audit")]
        # Keys still hold, and a live block is found by its own key.
        assert queue.enqueue_message("initech", b"an order", key="order-1").repeated == 1
        assert queue.blocks.plan(BLOCK_KEY).token == dump.facts["block"]
        numbers = {block.id for block in queue.blocks.list()}
        following = queue.blocks.plan("next")
        assert following.id > max(numbers)
        queue.blocks.release(following)
        assert finish(queue, dump) == dump.expected
        assert queue.check() == []
        (aside,) = queue.set_aside.list()
        assert queue.set_aside.discard(aside.address, "no longer needed") == 1
        assert queue.footprint("initech").count == 0
        assert queue.check() == []


def test_another_ring_of_an_upgraded_store_keeps_everything(dump: Dump, store_uri: str, clock: Clock) -> None:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri, ring="groups") as queue:
        if queue.config.paths:
            assert drain(queue) == []
            queue.admin.resume("a")
        assert drain(queue) == dump.facts["groups"]
        assert queue.blocks.plan("next").id > max(block.id for block in queue.blocks.list() if block.key != "next")
        assert queue.check() == []


@pytest.mark.parametrize("version", [1, *(pytest.param(number, marks=pytest.mark.soak) for number in VERSIONS[1:])])
def test_an_upgrade_that_is_killed_at_any_statement_runs_again(version: int, store_uri: str) -> None:
    address = parse(store_uri)
    versions.load(version, address)
    upgrade(address)
    uninterrupted = interruption.contents(address)
    interruption.clear(address)
    versions.load(version, address)
    assert interruption.interrupt_everywhere(address) > 0
    assert upgrade(address) == []
    assert interruption.contents(address) == uninterrupted


def test_senders_of_the_old_version_that_go_on_lose_nothing(dump: Dump, store_uri: str, clock: Clock) -> None:
    address, accepted = parse(store_uri), []
    with Sender(address) as sender:
        upgrade(address)
        for name, statements in dump.senders.items():
            # Idempotency keys have origins since version 7.
            assert sender.send(statements) == (name != "keyed" or dump.version >= 7)
            if name != "keyed" or dump.version >= 7:
                accepted += sent_by(name, statements)
    with MessageQueue(store_uri) as queue:
        assert queue.check() == []
        assert finish(queue, dump) == sorted([*dump.expected, *accepted])
        assert queue.check() == []


def test_an_upgrade_waits_for_a_sender_of_the_old_version(dump: Dump, store_uri: str, clock: Clock) -> None:
    address = parse(store_uri)
    statements = [text for text in dump.senders["many"] if text not in ("BEGIN IMMEDIATE", "COMMIT")]
    with Sender(address) as sender, Sender(address) as late, ThreadPoolExecutor(2) as threads:
        sender.connection.execute("BEGIN IMMEDIATE" if address.driver == "sqlite" else "BEGIN")
        sender.run(statements)
        upgrading = threads.submit(upgrade, address)
        eventually(lambda: upgrading.done() or is_waiting(address, sender))
        # A sender that comes later waits behind the upgrade.
        sending = threads.submit(late.send, dump.senders["plain"])
        sender.connection.commit()
        upgrading.result(60)
        assert sending.result(60)
    with MessageQueue(store_uri) as queue:
        assert queue.check() == []
        assert finish(queue, dump) == sorted([*dump.expected, *PAYLOADS["many"], *PAYLOADS["plain"]])


def is_waiting(address: StoreAddress, sender: Sender) -> bool:
    """Return whether another session waits for a sender. A file of SQLite does not reveal this."""
    if address.driver == "sqlite":
        return True
    with psycopg.connect(address.uri) as connection:
        text = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
        row = connection.execute(text, (sender.connection.info.backend_pid,)).fetchone()
        return row is not None and row[0] > 0
