"""Triggers and sensors: immediate events, one poller for all, and an event loop that is never blocked."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from contextlib import aclosing
from itertools import takewhile
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.engine.queue.inspect.inspect import Inspect
from airflow_mq.engine.store import parse
from tests.airflow.conftest import connection_of
from tests.airflow.stage import CONN_ID, Airflow, fill
from tests.proofs.model.clock import stopped_clock

pytestmark = pytest.mark.airflow


async def first_event(trigger: Any, seconds: float = 60.0) -> Any:
    """Return the first event of a trigger."""
    async with aclosing(trigger.run()) as events:
        return (await asyncio.wait_for(anext(events), seconds)).payload


def ready(**kwargs: Any) -> Any:
    from airflow_mq.triggers import QueueReadyTrigger

    return QueueReadyTrigger(CONN_ID, **kwargs)


def test_a_ready_queue_fires_at_once(queue: MessageQueue) -> None:
    fill(queue, {"a": [b"x"], "b": [b"y"]})
    queue.admin.pause("a")

    event = asyncio.run(first_event(ready(poll_interval=60)))

    assert event == {"ring": "default", "ready": ["b"], "due": False}


def test_a_later_message_fires_soon(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    postgres = queue.store.address.driver == "postgresql"
    looks, pulse = [0], Inspect.pulse

    def look(of: Inspect, most: int) -> Any:
        looks[0] += 1
        return pulse(of, most)

    monkeypatch.setattr(Inspect, "pulse", look)

    async def scene() -> int:
        # On PostgreSQL the poller reads before the test times out only if it is notified.
        waiting = asyncio.create_task(first_event(ready(poll_interval=600 if postgres else 0.2)))
        while looks[0] < (1 if postgres else 3):
            assert not waiting.done()
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await asyncio.to_thread(fill, queue, {"a": [b"x"]})
        before = looks[0]
        assert (await waiting)["ready"] == ["a"]
        return looks[0] - before

    assert asyncio.run(scene()) <= 1, "the first read after the send fires"


def test_each_send_fires_once_and_a_lasting_cause_fires_again(
    queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_mq import triggers

    now, looks, told, pulse = [1_000.0], [0], [0], Inspect.pulse

    def look(of: Inspect, most: int) -> Any:
        looks[0] += 1
        return pulse(of, most)

    monkeypatch.setattr(Inspect, "pulse", look)
    # Only this test lets the time pass after which an event is repeated.
    monkeypatch.setattr(triggers, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def scene() -> list[int]:
        trigger = ready(poll_interval=0.05, repeat_after=300.0)
        fill(queue, {"a": [b"x"]})

        async def listen() -> None:
            async for _ in trigger.run():
                told[0] += 1

        async def until(condition: Callable[[], bool]) -> None:
            while not condition():
                assert not listening.done(), "no further event"
                await asyncio.sleep(0.02)

        async def after_looks() -> int:
            """Return the number of events after some more reads."""
            enough = looks[0] + 5
            await until(lambda: looks[0] >= enough)
            return told[0]

        listening = asyncio.create_task(listen())
        seen = [await after_looks()]
        await asyncio.to_thread(fill, queue, {"a": [b"y"]})
        seen.append(await after_looks())
        now[0] += 299
        seen.append(await after_looks())
        now[0] += 2
        seen.append(await after_looks())
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        return seen

    # The second event is 301 seconds old at the end.
    assert asyncio.run(asyncio.wait_for(scene(), 300)) == [1, 2, 2, 3]


def test_a_delayed_message_fires_when_it_is_due(sqlite_queue: MessageQueue) -> None:
    async def scene() -> Any:
        waiting = asyncio.create_task(first_event(ready(poll_interval=0.05)))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        clock.advance(2)
        return await waiting

    with stopped_clock() as clock:
        sqlite_queue.enqueue_message("a", b"x", not_before=1)
        assert not sqlite_queue.inspect.pulse()
        assert asyncio.run(scene())["due"] is True


def test_the_end_of_a_backoff_fires(sqlite_queue: MessageQueue) -> None:
    """An ordered queue whose message failed is nothing for a block until then."""

    def fails(payload: bytes, origin: str) -> None:
        raise ValueError

    async def scene() -> list[Any]:
        seen: list[Any] = []

        async def listen() -> None:
            async for event in ready(poll_interval=0.05).run():
                seen.append(event.payload["ready"])

        listening = asyncio.create_task(listen())
        while not seen:
            await asyncio.sleep(0.05)
        await asyncio.to_thread(sqlite_queue.service_queues, fails)
        await asyncio.sleep(0.3)
        assert not sqlite_queue.inspect.pulse() and len(seen) == 1
        clock.advance(61)
        while len(seen) < 2:
            await asyncio.sleep(0.05)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        return seen

    with stopped_clock() as clock:
        sqlite_queue.admin.change_ring(ordered=True, backoff=60.0)
        fill(sqlite_queue, {"a": [b"x"]})
        assert asyncio.run(asyncio.wait_for(scene(), 60)) == [["a"], ["a"]]


def test_messages_that_a_block_returns_fire_no_second_time(sqlite_queue: MessageQueue) -> None:
    """Else a block that finishes nothing would start the next one for ever."""
    from airflow_mq import triggers

    async def scene() -> list[bool]:
        trigger = ready(repeat_after=300.0)

        async def readings() -> Any:
            yield triggers.read_ring(sqlite_queue)
            block = sqlite_queue.blocks.plan()
            yield triggers.read_ring(sqlite_queue)
            sqlite_queue.blocks.settle(block)
            yield triggers.read_ring(sqlite_queue)

        return [bool(event) async for event in trigger.filter_shared_stream(readings())]

    sqlite_queue.admin.change_ring(ordered=True)
    fill(sqlite_queue, {"a": [b"x"]})
    assert len(asyncio.run(scene())) == 1


def test_each_delayed_message_fires_while_others_stay_ready(sqlite_queue: MessageQueue) -> None:
    from airflow_mq import triggers

    async def scene() -> list[bool]:
        async def readings() -> Any:
            for _ in range(2):
                sqlite_queue.enqueue_message("a", b"x", not_before=1)
                yield triggers.read_ring(sqlite_queue)
                clock.advance(2)
                yield triggers.read_ring(sqlite_queue)
                # It is finished before the next reading.
                block = sqlite_queue.blocks.plan(origins=["a"])
                sqlite_queue.blocks.report(block, [batch.answer() for batch in block.batches()])
                sqlite_queue.blocks.settle(block)
                yield triggers.read_ring(sqlite_queue)

        events = ready(repeat_after=300.0).filter_shared_stream(readings())
        return [event.payload["due"] async for event in events]

    with stopped_clock() as clock:
        fill(sqlite_queue, {"unserved": [b"?"]})
        assert asyncio.run(scene()).count(True) == 2


def test_set_aside_messages_fire(queue: MessageQueue) -> None:
    from airflow_mq.triggers import SetAsideTrigger

    queue.enqueue_message("a", b"x", weight=Weight(10**9, 0))
    queue.blocks.settle(queue.blocks.plan())

    assert asyncio.run(first_event(SetAsideTrigger(CONN_ID))) == {"ring": "default", "waiting": 1}


def test_a_lost_connection_is_made_again(pg_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    from airflow_mq.engine.store import parse, upgrade
    from tests.airflow.conftest import connection_of

    upgrade(parse(pg_uri))
    monkeypatch.setenv("AIRFLOW_CONN_MQ_STAGE", connection_of(pg_uri))

    async def scene() -> Any:
        waiting = asyncio.create_task(first_event(ready(poll_interval=600)))

        async def listener(other_than: int = 0) -> int:
            while True:
                assert not waiting.done()
                found = connection.execute(
                    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%%'"
                    " AND pid <> %s",
                    (other_than,),
                ).fetchone()
                if found:
                    return int(found[0])
                await asyncio.sleep(0.05)

        with psycopg.connect(pg_uri, autocommit=True) as connection:
            lost = await asyncio.wait_for(listener(), 60)
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                " AND datname = current_database()"
            )
            await asyncio.wait_for(listener(lost), 60)
        with MessageQueue(pg_uri) as queue:
            await asyncio.to_thread(fill, queue, {"a": [b"x"]})
        return await waiting

    assert asyncio.run(scene())["ready"] == ["a"]


def test_the_loop_goes_on_while_the_store_does_not_answer(
    sqlite_queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer, gave_up = threading.Event(), threading.Event(), threading.Event()

    def pulse(queue: MessageQueue, most: int) -> None:
        asked.set()
        if not answer.wait(30):
            gave_up.set()

    monkeypatch.setattr(Inspect, "pulse", pulse)

    async def scene() -> None:
        waiting = asyncio.create_task(first_event(ready()))
        while not asked.is_set():
            assert not waiting.done()
            await asyncio.sleep(0.02)
        for _ in range(5):
            await asyncio.sleep(0.02)
        # Only a loop that goes on comes here while the store is silent.
        answer.set()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(scene())
    assert not gave_up.is_set()


def test_all_triggers_of_a_ring_share_a_poller() -> None:
    from airflow_mq.triggers import SetAsideTrigger

    keys = {ready().shared_stream_key(), ready(repeat_after=7).shared_stream_key(),
            SetAsideTrigger(CONN_ID).shared_stream_key()}  # fmt: skip
    assert len(keys) == 1
    assert ready(ring="other").shared_stream_key() not in keys


def test_the_shared_poller_feeds_every_trigger(sqlite_queue: MessageQueue) -> None:
    fill(sqlite_queue, {"a": [b"x"]})
    trigger = ready()

    async def scene() -> Any:
        stream = type(trigger).open_shared_stream(trigger.serialize()[1])
        async with aclosing(stream), aclosing(trigger.filter_shared_stream(stream)) as events:
            return (await asyncio.wait_for(anext(events), 60)).payload

    assert asyncio.run(scene())["ready"] == ["a"]


def test_a_trigger_is_made_anew_from_what_it_was_kept_as() -> None:
    from airflow.sdk.module_loading import import_string

    path, kwargs = ready(ring="night", poll_interval=3.0).serialize()

    assert json.loads(json.dumps(kwargs)) == kwargs
    assert import_string(path)(**kwargs).serialize() == (path, kwargs)


def test_the_scheme_leads_to_the_trigger() -> None:
    from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger

    trigger = MessageQueueTrigger(scheme="airflow-mq", mq_conn_id=CONN_ID, ring="night")

    assert trigger.serialize() == ready(ring="night").serialize()


@pytest.mark.parametrize("shared", [True, False])
def test_an_error_that_lasts_ends_a_wait_and_no_watch(sqlite_queue: MessageQueue, shared: bool) -> None:
    from airflow_mq.engine.rules.errors import MessageQueueError

    async def told(seconds: float, **kwargs: Any) -> Any:
        trigger = ready(ring="deleted", poll_interval=0.05, **kwargs)
        if not shared:
            return await first_event(trigger, seconds)
        stream = type(trigger).open_shared_stream(trigger.serialize()[1])
        async with aclosing(stream), aclosing(trigger.filter_shared_stream(stream)) as events:
            return (await asyncio.wait_for(anext(events), seconds)).payload

    event = asyncio.run(told(60.0, give_up=True))
    assert "no ring of this name" in event["error"] and CONN_ID in event["error"]
    with pytest.raises(MessageQueueError, match="no ring of this name"):
        sensor(ring="deleted").execute_complete({}, event)
    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(told(3.0))


def test_an_error_that_lasts_reaches_each_trigger_of_a_shared_poller(sqlite_queue: MessageQueue) -> None:
    """Airflow drops what a trigger has not read when the stream ends."""
    triggers = [ready(ring="deleted", give_up=True), ready(ring="deleted", give_up=True, repeat_after=7)]

    async def told() -> Any:
        queues: list[asyncio.Queue[Any]] = [asyncio.Queue() for _ in triggers]

        async def poll() -> None:
            async with aclosing(type(triggers[0]).open_shared_stream(triggers[0].serialize()[1])) as stream:
                async for reading in stream:
                    for queue in queues:
                        queue.put_nowait(reading)
            for queue in queues:
                while not queue.empty():
                    queue.get_nowait()

        async def read(queue: asyncio.Queue[Any]) -> Any:
            while True:
                yield await queue.get()

        polling = asyncio.create_task(poll())
        firsts = [anext(trigger.filter_shared_stream(read(queue))) for trigger, queue in zip(triggers, queues)]
        try:
            return await asyncio.wait_for(asyncio.gather(*firsts), 20)
        finally:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)

    assert ["no ring of this name" in event.payload["error"] for event in asyncio.run(told())] == [True, True]


@pytest.mark.parametrize("kind", ["QueueReadyTrigger", "SetAsideTrigger"])
@pytest.mark.parametrize("error", ["InvalidInput", "LoginRefused", "SchemaTooNew", "SchemaTooOld", "StoreCorrupt",
                                   "StoreMissing", "UnknownRing"])  # fmt: skip
def test_each_error_that_a_person_has_to_correct_ends_a_wait(
    sqlite_queue: MessageQueue, monkeypatch: pytest.MonkeyPatch, kind: str, error: str
) -> None:
    from airflow_mq import triggers
    from airflow_mq.engine.rules import errors

    def refuse(*args: object) -> None:
        raise getattr(errors, error)("it is wrong")

    monkeypatch.setattr("airflow_mq.MessageQueue", refuse)

    assert "error" in asyncio.run(first_event(getattr(triggers, kind)(CONN_ID, give_up=True)))


@pytest.mark.parametrize("kind", ["QueueReadyTrigger", "SetAsideTrigger"])
def test_a_connection_that_is_gone_ends_a_wait_and_a_broken_secrets_backend_does_not(
    sqlite_queue: MessageQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    from airflow.providers.common.compat.sdk import AirflowNotFoundException

    from airflow_mq import triggers

    def fail(error: Exception) -> None:
        def place(*args: object) -> None:
            raise error

        monkeypatch.setattr(triggers.MessageQueueHook, "place", place)

    monkeypatch.setattr(triggers, "FIRST_RETRY", 0.01)
    fail(AirflowNotFoundException("gone"))
    assert "no such connection" in asyncio.run(first_event(getattr(triggers, kind)(CONN_ID, give_up=True)))["error"]
    fail(RuntimeError("the secret is hunter2"))
    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(first_event(getattr(triggers, kind)(CONN_ID, give_up=True), 2.0))
    assert "(RuntimeError)" in caplog.text and "hunter2" not in caplog.text


def test_a_connection_that_is_missing_for_a_moment_ends_no_wait(
    sqlite_queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow reports an error of a secrets backend as a missing connection."""
    from airflow.providers.common.compat.sdk import AirflowNotFoundException

    from airflow_mq import triggers

    place, failures = triggers.MessageQueueHook.place, iter(range(3))

    def placed(*args: Any) -> Any:
        if next(failures, None) is not None:
            raise AirflowNotFoundException("The conn_id `mq_stage` is not defined")
        return place(*args)

    monkeypatch.setattr(triggers, "FIRST_RETRY", 0.01)
    monkeypatch.setattr(triggers.MessageQueueHook, "place", placed)
    fill(sqlite_queue, {"a": [b"x"]})

    assert asyncio.run(first_event(ready(give_up=True)))["ready"] == ["a"]


