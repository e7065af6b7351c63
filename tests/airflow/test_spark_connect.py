"""Jobs on a Spark Connect server: started without a JVM, their token in no place that others can read."""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from airflow_mq import MessageQueue
from airflow_mq.processors import Processor, Processors
from tests.airflow.stage import CONN_ID, Airflow, Run, fill
from tests.spark.connecting import connect_server
from tests.waiting import eventually

pytestmark = pytest.mark.airflow

TOKEN = "a/token+of=ours;x"
PAYLOAD = "the words of a message"
PROCESSORS = Processors([Processor("all", "tests.spark.functions:process", spark={"driver_memory": "1g"})])


class Lines:
    """A log that remembers."""

    def __init__(self) -> None:
        self.text = ""

    def info(self, text: str, *words: Any, **_: Any) -> None:
        self.text += text % words + "\n"

    warning = error = debug = exception = info


@pytest.fixture
def run() -> Run:
    return Airflow().run()


def connect(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Make the connection `spark_stage`."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_STAGE", json.dumps({"conn_type": "spark_connect", **fields}))


def job(run: Run, monkeypatch: pytest.MonkeyPatch, **kwargs: Any) -> tuple[Any, Lines]:
    """The operator of the first part, and its log."""
    from airflow_mq.operators.blocks import ProcessMessagesOperator

    lines = Lines()
    monkeypatch.setattr(ProcessMessagesOperator, "log", lines)
    operator = ProcessMessagesOperator(
        task_id="process", part=run.xcoms["plan", "return_value"][0], processors=PROCESSORS, mq_conn_id=CONN_ID,
        spark_conn_id="spark_stage", **kwargs,
    )  # fmt: skip
    return operator, lines


# -- which server --


def named(conn_type: str, host: str | None, port: int | None = None, **more: Any) -> Any:
    """A connection as Airflow has it."""
    fields = {"login": None, "password": None, "extra_dejson": {}, **more}
    return SimpleNamespace(conn_type=conn_type, host=host, port=port, **fields)


@pytest.mark.parametrize(
    ("connection", "address"),
    [
        (named("spark_connect", "spark", 15002), "sc://spark:15002"),
        (named("spark_connect", "spark"), "sc://spark"),
        (named("spark_connect", "sc://spark:15003/"), "sc://spark:15003"),
        (named("spark", "sc://spark", 15002), "sc://spark:15002"),
        (named("sc", "spark", 15002), "sc://spark:15002"),
        (named("spark", "sc://[::1]:15002"), "sc://[::1]:15002"),
        (
            named("spark_connect", "spark", 1, login="a b", password="p", extra_dejson={"use_ssl": True}),
            "sc://spark:1/;user_id=a%20b;use_ssl=true",
        ),
        (named("spark", "local[*]"), None),
        (named("spark", "spark://spark", 7077), None),
        (named("yarn", None), None),
    ],
)
def test_a_connection_names_a_server_or_none(connection: Any, address: str | None) -> None:
    from airflow_mq.operators.spark.connect import server_of

    server = server_of(connection, "x")

    assert (server and server.address) == address
    if server and connection.password:
        assert server.environment["SPARK_CONNECT_AUTHENTICATE_TOKEN"] == connection.password
        assert connection.password not in repr(server).replace("spark", "")


@pytest.mark.parametrize("host", ["", "sc://h/;token=secret", "sc://u:secret@h", "http://secret", "sc://h:port"])
def test_what_is_no_server_is_refused_and_not_shown(host: str) -> None:
    from airflow_mq.operators.spark.connect import server_of

    with pytest.raises(Exception, match="host of the Spark connection 'x'") as caught:
        server_of(named("spark_connect", host), "x")

    assert "secret" not in str(caught.value)


# -- its environment and command line --


