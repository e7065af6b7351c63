"""DAGs that Airflow itself runs and parses: a whole block, templates that stay as they are, L8, the listener."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mq import MessageQueue, Weight
from tests.airflow.functions import SEEN
from tests.airflow.stage import Airflow, fill, processed

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

RunDag = Callable[[str], Any]
HEAD = """
    from __future__ import annotations
    from airflow.sdk import DAG, Asset, AssetWatcher, task
    from airflow_mq.block import block
    from airflow_mq.processors import Processor, Processors

    F = "tests.airflow.functions:process"
    ALL = [Processor("alpha", F, origins=("a*",), where="in place", split=2), Processor("beta", F, where="in place")]
"""


@pytest.fixture(scope="module")
def dags_folder() -> Iterator[Path]:
    """Airflow's folder of DAGs, with its database made."""
    from airflow.utils.db import initdb

    initdb()
    folder = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    folder.mkdir(exist_ok=True)
    yield folder
    for file in folder.glob("*.py"):
        file.unlink()


@pytest.fixture
def run_dag(dags_folder: Path, sqlite_queue: MessageQueue) -> RunDag:
    """Writes a DAG called `scene` into the folder, and runs it."""

    def run(text: str) -> Any:
        from airflow.dag_processing.dagbag import DagBag

        file = dags_folder / "scene.py"
        file.write_text(textwrap.dedent(HEAD) + textwrap.dedent(text))
        bag = DagBag(dag_folder=str(file))
        assert bag.import_errors == {}
        return bag.dags["scene"].test()

    return run


def states(run: Any) -> dict[str, str]:
    """The states of the tasks of a run, mapped ones by their shown names."""
    return {ti.rendered_map_index or ti.task_id: str(ti.state) for ti in run.get_task_instances()}


def test_a_run_is_a_block(run_dag: RunDag, sqlite_queue: MessageQueue) -> None:
    fill(sqlite_queue, {"a4": [b"used"], "a0": [b"2"] * 3, "b": [b"3"]})

    run = run_dag(
        """
        with DAG("scene", schedule=None):
            block(processors=ALL, mq_conn_id="mq_stage", share_below=1, limit="[100, {{ 1024 * 1024 }}]")
        """
    )

    assert run.state == "success"
    assert states(run) == dict.fromkeys(["block.plan", "alpha 1/2", "alpha 2/2", "beta", "block.settle"], "success")
    assert len(processed(sqlite_queue)) == 5
    assert [(fit.processor, fit.origin) for fit in sqlite_queue.inspect.fits()] == [("alpha", "a4")]


def test_what_is_set_aside_is_decided_about_by_hand(dags_folder: Path, sqlite_queue: MessageQueue) -> None:
    from airflow.dag_processing.dagbag import DagBag

    sqlite_queue.enqueue_messages([("a", b"elephant"), ("b", b"whale")], weight=Weight(10**9, 10))
    sqlite_queue.blocks.settle(sqlite_queue.blocks.plan())
    file = dags_folder / "set_aside_by_hand.py"
    file.write_text((Path(__file__).parents[2] / "dags" / "set_aside_by_hand.py").read_text())
    dag = DagBag(dag_folder=str(file)).dags["set_aside_by_hand"]

    run = dag.test(run_conf={"connection": "mq_stage", "decision": "discard", "why": "too big", "origin": "b"})
    assert states(run) == {"decide": "success", "requeue": "skipped", "discard": "success"}
    assert [one.address.origin for one in sqlite_queue.set_aside.list()] == ["a"]

    sqlite_queue.admin.change_ring(service_weight=Weight(10**10, 1 << 30))
    # What one run was given is the next one's default here.
    said = {"decision": "requeue", "why": "the limit was raised", "origin": "", "older_than": 0}
    run = dag.test(run_conf={"connection": "mq_stage", **said})
    assert states(run) == {"decide": "success", "requeue": "success", "discard": "skipped"}
    assert sqlite_queue.set_aside.list() == []
    assert {event.why.partition(";")[0] for event in sqlite_queue.inspect.events(name="Rejudged")} == {
        "the limit was raised"
    }


