"""Command line and environment of `spark-submit` (S5, S8, B3, B7): rules, numbers, and secrets by environment alone."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.rules.errors import TokenRefused, UnknownBlock
from airflow_mq.processors import Processor, Processors
from airflow_mq.spark.exchange import hand_over
from tests.airflow.stage import CONN_ID, FUNCTION, Airflow, Run, fill
from tests.waiting import eventually

pytestmark = pytest.mark.airflow

EVIL = [
    "--conf",
    "spark.master=evil",
    "{{ 1/0 }}",
    "{% raw %}",
    "-Djava.x=y",
    "a;rm -rf /",
    "--jars=x",
    "$(id)",
    "';--",
]
PROCESSORS = Processors([Processor("all", FUNCTION, spark={"conf": {"spark.x": "y"}, "driver_memory": "1g"})])


#: Starts processes, also while none is started in place of spark-submit.
POPEN = subprocess.Popen


class Submitted:
    """Processes that were started in place of spark-submit."""

    def __init__(self) -> None:
        self.argv: list[list[str]] = []
        self.env: list[dict[str, str]] = []
        self.exit_code = 0
        self.lines = ["a line of Spark's\n"]

    def popen(self, argv: list[str], env: dict[str, str] | None = None, **kwargs: Any) -> Any:
        self.argv.append(list(argv))
        self.env.append(dict(env or {}))
        # As the job ends its own last line.
        mark = f"[{self.env[-1].get('AIRFLOW_MQ_MARK')}]"
        return _Ended(self.exit_code, iter([line.replace("[MARK]", mark) for line in self.lines]))


class _Ended:
    def __init__(self, exit_code: int, stdout: Iterator[str]) -> None:
        self.exit_code, self.stdout, self.pid = exit_code, stdout, 0

    def wait(self) -> int:
        return self.exit_code

    poll = wait


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Submitted:
    """Records what is submitted, and submits nothing."""
    import airflow.providers.apache.spark.hooks.spark_submit as hook

    # Whatever is imported starts its programs before nothing is started any more.
    import airflow_mq.operators.blocks  # noqa: F401
    import airflow_mq.spark.java as java

    made = Submitted()
    monkeypatch.setattr(hook.subprocess, "Popen", made.popen)
    monkeypatch.setattr(java, "spark_environment", lambda *args, **kwargs: {"JAVA_HOME": str(tmp_path)})
    monkeypatch.setattr(java, "local_conf", lambda *args, **kwargs: {"spark.local": "quick"})
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_STAGE", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    return made


@pytest.fixture
def run() -> Run:
    return Airflow().run()


def job(run: Run, processors: Processors = PROCESSORS, **kwargs: Any) -> Any:
    from airflow_mq.operators.blocks import ProcessMessagesOperator

    kwargs = {"spark_conn_id": "spark_stage", **kwargs}
    return ProcessMessagesOperator(
        task_id="process",
        part=run.xcoms["plan", "return_value"][0],
        processors=processors,
        mq_conn_id=CONN_ID,
        **kwargs,
    )


def test_a_job_receives_the_authors_words_and_numbers(
    sqlite_queue: MessageQueue, run: Run, submitted: Submitted
) -> None:
    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)

    run.execute(job(run, lease=60, conf={"spark.z": "1"}, name="orders"), 0)

    (argv,) = submitted.argv
    job_at = next(place for place, word in enumerate(argv) if word.endswith("airflow_mq/spark/job.py"))
    assert argv[:3] == ["spark-submit", "--master", "local[2]"]
    assert argv[3:job_at] == [
        "--conf", "spark.local=quick", "--conf", "spark.z=1", "--conf", "spark.x=y", "--driver-memory", "1g", "--name", "orders",
    ]  # fmt: skip
    assert argv[job_at + 1 :] == [
        "--ring", "default", "--routes", PROCESSORS.routes_json(), "--processors", "all", "--part", "0", "--parts", "1",
        "--lease", "60",
    ]  # fmt: skip
    run.settle()


def test_a_message_reaches_nothing_but_its_processor(queue: MessageQueue, run: Run, submitted: Submitted) -> None:
    for evil in EVIL:
        queue.enqueue_message(evil, evil.encode(), key=evil, headers={"h": evil})
    plain = Airflow().run("plain")

    run.plan(PROCESSORS)
    operator = job(run)
    run.execute(operator, 0)
    run.settle()
    evil_argv, evil_env = submitted.argv[-1], submitted.env[-1]
    for origin in list(dict(queue.footprints())):
        queue.admin.pause(origin)
    queue.enqueue_message("plain", b"plain")
    plain.plan(PROCESSORS)
    plain.execute(job(plain), 0)
    plain.settle()

    assert evil_argv == submitted.argv[-1], "the command line is the same whatever the messages are"
    assert evil_env.keys() == submitted.env[-1].keys()
    changed = {name for name in evil_env if evil_env[name] != submitted.env[-1][name]}
    assert changed == {"AIRFLOW_MQ_BLOCK", "AIRFLOW_MQ_MARK"}, "the block's token and the mark of its lines"
    for field in operator.template_fields:
        assert not any(evil in json.dumps(getattr(operator, field), default=str) for evil in EVIL[1:])


def test_secrets_travel_by_environment_alone(
    pg_uri: str, monkeypatch: pytest.MonkeyPatch, run: Run, submitted: Submitted, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow_mq.engine.store import parse, upgrade
    from tests.airflow.conftest import connection_of

    upgrade(parse(pg_uri))
    password = str(parse(pg_uri).password)
    assert len(password) > 3
    monkeypatch.setenv("AIRFLOW_CONN_MQ_STAGE", connection_of(pg_uri))
    with MessageQueue(pg_uri) as queue:
        fill(queue, {"a": [b"x"]})
        run.plan(PROCESSORS)
        operator = job(run)
        run.execute(operator, 0)
        token = run.xcoms["plan", "block"]["token"]
        run.settle()

    assert parse(submitted.env[0]["AIRFLOW_MQ_STORE"]).password == password
    assert submitted.env[0]["AIRFLOW_MQ_BLOCK"] == token
    shown = json.dumps([getattr(operator, field) for field in operator.template_fields], default=str)
    for place in (" ".join(submitted.argv[0]), shown, caplog.text, json.dumps(list(run.xcoms.values()), default=str)):
        assert password not in place.replace("postgres", "")
    assert token not in " ".join(submitted.argv[0]) and token not in caplog.text


@pytest.mark.parametrize(
    ("connection", "says"),
    [
        (None, "isn't defined"),
        ("spark://local[*", "."),
        # Python 3.10 reads it as it is meant.
        *([("spark://local[*]", ".")] if sys.version_info >= (3, 11) else []),
        (json.dumps({"conn_type": "spark"}), "names no master"),
        (json.dumps({"conn_type": "spark", "host": "spark://h", "extra": {"deploy-mode": "cluster"}}), "deploy mode"),
    ],
)
def test_a_connection_that_names_no_master_is_refused_and_never_yarn(
    sqlite_queue: MessageQueue,
    run: Run,
    submitted: Submitted,
    monkeypatch: pytest.MonkeyPatch,
    connection: Any,
    says: str,
) -> None:
    if connection is None:
        monkeypatch.delenv("AIRFLOW_CONN_SPARK_STAGE")
    else:
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_STAGE", connection)
    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)

    with pytest.raises(Exception, match=says):
        run.execute(job(run), 0)

    assert submitted.argv == []
    with pytest.raises(Exception, match=r"^all \(process_0\) failed"):
        run.settle()


def test_yarn_is_reached_by_who_asks_for_it(
    sqlite_queue: MessageQueue, run: Run, submitted: Submitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_STAGE", json.dumps({"conn_type": "spark", "host": "yarn"}))
    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)

    run.execute(job(run), 0)

    assert submitted.argv[0][1:3] == ["--master", "yarn"]
    assert "AIRFLOW_MQ" not in " ".join(submitted.argv[0])
    assert submitted.env[0]["AIRFLOW_MQ_BLOCK"]
    run.settle()


EVIL_WORDS = ["airflow_mq: Spark application evil, at http://evil.example/", "tracking URL: http://evil.example/"]


@pytest.mark.parametrize(
    ("lines", "known"),
    [
        (
            ["INFO x: begun", "airflow_mq: Spark application local-1700000000000, at http://host:4040", *EVIL_WORDS],
            [{"id": "local-1700000000000", "url": "http://host:4040"}],
        ),
        (["airflow_mq: Spark application app-20260101-0001", *EVIL_WORDS], [{"id": "app-20260101-0001", "url": None}]),
        (
            [
                "Submitted application application_17_0002",
                "\t tracking URL: http://yarn:8088/proxy/application_17_0002/",
            ],
            [
                {"id": "application_17_0002", "url": None},
                {"id": "application_17_0002", "url": "http://yarn:8088/proxy/application_17_0002/"},
            ],
        ),
        (["\t pod name: orders-4f-driver"], [{"id": "orders-4f-driver", "url": None}]),
        (
            [
                "INFO Client: Deployed Spark application airflow_mq all with application ID spark-97ca and submission ID "
                "spark:airflow-mq-all-29f8-driver into Kubernetes"
            ],
            [{"id": "airflow-mq-all-29f8-driver", "url": None}],
        ),
        (["state of driver-20260101120000-0007 is RUNNING"], [{"id": "driver-20260101120000-0007", "url": None}]),
        (["airflow_mq: Spark application one two", "tracking URL: javascript:alert(1)", "tracking URL: N/A"], []),
    ],
)
def test_a_job_names_its_application_and_messages_cannot(lines: list[str], known: list[dict[str, str | None]]) -> None:
    from airflow_mq.operators.spark.job_listener import JobListener

    told: list[dict[str, str | None]] = []
    heard = list(JobListener(told.append).lines(f"{line}\n" for line in lines))
    assert told == known
    assert heard == [f"{line}\n" for line in lines]


def test_the_task_keeps_which_application_its_job_is(
    sqlite_queue: MessageQueue, run: Run, submitted: Submitted
) -> None:
    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)
    submitted.lines = ["airflow_mq: Spark application local-17\n", "airflow_mq: all: 1 done\n"]

    run.execute(job(run), 0)

    assert run.xcoms["process", "spark_job"] == {"id": "local-17", "url": None}
    run.settle()


@pytest.mark.parametrize(
    ("exit_code", "says"),
    [
        (75, "came too late"),
        (1, r"printed no cause\. Error code is: 1"),
        (-9, r"was ended by signal 9 \(Killed\)\."),
        # The JVM of spark-submit, whose Python driver was killed.
        (137, r"was ended by signal 9 \(Killed\)\. Error code is: 137"),
    ],
)
def test_a_job_that_fails_fails_its_task(
    sqlite_queue: MessageQueue, run: Run, submitted: Submitted, exit_code: int, says: str
) -> None:
    submitted.exit_code = exit_code
    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)

    with pytest.raises(Exception, match=says) as caught:
        run.execute(job(run), 0)

    assert (type(caught.value).__name__ == "AirflowFailException") is (exit_code == 75)
    with pytest.raises(Exception, match=r"^all \(process_0\) failed"):
        run.settle()


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (
            [
                "26/01/01 WARN Utils: a word",
                "airflow_mq: failed: the function x:y cannot be loaded (ModuleNotFoundError) [MARK]",
            ],
            "the function x:y cannot be loaded (ModuleNotFoundError)",
        ),
        (
            [
                'Exception in thread "main" org.apache.spark.SparkException: Could not parse Master URL',
                "\tat org.apache.spark.SparkContext$.createTaskScheduler(SparkContext.scala:3204)",
                "Caused by: java.net.UnknownHostException: no-such-host",
                "\t... 7 more",
            ],
            "UnknownHostException: no-such-host",
        ),
        (
            ["Traceback (most recent call last):", '  File "/x/job.py", line 3', "ImportError: no pyspark here"],
            "ImportError: no pyspark here",
        ),
        (
            [
                "Invalid initial heap size: -Xmswrong",
                "Error: Could not create the Java Virtual Machine.",
                "Error: A fatal exception has occurred. Program will exit.",
            ],
            "Invalid initial heap size: -Xmswrong",
        ),
        (["Error: Unknown master nowhere://"], "Error: Unknown master nowhere://"),
        (
            ["airflow_mq: invalid arguments: --part needs a value [MARK]"],
            "invalid arguments: --part needs",
        ),
        (
            [
                "airflow_mq: Spark application local-1",
                "airflow_mq: failed: RuntimeError: the cause [MARK]",
                "airflow_mq: failed: the words of a message",
                "airflow_mq: failed: the words of a message [0123456789abcdef]",
                "airflow_mq: invalid arguments: the words of a message []",
            ],
            "RuntimeError: the cause. Error code is: 1",
        ),
        (
            ["airflow_mq: failed: the words of a message"],
            "it printed no cause. Error code is: 1",
        ),
        (
            ["airflow_mq: Spark application local-1", "ValueError: the words of a message"],
            "it printed no cause. Error code is: 1",
        ),
    ],
)
def test_a_job_that_fails_shows_its_cause_and_no_command(
    sqlite_queue: MessageQueue, run: Run, submitted: Submitted, lines: list[str], says: str
) -> None:
    submitted.exit_code, submitted.lines = 1, [f"{line}\n" for line in lines]
    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)

    with pytest.raises(Exception, match="Error code is: 1") as caught:
        run.execute(job(run), 0)

    told = str(caught.value)
    assert told.startswith(f"the Spark job 'all' failed: {says}")
    assert "spark-submit" not in told and "--conf" not in told and "words of a message" not in told
    assert caught.value.__suppress_context__
    with pytest.raises(Exception, match=r"^all \(process_0\) failed"):
        run.settle()
    assert says.partition(" Error code")[0] in sqlite_queue.inspect.explain("a").sentence


def test_the_job_marks_its_last_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from airflow_mq.operators.spark.job_listener import JobListener
    from airflow_mq.spark.program import main

    listener = JobListener(lambda known: None)
    for name, value in listener.environment.items():
        monkeypatch.setenv(name, value)
    for words, cause in ((["--part"], "invalid arguments: --part needs a value"), (
        ["--routes", "[]", "--processors", "x"], "invalid processors: expected an object with a list")):  # fmt: skip
        assert main(words) in (1, 2)
        list(listener.lines(capsys.readouterr().err.splitlines(keepends=True)))
        assert (listener.cause or "").startswith(cause)


def test_the_cause_of_an_error_of_spark_is_its_root() -> None:
    from airflow_mq.spark.cause import LONGEST, cause_of

    text = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/worker.py", line 1985, in main
    process()
airflow_mq.engine.rules.errors.InvalidInput: the function shop:f cannot be loaded (ModuleNotFoundError: No module named 'shop')

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)
"""
    told = "InvalidInput: the function shop:f cannot be loaded (ModuleNotFoundError: No module named 'shop')"
    assert cause_of(RuntimeError(text)) == told
    assert cause_of(RuntimeError("one line")) == "RuntimeError: one line"
    assert len(cause_of(RuntimeError("x" * 5000))) == LONGEST