@pytest.mark.postgres
@pytest.mark.parametrize("wrong", [{"password": "wrong"}, {"schema": "no_such_database"}, {"login": "nobody"}])
def test_a_login_that_is_refused_ends_a_wait(pg_uri: str, monkeypatch: pytest.MonkeyPatch, wrong: Any) -> None:
    from airflow_mq.engine.store import upgrade

    upgrade(parse(pg_uri))
    fields = json.loads(connection_of(pg_uri))
    monkeypatch.setenv("AIRFLOW_CONN_MQ_STAGE", json.dumps({**fields, **wrong}))

    event = asyncio.run(first_event(ready(give_up=True)))

    assert "the PostgreSQL store cannot be reached" in event["error"]


# -- sensors --


def sensor(kind: str = "QueueReadySensor", **kwargs: Any) -> Any:
    import airflow_mq.sensors as sensors

    return getattr(sensors, kind)(task_id="wait", mq_conn_id=CONN_ID, **kwargs)


def test_a_sensor_that_pokes(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, logged = sensor(), list[str]()
    monkeypatch.setattr(type(waiting), "log", SimpleNamespace(info=lambda text, *args: logged.append(text % args)))
    assert not waiting.poke({}).is_done
    assert f"(reasons: `airflow-mq explain ORIGIN --conn-id {CONN_ID} --ring default`)" in logged[0]
    fill(queue, {"a": [b"x"]})

    assert (waiting.poke({}).is_done, waiting.poke({}).xcom_value["ready"]) == (True, ["a"])
    assert not sensor("SetAsideSensor").poke({}).is_done


def test_a_sensor_waits_for_messages_that_a_block_would_find(queue: MessageQueue) -> None:
    waiting = sensor()
    with stopped_clock() as clock:
        queue.admin.change_ring(ordered=True)
        fill(queue, {f"a{number}": [b"x", b"y"] for number in range(12)})
        block = queue.blocks.plan(lease=60)
        assert block.messages and not waiting.poke({}).is_done
        # The next plan releases a block whose lease ran out.
        clock.advance(61)
        assert waiting.poke({}).is_done
        queue.blocks.release_dead()
        assert waiting.poke({}).is_done


def test_a_sensor_that_defers(sqlite_queue: MessageQueue) -> None:
    from airflow.providers.common.compat.sdk import TaskDeferred

    waiting, run = sensor(deferrable=True, poke_interval=2.0), Airflow().run()
    with pytest.raises(TaskDeferred) as deferred:
        run.execute(waiting)

    assert deferred.value.trigger.serialize() == ready(poll_interval=2.0, give_up=True).serialize()
    assert waiting.execute_complete({}, {"ready": ["a"]}) == {"ready": ["a"]}
    fill(sqlite_queue, {"a": [b"x"]})
    assert run.execute(waiting)["ready"] == ["a"]


def test_a_sensor_that_is_rescheduled_waits_longer() -> None:
    """Airflow reports the end of a task's last check late, and then fails a check that runs already."""
    assert (sensor().poke_interval, sensor(mode="reschedule").poke_interval) == (5, 60)
    assert sensor(mode="reschedule", poke_interval=7).poke_interval == 7


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_sensor_that_defers_fails_as_one_that_pokes(sqlite_queue: MessageQueue, deferrable: bool) -> None:
    from airflow.providers.common.compat.sdk import AirflowSkipException, TaskDeferred

    from airflow_mq.engine.rules.errors import MessageQueueError

    def ended(error: type[BaseException], **kwargs: Any) -> BaseException:
        with pytest.raises(error) as raised:
            Airflow().run().execute(sensor(ring="gone", deferrable=deferrable, **kwargs))
        return raised.value

    ended(MessageQueueError)
    ended(MessageQueueError, soft_fail=True)
    ended(AirflowSkipException, never_fail=True)
    with pytest.raises(AirflowSkipException, match="it is gone"):
        sensor(never_fail=True).execute_complete({}, {"error": "it is gone"})
    if deferrable:
        assert not ended(TaskDeferred, silent_fail=True).trigger.give_up
    else:
        assert "timed out" in str(ended(Exception, silent_fail=True, timeout=0.1, poke_interval=0.05))


# -- events of the engine --


def listened(uri: str, channel: str, scene: Callable[[], None]) -> int:
    """How many notifications a scene causes."""
    import psycopg

    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute(f'LISTEN "{channel}"')
        scene()
        # They come in the order of their commits: after this one, however long it takes, there is none to come.
        connection.execute(f"NOTIFY \"{channel}\", 'the end'")
        heard = [
            one.payload for one in takewhile(lambda one: one.payload != "the end", connection.notifies(timeout=60))
        ]
        return len(heard)


@pytest.mark.postgres
def test_the_connection_that_listens_looks_names_up_in_the_catalog_alone(pg_uri: str) -> None:
    from airflow_mq.engine.store import parse, upgrade
    from airflow_mq.triggers import Poller

    upgrade(parse(pg_uri))

    async def search_path() -> Any:
        poller = Poller(CONN_ID, None)
        with MessageQueue(pg_uri) as poller._queue:
            async with await poller._listen(parse(pg_uri)) as connection:
                return await (await connection.execute("SHOW search_path")).fetchone()

    assert asyncio.run(search_path()) == ("pg_catalog, pg_temp",)


@pytest.mark.postgres
def test_a_burst_fires_once_and_the_next_one_again(pg_uri: str) -> None:
    from airflow_mq.engine.store import parse, upgrade
    from airflow_mq.engine.store.postgres import WAKE_EVERY, wake_channel

    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as queue:
        channel = wake_channel(queue.store.address.schema, queue.session.ring_id)

        def burst() -> None:
            for number in range(20):
                queue.enqueue_message("a", b"x")
                queue.enqueue_message("a", b"y", key=f"key {time.monotonic()} {number}")

        began = time.monotonic()
        heard = listened(pg_uri, channel, burst)
        # Once, and once more for each quarter of a second that a busy machine takes for it.
        assert 1 <= heard <= 1 + (time.monotonic() - began) / WAKE_EVERY
        time.sleep(0.3)
        assert listened(pg_uri, channel, lambda: fill(queue, {"b": [b"x"] * 1000})) == 1


@pytest.mark.postgres
def test_a_steady_sender_makes_few_events(pg_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one is a row of Airflow's database, and the next run gets all of them."""
    from airflow_mq.engine.store import parse, upgrade

    upgrade(parse(pg_uri))
    monkeypatch.setenv("AIRFLOW_CONN_MQ_STAGE", connection_of(pg_uri))

    async def scene() -> int:
        told: list[Any] = []

        async def listen() -> None:
            async for event in ready(poll_interval=600).run():
                told.append(event.payload)

        def send() -> None:
            with MessageQueue(pg_uri) as queue:
                for _ in range(70):
                    queue.enqueue_message("a", b"x")
                    time.sleep(0.1)
                # A message behind the last notification.
                queue.enqueue_message("b", b"last")

        listening = asyncio.create_task(listen())
        await asyncio.to_thread(send)
        count, began = len(told), time.monotonic()
        while "b" not in told[-1]["ready"]:
            assert time.monotonic() - began < 20 and not listening.done()
            await asyncio.sleep(0.05)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        return count

    assert 1 <= asyncio.run(scene()) <= 5


@pytest.mark.postgres
def test_a_wake_up_that_fails_fails_no_send(pg_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import airflow_mq.engine.store.postgres as postgres
    from airflow_mq.engine.store import parse, upgrade

    upgrade(parse(pg_uri))
    monkeypatch.setattr(postgres, "wake_channel", lambda schema, ring: "x" * 100)
    with MessageQueue(pg_uri) as queue:
        queue.enqueue_message("a", b"x")
        queue.enqueue_message("a", b"x", key="k")
        assert queue.footprint("a").count == 2
        assert queue.check() == []
