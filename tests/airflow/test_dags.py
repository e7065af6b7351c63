"""DAGs that Airflow itself runs and parses: a whole block, templates that stay as they are, L8, the listener."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mq import MessageQueue, Weight
from tests.airflow.functions import SEEN
from tests.airflow.stage import Airflow, fill, in_place, processed
from tests.airflow.used import Usage, missing

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
def run_dag(dags_folder: Path, sqlite_queue: MessageQueue, request: pytest.FixtureRequest) -> Iterator[RunDag]:
    """Writes a DAG called `scene` into the folder, and runs it.

    The classes in the test's mark `uses` have to be used there in all ways.
    """
    ways: dict[str, set[str]] = {}

    def run(text: str) -> Any:
        from airflow.dag_processing.dagbag import DagBag

        file = dags_folder / "scene.py"
        file.write_text(textwrap.dedent(HEAD) + textwrap.dedent(text))
        bag = DagBag(dag_folder=str(file))
        assert bag.import_errors == {}
        usage = Usage(bag.dags["scene"])
        made = bag.dags["scene"].test()
        ways.update(usage.after(made))
        return made

    yield run
    mark = request.node.get_closest_marker("uses")
    assert missing(ways, mark.args if mark else ()) == {}


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


@pytest.mark.parametrize("fail_fast", [False, True])
def test_settling_waits_for_the_plan(fail_fast: bool) -> None:
    """Airflow does not wait for the parts of a cleared run that it marked as removed."""
    from airflow.sdk import DAG

    from airflow_mq.block import block

    with DAG("waits", schedule=None, fail_fast=fail_fast) as dag:
        block(processors=in_place())
    assert dag.get_task("block.settle").upstream_task_ids == {"block.plan", "block.process"}


def shipped(name: str, *permitted: str) -> str:
    """Return a shipped DAG file that permits these connections; `mq_stage` if none are given."""
    text = (Path(__file__).parents[2] / "dags" / name).read_text()
    listed = 'CONNECTIONS = ["airflow_mq_default"]'
    assert listed in text
    return text.replace(listed, f"CONNECTIONS = {list(permitted) or ['mq_stage']}")


@pytest.mark.parametrize("name", ["overweight_by_hand", "set_aside_by_hand"])
def test_the_right_to_trigger_reaches_the_permitted_connections_only(
    dags_folder: Path, sqlite_queue: MessageQueue, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.serialization.serialized_objects import DagSerialization

    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "dags"))
    file = dags_folder / f"{name}.py"
    file.write_text(shipped(f"{name}.py", "mq_other", "mq_third"))
    dag = DagBag(dag_folder=str(file)).dags[name]
    given = {"why": "x", "address": "a:0:0", "connection": "mq_third"}
    asked = {key: value for key, value in given.items() if key in dag.params}
    served = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    served.params.deep_merge(asked).validate()
    with pytest.raises(Exception, match="'mq_stage' is not one of"):
        served.params.deep_merge({**asked, "connection": "mq_stage"}).validate()


def test_an_approval_describes_a_message_behind_many_others(
    dags_folder: Path, sqlite_queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.dag_processing.dagbag import DagBag

    sqlite_queue.enqueue_messages("a", [b"elephant"] * 10_001, weight=Weight(10**9, 10))
    sqlite_queue.blocks.settle(sqlite_queue.blocks.plan())
    last = max(sqlite_queue.set_aside.list(limit=20_000), key=lambda message: message.address).address
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "dags"))
    monkeypatch.setenv("AIRFLOW_CONN_AIRFLOW_MQ_DEFAULT", os.environ["AIRFLOW_CONN_MQ_STAGE"])
    file = dags_folder / "overweight_with_approval.py"
    file.write_text((Path(__file__).parents[2] / "dags" / file.name).read_text())
    describe = DagBag(dag_folder=str(file)).dags["overweight_with_approval"].get_task("describe").python_callable
    assert "Reason: overweight" in describe({"address": str(last)})
    with pytest.raises(ValueError, match="no set-aside message at a:0:999999"):
        describe({"address": "a:0:999999"})


def test_no_shipped_form_takes_an_address_of_the_operator() -> None:
    """Free text in a form must not choose a store, or a file of the worker."""
    free = {"address", "why", "origin", "ring", "limit"}
    for file in sorted((Path(__file__).parents[2] / "dags").glob("*.py")):
        found = re.findall(r'"(\w+)": Param\((.*?)\n? *\),?\n', file.read_text(), re.DOTALL)
        for name, text in found:
            assert name in free or "enum=" in text or 'type="string"' not in text, f"{file.name}: {name}"


def test_a_form_that_chooses_nothing_changes_nothing(dags_folder: Path, sqlite_queue: MessageQueue) -> None:
    from airflow.dag_processing.dagbag import DagBag

    sqlite_queue.enqueue_messages([("a", b"elephant"), ("b", b"whale")], weight=Weight(10**9, 10))
    sqlite_queue.blocks.settle(sqlite_queue.blocks.plan())
    sqlite_queue.admin.change_ring(service_weight=Weight(10**10, 1 << 30))
    file = dags_folder / "set_aside_by_hand.py"
    file.write_text(shipped("set_aside_by_hand.py"))
    for said in ({"decision": "requeue"}, {"decision": "discard", "all": True}):
        # A run's conf becomes the defaults of the next one here.
        dag = DagBag(dag_folder=str(file)).dags["set_aside_by_hand"]
        assert states(dag.test(run_conf={"why": "x", **said}))["decide"] == "failed"
        assert sqlite_queue.set_aside.count() == 2
    dag = DagBag(dag_folder=str(file)).dags["set_aside_by_hand"]
    assert states(dag.test(run_conf={"why": "x", "all": True}))["requeue"] == "success"
    assert sqlite_queue.set_aside.count() == 0


def test_what_is_set_aside_is_decided_about_by_hand(dags_folder: Path, sqlite_queue: MessageQueue) -> None:
    from airflow.dag_processing.dagbag import DagBag

    sqlite_queue.enqueue_messages([("a", b"elephant"), ("b", b"whale")], weight=Weight(10**9, 10))
    sqlite_queue.blocks.settle(sqlite_queue.blocks.plan())
    file = dags_folder / "set_aside_by_hand.py"
    file.write_text(shipped("set_aside_by_hand.py"))
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
    assert {event.why.partition(";")[0] for event in sqlite_queue.inspect.events(name="Requeued")} == {
        "the limit was raised"
    }


def test_an_outbox_and_two_stages(dags_folder: Path, queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.dag_processing.dagbag import DagBag
    from sqlalchemy import text

    from airflow_mq.hooks import MessageQueueHook

    file = dags_folder / "outbox.py"
    file.write_text((Path(__file__).parents[2] / "dags" / "outbox.py").read_text())
    monkeypatch.setenv("AIRFLOW_CONN_AIRFLOW_MQ_DEFAULT", os.environ["AIRFLOW_CONN_MQ_STAGE"])
    dag = DagBag(dag_folder=str(file)).dags["outbox"]
    for one in dag.tasks:
        one.retries = 0
    engine = MessageQueueHook().get_sqlalchemy_engine()

    def rows(name: str) -> list[str]:
        with engine.connect() as connection:
            return [str(row[0]) for row in connection.execute(text(f"SELECT what FROM {name} ORDER BY what"))]

    # The third verdict cannot be written: neither is its message handed on.
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE shop_verdict (what text, CHECK (what NOT LIKE 'order 2 %'))"))
    run = dag.test(run_conf={"orders": 5})
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
    run = dag.test(run_conf={"orders": 1})
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


@pytest.mark.parametrize("fail_fast", [False, True])
@pytest.mark.parametrize("is_nested", [False, True])
def test_what_follows_a_block_runs_after_it_is_settled(
    run_dag: RunDag, sqlite_queue: MessageQueue, fail_fast: bool, is_nested: bool
) -> None:
    fill(sqlite_queue, {"a": [b"1"]})

    run = run_dag(
        f"""
        from airflow.sdk import TaskGroup
        from contextlib import nullcontext

        @task
        def follows():
            pass

        with DAG("scene", schedule=None, fail_fast={fail_fast}):
            with TaskGroup("outer") if {is_nested} else nullcontext() as outer:
                inner = block(processors=ALL, mq_conn_id="mq_stage")
            (outer or inner) >> follows()
        """
    )

    assert run.state == "success"
    ended = {ti.task_id.rpartition(".")[2]: ti for ti in run.get_task_instances()}
    assert {str(ti.state) for ti in ended.values()} == {"success"}
    assert ended["settle"].end_date <= ended["follows"].start_date
    assert len(processed(sqlite_queue)) == 1


@pytest.mark.parametrize("fail_fast", [False, True])
@pytest.mark.parametrize("is_followed", [False, True])
def test_a_failed_part_fails_the_run_and_its_block_is_settled(
    run_dag: RunDag, sqlite_queue: MessageQueue, fail_fast: bool, is_followed: bool
) -> None:
    fill(sqlite_queue, {"a": [b"1"], "b": [b"2"]})

    run = run_dag(
        f"""
        @task
        def follows():
            pass

        broken = Processor("broken", "tests.airflow.functions:missing", origins=("a*",), where="in place")
        with DAG("scene", schedule=None, fail_fast={fail_fast}):
            group = block(processors=Processors([broken, ALL[1]]), mq_conn_id="mq_stage", share_below=1)
            if {is_followed}:
                group >> follows()
        """
    )

    assert run.state == "failed"
    found = states(run)
    assert (found["broken"], found["block.settle"]) == ("failed", "failed")
    assert not is_followed or found["follows"] in ("skipped", "upstream_failed")
    assert [block.state for block in sqlite_queue.blocks.list()] == ["settled"]


@pytest.mark.parametrize("fail_fast", [False, True])
@pytest.mark.parametrize("way", ["block.plan", "other"])
def test_a_block_that_is_branched_over_settles_nothing_and_calls_for_no_run(
    run_dag: RunDag, sqlite_queue: MessageQueue, fail_fast: bool, way: str
) -> None:
    fill(sqlite_queue, {"a": [b"1", b"2"]})

    run = run_dag(
        f"""
        WAY = {way!r}

        @task.branch
        def choose():
            return WAY

        @task
        def other():
            pass

        @task
        def follows():
            pass

        with DAG("scene", schedule=None, fail_fast={fail_fast}):
            group = block(
                processors=ALL, mq_conn_id="mq_stage", share_below=1, outlet=Asset("scene-ready"), limit=[1, 1 << 20]
            )
            choose() >> [group, other()]
            group >> follows()
        """
    )

    assert run.state == "success"
    found = states(run)
    taken = way == "block.plan"
    assert {found["block.plan"], found["block.settle"], found["follows"]} == {"success" if taken else "skipped"}
    assert found["other"] == ("skipped" if taken else "success")
    assert len(sqlite_queue.blocks.list()) == taken
    assert emitted(run) == (["scene-ready"] if taken else [])


def emitted(run: Any) -> list[str]:
    """The assets that the tasks of a run emitted."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    query = select(AssetModel.name).join(AssetEvent, AssetEvent.asset_id == AssetModel.id)
    with create_session() as session:
        return list(session.scalars(query.where(AssetEvent.source_run_id == run.run_id)))