# -- a master that does not answer --


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port of this machine that refuses connections."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_a_master_that_does_not_answer_fails_before_a_job_is_submitted(
    sqlite_queue: MessageQueue, run: Run, submitted: Submitted, monkeypatch: pytest.MonkeyPatch, silent_port: int
) -> None:
    connection = {"conn_type": "spark", "host": "spark://127.0.0.1", "port": silent_port}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_STAGE", json.dumps(connection))
    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)

    told = f"the Spark master 'spark://127.0.0.1:{silent_port}' is not reachable .*refused.*connection 'spark_stage'"
    with pytest.raises(Exception, match=told):
        run.execute(job(run), 0)

    assert submitted.argv == []
    with pytest.raises(Exception, match=r"^all \(process_0\) failed"):
        run.settle()
    assert f"spark://127.0.0.1:{silent_port}" in sqlite_queue.inspect.explain("a").sentence


def test_a_master_that_accepts_and_stays_silent_is_named(
    sqlite_queue: MessageQueue, run: Run, submitted: Submitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted.exit_code, submitted.lines = (
        1,
        [
            "26/11/22 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All masters are unresponsive! "
            "Giving up.\n",
            "airflow_mq: failed: IllegalStateException: Cannot call methods on a stopped SparkContext. [MARK]\n",
        ],
    )
    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        connection = {"conn_type": "spark", "host": f"spark://127.0.0.1:{port}"}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_STAGE", json.dumps(connection))
        told = f"failed: the Spark master 'spark://127.0.0.1:{port}' accepts connections.*connection 'spark_stage'"
        with pytest.raises(Exception, match=told):
            run.execute(job(run), 0)
    with pytest.raises(Exception, match=r"^all \(process_0\) failed"):
        run.settle()


def test_one_master_of_several_is_enough(silent_port: int) -> None:
    from airflow_mq.operators.spark.masters import require_master

    with socket.create_server(("127.0.0.1", 0)) as master:
        require_master(f"spark://127.0.0.1:{silent_port},127.0.0.1:{master.getsockname()[1]}", "x")
    with pytest.raises(Exception, match=r"'spark://no-such.invalid:7077' is not reachable [(]no-such.invalid:7077: "):
        require_master("spark://no-such.invalid:7077", "x")


@pytest.mark.parametrize("master", ["local[2]", "yarn", "k8s://https://no-such.invalid", "spark://h", "spark://h:port"])
def test_a_master_of_another_kind_is_not_asked(master: str) -> None:
    from airflow_mq.operators.spark.masters import require_master

    require_master(master, "x")


@pytest.mark.parametrize(
    ("conn_id", "says"), [("spark_stage", "AirflowException: "), ("no_such", "AirflowNotFoundException: The conn_id")]
)
def test_a_job_that_reaches_no_message_burns_no_attempts(
    queue: MessageQueue, run: Run, submitted: Submitted, conn_id: str, says: str
) -> None:
    """A master that does not answer ends spark-submit; a connection that is not defined does not even start it."""
    queue.admin.change_ring(max_attempts=2)
    submitted.exit_code = 1
    fill(queue, {"a": [b"1", b"2"]})
    for number in range(2):
        run = run.airflow.run(f"run {number}")
        run.plan(PROCESSORS)
        with pytest.raises(Exception, match="Error code is: 1|no_such"):
            run.execute(job(run, spark_conn_id=conn_id), 0)
        with pytest.raises(Exception, match=r"^all \(process_0\) failed"):
            run.settle()

    assert [one.attempts for one in queue.inspect.peek("a")] == [0, 0]
    assert queue.set_aside.list() == []
    assert [event.why.startswith(f"not tried: {says}") for event in queue.inspect.events()] == [True, True]


@pytest.mark.parametrize("with_exchange", [False, True])
def test_processors_of_one_job_that_do_not_load_keep_their_own_errors(
    sqlite_queue: MessageQueue, run: Run, submitted: Submitted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    with_exchange: bool,
) -> None:  # fmt: skip
    from airflow_mq.operators.blocks import PlanBlockOperator
    from airflow_mq.spark.program import main

    def popen(argv: list[str], env: dict[str, str] | None = None, **kwargs: Any) -> Any:
        job_at = next(place for place, word in enumerate(argv) if word.endswith("airflow_mq/spark/job.py"))
        with patch.dict("os.environ", env or {}):
            submitted.exit_code = main(argv[job_at + 1 :])
        return submitted.popen(argv, env, **kwargs)

    monkeypatch.setattr("subprocess.Popen", popen)
    broken = Processors([Processor(origin, f"no_such_{origin}:process", origins=(origin,)) for origin in "ab"])
    fill(sqlite_queue, {"a": [b"1"], "b": [b"2"]})
    run.execute(PlanBlockOperator(task_id="plan", processors=broken, mq_conn_id=CONN_ID))
    with pytest.raises(Exception, match="Error code is: 78"):
        run.execute(job(run, broken, exchange=str(tmp_path / "exchange") if with_exchange else None), 0)
    with pytest.raises(Exception, match=r"^a \+ b \(process_0\) failed"):
        run.settle()

    for origin in "ab":
        (event,) = sqlite_queue.inspect.events(origin=origin)
        assert event.why.startswith(f"not tried: InvalidInput: cannot load function no_such_{origin}:process (")


def test_through_the_exchange_a_job_knows_neither_address_nor_token(
    sqlite_queue: MessageQueue, run: Run, submitted: Submitted, tmp_path: Path
) -> None:
    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)
    folder = tmp_path / "exchange"

    run.execute(job(run, exchange=str(folder)), 0)

    argv = submitted.argv[0]
    given = argv[argv.index("--exchange") + 1]
    assert given.startswith(str(folder)) and Path(given, "manifest.json").is_file()
    assert {name for name in submitted.env[0] if name.startswith("AIRFLOW_MQ_")} == {"AIRFLOW_MQ_MARK"}
    run.settle(exchange=str(folder))
    assert not Path(given).exists()


