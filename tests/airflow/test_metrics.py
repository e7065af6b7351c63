"""Metrics of a real run of the operators, received where a StatsD server would be."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from airflow_mq import Message, MessageQueue, Weight, Yield
from airflow_mq.engine.queue.inspect.inspect import Inspect
from tests.airflow.receivers import Lines
from tests.airflow.stage import CONN_ID, Airflow, Run, fill

pytestmark = pytest.mark.airflow


@pytest.fixture
def run() -> Run:
    return Airflow().run()


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Lines]]:
    """Return Airflow with StatsD on, as a task has it, with further settings."""
    from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
    from airflow.sdk.observability import stats
    from airflow.sdk.observability.metrics import stats_utils

    lines, clients = Lines(), []

    def client() -> Any:
        clients.append(stats_utils.get_stats_factory()())
        return clients[-1]

    def switch_on(**said: str) -> Lines:
        for name, value in {
            "STATSD_ON": "True",
            "STATSD_HOST": "127.0.0.1",
            "STATSD_PORT": str(lines.port),
            **said,
        }.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__{name}", value)
        stats.initialize(factory=client, export_legacy_names=False)
        return lines

    yield switch_on
    stats.initialize(factory=NoStatsLogger, export_legacy_names=True)
    for one in clients:
        one.statsd.close()
    lines.close()


def test_a_run_reports_waiting_messages_and_its_outcomes(queue: MessageQueue, run: Run, statsd: Any) -> None:
    lines = statsd()
    fill(queue, {"a1": [b"x"] * 3, "a2": [b"bad"], "b": [b"yield"]})
    queue.enqueue_message("c", b"heavy!", weight=Weight(10**12, 0))

    run.whole()

    heard = lines.values()
    assert all(name.startswith("airflow.mq.default.") for name in heard)
    told = {name.removeprefix("airflow.mq.default."): values for name, values in heard.items()}
    assert told["depth.messages"] == ["6|g", "1|g"]  # at the plan, and what is left after the block
    assert told["depth.queues"] == ["4|g", "1|g"]
    assert told["set_aside"] == ["0|g", "1|g"]
    # All counters exist before the first failure: Prometheus sees no increase in one that begins with it.
    assert (told["messages.processed"], told["messages.failed"]) == (["0|c", "3|c"], ["0|c", "1|c"])
    assert (told["messages.returned"], told["messages.set_aside"]) == (["0|c", "1|c"], ["0|c", "1|c"])
    assert told["messages.expired"] == ["0|c", "0|c"]
    assert (told["blocks.planned"], told["blocks.settled"]) == (["1|c"], ["0|c", "1|c"])
    assert told["plan.messages"] == ["5|g"]
    assert 0 < float(told["block.used"][0].removesuffix("|g")) < 1
    assert all(told[name][0].endswith("|ms") for name in ("plan.duration", "block.duration"))
    assert float(told["oldest_age"][0].removesuffix("|g")) >= 0
    assert {"backlog.time", "backlog.size", "backlog.blocks", "fairness.longest_wait", "fairness.share_error"} <= set(
        told
    )
    assert not any("origin" in name for name in told)


def test_a_block_that_is_settled_again_is_counted_once(sqlite_queue: MessageQueue, run: Run, statsd: Any) -> None:
    """The task was retried, or cleared."""
    lines = statsd()
    fill(sqlite_queue, {"a1": [b"x"] * 3})
    summary = run.whole()
    assert run.settle() == summary

    told = {name.removeprefix("airflow.mq.default."): values for name, values in lines.values().items()}
    assert (told["messages.processed"], told["blocks.settled"]) == (["0|c", "3|c"], ["0|c", "1|c"])
    assert float(told["backlog.blocks"][-1].removesuffix("|g")) == 0  # no gauge keeps a value of earlier


def test_a_service_in_place_reports_its_outcomes_as_a_settled_block(queue: MessageQueue, run: Run, statsd: Any) -> None:
    from airflow_mq.operators.blocks import ServiceQueuesOperator

    lines = statsd()
    queue.enqueue_messages("a", [b"1", b"2"])
    queue.enqueue_messages("b", [b"bad"])

    def process(payload: bytes, origin: str) -> bool:
        return payload != b"bad"

    operator = ServiceQueuesOperator(task_id="service", mq_conn_id=CONN_ID, processor=process)
    run.execute(operator)
    told = {name.removeprefix("airflow.mq.default."): values for name, values in lines.values().items()}
    run.execute(operator)
    later = {name.removeprefix("airflow.mq.default."): values for name, values in lines.values().items()}

    assert told["blocks.settled"] == ["1|c"]
    assert told["messages.processed"] == ["3|c"]
    assert told["depth.messages"] == ["0|g"]
    assert 0 < float(told["block.used"][0].removesuffix("|g")) < 1
    assert told["block.duration"][0].endswith("|ms")
    assert "fairness.longest_wait" in told
    assert "blocks.planned" not in told
    # Nothing was serviced by the second task, which reports the backlog only.
    assert later["depth.messages"] == ["0|g"]
    assert not any(name.startswith(("block", "messages.")) for name in later)


def test_a_service_whose_queues_have_to_wait_since_is_reported(
    sqlite_queue: MessageQueue, run: Run, statsd: Any
) -> None:
    from airflow_mq.operators.blocks import ServiceQueuesOperator

    lines = statsd()
    sqlite_queue.admin.change_ring(backoff=60.0)
    sqlite_queue.enqueue_messages("a", [b"1", b"bad", b"2"])

    def process(payload: bytes, origin: str) -> Any:
        return Yield() if payload == b"bad" else None

    told = run.execute(ServiceQueuesOperator(task_id="service", mq_conn_id=CONN_ID, processor=process))

    heard = {name.removeprefix("airflow.mq.default."): values for name, values in lines.values().items()}
    assert told["origins"] == 1
    assert (heard["messages.processed"], heard["messages.returned"]) == (["1|c"], ["1|c"])
    assert heard["blocks.settled"] == ["1|c"]


def test_the_largest_origins_have_their_own_metrics_if_configured(
    sqlite_queue: MessageQueue, run: Run, statsd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__AIRFLOW_MQ__METRICS_ORIGINS", "2")
    lines = statsd()
    # A message that is set aside does not wait.
    sqlite_queue.enqueue_message("a2", b"heavy!", weight=Weight(10**12, 0))
    sqlite_queue.service_queues(lambda delivery: None)
    fill(sqlite_queue, {"a/shop.eu": [b"x"] * 5, "a2": [b"x"] * 3, "b": [b"x"]})

    run.plan()

    from airflow_mq.observe.metrics import as_name

    heard = {name: values for name, values in lines.values().items() if ".origin." in name}
    deep = as_name("a/shop.eu")
    assert heard[f"airflow.mq.default.origin.{deep}.depth.messages"] == ["5|g"]
    assert heard["airflow.mq.default.origin.a2.depth.messages"] == ["3|g"]
    assert {name.split(".")[4] for name in heard} == {deep, "a2"}
    run.settle()


@pytest.mark.parametrize("origin", ["a=1, and more", "tenant:acme@eu", "ä", "shop.eu/a-1"])
def test_tags_carry_the_ring_and_the_origin_where_a_backend_has_them(
    sqlite_queue: MessageQueue, run: Run, statsd: Any, monkeypatch: pytest.MonkeyPatch, origin: str
) -> None:
    monkeypatch.setenv("AIRFLOW__AIRFLOW_MQ__METRICS_ORIGINS", "5")
    lines = statsd(STATSD_INFLUXDB_ENABLED="True")
    fill(sqlite_queue, {origin: [b"x"] * 5})
    sqlite_queue.enqueue_message(origin, b"x", priority="high")

    run.plan()

    heard = lines.values()
    assert heard["airflow.mq.depth.messages,ring=default"] == ["6|g"]
    depths = {name: values for name, values in heard.items() if name.startswith("airflow.mq.origin.depth.messages,")}
    tags = {name.removeprefix("airflow.mq.origin.depth.messages,ring=default,origin=") for name in depths}
    assert sorted(depths.values()) == [["1|g"], ["5|g"]]
    assert (origin in tags) == (origin == "shop.eu/a-1")
    run.settle()


def test_tags_of_other_backends_keep_what_is_no_separator() -> None:
    from airflow_mq.observe.metrics import SEPARATORS, as_name

    assert as_name("shop.eu/ä", SEPARATORS) == "shop.eu/ä"
    name = as_name("a=1, and more", SEPARATORS)
    assert name.startswith("a_1__and_more-") and name != as_name("a_1__and_more", SEPARATORS)


def test_names_that_had_to_be_changed_stay_apart() -> None:
    from airflow_mq.observe.metrics import as_name, untagged

    assert as_name("shop_1-eu") == "shop_1-eu"
    names = {as_name(text) for text in ("a.b", "a_b", "a/b", "a b", "ä", "ö", "x" * 200, "x" * 201)}
    assert len(names) == 8 and all(len(name) <= 80 for name in names)
    assert all(character.isascii() for name in names for character in name)
    assert untagged("origin.oldest_age", "default", "acme") == "mq.default.origin.acme.oldest_age"


def test_nothing_is_read_if_metrics_are_off(
    sqlite_queue: MessageQueue, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inspect, "backlog", lambda *_: pytest.fail("the backlog was read"))
    monkeypatch.setattr(Inspect, "fairness", lambda *_: pytest.fail("the fairness was read"))
    fill(sqlite_queue, {"a": [b"x"]})

    assert run.whole()["processed"] == 1


def test_fairness_is_not_reported_at_every_block_of_a_crowd(
    sqlite_queue: MessageQueue, run: Run, statsd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_mq.observe.metrics.FEW_QUEUES", 2)
    lines = statsd()
    fill(sqlite_queue, {"a": [b"yield"], "b": [b"yield"], "b2": [b"yield"]})

    run.whole()

    heard = lines.values()
    assert heard["airflow.mq.default.depth.queues"] == ["3|g", "3|g"]
    assert not any("fairness" in name for name in heard)


def test_a_block_does_not_fail_with_its_metrics(
    sqlite_queue: MessageQueue, run: Run, statsd: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the password is hunter2")

    statsd()
    monkeypatch.setattr(Inspect, "backlog", broken)
    fill(sqlite_queue, {"a": [b"x"]})

    with caplog.at_level(logging.WARNING, logger="airflow_mq.metrics"):
        assert run.whole()["processed"] == 1

    assert "cannot send the metrics of ring 'default' (RuntimeError)" in caplog.text
    assert "hunter2" not in caplog.text


def test_housekeeping_reports_waiting_messages_without_a_block(queue: MessageQueue, run: Run, statsd: Any) -> None:
    from airflow_mq.operators.queues import HousekeepingOperator

    lines = statsd()
    fill(queue, {"a": [b"x", b"y"]})
    run.execute(HousekeepingOperator(task_id="keep", mq_conn_id=CONN_ID))

    heard = lines.values()
    assert heard["airflow.mq.default.depth.messages"] == ["2|g"]
    assert not any("blocks." in name and "backlog" not in name for name in heard)


def test_a_poller_reports_waiting_messages(queue: MessageQueue, statsd: Any) -> None:
    from airflow_mq.triggers import QueueReadyTrigger

    lines = statsd()
    fill(queue, {"a": [b"x", Message(b"y", weight=Weight(5, 5))]})

    async def scene() -> None:
        async with aclosing(QueueReadyTrigger(CONN_ID, poll_interval=60).run()) as events:
            await asyncio.wait_for(anext(events), 60)

    asyncio.run(scene())
    heard = lines.values()
    assert heard["airflow.mq.default.depth.messages"] == ["2|g"]
    assert not any("fairness" in name or "plan" in name for name in heard)
