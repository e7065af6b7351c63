"""Lineage of queues, reported by OpenLineage's own provider if it is on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_mq import MessageQueue, lineage
from airflow_mq.store import parse
from tests.airflow.stage import CONN_ID, Airflow, Run, fill, in_place

pytestmark = pytest.mark.airflow


@pytest.fixture
def run() -> Run:
    return Airflow().run()


@pytest.fixture
def openlineage(monkeypatch: pytest.MonkeyPatch) -> Any:
    """OpenLineage, switched on; gives what asks an operator as its listener does."""
    from airflow.providers.openlineage import conf
    from airflow.providers.openlineage.extractors.base import DefaultExtractor

    monkeypatch.setattr(conf, "is_disabled", lambda: False)
    return lambda operator: DefaultExtractor(operator).extract_on_complete(None)


def facet(found: Any, name: str) -> dict[str, Any]:
    from openlineage.client.serde import Serde

    return {key: value for key, value in Serde.to_dict(found[name]).items() if not key.startswith("_")}


def test_a_task_that_sends_writes_queues(sqlite_queue: MessageQueue, run: Run, openlineage: Any) -> None:
    from airflow_mq.operators.enqueue import EnqueueMessagesOperator

    messages = [{"origin": "acme", "payload": "1"}, {"origin": "acme", "payload": "2"}, {"origin": "b", "payload": "3"}]
    operator = EnqueueMessagesOperator(task_id="send", mq_conn_id=CONN_ID, messages=messages)
    run.execute(operator)

    told = openlineage(operator)

    path = sqlite_queue.store.address.path
    assert [(one.namespace, one.name) for one in told.outputs] == [
        (f"airflow_mq://{path}", "default/acme"), (f"airflow_mq://{path}", "default/b"),
    ]  # fmt: skip
    assert [one.outputFacets["outputStatistics"].rowCount for one in told.outputs] == [2, 1]
    assert facet(told.job_facets, "airflow_mq_ring") == {
        "ring": "default", "queues": 2, "messages": 3, "order": "deficit", "serviceWeight": [600_000, 1 << 30],
    }  # fmt: skip


def test_a_block_reads_them(sqlite_queue: MessageQueue, run: Run, openlineage: Any) -> None:
    from airflow_mq.operators.blocks import ProcessMessagesOperator, SettleBlockOperator

    fill(sqlite_queue, {"a1": [b"x"] * 2, "b": [b"bad"]})
    parts = run.plan()
    names = []
    for index, part in enumerate(parts):
        operator = ProcessMessagesOperator(task_id="process", part=part, processors=in_place(), mq_conn_id=CONN_ID)
        run.execute(operator, index)
        names += [one.name for one in openlineage(operator).inputs]
    settle = SettleBlockOperator(task_id="settle", mq_conn_id=CONN_ID)
    run.execute(settle)

    told = openlineage(settle)

    assert sorted(names) == ["default/a1", "default/b"] == sorted(one.name for one in told.inputs)
    block = facet(told.run_facets, "airflow_mq_block")
    assert (block["processed"], block["failed"], block["setAside"], block["messages"]) == (2, 1, 0, 3)


def starting(operator: Any) -> Any:
    """Return the lineage of a task that starts."""
    from airflow.providers.openlineage.extractors.base import DefaultExtractor

    return DefaultExtractor(operator).extract()


def test_a_task_reports_at_its_start_what_is_known(sqlite_queue: MessageQueue, openlineage: Any) -> None:
    from airflow_mq.operators.blocks import PlanBlockOperator, ProcessMessagesOperator, SettleBlockOperator
    from airflow_mq.operators.enqueue import EnqueueMessagesOperator
    from airflow_mq.operators.receive import ReceiveMessagesOperator

    common = {"mq_conn_id": CONN_ID, "ring": "other"}
    of_block = [
        PlanBlockOperator(task_id="plan", processors=in_place(), **common),
        ProcessMessagesOperator(task_id="process", part={}, processors=in_place(), **common),
        SettleBlockOperator(task_id="settle", **common),
    ]
    others = [
        EnqueueMessagesOperator(task_id="send", messages=[], **common),
        ReceiveMessagesOperator(task_id="receive", **common),
    ]
    for operator in (*of_block, *others):
        told = starting(operator)
        assert facet(told.job_facets, "airflow_mq_ring") == {"ring": "other"}
        assert (list(told.inputs), list(told.outputs)) == ([], [])
    (only,) = starting(EnqueueMessagesOperator(task_id="one", messages=[], origin="acme", mq_conn_id=CONN_ID)).outputs
    assert (only.namespace, only.name) == (f"airflow_mq://{sqlite_queue.store.address.path}", "default/acme")
    sqlite_queue.store.close()
    assert not sqlite_queue.footprints()


def test_an_unusable_connection_is_reported_by_the_task_and_not_here(openlineage: Any, caplog: Any) -> None:
    from airflow_mq.operators.enqueue import EnqueueMessagesOperator

    assert starting(EnqueueMessagesOperator(task_id="one", messages=[], origin="acme", mq_conn_id="nowhere")) is None
    assert not caplog.records


def test_a_task_that_receives_reads_its_source_and_writes_queues(
    sqlite_queue: MessageQueue, run: Run, openlineage: Any, tmp_path: Path
) -> None:
    from airflow_mq.operators.receive import ReceiveFilesOperator

    for name, text in (("acme/1.csv", "1\n2\n"), ("b/1.csv", "3\n"), ("b/empty.csv", "")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    operator = ReceiveFilesOperator(
        task_id="files", mq_conn_id=CONN_ID, folder=str(tmp_path), pattern="{origin}/*.csv", lines=True, settle=0
    )
    assert [(one.namespace, one.name) for one in starting(operator).inputs] == [("file", str(tmp_path))]
    assert run.execute(operator)["count"] == 3

    told = openlineage(operator)

    assert [(one.namespace, one.name) for one in told.inputs] == [("file", str(tmp_path))]
    assert [(one.name, one.outputFacets["outputStatistics"].rowCount) for one in told.outputs] == [
        ("default/acme", 2), ("default/b", 1),
    ]  # fmt: skip
    assert facet(told.job_facets, "airflow_mq_ring")["messages"] == 3


def test_sources_are_named_as_others_name_them(openlineage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_mq.operators.receive import ReceiveKafkaOperator

    assert [lineage.source_at(one) for one in ("/data/in/", "file:///data", "s3://aws@bucket/in/of/", "gs://b")] == [
        ("file", "/data/in"), ("file", "/data"), ("s3://bucket", "in/of"), ("gs://b", "/"),
    ]  # fmt: skip
    said = {"bootstrap.servers": "one:9092, two:9092", "sasl.password": "hunter2"}
    monkeypatch.setenv("AIRFLOW_CONN_STREAMS", json.dumps({"conn_type": "kafka", "extra": said}))
    operator = ReceiveKafkaOperator(task_id="kafka", topics=["orders", "^all.*"], kafka_config_id="streams")
    assert operator.datasets() == [("kafka://one:9092", "orders")]


def test_so_many_queues_are_named_and_no_more(
    sqlite_queue: MessageQueue, run: Run, openlineage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_mq.operators.blocks import SettleBlockOperator

    monkeypatch.setattr(lineage, "MOST", 3)
    fill(sqlite_queue, {f"a{number}": [b"x"] * (number + 1) for number in range(5)})
    run.plan()
    settle = SettleBlockOperator(task_id="settle", mq_conn_id=CONN_ID)
    run.execute(settle)

    told = openlineage(settle)

    assert [one.name for one in told.inputs] == ["default/a4", "default/a3", "default/a2"]
    assert facet(told.job_facets, "airflow_mq_ring")["queues"] == 5


def test_a_store_is_named_without_who_opens_it() -> None:
    address = parse("postgresql://user:hunter2@db.example.com:6432/shop?schema=queues")

    assert lineage.namespace_of(address) == "airflow_mq://db.example.com:6432/shop/queues"


def test_nothing_is_reported_if_openlineage_is_off(sqlite_queue: MessageQueue, run: Run) -> None:
    from airflow_mq.operators.blocks import SettleBlockOperator

    assert lineage.is_wanted() is False
    fill(sqlite_queue, {"a": [b"x"]})
    run.plan()
    settle = SettleBlockOperator(task_id="settle", mq_conn_id=CONN_ID)
    run.execute(settle)

    assert settle.get_openlineage_facets_on_complete(None) is None