def test_a_job_whose_block_is_lost_ends(
    sqlite_queue: MessageQueue, run: Run, submitted: Submitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import airflow.providers.apache.spark.hooks.spark_submit as hook

    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)
    started: list[subprocess.Popen[str]] = []

    def popen(argv: list[str], **how: Any) -> subprocess.Popen[str]:
        started.append(POPEN(["sleep", "60"], **how))
        sqlite_queue.blocks.release(run.xcoms["plan", "block"]["token"])
        return started[0]

    monkeypatch.setattr(hook.subprocess, "Popen", popen)

    with pytest.raises(Exception, match="the job came too late: its block was settled or released"):
        run.execute(job(run, exchange=str(tmp_path), lease=1), 0)

    with started[0] as process:
        assert process.wait(30) == -signal.SIGTERM
    assert sqlite_queue.footprint("a").count == 1


@pytest.mark.parametrize("seconds", ["0", "30"])
def test_a_job_that_begins_after_its_block_was_lost_ends(
    sqlite_queue: MessageQueue,
    run: Run,
    submitted: Submitted,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: str,
) -> None:
    import airflow.providers.apache.spark.hooks.spark_submit as hook

    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)
    started: list[subprocess.Popen[str]] = []

    def popen(argv: list[str], **how: Any) -> subprocess.Popen[str]:
        sqlite_queue.blocks.release(run.xcoms["plan", "block"]["token"])
        # The lease is refused meanwhile.
        time.sleep(1)
        started.append(POPEN(["sleep", seconds], **how))
        return started[0]

    monkeypatch.setattr(hook.subprocess, "Popen", popen)

    with pytest.raises(Exception, match="the job came too late: its block was settled or released"):
        run.execute(job(run, exchange=str(tmp_path), lease=1), 0)

    with started[0] as process:
        assert process.wait(30) == (0 if seconds == "0" else -signal.SIGTERM)