def test_a_failed_job_turns_the_run_red_and_everything_is_settled(
    run_dag: RunDag, sqlite_queue: MessageQueue, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(sqlite_queue, {"a": [b"1"], "b": [b"2"]})

    run = run_dag(
        """
        broken = Processor("broken", "tests.airflow.functions:missing", origins=("a*",), where="in place")
        with DAG("scene", schedule=None):
            block(processors=Processors([broken, ALL[1]]), mq_conn_id="mq_stage", share_below=1, outlet=Asset("more"))
        """
    )

    assert run.state == "failed"
    assert states(run) == {
        "block.plan": "success", "broken": "failed", "beta": "success", "block.settle": "failed",
    }  # fmt: skip
    assert emitted(run) == [] and "Did not emit more, although" in (said := "".join(capfd.readouterr())), said
    assert "Emitted more" not in said and "1 message returned without an outcome" in said
    assert "`airflow-mq message events --name Returned --latest --limit 20 --conn-id mq_stage --ring default`" in said
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


@pytest.mark.parametrize(
    "given",
    ["payload, origin", "order", "table, message", "payload, table", "payload, ti=None, params=None",
     "order, **context"],
)  # fmt: skip
def test_the_decorator_is_an_attribute_of_task(run_dag: RunDag, sqlite_queue: MessageQueue, given: str) -> None:
    fill(sqlite_queue, {"a": [b"1", b"2"]})

    run = run_dag(
        """
        with DAG("scene", schedule=None, params={"rate": 2}):
            @task.message_processor(mq_conn_id="mq_stage", limit=[100, 1048576])
            def count(GIVEN):
                given = dict(locals())
                assert given.pop("table", "orders") == "orders" and len(given) in (1, 2, 3)
                assert all(given.values())
            count(TABLE)
        """.replace("GIVEN", given).replace("TABLE", 'table="orders"' if "table" in given else "")
    )

    assert run.state == "success"
    assert len(processed(sqlite_queue)) == 2


@pytest.mark.parametrize("call", ["[b'1']", "payload=b'1'", "b'1', table='orders'", "gives()"])
def test_a_call_that_gives_what_the_queue_gives_is_no_dag(dags_folder: Path, call: str) -> None:
    from airflow.dag_processing.dagbag import DagBag

    file = dags_folder / "given.py"
    file.write_text(
        "from airflow.sdk import DAG, task\n"
        "with DAG('given', schedule=None):\n"
        "    @task\n"
        "    def gives():\n"
        "        return b'1'\n"
        "    @task.message_processor\n"
        "    def count(payload, origin, table='orders'):\n"
        "        return None\n"
        f"    count({call})\n"
    )

    (error,) = DagBag(dag_folder=str(file)).import_errors.values()
    assert "invalid call of count" in error and "call count() without them" in error


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


def test_a_task_behind_a_block_emits_a_partition_for_it(run_dag: RunDag, sqlite_queue: MessageQueue) -> None:
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    if not hasattr(AssetEvent, "partition_key"):
        pytest.skip("assets of this Airflow have no partitions")
    page = (DAGS.parent / "docs" / "blocks.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n([^`]*add_partitions[^`]*)```", page)
    text = example.replace('"orders"', '"scene"').replace("processors=RULES", 'processors=ALL, mq_conn_id="mq_stage"')
    fill(sqlite_queue, {"a": [b"1", b"2"]})

    assert run_dag(text).state == "success"
    assert run_dag(text).state == "success", "the second block is empty"

    query = select(AssetEvent.partition_key).join(AssetModel, AssetEvent.asset_id == AssetModel.id)
    with create_session() as session:
        assert list(session.scalars(query.where(AssetModel.name == "orders-written"))) == ["default-1"]


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
    ("hook", "msg"),
    [
        ("failed", "task_failure"),
        ("success", "Dag Run's state was manually set"),
        # Its settling task was marked as successful, or its plan alone was cleared.
        ("success", "success"),
    ],
)
def test_a_run_that_ends_before_it_settles_releases_its_block(queue: MessageQueue, hook: str, msg: str) -> None:
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

    for _ in range(1200):
        if state(run) == "released":
            break
        time.sleep(0.05)
    assert (state(run), state(other)) == ("released", "planned")
    for block in queue.blocks.list("planned"):
        queue.blocks.release(block)