class Started:
    """Processes that were started in place of a client."""

    pid = 0

    def __init__(self, code: int = 0) -> None:
        self.code, self.argv, self.env = code, [""], {"": ""}

    def __call__(self, argv: list[str], env: dict[str, str], **_: Any) -> Started:
        self.argv, self.env = argv, env
        own = f"airflow_mq: failed: {TOKEN} [{env.get('AIRFLOW_MQ_MARK')}]\n"
        self.stdout = iter(["one line\n", f"and {TOKEN}\n", own, f"{PAYLOAD}\n", f"airflow_mq: failed: {PAYLOAD}\n"])
        return self

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None: ...

    def wait(self) -> int:
        return self.code

    poll = wait


def started(monkeypatch: pytest.MonkeyPatch, code: int = 0) -> Started:
    from airflow_mq.operators.blocks import process
    from airflow_mq.operators.spark import connect

    made = Started(code)
    # Nothing is started, so nothing answers.
    monkeypatch.setattr(process, "require_server", lambda address, conn_id: None)
    monkeypatch.setattr(connect.subprocess, "Popen", made)
    return made


def test_secrets_travel_by_environment_alone(
    sqlite_queue: MessageQueue, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = started(monkeypatch)
    connect(monkeypatch, host="spark", port=15002, password=TOKEN)
    monkeypatch.setenv("MASTER", "local")
    fill(sqlite_queue, {"{{ 1/0 }}": [b"x"]})
    run.plan(PROCESSORS)
    operator, log = job(run, monkeypatch, lease=60)

    run.execute(operator, 0)

    assert child.argv[0] == sys.executable and child.argv[1].endswith("airflow_mq/spark/job.py")
    assert child.argv[2:] == [
        "--ring", "default", "--routes", PROCESSORS.routes_json(), "--processors", "all", "--part", "0", "--parts", "1",
        "--lease", "60",
    ]  # fmt: skip
    block = run.xcoms["plan", "block"]["token"]
    assert child.env["SPARK_REMOTE"] == "sc://spark:15002" and "MASTER" not in child.env
    assert child.env["SPARK_CONNECT_AUTHENTICATE_TOKEN"] == TOKEN
    assert child.env["AIRFLOW_MQ_BLOCK"] == block and "store.db" in child.env["AIRFLOW_MQ_STORE"]
    shown = log.text + json.dumps([getattr(operator, field) for field in operator.template_fields], default=str)
    assert "one line\nand ***\n" in shown and "ignored here: driver_memory" in shown
    assert TOKEN not in shown and block not in shown
    run.settle()


def test_through_the_exchange_a_client_knows_neither_address_nor_token(
    sqlite_queue: MessageQueue, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    child = started(monkeypatch)
    connect(monkeypatch, host="spark")
    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)

    run.execute(job(run, monkeypatch, exchange=str(tmp_path / "exchange"))[0], 0)

    assert "--exchange" in child.argv and {name for name in child.env if name.startswith("AIRFLOW_MQ_")} == {
        "AIRFLOW_MQ_MARK"
    }
    run.settle()


def test_a_client_that_was_killed_names_the_signal() -> None:
    from airflow_mq.operators.spark.connect import ConnectClient
    from airflow_mq.operators.spark.job_listener import JobListener

    client = ConnectClient(["-c", "import os; os.kill(os.getpid(), 9)"], {}, logging.getLogger())
    with pytest.raises(Exception, match=r"the job ended with -9: it was ended by signal 9 \(Killed\)"):
        client.run(JobListener(lambda known: None))


@pytest.mark.parametrize(("code", "says"), [(75, "came too late"), (1, r"ended with 1: \*\*\*$")])
def test_a_job_that_fails_fails_its_task(
    sqlite_queue: MessageQueue, run: Run, monkeypatch: pytest.MonkeyPatch, code: int, says: str
) -> None:
    started(monkeypatch, code)
    connect(monkeypatch, host="spark", password=TOKEN)
    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)

    with pytest.raises(Exception, match=says) as caught:
        run.execute(job(run, monkeypatch)[0], 0)

    assert (type(caught.value).__name__ == "AirflowFailException") is (code == 75)
    assert TOKEN not in str(caught.value)
    # What a processor prints may be a payload.
    assert PAYLOAD not in str(caught.value)
    with pytest.raises(Exception, match=r"^all \(process_0\) failed"):
        run.settle()