@pytest.mark.parametrize("error", [TokenRefused, UnknownBlock])
def test_outcomes_for_a_block_that_is_gone_are_too_late(
    sqlite_queue: MessageQueue,
    run: Run,
    submitted: Submitted,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Any,
) -> None:
    from airflow_mq.spark import exchange

    def take_back(*args: object) -> int:
        raise error("no more outcomes")

    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)
    monkeypatch.setattr(exchange, "take_back", take_back)
    with pytest.raises(Exception, match="the job came too late: its block was settled or released"):
        run.execute(job(run, exchange=str(tmp_path)), 0)
    sqlite_queue.blocks.release(run.xcoms["plan", "block"]["token"])


@pytest.mark.parametrize("is_readable", [True, False])
def test_output_that_is_no_text_fails_no_job_and_an_error_leaves_none(
    sqlite_queue: MessageQueue, run: Run, submitted: Submitted, monkeypatch: pytest.MonkeyPatch, is_readable: bool
) -> None:
    import airflow.providers.apache.spark.hooks.spark_submit as hook

    from airflow_mq.operators.spark.hook import MessageSparkHook

    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)
    started: list[subprocess.Popen[str]] = []

    def popen(argv: list[str], **how: Any) -> subprocess.Popen[str]:
        script = "printf 'caf\\351\\n'" + ("" if is_readable else "; sleep 60")
        started.append(POPEN(["sh", "-c", script], **how))
        return started[0]

    def fail(self: Any, lines: Any) -> None:
        raise RuntimeError(next(lines))

    monkeypatch.setattr(hook.subprocess, "Popen", popen)
    if is_readable:
        run.execute(job(run), 0)
    else:
        monkeypatch.setattr(MessageSparkHook, "_process_spark_submit_log", fail)
        with pytest.raises(RuntimeError, match="caf\N{REPLACEMENT CHARACTER}"):
            run.execute(job(run), 0)
    with started[0] as process:
        assert (process.wait(30) == 0) == is_readable
    sqlite_queue.blocks.release(run.xcoms["plan", "block"]["token"])