def test_a_listener_that_cannot_open_a_queue_only_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    import airflow_mq.plugin as plugin

    assert plugin.release("dag", "r1", {("mq_nowhere", None)}) == 0
    assert "cannot be opened" in caplog.text


@pytest.fixture
def no_id(dags_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """An Airflow without an id; gives what deletes the id that it made."""
    from airflow.models.variable import Variable
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    from airflow_mq.installation import VARIABLE

    def forget() -> None:
        with create_session() as session:
            session.execute(delete(Variable).where(Variable.key == VARIABLE))

    monkeypatch.delenv(f"AIRFLOW_VAR_{VARIABLE.upper()}")
    forget()
    yield forget
    forget()


def stored_ids() -> list[str]:
    from airflow.models.variable import Variable
    from airflow.utils.session import create_session
    from sqlalchemy import select

    from airflow_mq.installation import VARIABLE

    with create_session() as session:
        return [one.val for one in session.scalars(select(Variable).where(Variable.key == VARIABLE))]


def test_an_airflow_makes_its_id_once(no_id: Callable[[], None], sqlite_queue: MessageQueue, run_dag: RunDag) -> None:
    from airflow_mq.installation import make_installation

    text = """
        with DAG("scene", schedule=None):
            block(processors=ALL, mq_conn_id="mq_stage")
    """
    assert run_dag(text).state == "success"
    (made,) = stored_ids()
    make_installation()
    assert run_dag(text).state == "success"
    assert stored_ids() == [made]
    assert {str(block.key).partition(":")[0] for block in sqlite_queue.blocks.list()} == {made}

    no_id()
    make_installation()
    (again,) = stored_ids()
    assert again != made


@pytest.mark.parametrize(("failures", "state"), [(1, "success"), (2, "success"), (1_000, "failed")])
def test_a_task_that_cannot_read_the_id_replaces_it_never(
    no_id: Callable[[], None],
    sqlite_queue: MessageQueue,
    run_dag: RunDag,
    monkeypatch: pytest.MonkeyPatch,
    failures: int,
    state: str,
) -> None:
    """Airflow's API reports that there is no such variable, even if its database did not answer."""
    from airflow.secrets.metastore import MetastoreBackend
    from sqlalchemy.exc import OperationalError

    from airflow_mq.installation import VARIABLE, make_installation

    make_installation()
    before, left, read = stored_ids(), [failures], MetastoreBackend.get_variable

    def fail(backend: Any, key: str, **more: Any) -> Any:
        if key == VARIABLE and left[0]:
            left[0] -= 1
            raise OperationalError("SELECT val", {}, Exception("database is locked"))
        return read(backend, key, **more)

    monkeypatch.setattr(MetastoreBackend, "get_variable", fail)
    run = run_dag(
        """
        from airflow_mq.operators.enqueue import EnqueueMessagesOperator

        with DAG("scene", schedule=None):
            EnqueueMessagesOperator(task_id="send", origin="a", messages=["1"], mq_conn_id="mq_stage")
        """
    )

    assert left[0] < failures and run.state == state
    assert stored_ids() == before and sqlite_queue.footprint("a").count == (state == "success")


def test_a_worker_without_an_id_names_what_makes_one(
    no_id: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow import settings
    from airflow.providers.common.compat.sdk import AirflowException
    from airflow.sdk.execution_time import task_runner

    from airflow_mq.installation import installation

    assert installation() == "local"
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(), raising=False)
    # As Airflow blocks it in a task.
    monkeypatch.setattr(settings, "NonScopedSession", None)
    with pytest.raises(AirflowException, match="airflow variables set airflow_mq_installation NAME"):
        installation()
    assert stored_ids() == []


# -- what is shipped --

DAGS = Path(__file__).parents[2] / "dags"
#: The file whose tests run a shipped DAG.
RUN_BY = {
    "event_driven_block": "tests/airflow/test_dags.py",
    "housekeeping": "tests/airflow/test_dags.py",
    "landing_folder": "tests/airflow/test_dags.py",
    "monthly_bill": "tests/airflow/test_dags.py",
    "nightly_drain": "tests/live/test_drain.py",
    "orders": "tests/live/test_orders.py",
    "outbox": "tests/airflow/test_dags.py",
    "overweight_by_hand": "tests/live/test_overweight.py",
    "overweight_with_approval": "tests/live/test_overweight.py",
    "scheduled_block": "tests/airflow/test_dags.py",
    "set_aside_by_hand": "tests/airflow/test_dags.py",
}


def test_each_shipped_dag_is_run() -> None:
    assert RUN_BY.keys() == {file.stem for file in DAGS.glob("*.py")} - {"processing_rules"}
    for name, tests in RUN_BY.items():
        assert f'"{name}' in (DAGS.parent / tests).read_text(), name


@pytest.mark.parametrize(
    "name", ["event_driven_block", "nightly_drain", "landing_folder", "scheduled_block", "housekeeping"]
)
def test_a_shipped_dag_runs(
    dags_folder: Path, sqlite_queue: MessageQueue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """With messages and, the second time, without any."""
    from airflow.dag_processing.dagbag import DagBag

    monkeypatch.setenv("AIRFLOW_CONN_AIRFLOW_MQ_DEFAULT", os.environ["AIRFLOW_CONN_MQ_STAGE"])
    landed = tmp_path / "acme" / "1.json"
    landed.parent.mkdir()
    landed.write_text("{}")
    fill(sqlite_queue, {"acme": [b"1"]})
    file = dags_folder / f"{name}.py"
    text = (DAGS / f"{name}.py").read_text()
    text = text.replace("/var/lib/airflow-mq/landing", str(tmp_path)).replace("settle=5", "settle=0")
    rules = f"from tests.airflow.stage import {in_place.__name__}\n\nRULES = {in_place.__name__}()"
    file.write_text(text.replace("from processing_rules import RULES", rules))
    expected = {"landing_folder": 2, "housekeeping": 0}.get(name, 1)

    for settled in (expected, 0):
        bag = DagBag(dag_folder=str(file))
        assert bag.import_errors == {}
        for one in bag.dags[name].tasks:
            one.retries = 0
        assert bag.dags[name].test().state == "success"
        assert len(processed(sqlite_queue)) == expected
        latest = sqlite_queue.blocks.list(limit=1)
        assert not latest or latest[0].messages == settled


def test_the_shipped_dag_bills_the_month_before(
    dags_folder: Path, sqlite_queue: MessageQueue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from airflow.dag_processing.dagbag import DagBag

    monkeypatch.setenv("AIRFLOW_CONN_AIRFLOW_MQ_DEFAULT", os.environ["AIRFLOW_CONN_MQ_STAGE"])
    now = datetime.now(timezone.utc)
    last = now.replace(day=1, hour=12) - timedelta(days=1)
    for origins, at in ((["acme/a", "acme/b", "=birch"], last), (["acme/a"], now)):
        fill(sqlite_queue, {origin: [b"x"] for origin in origins})
        sqlite_queue.service_queues(lambda delivery: None, Weight(1000, 1 << 20))
        with sqlite_queue.store.writing() as unit:
            latest = "(SELECT max(at) FROM {s}charge)"
            for table in ("event", "charge"):
                text = f"UPDATE {{s}}{table} SET at = ? WHERE at = {latest}".replace("{s}", sqlite_queue.store.prefix)
                unit.connection.execute(text, (int(at.timestamp() * 1_000_000),))
    file = dags_folder / "monthly_bill.py"
    file.write_text(
        (DAGS / "monthly_bill.py").read_text().replace("/var/lib/airflow-mq/bills", str(tmp_path / "bills"))
    )

    texts = []
    for is_rolled_up in (False, True):
        if is_rolled_up:
            sqlite_queue.admin.housekeep()
        bag = DagBag(dag_folder=str(file))
        assert bag.import_errors == {}
        assert bag.dags["monthly_bill"].test().state == "success"
        texts.append((tmp_path / "bills" / f"{last:%Y-%m}.csv").read_text())
    assert texts[0] == texts[1]
    rows = list(csv.reader(io.StringIO(texts[0])))
    assert rows == [
        ["tenant", "messages", "attempts", "charged_ms", "charged_bytes", "cost", "currency"],
        ["'=birch", "1", "1", "1", "1", "0.00", "EUR"],
        ["acme", "2", "2", "2", "2", "0.00", "EUR"],
    ]