def test_a_server_that_does_not_answer_fails_before_a_client_is_started(
    sqlite_queue: MessageQueue, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        connect(monkeypatch, host="127.0.0.1", port=port, login="user", password=TOKEN)
        told = f"^the Spark Connect server 'sc://127.0.0.1:{port}' is not reachable .*refused.*connection 'spark_stage'"
        with pytest.raises(Exception, match=told):
            run.execute(job(run, monkeypatch)[0], 0)
    with pytest.raises(Exception, match=r"^all \(process_0\) failed"):
        run.settle()
    assert f"sc://127.0.0.1:{port}" in sqlite_queue.inspect.explain("a").sentence


# -- for real --


@pytest.fixture
def tried(tmp_path: Path) -> Path:
    folder = tmp_path / "tried"
    folder.mkdir()
    return folder


@pytest.fixture
def server(tmp_path: Path, tried: Path) -> Iterator[int]:
    asks = {"SPARK_CONNECT_AUTHENTICATE_TOKEN": TOKEN, "AIRFLOW_MQ_TEST_TRIED": str(tried)}
    with connect_server(tmp_path, **asks) as port:
        yield port


@pytest.mark.spark
@pytest.mark.slow
def test_a_block_on_a_warm_server(
    server: int, tried: Path, sqlite_queue: MessageQueue, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(sqlite_queue, {"a": [b"1", b"poison", b"2"], "b": [b"bad"]})
    run.plan(PROCESSORS)
    connect(monkeypatch, host="localhost", port=server, password="another")
    with pytest.raises(Exception, match="the job ended with 1"):
        run.execute(job(run, monkeypatch)[0], 0)

    # A retry, with the token that the server asks for.
    connect(monkeypatch, host="localhost", port=server, password=TOKEN)
    operator, log = job(run, monkeypatch)
    run.execute(operator, 0)
    settled = run.settle()

    assert (settled["processed"], settled["failed"], settled["returned"]) == (1, 1, 2)
    assert "4 messages in" in log.text and "airflow_mq: all: " in log.text
    assert TOKEN not in log.text
    # The server's, whose jobs all are one application.
    assert run.xcoms["process", "spark_job"]["id"].startswith("local-")

    # By files, which the workers of the server read and write.
    exchange = str(tried.parent / "exchange")
    run.plan(PROCESSORS)
    run.execute(job(run, monkeypatch, exchange=exchange)[0], 0)
    assert run.settle(exchange=exchange)["returned"] == 2

    # A terminated task ends its client, and the server's work with it.
    fill(sqlite_queue, {"slow": [b"slow 1"] * 100})
    run.plan(PROCESSORS)
    operator, _ = job(run, monkeypatch)
    errors: list[Exception] = []
    thread = threading.Thread(target=lambda: errors.extend(_raised(run, operator)))
    thread.start()
    eventually(lambda: "slow" in _said(tried), 180)
    clients = [one for one in psutil.Process().children() if "job.py" in _words(one)]
    operator.on_kill()
    thread.join(180)

    assert errors and len(clients) == 1 and not clients[0].is_running()
    # Left alone, the server would go on for 100 seconds, a message each.
    eventually(lambda: _is_still(tried), 180)
    with pytest.raises(Exception, match=r"^all \(process_0\) failed"):
        run.settle()


def _raised(run: Run, operator: Any) -> Iterator[Exception]:
    try:
        run.execute(operator, 0)
    except Exception as error:
        yield error


def _words(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _said(folder: Path) -> str:
    return "".join(file.read_text() for file in folder.iterdir())


def _is_still(folder: Path) -> bool:
    before = _said(folder)
    time.sleep(3)
    return _said(folder) == before
