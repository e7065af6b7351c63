"""A job on a Spark Connect server that is warm: no JVM is started for it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from airflow_mq import MessageQueue, Processor
from airflow_mq.spark import job, local
from airflow_mq.spark.java import spark_environment
from tests.spark.conftest import ROOT, free_port, job_environment, processors, run_job
from tests.spark.watching import eventually

MakeRing = Callable[..., MessageQueue]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    port = free_port()
    conf = {**local.local_conf(), "spark.connect.grpc.binding.port": str(port),
            "spark.connect.grpc.binding.address": "127.0.0.1"}  # fmt: skip
    said = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    log = tmp_path / "connect.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            ["spark-submit", "--master", "local[2]", *said, "--class",
             "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"],
            env={**os.environ, **spark_environment(), "PYTHONPATH": str(ROOT)}, stdout=stream,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def listens() -> bool:
        assert process.poll() is None, log.read_text()
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    family: list[psutil.Process] = []
    try:
        eventually(listens, 90)
        yield f"sc://127.0.0.1:{port}"
        family = psutil.Process(process.pid).children(recursive=True)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)
        for one in psutil.wait_procs(family, timeout=10)[1]:
            one.kill()


@pytest.mark.spark
@pytest.mark.slow
def test_a_job_on_a_warm_server(server: str, make_ring: MakeRing, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'store.db'}"
    queue = make_ring(uri)
    queue.enqueue_messages("a", [b"1", b"poison", b"2"])
    queue.enqueue_messages("b", [b"1", b"die", b"2"])
    queue.enqueue_messages("{{ c }}", [b"bad", b"used"])
    queue.enqueue_messages("arrow", [b"1", b"bad"])
    queue.enqueue_messages("frame", [b"1", b"bad"])
    routes = processors(
        Processor("arrow", "tests.spark.functions:arrow", ("arrow",), "arrow"),
        Processor("frame", "tests.spark.functions:frame", ("frame",), "dataframe"),
    )
    block = queue.plan_block()
    words = ["--ring", "test", "--routes", routes.routes_json(), "--processors", "arrow,frame,all"]

    code, said = run_job([sys.executable, job.__file__, *words], job_environment(uri, block.token, SPARK_REMOTE=server))

    assert code == 0, said
    settled = queue.settle_block(block)
    assert (settled.processed, settled.failed, settled.went_back) == (5, 3, 4)
    assert [(p.payload, p.attempts) for p in queue.peek("b")] == [(b"die", 1), (b"2", 0)]
