"""A queue to process from, Spark sessions and jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from airflow_mq import MessageQueue, Part, Processor, Processors, RingConfig
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.spark import job
from airflow_mq.spark.java import spark_environment

ROOT = Path(__file__).resolve().parents[2]
#: What no cluster needs for a test, and what keeps it quick.
QUICK = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.ui.showConsoleProgress": "false",
}


def processors(*more: Processor, function: str = "process", **how: Any) -> Processors:
    """One processor for everything, behind these."""
    return Processors([*more, Processor("all", f"tests.spark.functions:{function}", **how)])


def whole(routes: Processors) -> Part:
    """A part that is everything."""
    return Part(name="all", processors=[one.name for one in routes], part=0, parts=1, messages=0, where="spark")


@pytest.fixture
def make_ring(tmp_path: Path) -> Iterator[Callable[..., MessageQueue]]:
    """Opens rings of stores, and looks them over at the end."""
    opened: list[MessageQueue] = []

    def make(uri: str | None = None, ring: str = "test", **settings: Any) -> MessageQueue:
        address = uri or f"sqlite:///{tmp_path / 'store.db'}"
        upgrade(parse(address))
        with MessageQueue(address) as first:
            if ring not in first.admin.rings():
                first.admin.create_ring(ring, RingConfig(**settings))
        opened.append(MessageQueue(address, ring))
        return opened[-1]

    yield make
    for queue in opened:
        assert queue.check() == []
        queue.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def either_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh store on either database; asked for before a ring in it is."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'either.db'}"
    uri: str = request.getfixturevalue("pg_uri")
    return uri


@pytest.fixture
def tried_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where processors write what they tried."""
    folder = tmp_path / "tried"
    folder.mkdir()
    monkeypatch.setenv("AIRFLOW_MQ_TEST_TRIED", str(folder))
    return folder


def job_environment(uri: str, token: str, **more: str) -> dict[str, str]:
    """The environment of a job, as its operator makes it."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_MQ_S")}
    return {
        **plain, **spark_environment(), "PYTHONPATH": str(ROOT), "AIRFLOW_MQ_STORE": uri, "AIRFLOW_MQ_BLOCK": token,
        **more,
    }  # fmt: skip


def job_command(routes: Processors, *arguments: str, master: str = "local[2]", **conf: str) -> list[str]:
    """The command of a job, as the provider's hook makes it."""
    said = [word for name, value in {**QUICK, **conf}.items() for word in ("--conf", f"{name}={value}")]
    return [
        "spark-submit", "--master", master, *said, job.__file__, "--ring", "test", "--routes", routes.routes_json(),
        "--processors", ",".join(one.name for one in routes), "--part", "0", "--parts", "1", *arguments,
    ]  # fmt: skip


def run_job(command: list[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Run a job to its end; return its exit code and its output."""
    ran = subprocess.run(
        command,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    return ran.returncode, ran.stdout


@pytest.fixture(scope="session")
def session_store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The store of the shared session: its address has to be in the environment before the JVM starts."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('session') / 'store.db'}"
    upgrade(parse(uri))
    return uri


@pytest.fixture(scope="session")
def spark(session_store: str) -> Iterator[Any]:
    """One session for all tests of a process that need no more."""
    from airflow_mq.spark.source import register

    before = dict(os.environ)
    os.environ.update(spark_environment(), AIRFLOW_MQ_STORE=session_store, PYTHONPATH=str(ROOT))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").appName("tests")
        for name, value in QUICK.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        register(session)
    finally:
        os.environ.clear()
        os.environ.update(before)
    yield session
    session.stop()