def test_an_outbox_and_two_stages(dags_folder: Path, queue: MessageQueue) -> None:
    from airflow.dag_processing.dagbag import DagBag
    from sqlalchemy import text

    from airflow_mq.hooks import MessageQueueHook

    file = dags_folder / "outbox.py"
    file.write_text((Path(__file__).parents[2] / "dags" / "outbox.py").read_text())
    dag = DagBag(dag_folder=str(file)).dags["outbox"]
    for one in dag.tasks:
        one.retries = 0
    engine = MessageQueueHook("mq_stage").get_sqlalchemy_engine()

    def rows(name: str) -> list[str]:
        with engine.connect() as connection:
            return [str(row[0]) for row in connection.execute(text(f"SELECT what FROM {name} ORDER BY what"))]

    # The third verdict cannot be written: neither is its message handed on.
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE shop_verdict (what text, CHECK (what NOT LIKE 'order 2 %'))"))
    run = dag.test(run_conf={"connection": "mq_stage", "orders": 5})
    assert states(run) == {"order": "success", "verify": "failed", "publish": "upstream_failed"}
    names = [f"order {number} of {run.run_id}" for number in range(5)]
    assert rows("shop_verdict") == names[:2]
    assert [one.payload.decode() for one in queue.inspect.peek("shop/publish")] == names[:2]
    assert [one.payload.decode() for one in queue.inspect.peek("shop/verify")] == names[2:]

    # A fixed processor continues with the same messages, and those sent meanwhile.
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE shop_verdict"))
    for block in queue.blocks.list("planned"):
        queue.blocks.release(block)
    run = dag.test(run_conf={"connection": "mq_stage", "orders": 1})
    assert states(run) == {"order": "success", "verify": "success", "publish": "success"}
    later = [*names, f"order 0 of {run.run_id}"]
    assert rows("shop_verdict") == sorted(later[2:])
    assert rows("shop_published") == sorted(later)
    assert queue.footprint("shop/verify").count == queue.footprint("shop/publish").count == 0
    engine.dispose()


def test_an_empty_block_skips_straight_through(run_dag: RunDag) -> None:
    run = run_dag(
        """
        with DAG("scene", schedule=None):
            block("mine", processors=ALL, mq_conn_id="mq_stage")
        """
    )

    assert run.state == "success"
    assert states(run) == {"mine.plan": "success", "mine.process": "skipped", "mine.settle": "success"}


def test_a_failed_job_turns_the_run_red_and_everything_is_settled(run_dag: RunDag, sqlite_queue: MessageQueue) -> None:
    fill(sqlite_queue, {"a": [b"1"], "b": [b"2"]})

    run = run_dag(
        """
        broken = Processor("broken", "tests.airflow.functions:missing", origins=("a*",), where="in place")
        with DAG("scene", schedule=None):
            block(processors=Processors([broken, ALL[1]]), mq_conn_id="mq_stage", share_below=1)
        """
    )

    assert run.state == "failed"
    assert states(run) == {
        "block.plan": "success", "broken": "failed", "beta": "success", "block.settle": "failed",
    }  # fmt: skip
    assert [block.state for block in sqlite_queue.blocks.list()] == ["settled"]
    assert sqlite_queue.footprint("a").count == 1 and len(processed(sqlite_queue)) == 1


def test_templates_in_messages_arrive_as_they_are(run_dag: RunDag, sqlite_queue: MessageQueue) -> None:
    run = run_dag(
        """
        from airflow_mq.operators.enqueue import EnqueueMessagesOperator as Enqueue

        @task
        def extract():
            return ["{{ 1/0 }}", "{% raw %}"]

        @task
        def several():
            return [["{{ 1/0 }} mapped"], ["{% raw %} mapped"]]

        common = {"mq_conn_id": "mq_stage"}
        with DAG("scene", schedule=None, render_template_as_native_obj=False):
            author = Enqueue(task_id="author", origin="author {{ dag.dag_id }}", messages=["{{ 40 + 2 }}"], **common)
            xcom = Enqueue(task_id="xcom", origin="xcom", messages=extract(), **common)
            mapped = Enqueue.partial(task_id="mapped", origin="mapped", **common).expand(messages=several())
            [author, xcom, mapped] >> block(processors=ALL, mq_conn_id="mq_stage")
        """
    )

    assert run.state == "success"
    assert sorted(SEEN) == sorted(
        [
            (b"42", "author scene"),
            (b"{{ 1/0 }}", "xcom"),
            (b"{% raw %}", "xcom"),
            (b"{{ 1/0 }} mapped", "mapped"),
            (b"{% raw %} mapped", "mapped"),
        ]
    )


def test_the_decorator_is_an_attribute_of_task(run_dag: RunDag, sqlite_queue: MessageQueue) -> None:
    fill(sqlite_queue, {"a": [b"1", b"2"]})

    run = run_dag(
        """
        with DAG("scene", schedule=None):
            @task.message_processor(mq_conn_id="mq_stage", limit=[100, 1048576])
            def count(payload, origin):
                pass
            count()
        """
    )

    assert run.state == "success"
    assert len(processed(sqlite_queue)) == 2


