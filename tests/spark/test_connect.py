"""A job on a Spark Connect server that is warm: no JVM is started for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from airflow_mq import MessageQueue, Processor, Processors
from airflow_mq.spark import job
from tests.spark.conftest import job_environment, processors, run_job
from tests.spark.connecting import connect_server

MakeRing = Callable[..., MessageQueue]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("server")) as port:
        yield f"sc://127.0.0.1:{port}"


@pytest.mark.sqlite_first
@pytest.mark.spark
@pytest.mark.slow
def test_a_job_on_a_warm_server(server: str, either_store: str, make_ring: MakeRing) -> None:
    queue = make_ring(either_store)
    queue.enqueue_messages("a", [b"1", b"poison", b"2"])
    queue.enqueue_messages("b", [b"1", b"die", b"2"])
    queue.enqueue_messages("{{ c }}", [b"bad", b"used"])
    queue.enqueue_messages("arrow", [b"1", b"bad"])
    queue.enqueue_messages("frame", [b"1", b"bad"])
    queue.admin.set_origin("relaxed", ordered=False)
    queue.enqueue_messages("relaxed", [b"later", b"1", b"2"])
    routes = processors(
        Processor("arrow", "tests.spark.functions:arrow", ("arrow",), "arrow"),
        Processor("frame", "tests.spark.functions:frame", ("frame",), "dataframe"),
    )
    block = queue.blocks.plan()
    words = ["--ring", "test", "--routes", routes.routes_json(), "--processors", "arrow,frame,all"]

    code, said = run_job(
        [sys.executable, job.__file__, *words], job_environment(either_store, block.token, SPARK_REMOTE=server)
    )

    assert code == 0, said
    settled = queue.blocks.settle(block)
    assert (settled.processed, settled.failed, settled.returned) == (7, 3, 5)
    assert [p.payload for p in queue.inspect.peek("relaxed")] == [b"later"]
    assert [(p.payload, p.attempts) for p in queue.inspect.peek("b")] == [(b"die", 1), (b"2", 0)]


@pytest.mark.spark
@pytest.mark.slow
def test_a_session_that_ended_costs_the_next_processor_no_attempt(server: str, make_ring: MakeRing) -> None:
    queue = make_ring()
    queue.enqueue_messages([("ending", b"1"), ("frame", b"2")])
    routes = Processors(
        Processor(name, f"tests.spark.functions:{name}", (name,), "dataframe") for name in ("ending", "frame")
    )
    block = queue.blocks.plan(reports_begin=True)
    words = ["--ring", queue.ring, "--routes", routes.routes_json(), "--processors", "ending,frame"]
    environment = job_environment(queue.store.address.uri, block.token, SPARK_REMOTE=server)

    code, said = run_job([sys.executable, job.__file__, *words], environment)

    assert code == 1 and "processor 'ending' failed on its DataFrame" in said, said
    queue.blocks.settle(block)
    whys = {event.origin: event.why for event in queue.inspect.events(name="Returned")}
    assert whys == {"ending": "no outcome", "frame": "not tried: no worker began it"}
