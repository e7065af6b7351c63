"""A PostgreSQL that accepts connections and then falls silent holds up nothing of Airflow's, and no other store."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.rules.errors import StoreUnreachable
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.engine.store import postgres_errors as known
from tests.airflow.conftest import connection_of
from tests.proofs.crash.proxy import Proxy
from tests.waiting import eventually

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]
#: Bounds that are a second here and minutes elsewhere; a busy machine needs its own.
SOON = 60.0


@pytest.fixture
def wire(pg_uri: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A wire to the store of the connection `mq_stage`, over which the server may fall silent."""
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as queue:
        queue.enqueue_messages("a", [b"x" * 100] * 50)
    with Proxy(pg_uri) as proxy:
        monkeypatch.setenv("AIRFLOW_CONN_MQ_STAGE", connection_of(proxy.uri))
        yield proxy


def timed(call: Callable[[], Any]) -> Any:
    began = time.monotonic()
    answer = call()
    assert time.monotonic() - began < SOON
    return answer


@pytest.fixture
def page(wire: Proxy, pg_uri: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The page's way to two stores: `silent` will be, and `alive` is a server that answers."""
    from airflow_mq.api import stores
    from airflow_mq.connections import Target

    there = {"silent": Target(parse(wire.uri), "default"), "alive": Target(parse(pg_uri), "default")}
    monkeypatch.setattr(stores, "target", lambda conn_id: there[conn_id])
    return stores


@pytest.mark.parametrize("midway", [False, True], ids=["after the login", "in mid-row"])
def test_a_silent_server_does_not_block_the_page_for_other_stores(page: Any, wire: Proxy, midway: bool) -> None:
    from fastapi import HTTPException

    answers: list[Any] = []
    entered = threading.Semaphore(0)

    def ask() -> None:
        try:
            with page.opened("silent", seconds=3) as queue:
                entered.release()
                answers.append(queue.footprint("a"))
        except HTTPException as refused:
            answers.append(refused)

    # Far more than there are slots of all stores together.
    wire.fall_silent(b"SELECT" if midway else b"search_path", midway=midway)
    began = time.monotonic()
    threads = [threading.Thread(target=ask) for _ in range(page.AT_ONCE + 8)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(answers) >= len(threads) - page.AT_ONCE_IN_ONE or not any(t.is_alive() for t in threads))
    with page.opened("alive") as queue:
        assert queue.footprint("a").count == 50
    for thread in threads:
        thread.join()
    assert wire.is_silent.is_set() and time.monotonic() - began < SOON
    refused = [one for one in answers if isinstance(one, HTTPException)]
    assert refused and {one.status_code for one in refused} == {503}
    # Every slot was given back.
    assert page._room._value == page.AT_ONCE and page._rooms["silent"]._value == page.AT_ONCE_IN_ONE


def test_the_list_of_stores_does_not_wait_for_a_silent_one(page: Any, wire: Proxy) -> None:
    wire.fall_silent(b"search_path")
    told = timed(lambda: page.described("silent"))
    assert "does not answer" in told.error and told.rings == []
    assert page.described("alive").rings == ["default"]


def test_a_slow_statement_is_cancelled_for_the_page(page: Any) -> None:
    from fastapi import HTTPException

    with (
        pytest.raises(HTTPException) as refused,
        page.opened("alive", seconds=10) as queue,
        queue.store.loose() as unit,
    ):
        assert unit.connection.execute("SHOW statement_timeout").fetchone() == ("10s",)
        unit.connection.execute("SET statement_timeout = '1s'")
        unit.connection.execute("SELECT pg_sleep(600)")
    assert refused.value.status_code == 503 and refused.value.detail == str(known.CANCELLED)


def test_the_test_button_leaves_no_thread_behind(wire: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_mq import hooks

    monkeypatch.setattr(hooks, "TEST_SECONDS", 1.0)
    wire.fall_silent(b"search_path")
    ok, said = timed(hooks.MessageQueueHook("mq_stage").test_connection)
    assert not ok and "does not answer" in said
    eventually(lambda: "airflow-mq-test-connection" not in [one.name for one in threading.enumerate()], SOON)


def test_a_notifier_gives_up(wire: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_mq import notifications

    monkeypatch.setattr(notifications, "READ_SECONDS", 1.0)
    wire.fall_silent(b"search_path")
    with pytest.raises(StoreUnreachable, match="does not answer"):
        timed(notifications.SetAsideNotifier(mq_conn_id="mq_stage").text)


@pytest.mark.parametrize("word", [b"search_path", b"LISTEN", b"SELECT"])
def test_a_trigger_gives_up_and_its_loop_goes_on(wire: Proxy, monkeypatch: pytest.MonkeyPatch, word: bytes) -> None:
    from airflow_mq import triggers

    monkeypatch.setattr(triggers, "READ_SECONDS", 1.0)

    async def look() -> int:
        poller = triggers.Poller("mq_stage", None)
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.01)

        turning = asyncio.create_task(turn())
        wire.fall_silent(word)
        try:
            with pytest.raises(StoreUnreachable):
                async with poller:
                    await poller.read()
        finally:
            turning.cancel()
            poller.close()
        return turns

    # A loop that waits for the server takes a turn or two.
    assert timed(lambda: asyncio.run(look())) > 5
    assert wire.is_silent.is_set()


def test_what_is_enqueued_to_a_silent_server_is_given_up(wire: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_mq.hooks import MessageQueueHook

    fields = json.loads(connection_of(wire.uri))
    fields["extra"] |= {"statement_timeout": 1, "connect_timeout": 2}
    monkeypatch.setenv("AIRFLOW_CONN_MQ_STAGE", json.dumps(fields))
    with MessageQueueHook("mq_stage").queue() as queue:
        wire.fall_silent(b"INSERT")
        with pytest.raises(StoreUnreachable):
            timed(lambda: queue.enqueue_message("a", b"y", key="k"))


def test_a_trigger_logs_why_it_cannot_look(
    wire: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow_mq import triggers

    fields = json.loads(connection_of(wire.uri))
    monkeypatch.setenv("AIRFLOW_CONN_MQ_STAGE", json.dumps({**fields, "password": "c4n4ry"}))

    async def look() -> None:
        looking = triggers.QueueReadyTrigger("mq_stage").readings()
        waiting = asyncio.ensure_future(anext(looking))
        while not caplog.records:
            await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await looking.aclose()

    timed(lambda: asyncio.run(look()))
    assert f"connection 'mq_stage': {known.LOGIN!s}; trying again" in caplog.text and "c4n4ry" not in caplog.text
