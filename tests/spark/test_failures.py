"""Failures of processors of parts: payloads stay out of events, logs, and the lines of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mq import Batch, Done, MessageQueue, Part, Processor, Processors, batch_processor
from airflow_mq.errors import InvalidOutcome, ProcessorError
from airflow_mq.failures import VARIABLE
from airflow_mq.spark.cause import reason_of_worker
from airflow_mq.spark.driver import RemoteSpark
from airflow_mq.spark.exchange import FolderChannel, hand_over
from airflow_mq.spark.frames import Shares, run_frames
from airflow_mq.spark.share import run_share
from airflow_mq.spark.store_side import StoreChannel, StoreSide, run_in_place, tasks_of, terms_of
from airflow_mq.spark.tables import answers_in, read_outcome
from tests.spark.conftest import ROOT

MakeRing = Callable[..., MessageQueue]
CANARY = "canary-7319"
PAYLOAD = f"int() chokes on {CANARY}".encode()


def leaky(payload: bytes, origin: str) -> None:
    int(payload)


def vouched(payload: bytes, origin: str) -> None:
    raise ProcessorError("customer 17 is not known")


@batch_processor
def leaky_batch(batch: Batch) -> Sequence[Any]:
    raise KeyError(batch.payloads[0])


def leaky_arrow(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        raise ValueError(batch.column("payload").to_pylist())
    yield


def odd_arrow(batches: Iterable[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        columns = [batch.column(name) for name in ("origin", "priority", "page", "item")]
        said = pa.array([payload.decode() for payload in batch.column("payload").to_pylist()])
        yield pa.RecordBatch.from_arrays([*columns, said], ["origin", "priority", "page", "item", "outcome"])


def short_arrow(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        yield batch.select(["origin", "priority", "payload"])


def leaky_frame(messages: Any) -> None:
    int(PAYLOAD)


def quiet_frame(messages: Any) -> None:
    """All are done."""


def leaky_udf(messages: Any) -> Any:
    from pyspark.sql import functions as f

    number = f.udf(lambda payload: str(int(payload)))
    return messages.select("origin", "priority", "page", "item", number("payload").alias("outcome"))


def frame_without_outcomes(messages: Any) -> Any:
    return messages.select("origin", "priority", "page", "item")


def routes_of(name: str, shape: str = "message") -> tuple[Processors, Part]:
    routes = Processors([Processor("all", f"tests.spark.test_failures:{name}", shape=shape)])
    return routes, Part(name="all", processors=["all"], part=0, parts=1, messages=0, where="spark")


def reasons(queue: MessageQueue) -> list[str]:
    return [event.why for event in queue.inspect.events() if event.name == "Returned"]


CASES = [
    ("leaky", "message", "ValueError"),
    ("vouched", "message", "ProcessorError: customer 17 is not known"),
    ("leaky_batch", "message", "KeyError"),
    ("leaky_arrow", "arrow", "ValueError"),
    ("odd_arrow", "arrow", "unknown outcome: expected done, "),
    ("short_arrow", "arrow", "InvalidOutcome: outcomes need the columns origin, priority, page, item, outcome; page, "),
]


@pytest.mark.parametrize("careful", [False, True], ids=["here", "in a child"])
@pytest.mark.parametrize(("name", "shape", "reason"), CASES)
def test_an_event_keeps_the_type_of_an_error_and_only_safe_text(
    make_ring: MakeRing, caplog: pytest.LogCaptureFixture, name: str, shape: str, reason: str, careful: bool
) -> None:
    queue = make_ring(ordered=False)
    queue.enqueue_messages("a", [PAYLOAD] * 3)
    routes, part = routes_of(name, shape)
    block = queue.blocks.plan()
    terms = terms_of(queue, block)
    (task,) = tasks_of(block, terms, routes, part, 1)

    run_share(task.processor, StoreSide(queue, block.token, task.share), terms, careful=careful)
    queue.blocks.settle(block)

    assert [why[: len(reason)] for why in reasons(queue)] == [reason] * 3
    assert CANARY not in caplog.text + str(reasons(queue))


def test_a_log_shows_the_text_where_that_is_allowed(
    make_ring: MakeRing, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_ring()
    queue.enqueue_message("a", PAYLOAD)
    monkeypatch.setenv(VARIABLE, "1")
    routes, part = routes_of("leaky")
    block = queue.blocks.plan()

    run_in_place(queue, block.token, routes, part)
    queue.blocks.settle(block)

    assert CANARY in caplog.text
    assert reasons(queue) == ["ValueError"]


def test_executors_hear_what_is_allowed(make_ring: MakeRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = make_ring()
    queue.enqueue_message("a", PAYLOAD)
    routes, part = routes_of("leaky")
    assert not terms_of(queue, queue.blocks.plan("k")).log_texts
    monkeypatch.setenv(VARIABLE, "1")
    folder = hand_over(queue, queue.blocks.plan("k").token, routes, part, str(tmp_path / "exchange"))
    monkeypatch.delenv(VARIABLE)
    assert FolderChannel(folder).terms().log_texts


class Frame:
    """As much of a DataFrame, and of a session, as a function that fails at once looks at."""

    def range(self, *_: Any) -> Frame:
        return self

    mapInArrow = range


def test_a_dataframe_that_fails_is_named_by_its_type(make_ring: MakeRing, caplog: pytest.LogCaptureFixture) -> None:
    queue = make_ring()
    queue.enqueue_message("a", PAYLOAD)
    routes, part = routes_of("leaky_frame", "dataframe")
    block = queue.blocks.plan()
    terms = terms_of(queue, block)
    tasks = tasks_of(block, terms, routes, part, 1)
    side = partial(StoreSide, queue, block.token)
    channel = SimpleNamespace(open=lambda share, epoch=0: nullcontext(side(share, epoch)), epoch=lambda shares: 0)

    with pytest.raises(ProcessorError, match="processor 'all' failed on its DataFrame: ValueError") as told:
        run_frames(Frame(), channel, tasks, terms, part, lambda _: True)

    assert CANARY not in caplog.text + str(told.value)
    assert "in leaky_frame" in caplog.text


class Local:
    """A session, and a DataFrame, in this process."""

    def __init__(self, batches: Sequence[Any] = ()) -> None:
        self.batches = batches

    def range(self, _: int, stop: int, *how: int) -> Local:
        import pyarrow as pa

        return Local([pa.RecordBatch.from_pydict({"id": list(range(stop))})])

    def mapInArrow(self, call: Any, _: str) -> Local:
        return Local(list(call(self.batches)))

    def collect(self) -> list[Any]:
        return [SimpleNamespace(**row) for batch in self.batches for row in batch.to_pylist()]


@pytest.mark.parametrize("continues", [True, False])
def test_a_dataframe_that_fails_stops_no_other_of_its_job(make_ring: MakeRing, continues: bool) -> None:
    """Messages of the others are done, unless Spark has ended, such as a Spark Connect server."""

    def setting(name: str, default: object) -> None:
        if not continues:
            raise ConnectionError("the server does not answer")

    queue = make_ring()
    queue.enqueue_messages([("acme", PAYLOAD), ("birch", PAYLOAD)])
    names = {"bad": "leaky_frame", "good": "quiet_frame"}
    routes = Processors(
        Processor(name, f"tests.spark.test_failures:{function}", (origin,), shape="dataframe")
        for (name, function), origin in zip(names.items(), ("acme", "birch"))
    )
    part = Part(name="all", processors=list(names), part=0, parts=1, messages=0, where="spark")
    block = queue.blocks.plan(reports_begin=True)
    terms, channel = terms_of(queue, block), StoreChannel(queue.store.address.uri, queue.ring, block.token)
    spark: Any = RemoteSpark(part)
    spark._session = Local()
    spark._session.conf = SimpleNamespace(get=setting)

    with pytest.raises(ProcessorError, match="processor 'bad' failed on its DataFrame: ValueError$"):
        spark.run(channel, tasks_of(block, terms, routes, part, 1), terms, False)

    assert queue.blocks.settle(block).processed == continues
    assert reasons(queue) == ["no outcome", *(["not tried: no worker began it"] if not continues else [])]


STORE_GONE = "store not found: there is no file /q.db"


@pytest.mark.parametrize(
    ("last_line", "reason"),
    [
        (f"ValueError: {CANARY}\nFooError: {CANARY}", "ValueError"),
        (f"shop.errors.InvalidOutcome: {CANARY}", "InvalidOutcome"),
        ("airflow_mq.engine.rules.errors.InvalidOutcome: outcome is missing", "InvalidOutcome: outcome is missing"),
        (f"airflow_mq.engine.rules.errors.StoreMissing: {STORE_GONE}", f"StoreMissing: {STORE_GONE}"),
        (f"airflow_mq.engine.rules.errors.InvalidInput: {CANARY}", "InvalidInput"),
        ("airflow_mq.engine.rules.errors.StoreBusy", "StoreBusy"),
        (None, "a Python worker died"),
    ],
)
def test_a_failed_dataframe_names_the_error_in_its_worker(last_line: str | None, reason: str) -> None:
    trace = f'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    int("{CANARY}")\n'
    died = "SparkException: Python worker exited unexpectedly (crashed)."
    text = died if last_line is None else f"An exception was thrown from the Python worker:\n{trace}{last_line}\n"
    assert reason_of_worker(RuntimeError(text)) == reason


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("leaky_udf", "ValueError$"),
        ("frame_without_outcomes", "InvalidOutcome: outcomes need the columns .*; outcome is missing$"),
        (
            "unreached",
            "StoreMissing: store not found: .* Executors need access to this store, or the block an `exchange`$",
        ),
    ],
)
def test_a_dataframe_that_fails_on_an_executor_names_the_error(
    spark: Any, session_store: str, make_ring: MakeRing, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    queue = make_ring(session_store, f"failing-{name}")
    queue.enqueue_message("a", PAYLOAD)
    routes, part = routes_of("leaky_udf" if name == "unreached" else name, "dataframe")
    block = queue.blocks.plan()
    terms, channel = terms_of(queue, block), StoreChannel(session_store, queue.ring, block.token)
    tasks = tasks_of(block, terms, routes, part, 1)
    if name == "unreached":
        monkeypatch.setattr(Shares, "begin", lambda shares: None)
        channel = replace(channel, uri="sqlite:////no/such/folder/store.db")

    with pytest.raises(ProcessorError, match=f"^processor 'all' failed on its DataFrame: {reason}"):
        run_frames(spark, channel, tasks, terms, part, lambda _: True)


@pytest.mark.spark
@pytest.mark.slow
def test_the_documented_dataframe_rejects_what_is_no_number(spark: Any) -> None:
    page = (ROOT / "docs" / "processing.md").read_text()
    names: dict[str, Any] = {}
    exec(page[page.index("def totals(df)") :].partition("```")[0], names)  # noqa: S102 (an example of ours)
    rows = [("a", "regular", 0, 0, b"1.5"), ("a", "regular", 0, 1, b"many")]
    frame = spark.createDataFrame(rows, "origin STRING, priority STRING, page BIGINT, item INT, payload BINARY")
    assert [row.outcome for row in names["totals"](frame).collect()] == [None, "bad"]


@pytest.mark.parametrize(
    ("name", "values"), [("page", [0, None]), ("origin", ["a", None]), ("item", [0.5, 1.0]), ("priority", [[1], [2]])]
)
def test_a_row_without_its_place_names_the_column(name: str, values: list[Any]) -> None:
    import pyarrow as pa

    rows = {"origin": ["a", "a"], "priority": ["regular"] * 2, "page": [0, 0], "item": [0, 1], "outcome": ["done"] * 2}
    with pytest.raises(InvalidOutcome, match=f"invalid column {name} of outcomes"):
        list(answers_in(pa.RecordBatch.from_pydict({**rows, name: values})))


def test_a_place_may_have_become_a_float() -> None:
    import pyarrow as pa

    rows = {"origin": ["a"], "priority": ["regular"], "page": [3.0], "item": [1.0], "outcome": ["done"]}
    ((place, _),) = answers_in(pa.RecordBatch.from_pydict(rows))
    assert place == ("a", 3, 1) and [type(number) for number in place[1:]] == [int, int]


@pytest.mark.parametrize(
    ("time", "name"), [(float("nan"), "done"), (-1.0, "done"), (1e30, "failed"), (-5.0, "overweight")]
)
def test_a_row_with_an_invalid_weight_costs_its_message_alone(make_ring: MakeRing, time: float, name: str) -> None:
    """A weight may be computed from a payload: other tenants' messages must not fail with it."""
    import pyarrow as pa

    queue = make_ring()
    queue.enqueue_messages([("a", b"odd"), ("b", b"fine")])
    routes, part = routes_of("leaky_frame", "dataframe")
    block = queue.blocks.plan(reports_begin=True)
    terms, side = terms_of(queue, block), partial(StoreSide, queue, block.token)
    shares = [task.share for task in tasks_of(block, terms, routes, part, 1)]
    channel: Any = SimpleNamespace(open=lambda share, epoch: nullcontext(side(share, epoch)), epoch=lambda shares: 0)
    rows = [
        {"origin": origin, "priority": "regular", "page": 0, "item": 0, "outcome": outcome, "time": given}
        for origin, outcome, given in [("a", name, time), ("b", "done", 7.0)]
    ]

    outcomes = Shares(channel, shares, terms)
    outcomes.begin()
    list(outcomes.report_outcomes([pa.RecordBatch.from_pylist(rows)]))
    settled = queue.blocks.settle(block)

    assert (settled.processed, settled.returned) == (1, 1)
    assert reasons(queue) == ["invalid time or size of an outcome: expected integers or doubles from 0, or null"]


def test_only_null_is_an_outcome_without_a_word() -> None:
    assert read_outcome(None) == Done() and read_outcome("") == read_outcome("odd") != Done()
