"""Traces from the sender through the block to the outcome of the message, received in place of a collector."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from airflow_mq import Done, Message, MessageQueue, Weight, Yield, batch_processor
from airflow_mq.engine.queue.inspect.inspect import Inspect
from airflow_mq.observe import traces
from airflow_mq.processors import Processor, Processors
from tests.airflow import functions
from tests.airflow.receivers import attributes_of, collector
from tests.airflow.stage import CONN_ID, Airflow, Run, fill

pytestmark = pytest.mark.airflow
ROOT = Path(__file__).parents[2]


@pytest.fixture
def run() -> Run:
    return Airflow().run()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """A provider of tracers that is this test's own, with traces on."""
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    monkeypatch.setenv("AIRFLOW__AIRFLOW_MQ__TRACES", "True")
    yield exporter
    provider.shutdown()


def by_name(exporter: InMemorySpanExporter, name: str) -> list[Any]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def send(queue: MessageQueue, origin: str, *payloads: bytes) -> Any:
    """Send under a span; returns its context."""
    traced = MessageQueue(queue.store, queue.ring, traces=True)
    with trace.get_tracer("test").start_as_current_span("checkout") as span:
        traced.enqueue_messages(origin, payloads)
    return span.get_span_context()


# -- what messages carry --


def test_a_message_carries_the_trace_of_its_sender(queue: MessageQueue, spans: Any) -> None:
    traced = MessageQueue(queue.store, traces=True)
    with trace.get_tracer("test").start_as_current_span("checkout") as span:
        traced.enqueue_message("a", b"one")
        traced.enqueue_messages("a", [b"two", Message(b"three", headers={"mine": "1"})], headers={"common": "2"})
        traced.enqueue_message("a", b"four", headers={"traceparent": "my own"})
    traced.enqueue_message("a", b"five")

    context = span.get_span_context()
    own = {"traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"}
    assert [one.headers for one in queue.inspect.peek("a")] == [
        own, {**own, "common": "2"}, {**own, "mine": "1"}, {"traceparent": "my own"}, {},
    ]  # fmt: skip


