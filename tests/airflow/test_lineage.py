"""Lineage of queues, reported by OpenLineage's own provider if it is on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_mq import MessageQueue, batch_processor
from airflow_mq.engine.store import parse
from airflow_mq.observe import hooked, lineage
from airflow_mq.processors import Processor, Processors
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


def test_a_task_that_runs_again_reports_its_last_run(sqlite_queue: MessageQueue, run: Run, openlineage: Any) -> None:
    from airflow_mq.operators.enqueue import EnqueueMessagesOperator

    operator = EnqueueMessagesOperator(task_id="send", mq_conn_id=CONN_ID, origin="acme", messages=["1", "2"])
    run.execute(operator)
    operator.messages = ["1", "2", "3"]
    run.execute(operator)

    (only,) = openlineage(operator).outputs
    assert only.outputFacets["outputStatistics"].rowCount == 3


@pytest.mark.parametrize("kind", ["operator", "decorator", "part"])
def test_a_service_reads_queues(sqlite_queue: MessageQueue, run: Run, openlineage: Any, kind: str) -> None:
    from airflow_mq.decorators import MessageProcessorOperator
    from airflow_mq.operators.blocks import ServiceQueuesOperator

    def process(payload: bytes, origin: str) -> None:
        pass

    fill(sqlite_queue, {"a": [b"1", b"2"], "aa": [b"3"]})
    common: dict[str, Any] = {"task_id": "process", "mq_conn_id": CONN_ID}
    operator: Any = (
        ServiceQueuesOperator(processor=process, **common)
        if kind == "operator"
        else MessageProcessorOperator(python_callable=process, processors=only_in_place(), **common)
    )
    if kind == "part":
        (part,) = run.plan(only_in_place())
        operator.op_kwargs = {"part": part}
    began = operator.get_openlineage_facets_on_start()
    run.execute(operator, 0 if kind == "part" else -1)
    told = openlineage(operator)
    if kind == "part":
        run.settle()

    assert facet(began.job_facets, "airflow_mq_ring") == {"ring": "default"}
    path = sqlite_queue.store.address.path
    assert [(one.namespace, one.name) for one in told.inputs] == [
        (f"airflow_mq://{path}", "default/a"), (f"airflow_mq://{path}", "default/aa"),
    ]  # fmt: skip
    assert facet(told.job_facets, "airflow_mq_ring")["messages"] == 3


def test_a_service_in_batches_counts_messages(sqlite_queue: MessageQueue, run: Run, openlineage: Any) -> None:
    from airflow_mq.operators.blocks import ServiceQueuesOperator

    fill(sqlite_queue, {"a": [b"1", b"2"]})
    processor = batch_processor(lambda batch: None)
    operator = ServiceQueuesOperator(task_id="process", processor=processor, mq_conn_id=CONN_ID)
    run.execute(operator)

    assert facet(openlineage(operator).job_facets, "airflow_mq_ring")["messages"] == 2


def only_in_place() -> Processors:
    """Return one processor of all origins, in one part."""
    return Processors([Processor("one", "tests.airflow.functions:process", where="in place")])


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


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the addresses of inputs and outputs that Airflow collects of hooks, if a plugin reads them."""
    from airflow.providers.common.compat.sdk import HookLineageCollector

    collector = HookLineageCollector()
    monkeypatch.setattr(hooked, "get_hook_lineage_collector", lambda: collector)

    def addresses() -> tuple[list[str], list[str]]:
        found = collector.collected_assets
        return [one.asset.uri for one in found.inputs], [one.asset.uri for one in found.outputs]

    return addresses


def test_a_hook_reports_what_a_task_did_with_it(sqlite_queue: MessageQueue, collected: Any) -> None:
    from airflow_mq.engine.rules.errors import InvalidInput
    from airflow_mq.hooks import MessageQueueHook

    with MessageQueueHook(CONN_ID).queue() as queue:
        queue.enqueue_message("acme", b"1")
        queue.enqueue_messages("shop/one", [b"1", b"2"])
        queue.enqueue_messages((f"o{number}", b"x") for number in range(3))
        for wrong in ("acme", [("acme",)], [None], [("acme", 1)]):
            with pytest.raises((InvalidInput, TypeError, ValueError)):
                queue.enqueue_messages(wrong)  # type: ignore[call-overload]
        queue.enqueue_messages(cast("list[tuple[str, bytes]]", [["row", b"x"]]))
        assert queue.service_queues(lambda delivery: None).processed == 7

    inputs, outputs = collected()
    assert inputs == [f"airflow-mq://{CONN_ID}/default"]
    named = ["acme", "shop/one", "o0", "o1", "o2", "row"]
    assert outputs == [f"airflow-mq://{CONN_ID}/default/{origin}" for origin in named]


def test_lineage_that_fails_fails_nothing(sqlite_queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_mq.hooks import MessageQueueHook

    monkeypatch.setattr(hooked, "get_hook_lineage_collector", lambda: None)
    with MessageQueueHook(CONN_ID).queue() as queue:
        assert queue.enqueue_message("acme", b"1").count == 1