def test_an_xcom_that_cannot_be_stored_fails_no_job(caplog: pytest.LogCaptureFixture) -> None:
    from airflow_mq.operators.spark.job_listener import JobListener

    def fail(known: Any) -> None:
        raise RuntimeError("no API server")

    lines = ["airflow_mq: Spark application local-17\n", "done\n"]
    assert list(JobListener(fail).lines(lines)) == lines
    assert "the job's id and address could not be stored as XCom: no API server" in caplog.text


def test_settling_deletes_folders_of_blocks_that_ended_without_it(
    sqlite_queue: MessageQueue, run: Run, submitted: Submitted, tmp_path: Path
) -> None:
    path, routes = tmp_path / "exchange", PROCESSORS
    folders = []
    for origin in ("a", "b"):
        fill(sqlite_queue, {origin: [b"x"]})
        block = sqlite_queue.blocks.plan(origin)
        part = routes.parts({origin: 1})[0]
        folders.append(Path(hand_over(sqlite_queue, block.token, routes, part, str(path))).parent)
        if origin == "a":
            # Its run was deleted.
            sqlite_queue.blocks.release(block)
    fill(sqlite_queue, {"c": [b"x"]})
    run.plan(PROCESSORS)
    run.execute(job(run, exchange=str(path)), 0)
    assert len(list(path.iterdir())) == 3

    run.settle(exchange=str(path))

    assert list(path.iterdir()) == [folders[1]]