def test_nothing_is_carried_if_traces_are_off_or_not_sampled(
    sqlite_queue: MessageQueue, spans: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = TracerProvider(sampler=ALWAYS_OFF)
    with trace.get_tracer("test").start_as_current_span("checkout"):
        sqlite_queue.enqueue_message("a", b"nobody asked")
    traced = MessageQueue(sqlite_queue.store, traces=True)
    with silent.get_tracer("test").start_as_current_span("checkout"):
        traced.enqueue_message("a", b"not sampled")
    monkeypatch.setenv("AIRFLOW_MQ_TRACES", "1")
    by_environment = MessageQueue(sqlite_queue.store)
    with trace.get_tracer("test").start_as_current_span("checkout"):
        by_environment.enqueue_message("a", b"asked by environment")
        MessageQueue(sqlite_queue.store, traces=False).enqueue_message("a", b"not here")

    assert [bool(one.headers) for one in sqlite_queue.inspect.peek("a")] == [False, False, True, False]


def test_a_command_carries_it_too(sqlite_queue: MessageQueue, spans: Any) -> None:
    import sqlite3

    traced = MessageQueue(sqlite_queue.store, traces=True)
    connection = sqlite3.connect(sqlite_queue.store.address.path, isolation_level=None)
    with trace.get_tracer("test").start_as_current_span("checkout"):
        connection.execute("BEGIN IMMEDIATE")
        traced.commands(connection).push("a", b"x", headers={"mine": "1"}).execute()
        connection.execute("COMMIT")
    connection.close()

    (only,) = sqlite_queue.inspect.peek("a")
    assert set(only.headers) == {"traceparent", "mine"}


def test_without_the_sdk_all_goes_on(
    sqlite_queue: MessageQueue, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """OpenTelemetry's API alone, as airflow-mq requires it: nothing is carried, and no span recorded."""
    for name in ("opentelemetry.sdk.trace", "opentelemetry.sdk.trace.export"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("AIRFLOW__AIRFLOW_MQ__TRACES", "True")
    monkeypatch.setenv("AIRFLOW__TRACES__OTEL_ON", "True")
    with trace.get_tracer("test").start_as_current_span("checkout"):
        MessageQueue(sqlite_queue.store, traces=True).enqueue_message("a", b"x")

    assert [one.headers for one in sqlite_queue.inspect.peek("a")] == [{}]
    assert run.whole()["processed"] == 1
    assert "trace" not in run.xcoms["plan", "block"]
    assert "pip install 'airflow-mq[otel]'" in caplog.text


@pytest.mark.parametrize("said", [True, False])
def test_spans_go_where_airflow_is_configured_to_send_them(
    sqlite_queue: MessageQueue, monkeypatch: pytest.MonkeyPatch, said: bool
) -> None:
    """As in tasks of Airflow 3.1."""
    from airflow_mq import settings
    from airflow_mq.hooks import MessageQueueHook
    from airflow_mq.observe import hooked

    for name in ("ENDPOINT", "TRACES_ENDPOINT", "TRACES_PROTOCOL"):
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", "")
    if said:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://else:4317")
    options = {"traces": "True", "otel_on": "True", "otel_host": "collector", "otel_port": "8889"}
    conf = ConfigParser()
    conf.read_dict({"airflow_mq": options, "traces": options})
    monkeypatch.setattr(settings, "conf", conf)
    monkeypatch.setattr(hooked, "conf", conf)
    monkeypatch.setattr(traces, "is_provided", lambda: False)
    provided: list[str] = []
    monkeypatch.setattr(traces, "provide", lambda: provided.append(os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]))

    with MessageQueueHook(CONN_ID).queue() as opened:
        assert opened.session.traces
    assert provided == ["" if said else "http://collector:8889/v1/traces"]


# -- spans of a block --


def test_a_block_of_one_trace_goes_on_with_it(queue: MessageQueue, run: Run, spans: Any) -> None:
    context = send(queue, "a1", b"x", b"bad", b"yield")

    run.whole()

    assert {span.get_span_context().trace_id for span in spans.get_finished_spans()} == {context.trace_id}
    (plan,), (settle,) = by_name(spans, "plan default"), by_name(spans, "settle default")
    part, *messages = by_name(spans, "process default")
    assert plan.parent.span_id == context.span_id
    assert part.parent.span_id == settle.parent.span_id == plan.get_span_context().span_id
    assert [link.context.span_id for link in plan.links] == [context.span_id]
    assert [span.attributes["airflow_mq.outcome"] for span in messages] == ["done", "badformat", "yield"]
    assert [span.status.is_ok for span in messages] == [True, False, True]
    assert {span.parent.span_id for span in messages} == {context.span_id}
    assert {span.links[0].context.span_id for span in messages} == {plan.get_span_context().span_id}
    assert settle.attributes["airflow_mq.processed"] == 1
    assert plan.attributes["messaging.batch.message_count"] == 3


def test_a_block_of_many_traces_has_its_own_and_a_link_to_each(
    sqlite_queue: MessageQueue, run: Run, spans: Any
) -> None:
    sent = [send(sqlite_queue, origin, b"x") for origin in ("a1", "a2", "b")]
    fill(sqlite_queue, {"a1": [b"carries nothing"]})

    run.whole()

    (plan,) = by_name(spans, "plan default")
    assert {link.context.trace_id for link in plan.links} == {context.trace_id for context in sent}
    assert plan.get_span_context().trace_id not in {context.trace_id for context in sent}
    fates = [span for span in by_name(spans, "process default") if "airflow_mq.outcome" in span.attributes]
    assert {span.get_span_context().trace_id for span in fates} == {context.trace_id for context in sent}


def test_a_task_that_is_traced_is_the_parent(sqlite_queue: MessageQueue, run: Run, spans: Any) -> None:
    send(sqlite_queue, "a1", b"x")

    with trace.get_tracer("airflow").start_as_current_span("task_run.plan") as task:
        run.plan()
    (plan,) = by_name(spans, "plan default")
    assert plan.parent.span_id == task.get_span_context().span_id
    assert len(plan.links) == 1
    run.settle()


def test_outcomes_and_links_are_bounded(
    sqlite_queue: MessageQueue, run: Run, spans: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        send(sqlite_queue, f"a{number}", b"x", b"y")
    monkeypatch.setattr("airflow_mq.observe.task.LINKS", 5)
    monkeypatch.setattr("airflow_mq.observe.task.OUTCOMES", 7)

    assert run.whole()["processed"] == 24

    (plan,) = by_name(spans, "plan default")
    assert len(plan.links) <= 5
    assert sum("airflow_mq.outcome" in span.attributes for span in spans.get_finished_spans()) == 7


def test_no_queue_takes_the_spans_of_the_others(
    sqlite_queue: MessageQueue, run: Run, spans: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_mq.observe.task.LINKS", 4)
    monkeypatch.setattr("airflow_mq.observe.task.OUTCOMES", 4)
    for _ in range(5):
        send(sqlite_queue, "a1", b"x")
    quiet = send(sqlite_queue, "b", b"x")

    assert run.whole()["processed"] == 6

    (plan,) = by_name(spans, "plan default")
    assert quiet.trace_id in {link.context.trace_id for link in plan.links}
    origins = [span.attributes.get("airflow_mq.origin") for span in by_name(spans, "process default")]
    assert sorted(filter(None, origins)) == ["a1", "a1", "a1", "b"]


def test_spans_of_a_processor_join_the_trace_of_its_message(
    sqlite_queue: MessageQueue, run: Run, spans: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def process(payload: bytes, origin: str) -> None:
        trace.get_tracer("test").start_span("a call to the bank").end()

    monkeypatch.setattr(functions, "process", process)
    contexts = [send(sqlite_queue, origin, b"x") for origin in ("a1", "b")]
    run.whole()

    calls = by_name(spans, "a call to the bank")
    assert {span.parent.span_id for span in calls} == {context.span_id for context in contexts}


# -- what processors send on --


def carried_by(context: Any) -> dict[str, str]:
    return {"traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"}


def test_what_a_block_sends_on_goes_on_with_the_trace(
    queue: MessageQueue, run: Run, spans: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"traceparent": f"00-{7:032x}-{7:016x}-01"}
    steps = []

    def process(payload: bytes, origin: str) -> Any:
        if payload == b"carries nothing":
            return Done(enqueue=[("b", b"of nothing")])
        with (
            trace.get_tracer("test").start_as_current_span("step") as step,
            MessageQueue(queue.store, traces=True) as other,
        ):
            steps.append(step.get_span_context())
            other.enqueue_message("b", b"sent within a span")
            other.enqueue_messages("b", [Message(b"and with headers", headers={"mine": "0"})])
        return Done(enqueue=[
            ("b", b"plain"), ("b", b"first", "high"), ("b", Message(b"said", headers={"mine": "1"})),
            ("b", Message(b"of another", headers=own)),
        ])  # fmt: skip

    monkeypatch.setattr(functions, "process", process)
    context = send(queue, "a1", b"x")
    fill(queue, {"a1": [b"carries nothing"]})
    run.whole()

    sent = {one.payload: one.headers for one in queue.inspect.peek("b", priority="regular")}
    trace_of = carried_by(context)
    assert sent == {
        b"sent within a span": carried_by(steps[0]), b"and with headers": {**carried_by(steps[0]), "mine": "0"},
        b"plain": trace_of, b"of nothing": {}, b"said": {**trace_of, "mine": "1"}, b"of another": own,
    }  # fmt: skip
    (high,) = queue.inspect.peek("b", priority="high", limit=1)
    assert (high.payload, high.headers) == (b"first", trace_of)


def test_what_is_sent_on_is_of_the_same_trace_when_it_is_processed(
    sqlite_queue: MessageQueue, run: Run, spans: Any
) -> None:
    context = send(sqlite_queue, "a1", b"next")
    everything = Processors([Processor("all", functions.__name__ + ":process", where="in place")])
    for _ in range(2):
        run.plan(everything)
        run.process(0, everything)
        run.settle()

    assert {span.get_span_context().trace_id for span in spans.get_finished_spans()} == {context.trace_id}
    fates = [span.attributes.get("airflow_mq.origin") for span in by_name(spans, "process default")]
    assert sorted(filter(None, fates)) == ["a1", "stage-2"]


@pytest.mark.parametrize("traces", [True, False])
@pytest.mark.parametrize("shape", ["message", "batch", "meters itself"])
def test_what_a_service_sends_on_goes_on_with_the_trace(
    queue: MessageQueue, spans: Any, traces: bool, shape: str
) -> None:
    """Down a chain within one call, too, where none of it is stored yet."""
    context = send(queue, "a", b"x")
    chain = {"a": "b", "b": "c"}
    seen: list[Any] = []

    def process(delivery: Any) -> Any:
        seen.append(trace.get_current_span().get_span_context())
        return Done(enqueue=[(chain[delivery.origin], b"y")]) if delivery.origin in chain else Yield()

    def process_batch(batch: Any) -> Any:
        return [process(batch) for _ in batch.payloads]

    process.meters_itself = shape == "meters itself"  # type: ignore[attr-defined]
    served = MessageQueue(queue.store, traces=traces)
    for _ in range(3):
        served.service_queues(batch_processor(process_batch) if shape == "batch" else process, Weight(10**9, 10**9))

    (last,) = queue.inspect.peek("c")
    assert last.headers == (carried_by(context) if traces else {})
    if shape != "batch":
        assert {one.span_id == context.span_id for one in seen} == {traces}


def test_a_message_executed_by_hand_sends_on_with_its_trace(queue: MessageQueue, spans: Any) -> None:
    traced = MessageQueue(queue.store, traces=True)
    with trace.get_tracer("test").start_as_current_span("checkout") as span:
        traced.enqueue_message("a", b"x", weight=Weight(10**12, 0))
    queue.service_queues(lambda delivery: None)
    (aside,) = queue.set_aside.list("a")

    traced.execute_overweight(aside.address, lambda delivery: Done(enqueue=[("b", b"y")]), Weight(10**13, 10**9))

    (sent,) = queue.inspect.peek("b")
    assert sent.headers == carried_by(span.get_span_context())


def test_a_task_that_sends_has_a_span_of_its_own(sqlite_queue: MessageQueue, run: Run, spans: Any) -> None:
    from airflow_mq.operators.enqueue import EnqueueMessagesOperator

    run.execute(EnqueueMessagesOperator(task_id="send", mq_conn_id=CONN_ID, origin="a", messages=["x"]))

    (sent,) = by_name(spans, "send default")
    assert sent.kind is trace.SpanKind.PRODUCER
    (only,) = sqlite_queue.inspect.peek("a")
    assert f"{sent.get_span_context().span_id:016x}" in only.headers["traceparent"]


def test_a_block_does_not_fail_with_its_trace(
    sqlite_queue: MessageQueue, run: Run, spans: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the password is hunter2")

    send(sqlite_queue, "a1", b"x")
    monkeypatch.setattr(traces, "_start", broken)
    monkeypatch.setattr(Inspect, "headers", broken)

    assert run.whole()["processed"] == 1
    assert "tracing or lineage failed (RuntimeError)" in caplog.text
    assert "hunter2" not in caplog.text


# -- from end to end --


@pytest.mark.slow
@pytest.mark.spark
def test_one_trace_from_the_sender_to_the_outcome_of_a_spark_job(sqlite_queue: MessageQueue) -> None:
    with collector() as received:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
            "AIRFLOW__AIRFLOW_MQ__TRACES": "True",
            "AIRFLOW__METRICS__OTEL_ON": "True",
            "OTEL_EXPORTER_OTLP_ENDPOINT": received.address,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_SERVICE_NAME": "shop",
        }
        told = subprocess.run(
            [sys.executable, "-m", "tests.airflow.traced"], env=environment, cwd=ROOT, capture_output=True, text=True,
            timeout=600,
        )  # fmt: skip
        assert told.returncode == 0, told.stdout + told.stderr
        spans, metrics = received.spans(), received.metrics()

    assert {span.trace_id for span in spans} == {next(span.trace_id for span in spans if span.name == "checkout")}
    (second,) = (span for span in spans if attributes_of(span).get("airflow_mq.origin") == "stage-2")
    assert attributes_of(second)["airflow_mq.outcome"] == "done"
    number = attributes_of(second)["airflow_mq.block"]
    assert sorted(span.name for span in spans if attributes_of(span).get("airflow_mq.block") == number) == [
        "plan default", "process default", "process default", "settle default",
    ]  # fmt: skip
    spans = [span for span in spans if attributes_of(span).get("airflow_mq.block") != number]
    names = {span.name: span for span in spans}
    checkout, plan, job, settle = (names[name] for name in ("checkout", "plan default", "spark all", "settle default"))
    part, *messages = sorted((span for span in spans if span.name == "process default"), key=len_of_outcome)
    assert plan.parent_span_id == checkout.span_id
    assert part.parent_span_id == settle.parent_span_id == plan.span_id
    assert job.parent_span_id == part.span_id
    assert {span.parent_span_id for span in messages} == {checkout.span_id}
    assert sorted(attributes_of(span)["airflow_mq.outcome"] for span in messages) == ["badformat", "done", "done"]
    assert checkout.start_time_unix_nano <= plan.start_time_unix_nano <= job.start_time_unix_nano

    (point,) = metrics["airflow.mq.messages.processed"]
    assert (point.as_int or point.as_double, attributes_of(point)) == (3, {"ring": "default"})
    assert "airflow.mq.depth.messages" in metrics


def len_of_outcome(span: Any) -> int:
    return len(attributes_of(span).get("airflow_mq.outcome", ""))


def test_a_span_names_an_error_and_does_not_quote_it(spans: Any) -> None:
    with pytest.raises(ValueError), traces.span("process"):
        raise ValueError("the words of a message")

    (span,) = by_name(spans, "process")
    assert span.status.description == "ValueError"
    assert "the words of a message" not in span.to_json()