def test_settling_emits_its_asset_only_while_anything_is_ready(run_dag: RunDag, sqlite_queue: MessageQueue) -> None:
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import func, select

    def events() -> int:
        with create_session() as session:
            return int(session.scalar(select(func.count()).select_from(AssetEvent)) or 0)

    text = """
        ready = Asset("ready-again")
        with DAG("scene", schedule=ready):
            block(processors=ALL, mq_conn_id="mq_stage", limit=[2, 1048576], outlet=ready)
        """
    fill(sqlite_queue, {"a": [b"1", b"2", b"3"]})
    before = events()

    assert run_dag(text).state == "success"
    assert events() == before + 1
    assert run_dag(text).state == "success"
    assert events() == before + 1


# -- parsing --

PARSE = """
import json, sys, time, warnings
import airflow.sdk, airflow.providers.apache.spark.operators.spark_submit
import sqlite3, psycopg
def refuse(*args, **kwargs):
    raise AssertionError("a database is called while a DAG is parsed")
sqlite3.connect = psycopg.connect = refuse
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    began = time.process_time()
    exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), {"__name__": "scene"})
    took = time.process_time() - began
ours = [str(one.message) for one in caught if "airflow_mq" in str(one.filename) or one.filename == sys.argv[1]]
print(json.dumps({"took": took, "warnings": ours}))
"""


def test_parsing_calls_no_database_and_warns_of_nothing(tmp_path: Path) -> None:
    text = """
        from airflow_mq.triggers import QueueReadyTrigger
        from airflow_mq.sensors import QueueReadySensor
        from airflow_mq.operators import enqueue, queues, set_aside
        from airflow_mq.notifications import SetAsideNotifier

        ready = Asset("ready", watchers=[AssetWatcher(name="queue", trigger=QueueReadyTrigger())])
        with DAG("scene", schedule=ready):
            QueueReadySensor(task_id="wait", deferrable=True) >> block(
                processors=ALL, outlet=ready, notifiers=SetAsideNotifier())
            enqueue.EnqueueMessagesOperator(task_id="enqueue", origin="a", messages=["x"])
            set_aside.ExecuteOverweightOperator(task_id="execute", address="a:0:0", processors=Processors(ALL))
            queues.HousekeepingOperator(task_id="keep")
        """
    (tmp_path / "scene.py").write_text(textwrap.dedent(HEAD) + textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, "-c", PARSE, str(tmp_path / "scene.py")], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.strip().splitlines()[-1])
    assert told["warnings"] == []
    assert told["took"] < 1.0


# -- the listener --


def test_the_plugin_costs_next_to_nothing() -> None:
    code = (
        "import sys, airflow.sdk, airflow.plugins_manager, time; before = set(sys.modules); t = time.process_time();"
        "import airflow_mq.plugin; print(time.process_time() - t, *sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, *modules = done.stdout.split()

    assert float(seconds) < 0.05
    # The last is what mounts the application later, and imports nothing of it.
    assert set(modules) <= {"airflow_mq", "airflow_mq.plugin", "airflow_mq.api"}


def test_airflow_finds_the_listener() -> None:
    from airflow.listeners.listener import get_listener_manager

    import airflow_mq.plugin as plugin

    assert get_listener_manager().pm.is_registered(plugin)


@pytest.mark.parametrize(
    ("hook", "msg", "released"),
    [
        ("failed", "task_failure", True),
        ("success", "Dag Run's state was manually set", True),
        ("success", "success", False),
    ],
)
def test_a_run_that_ends_from_outside_releases_its_block(
    queue: MessageQueue, hook: str, msg: str, released: bool
) -> None:
    import airflow_mq.plugin as plugin

    fill(queue, {"a": [b"x"], "b": [b"y"]})
    airflow = Airflow()
    run, other = airflow.run("r1"), airflow.run("r1 too")
    run.plan(limit=[1, 1 << 20])
    other.plan()
    tasks = {
        "plan": SimpleNamespace(mq_conn_id="mq_stage", ring=None, lease=None),
        "templated": SimpleNamespace(mq_conn_id="{{ var.value.conn }}", ring=None, lease=None),
        "other": SimpleNamespace(task_id="x"),
    }
    dag_run = SimpleNamespace(dag_id="dag", run_id="r1", dag=SimpleNamespace(task_dict=tasks))

    getattr(plugin, f"on_dag_run_{hook}")(dag_run=dag_run, msg=msg)

    def state(one: Any) -> str:
        return queue.blocks.get(one.xcoms["plan", "block"]["token"]).state

    for _ in range(1200 if released else 10):
        if state(run) == "released":
            break
        time.sleep(0.05)
    assert (state(run), state(other)) == ("released" if released else "planned", "planned")
    for block in queue.blocks.list("planned"):
        queue.blocks.release(block)


def test_a_listener_that_cannot_open_a_queue_only_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    import airflow_mq.plugin as plugin

    assert plugin.release("dag", "r1", {("mq_nowhere", None)}) == 0
    assert "cannot be opened" in caplog.text