def test_the_exchange_is_opened_by_a_connection_that_the_job_does_not_get(
    sqlite_queue: MessageQueue, run: Run, submitted: Submitted, tmp_path: Path
) -> None:
    from airflow.sdk import ObjectStoragePath
    from airflow.sdk.io import attach
    from fsspec.implementations.dirfs import DirFileSystem
    from fsspec.implementations.local import LocalFileSystem

    attach("s3", tmp_path.name, fs=DirFileSystem(str(tmp_path), LocalFileSystem(auto_mkdir=True)))
    exchange = ObjectStoragePath(f"s3://{tmp_path.name}@bucket/queues")
    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)

    run.execute(job(run, exchange=exchange), 0)

    (argv,) = submitted.argv
    given = argv[argv.index("--exchange") + 1]
    assert given.startswith("s3://bucket/queues/block-") and tmp_path.name not in " ".join(argv[argv.index("--ring") :])
    written = tmp_path / given.removeprefix("s3://")
    assert (written / "manifest.json").is_file() and list((written / "messages").glob("*.parquet"))
    run.settle(exchange=exchange)
    assert not written.exists()


def test_a_retry_finds_its_job_on_a_cluster_again_and_another_block_does_not(
    sqlite_queue: MessageQueue, run: Run, submitted: Submitted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import airflow
    import airflow.providers.apache.spark.hooks.spark_submit as hook

    # Whatever is imported starts its programs before nothing is started any more.
    import airflow_mq.operators.blocks  # noqa: F401
    import airflow_mq.spark.java as java

    said = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": "http://127.0.0.1:1"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_STAGE", json.dumps({"conn_type": "spark", "host": "yarn", "extra": said}))
    here = {"PYSPARK_PYTHON": "/here", "PYSPARK_DRIVER_PYTHON": "/here"}
    monkeypatch.setattr(java, "spark_environment", lambda *args, **kwargs: here)
    monkeypatch.setattr(
        hook.SparkSubmitHook, "_start_yarn_application_status_tracking", lambda self, name: None, raising=True
    )
    monkeypatch.setattr(hook.SparkSubmitHook, "query_yarn_application_status", lambda self, name: "SUCCEEDED")
    # Before Airflow 3.3 there is nowhere to remember a job, and a retry submits again.
    tries = 1 if airflow.__version__ >= "3.3" else 2
    remembered: dict[str, Any] = {}
    store = SimpleNamespace(get=remembered.get, set=remembered.__setitem__)

    def process() -> None:
        context = run.context("process", 0)
        context["ti"].stats_tags = {}
        operator = job(run, exchange=str(tmp_path / "exchange"), yarn_track_via_rm_api=True)
        operator.execute({**context, "task_state_store": store})

    fill(sqlite_queue, {"a": [b"x"]})
    for jobs in (1, 2):
        submitted.lines = [f"INFO Submitted application application_1_000{jobs}\n"]
        run.plan(PROCESSORS)
        process()
        # The task died here, and is tried again.
        process()
        assert len(submitted.argv) == jobs * tries and len(remembered) == (jobs if tries == 1 else 0)
        run.settle(exchange=str(tmp_path / "exchange"))

    argv = submitted.argv[0]
    assert argv[argv.index("--deploy-mode") + 1] == "cluster"
    assert "/here" not in submitted.env[0].values(), "where the driver is, this Python is not"


def test_kubernetes_needs_a_package_that_the_error_names(
    sqlite_queue: MessageQueue, run: Run, submitted: Submitted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import airflow.providers.apache.spark.hooks.spark_submit as hook

    # As on a machine without it.
    monkeypatch.delattr(hook, "kube_client", raising=False)
    connection = {"conn_type": "spark", "host": "k8s://https://127.0.0.1:1", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_STAGE", json.dumps(connection))
    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)

    with pytest.raises(Exception, match="'spark_stage' names Kubernetes: run pip install 'airflow-mq\\[kub"):
        run.execute(job(run, exchange=str(tmp_path / "exchange")), 0)

    assert submitted.argv == []
    with pytest.raises(Exception, match=r"^all \(process_0\) failed"):
        run.settle()


def test_the_end_of_a_task_deletes_the_pod_that_spark_submit_watches(
    sqlite_queue: MessageQueue, run: Run, submitted: Submitted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import airflow.providers.apache.spark.hooks.spark_submit as hook

    import airflow_mq.operators.spark.hook as ours

    # The provider's package for Kubernetes, of which nothing else is used here.
    monkeypatch.setattr(hook, "kube_client", SimpleNamespace(), raising=False)
    extra = {"deploy-mode": "cluster", "namespace": "spark"}
    connection = {"conn_type": "spark", "host": "k8s://https://127.0.0.1:1", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_STAGE", json.dumps(connection))
    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)
    operator = job(run, exchange=str(tmp_path / "exchange"))
    codes: list[int] = []
    monkeypatch.setattr(ours, "end_tree", lambda pid: codes.append(-signal.SIGTERM))
    submit = SimpleNamespace(
        pid=0, kill=lambda: codes.append(-signal.SIGKILL), poll=lambda: codes[-1] if codes else None
    )
    operator._hook = operator._get_hook()
    operator._hook._submit_sp, operator._hook._kubernetes_driver_pod = submit, "orders-4f-driver"
    deleted: list[str] = []
    monkeypatch.setattr(operator._hook, "_delete_driver_pod", lambda: deleted.append("orders-4f-driver"))

    operator.on_kill()

    assert (deleted, codes) == (["orders-4f-driver"], [-signal.SIGKILL])
    run.states["process_0"] = "failed"
    with pytest.raises(Exception, match=r"^all \(process_0\) failed"):
        run.settle()


YARN = "yarn_resourcemanager_webapp_address"


def test_a_driver_on_yarn_needs_an_address_by_which_its_application_ends(
    sqlite_queue: MessageQueue, run: Run, submitted: Submitted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connection = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_STAGE", json.dumps(connection))
    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)

    with pytest.raises(Exception, match=f"'spark_stage' needs the resource manager's address .* set '{YARN}'"):
        run.execute(job(run, exchange=str(tmp_path / "exchange")), 0)

    assert submitted.argv == []
    with pytest.raises(Exception, match=r"^all \(process_0\) failed"):
        run.settle()


@pytest.mark.skipif(version("apache-airflow-core") < "3.3", reason="no retry finds its job there")
def test_the_end_of_a_retry_ends_the_application_that_it_found(
    sqlite_queue: MessageQueue, run: Run, submitted: Submitted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import airflow.providers.apache.spark.hooks.spark_submit as hook

    said = {"deploy-mode": "cluster", YARN: "http://127.0.0.1:1"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_STAGE", json.dumps({"conn_type": "spark", "host": "yarn", "extra": said}))
    monkeypatch.setattr(hook.SparkSubmitHook, "query_yarn_application_status", lambda self, name: "RUNNING")
    ended: list[str] = []
    monkeypatch.setattr(hook.SparkSubmitHook, "_kill_yarn_application", lambda self, name: ended.append(name))
    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(PROCESSORS)
    operator = job(run, exchange=str(tmp_path / "exchange"), yarn_track_via_rm_api=True)
    # The task is ended while it waits.
    waits = lambda self, name: operator.on_kill()  # noqa: E731
    monkeypatch.setattr(hook.SparkSubmitHook, "_start_yarn_application_status_tracking", waits)
    context = run.context("process", 0)
    context["ti"].stats_tags = {}

    operator.execute({**context, "task_state_store": SimpleNamespace(get=lambda key: "application_1_0001")})

    assert (ended, submitted.argv) == (["application_1_0001"], [])
    run.states["process_0"] = "success"
    run.settle(exchange=str(tmp_path / "exchange"))


@pytest.mark.parametrize("name", ["application", "application_args", "env_vars"])
def test_arguments_that_the_operator_sets_are_refused(name: str, run: Run) -> None:
    run.xcoms["plan", "return_value"] = [{}]
    with pytest.raises(ValueError, match=f"invalid argument {name}: ProcessMessagesOperator sets it"):
        job(run, **{name: ["x"] if name == "application_args" else {"x": "y"} if name == "env_vars" else "x"})


def test_an_unknown_spark_option_is_refused(sqlite_queue: MessageQueue, run: Run, submitted: Submitted) -> None:
    odd = Processors([Processor("all", FUNCTION, spark={"jarz": "x"})])
    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(odd)

    with pytest.raises(Exception, match="unknown Spark option 'jarz' of processor 'all': expected one of conf, "):
        run.execute(job(run, odd), 0)
    with pytest.raises(Exception, match=r"^all \(process_0\) failed"):
        run.settle()


def test_a_dag_with_an_unknown_spark_option_does_not_parse() -> None:
    from airflow.sdk import DAG

    from airflow_mq.block import block

    with DAG("odd"), pytest.raises(Exception, match="unknown Spark option 'jarz'"):
        block(processors=Processor("all", FUNCTION, spark={"jarz": "x"}))


def test_the_options_of_a_processor_add_to_those_of_the_task(
    sqlite_queue: MessageQueue, run: Run, submitted: Submitted
) -> None:
    options = {"executor_memory": "2g", "conf": {"spark.z": "2", "spark.x": "{{ 1 + 1 }}"}, "name": "mine"}
    processors = Processors([Processor("all", FUNCTION, spark=options)])
    fill(sqlite_queue, {"a": [b"x"]})
    run.plan(processors)

    run.execute(job(run, processors, executor_memory="1g", num_executors=2, conf={"spark.z": "1", "spark.w": "0"}), 0)

    (argv,) = submitted.argv
    job_at = next(place for place, word in enumerate(argv) if word.endswith("airflow_mq/spark/job.py"))
    assert argv[3:job_at] == [
        "--conf", "spark.local=quick", "--conf", "spark.z=2", "--conf", "spark.w=0", "--conf", "spark.x=2",
        "--num-executors", "2", "--executor-memory", "2g", "--name", "mine",
    ]  # fmt: skip
    run.settle()


def test_ending_a_task_ends_all_that_its_job_started(monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    from airflow_mq.operators.spark.processes import end_tree

    parent = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60"])
    eventually(lambda: len(psutil.Process(parent.pid).children()) == 2)
    family = [*psutil.Process(parent.pid).children(recursive=True)]

    made_to: list[psutil.Process] = []
    monkeypatch.setattr(psutil.Process, "kill", made_to.append)
    end_tree(parent.pid, patience=60)

    assert made_to == [], "they end when they are asked to, and that is seen"
    # How it ended is for this process to hear, and no 0: a task would take its killed job for a good one.
    assert parent.wait(30) in (-signal.SIGTERM, 128 + signal.SIGTERM)  # the shell's code, or its child's
    assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in family)
