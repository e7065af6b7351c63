"""The format `airflow_mq`: reading, writing, streaming, in one shared session."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.engine.rules.errors import Busy, CommitInDoubt, InvalidInput, StoreBusy, StoreUnreachable

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ODD = ["{{ ds }}", "--conf spark.master=x", "a b/ü\N{SNOWMAN}", "'; DROP TABLE", "*"]


@pytest.fixture
def queue(make_ring: Callable[..., MessageQueue], session_store: str) -> MessageQueue:
    return make_ring(session_store, f"ring-{secrets.token_hex(4)}")


def options(queue: MessageQueue, reader: Any, **more: str) -> Any:
    return reader.format("airflow_mq").options(ring=queue.ring, **more)


def test_a_look_touches_nothing(spark: Any, queue: MessageQueue) -> None:
    for origin in ODD:
        queue.enqueue_messages(f"odd/{origin}", [bytes(range(256)), b"{{ x }}"], headers={"k": "{{ v }}"})
    queue.enqueue_messages("other", [b"o"])
    before = queue.footprints()

    rows = options(queue, spark.read, origins="odd/").load().collect()

    assert sorted((row.origin, bytes(row.payload), row.headers["k"]) for row in rows) == sorted(
        (f"odd/{origin}", payload, "{{ v }}") for origin in ODD for payload in (bytes(range(256)), b"{{ x }}")
    )
    assert queue.footprints() == before
    assert queue.blocks.list() == []


def test_what_is_empty_has_no_rows(spark: Any, queue: MessageQueue) -> None:
    assert options(queue, spark.read).load().collect() == []
    assert options(queue, spark.read, block=queue.blocks.plan().token).load().collect() == []


def test_a_schema_chooses_the_columns(spark: Any, queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"1", b"2"])
    reader = options(queue, spark.read.schema("payload binary, origin string, item int"))
    assert [tuple(row) for row in reader.load().collect()] == [(b"1", "a", 0), (b"2", "a", 1)]
    with pytest.raises(Exception, match="unknown column 'other': expected some of origin"):
        options(queue, spark.read.schema("other string")).load().collect()


def test_a_block_is_read_in_the_order_of_each_origin(spark: Any, queue: MessageQueue) -> None:
    for origin in ("a", "b", "c"):
        queue.enqueue_messages(origin, [b"%s %05d" % (origin.encode(), n) for n in range(3000)])
    block = queue.blocks.plan()
    frame = options(queue, spark.read, block=block.token, partitions="3").load()

    def in_order(batches: Any) -> Any:
        seen: dict[str, bytes] = {}
        for batch in batches:
            for origin, payload in zip(batch.column("origin").to_pylist(), batch.column("payload").to_pylist()):
                assert seen.get(origin, b"") < payload
                seen[origin] = payload
            yield batch.select(["item"])

    assert frame.rdd.getNumPartitions() == 3
    assert frame.mapInArrow(in_order, "item int").count() == 9000
    queue.blocks.settle(block)
    with pytest.raises(Exception, match="too late to process it"):
        options(queue, spark.read, block=block.token).load().collect()


def test_writing_enqueues_each_row_once(spark: Any, queue: MessageQueue) -> None:
    rows = [(f"t{n % 3}", b"{{ %d }}" % (n % 20), {"n": str(n % 2)}) for n in range(60)]
    frame = spark.createDataFrame(rows, "origin string, payload binary, headers map<string,string>").repartition(
        4, "payload"
    )

    for _ in range(2):
        options(queue, frame.write, job="run 1").mode("append").save()
    options(queue, frame.write, job="run 2").mode("append").save()

    sent = [peeked for origin in ("t0", "t1", "t2") for peeked in queue.inspect.peek(origin, limit=1000)]
    assert len(sent) == 120
    assert sorted((p.address.origin, p.payload, dict(p.headers)["n"]) for p in sent) == sorted(
        (origin, payload, said["n"]) for origin, payload, said in rows * 2
    )


def test_a_task_that_is_tried_again_enqueues_nothing_twice(
    spark: Any, queue: MessageQueue, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow_mq.spark.source import MessageQueueSource

    frame = spark.createDataFrame(
        [("a", f"text {n}", f"key-{n}" if n < 2 else None) for n in range(10)],
        "origin string, payload string, key string",
    )
    batch = frame.toArrow().to_batches()
    writer = _writer(MessageQueueSource, queue, frame.schema)

    told = [writer.write(iter(batch)) for _ in range(2)]
    writer.commit(told)
    writer.abort([None, *told])
    assert "finished tasks enqueued 10 messages, and failed ones maybe more" in caplog.text

    assert [(sent.count, sent.repeated) for sent in told] == [(10, 0), (0, 10)]
    assert queue.footprint("a").count == 10


def _writer(source: Any, queue: MessageQueue, schema: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_MQ_STORE", queue.store.address.uri)
        return source({"ring": queue.ring}).writer(schema, False)


@pytest.mark.parametrize(
    ("columns", "mode", "said"),
    [("origin string", "append", "origin and payload"), ("origin string, payload binary, x int", "append", "origin and payload"),
     ("origin string, payload binary", "overwrite", "never overwritten"),
     ("origin string, payload int", "append", r"type of column payload \(int\): expected binary"),
     ("origin string, payload binary, headers string", "append", r"type of column headers \(string\): expected map")],
)  # fmt: skip
def test_what_cannot_be_written(spark: Any, queue: MessageQueue, columns: str, mode: str, said: str) -> None:
    with pytest.raises(Exception, match=said):
        options(queue, spark.createDataFrame([], columns).write).mode(mode).save()


def test_options_that_are_not_known(spark: Any, queue: MessageQueue) -> None:
    for said in ({"url": "sqlite:///x"}, {"orgins": ""}, {"limit": "many"}, {"path": "/x"}):
        with pytest.raises(Exception, match="unknown option|whole number|no path"):
            options(queue, spark.read, **said).load().collect()


@pytest.mark.parametrize("option", ["origins", "limit", "block", "job", "priority"])
def test_a_stream_refuses_an_option_that_it_would_ignore(spark: Any, queue: MessageQueue, option: str) -> None:
    from airflow_mq.spark.source import MessageQueueSource

    value = {"limit": "1", "priority": "high"}.get(option, "acme/")
    source = MessageQueueSource({"ring": queue.ring, option: value})
    with pytest.raises(InvalidInput, match=f"unknown option '{option}' to stream .* one of ring, stream, lease, "):
        source.streamReader(spark.createDataFrame([], "payload binary").schema)


def test_a_stream_of_some_origins_services_none_of_the_others(spark: Any, queue: MessageQueue, tmp_path: Path) -> None:
    queue.enqueue_messages([("acme/a", b"1"), ("other", b"2")])
    frame = options(queue, spark.readStream, origins="acme/").load()
    query = frame.writeStream.foreachBatch(lambda rows, number: None).option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(Exception, match="unknown option 'origins' to stream"):
        query.trigger(availableNow=True).start().awaitTermination(120)
    assert queue.footprint("other").count == 1


def _stream(spark: Any, queue: MessageQueue, sink: Callable[[Any, int], None], folder: Path) -> Any:
    """Return the writer of a stream that services a queue into a sink."""
    reader = options(queue, spark.readStream, stream="s", lease="60").load()
    return reader.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / "c"))


def test_a_stream_serves_the_queue(
    spark: Any, make_ring: Callable[..., MessageQueue], session_store: str, tmp_path: Path
) -> None:
    queue = make_ring(session_store, f"ring-{secrets.token_hex(4)}", service_weight=Weight(40_000, 1 << 20))
    queue.enqueue_messages("a", [b"a%d" % n for n in range(50)])
    seen: list[bytes] = []
    batches: list[int] = []

    def sink(frame: Any, number: int) -> None:
        rows = frame.collect()
        batches.append(len(rows))
        seen.extend(bytes(row.payload) for row in rows)

    def start() -> Any:
        return _stream(spark, queue, sink, tmp_path).start()

    query = start()
    try:
        query.processAllAvailable()
        queue.enqueue_messages("b", [b"b%d" % n for n in range(50)])
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(seen) == sorted([b"a%d" % n for n in range(50)] + [b"b%d" % n for n in range(50)])

    queue.enqueue_messages("c", [b"c"])
    query = start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert seen.count(b"c") == 1
    assert len(seen) == 101
    assert all(footprint.count == 0 for _, footprint in queue.footprints())
    assert [b.state for b in queue.blocks.list() if b.messages].count("settled") == len([n for n in batches if n])


def test_a_run_on_a_schedule_settles_what_waited_when_it_began(
    spark: Any, make_ring: Callable[..., MessageQueue], session_store: str, tmp_path: Path
) -> None:
    queue = make_ring(session_store, f"ring-{secrets.token_hex(4)}", service_weight=Weight(4, 1 << 20))
    queue.enqueue_messages("a", [b"%d" % n for n in range(8)])
    seen: list[int] = []

    def sink(frame: Any, number: int) -> None:
        seen.extend(int(row.payload) for row in frame.collect())
        queue.enqueue_messages("a", [b"%d" % (100 + 4 * number + n) for n in range(4)])

    writer = _stream(spark, queue, sink, tmp_path)
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    assert sorted(seen) == list(range(8))
    assert not queue.blocks.list("planned")
    assert queue.footprint("a").count == 8  # of a sender that never pauses


@pytest.mark.parametrize("error", [Busy, StoreBusy, StoreUnreachable, CommitInDoubt])
def test_a_stream_waits_for_its_ring(
    make_ring: Callable[..., MessageQueue],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Any,
) -> None:
    from airflow_mq.spark import source

    queue = make_ring()
    queue.enqueue_message("a", b"x")
    monkeypatch.setenv("AIRFLOW_MQ_STORE", queue.store.address.uri)
    monkeypatch.setattr(source, "time", SimpleNamespace(sleep=lambda seconds: None))
    stream = source.BlockStream(source.Options({"ring": queue.ring}), ["payload"])
    start, plan = stream.initialOffset(), stream.queue.blocks.plan

    def planned_and_lost(*args: Any, **how: Any) -> Any:
        if error is CommitInDoubt:
            plan(*args, **how)
        raise error("the ring is in use")

    try:
        monkeypatch.setattr(stream.queue.blocks, "plan", planned_and_lost)
        assert [stream.latestOffset(start) for _ in range(2)] == [start, start]
        assert caplog.text.count("no micro-batch could be planned (the ring is in use); trying again") == 2
        stream.prepareForTriggerAvailableNow()
        with pytest.raises(error):
            stream.latestOffset(start)
        monkeypatch.undo()
        monkeypatch.setenv("AIRFLOW_MQ_STORE", queue.store.address.uri)
        end = stream.latestOffset(start)
        assert (end["batch"], len(stream.partitions(start, end))) == (1, 1)
        stream.commit(end)
    finally:
        stream.stop()
    assert queue.footprint("a").count == 0


def test_a_stream_with_a_wrong_address_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_mq.spark import source, store_side

    monkeypatch.setenv("AIRFLOW_MQ_STORE", "postgresql://queue@127.0.0.1:1/queue?connect_timeout=2")
    monkeypatch.setattr(store_side, "patiently", lambda call: call())
    monkeypatch.setattr(source, "patiently", lambda call: call())
    stream = source.BlockStream(source.Options({}), ["payload"])
    with pytest.raises(StoreUnreachable):
        stream.latestOffset(stream.initialOffset())


def test_a_stream_connects_with_one_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_mq.spark import source

    tries: list[int] = []

    def connect(self: Any) -> Any:
        tries.append(1)
        if len(tries) > 2:
            raise AssertionError("connecting is patient itself")
        raise StoreUnreachable("no route")

    monkeypatch.setenv("AIRFLOW_MQ_STORE", "sqlite:///none.db")
    monkeypatch.setattr(source.StoreChannel, "connect", connect)
    stream = source.BlockStream(source.Options({}), ["payload"])
    with pytest.raises(StoreUnreachable):
        stream.prepareForTriggerAvailableNow()
    with pytest.raises(StoreUnreachable):
        stream.latestOffset(stream.initialOffset())


def test_a_stream_keeps_its_lease_while_it_cannot_report(
    make_ring: Callable[..., MessageQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_mq.spark import source

    queue = make_ring()
    queue.enqueue_message("a", b"x")
    monkeypatch.setenv("AIRFLOW_MQ_STORE", queue.store.address.uri)
    monkeypatch.setattr(source, "patiently", lambda call: call())
    stream = source.BlockStream(source.Options({"ring": queue.ring, "lease": "1"}), ["payload"])

    def fail(*reported: Any) -> Any:
        time.sleep(2)
        raise StoreUnreachable("no route")

    try:
        end = stream.latestOffset(stream.initialOffset())
        report = stream.queue.blocks.report
        monkeypatch.setattr(stream.queue.blocks, "report", fail)
        assert stream.latestOffset(end) == end
        assert queue.blocks.release_dead() == 0
        monkeypatch.setattr(stream.queue.blocks, "report", report)
        assert stream.latestOffset(end) == end
        assert stream._keeper is None and queue.footprint("a").count == 0
    finally:
        stream.stop()


def test_a_lease_is_a_duration_as_everywhere() -> None:
    from airflow_mq.spark.source import Options

    assert [Options({"lease": text}).lease for text in ("15m", "900", "0.5", "")] == [900, 900, 0.5, None]
    for text in ("soon", "nan", "-1"):
        with pytest.raises(InvalidInput, match=f"invalid option lease '{text}': expected seconds from 0 to 1e9, or a"):
            Options({"lease": text})
