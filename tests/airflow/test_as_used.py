"""Operators as authors use them: Airflow renders and runs them, with templates, XComs, empty XComs and mapped tasks."""

from __future__ import annotations

import base64
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_mq import MessageQueue, Weight
from tests.airflow.functions import SEEN
from tests.airflow.test_dags import RunDag, dags_folder, run_dag, states

__all__ = ["dags_folder", "run_dag"]
pytestmark = [pytest.mark.airflow, pytest.mark.slow]

PAYLOAD = "canary-payload-5126"


def kept(run: Any, table: str, *tasks: str) -> dict[str, str]:
    """Return what Airflow's database keeps of these tasks of a run in a table, by task."""
    from airflow.utils.session import create_session
    from sqlalchemy import text

    with create_session() as session:
        query = text(f"SELECT * FROM {table} WHERE run_id = :run")
        rows = session.execute(query, {"run": run.run_id}).mappings().all()
    found = dict.fromkeys(tasks, "")
    for row in rows:
        if row["task_id"] in found:
            found[row["task_id"]] += str(dict(row))
    return found


def refuse_payload(*texts: str) -> None:
    """Raise `AssertionError` if a text contains the planted payload, plain or encoded."""
    encoded = [base64.b64encode(b" " * place + PAYLOAD.encode())[4:-4].decode() for place in range(3)]
    for form in (PAYLOAD, PAYLOAD.encode().hex(), *encoded):
        found = [text[max(place - 80, 0) : place + 80] for text in texts if (place := text.find(form)) >= 0]
        assert found == []


@pytest.fixture
def watched(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Any:
    """Return what tasks logged and printed."""
    caplog.set_level("DEBUG")

    def seen() -> str:
        printed = capfd.readouterr()
        return caplog.text + printed.out + printed.err

    return seen


def set_aside(queue: MessageQueue, counts: dict[str, int]) -> list[str]:
    """Set messages of these origins aside; return their addresses."""
    for origin, count in counts.items():
        queue.enqueue_messages(origin, [b"elephant"] * count, weight=Weight(10**9, 10))
    queue.blocks.settle(queue.blocks.plan())
    return [str(one.address) for one in queue.set_aside.list()]


@pytest.mark.uses("EnqueueMessagesOperator")
def test_messages(run_dag: RunDag, sqlite_queue: MessageQueue, watched: Any) -> None:
    run = run_dag(
        f"""
        from airflow_mq.operators.enqueue import EnqueueMessagesOperator

        common = {{"mq_conn_id": "mq_stage", "origin": lambda message: message["of"]}}

        @task(show_return_value_in_logs=False)
        def extract(many):
            return [{{"of": "xcom", "secret": "{PAYLOAD}"}}] * many

        @task(show_return_value_in_logs=False)
        def several():
            return [[{{"of": "mapped", "secret": "{PAYLOAD}"}}], [], [{{"of": "mapped", "n": 1}}] * 2]

        macros = {{"secret": lambda: "{PAYLOAD}"}}
        with DAG("scene", schedule=None, user_defined_macros=macros):
            full, empty = extract.override(task_id="full")(2), extract.override(task_id="empty")(0)
            literal = [{{"of": "literal", "secret": "{{{{ secret() }}}}"}}]
            EnqueueMessagesOperator(task_id="literal", messages=literal, **common)
            EnqueueMessagesOperator(task_id="of_text", messages="{{{{ secret() }}}}", mq_conn_id="mq_stage",
                                    origin="{{{{ dag.dag_id }}}}")
            EnqueueMessagesOperator(task_id="of_xcom", messages=full, **common)
            EnqueueMessagesOperator(task_id="of_none", messages=empty, **common)
            EnqueueMessagesOperator.partial(task_id="mapped", **common).expand(messages=several())
            EnqueueMessagesOperator(task_id="broken", messages=full, mq_conn_id="mq_stage",
                                    origin=lambda message: str(int(message["secret"])))
            EnqueueMessagesOperator(task_id="odd", messages=full, mq_conn_id="mq_stage", origin=lambda m: m)
        """
    )

    tasks = ("literal", "of_text", "of_xcom", "of_none", "mapped", "broken", "odd")
    found = {ti.task_id: str(ti.state) for ti in run.get_task_instances()}
    assert {found[name] for name in tasks[:5]} == {"success"}
    assert found["broken"] == found["odd"] == "failed"
    counts = {origin: footprint.count for origin, footprint in sqlite_queue.footprints()}
    assert counts == {"literal": 1, "scene": 1, "xcom": 2, "mapped": 3}
    rendered = kept(run, "rendered_task_instance_fields", *tasks)
    assert "1 message of 47 bytes" in rendered["literal"] and "2 messages of 88 bytes" in rendered["of_xcom"]
    assert "0 messages of 0 bytes" in rendered["mapped"] and "scene" in rendered["of_text"]
    refuse_payload(watched(), *rendered.values(), *kept(run, "xcom", *tasks).values())


def test_text_that_airflow_made_of_a_value_is_refused(
    run_dag: RunDag, sqlite_queue: MessageQueue, watched: Any
) -> None:
    """Else a list or a mapping would be one message, and None a message, an origin or a filter that chooses nothing."""
    run = run_dag(
        f"""
        from airflow_mq.operators.enqueue import EnqueueMessagesOperator as Enqueue
        from airflow_mq.operators.set_aside import DiscardSetAsideOperator as Discard, RequeueSetAsideOperator as Requeue
        from airflow_mq.operators.queues import PauseQueueOperator as Pause

        @task(show_return_value_in_logs=False)
        def gives():
            return ["{PAYLOAD}"]

        of_list, of_none = "{{{{ ti.xcom_pull('gives') }}}}", "{{{{ ti.xcom_pull('absent') }}}}"
        common = {{"mq_conn_id": "mq_stage"}}
        with DAG("scene", schedule=None):
            gives() >> [
                Enqueue(task_id="of_list", origin="a", messages=of_list, **common),
                Enqueue(task_id="of_none", origin="a", messages=of_none, **common),
                Enqueue(task_id="of_no_origin", origin=of_none, messages=["x"], **common),
                Enqueue(task_id="of_mapping", origin="a", messages="{{{{ {{'payload': '{PAYLOAD}'}} }}}}", **common),
                Enqueue(task_id="of_tuple", origin="a", messages="{{{{ ('{PAYLOAD}', 'x') }}}}", **common),
                Enqueue(task_id="of_numbers", origin="a", messages="{{{{ (1, 2) }}}}", **common),
                Discard(task_id="discard_none", origin=of_none, why="gone", **common),
                Requeue(task_id="requeue_none", error=of_none, all=True, **common),
                Pause(task_id="pause_none", origins=of_none, **common),
                Pause(task_id="pause_for_ever", origins="a", until="{{{{ ti.xcom_pull('absent') or '' }}}}", **common),
                Enqueue(task_id="written", origin="b", messages="None", **common),
                Enqueue(task_id="json", origin="b", messages="{{{{ {{'a': 1}} | tojson }}}}", **common),
                Enqueue(task_id="around", origin="b", messages="[{{{{ ti.xcom_pull('gives') }}}}]", **common),
            ]
        """
    )

    found = {ti.task_id: str(ti.state) for ti in run.get_task_instances()}
    assert {name for name, state in found.items() if state == "success"} == {
        "gives", "written", "json", "around",
    }  # fmt: skip
    assert [origin for origin, _ in sqlite_queue.footprints()] == ["b"] and not list(sqlite_queue.admin.paused())
    said = watched()
    assert (
        "invalid messages: Airflow made text of a list" in said and "invalid origin: Airflow made text of None" in said
    )
    assert "until is empty" in said and "messages: Airflow made text of a mapping" in said
    assert "invalid origin: Airflow made text of None" in said and "invalid error: Airflow made text of None" in said
    refuse_payload(said)


# -- a number is no text, and 0 is not empty --


def test_numbers_of_native_templates_name_no_origin(run_dag: RunDag, sqlite_queue: MessageQueue, watched: Any) -> None:
    """Else no task would pause the origin 0, a filter for it would choose the messages of all, and so would a ring."""
    set_aside(sqlite_queue, {"0": 1, "b": 1})

    run = run_dag(
        """
        from airflow_mq.operators.set_aside import DiscardSetAsideOperator
        from airflow_mq.operators.queues import HousekeepingOperator, PauseQueueOperator, ResumeQueueOperator
        from airflow_mq.sensors import SetAsideSensor

        common = {"mq_conn_id": "mq_stage"}
        with DAG("scene", schedule=None, params={"zero": "0", "n": "17"}, render_template_as_native_obj=True):
            PauseQueueOperator(task_id="pause", origins="{{ params.zero }}", **common)
            PauseQueueOperator(task_id="pause_more", origins="{{ params.n }}", **common)
            PauseQueueOperator(task_id="pause_text", origins="{{ params.n | tojson }}", **common)
            ResumeQueueOperator(task_id="resume", origins="{{ params.n }}", **common)
            DiscardSetAsideOperator(
                task_id="discard", origin="{{ params.zero }}", reason="overweight", all=True, why="test", **common)
            HousekeepingOperator(task_id="ring", ring="{{ params.zero }}", **common)
            SetAsideSensor(task_id="sensor", ring="{{ params.zero }}", **common)
        """
    )

    found = states(run)
    assert found.pop("pause_text") == "success" and set(found.values()) == {"failed"}
    assert [pause.origin for pause in sqlite_queue.admin.paused()] == ["17"]
    assert sqlite_queue.set_aside.count() == 2
    told = watched()
    assert told.count("invalid origin (int): expected text") >= 4
    assert told.count("invalid type of the name of a ring (int): expected text") >= 2


# -- empty means none --


def test_a_decision_about_nothing_changes_nothing(run_dag: RunDag, sqlite_queue: MessageQueue) -> None:
    """Empty lists, XComs and filters, in both operators: no message may be requeued or discarded."""
    set_aside(sqlite_queue, {"a": 3, "b": 1})
    sqlite_queue.admin.change_ring(service_weight=Weight(10**10, 1 << 30))

    run = run_dag(
        """
        from airflow_mq.operators.set_aside import DiscardSetAsideOperator, RequeueSetAsideOperator

        @task
        def nothing(value=None):
            return value

        with DAG("scene", schedule=None, params={"origin": ""}):
            missing, empty = nothing(), nothing.override(task_id="empty")([])
            for kind in (RequeueSetAsideOperator, DiscardSetAsideOperator):
                common = {"mq_conn_id": "mq_stage", "why": "test"}
                name = kind.__name__[:7]
                kind(task_id=f"{name}_list", addresses=[], **common)
                kind(task_id=f"{name}_text", addresses="{{ params.origin }}", **common)
                kind(task_id=f"{name}_xcom", addresses=empty, **common)
                kind(task_id=f"{name}_no_xcom", addresses=missing, **common)
                kind(task_id=f"{name}_filter", origin="{{ params.origin }}", **common)
                kind(task_id=f"{name}_one_of_two", origin="{{ params.origin }}", reason="overweight", **common)
                kind(task_id=f"{name}_filter_xcom", origin=missing, **common)
                kind.partial(task_id=f"{name}_mapped", **common).expand(addresses=[[], ""])
        """
    )

    assert set(states(run).values()) == {"success"}
    assert sqlite_queue.set_aside.count() == 4


@pytest.mark.uses("DiscardSetAsideOperator", "RequeueSetAsideOperator")
def test_decisions_about_what_is_chosen(run_dag: RunDag, sqlite_queue: MessageQueue) -> None:
    first, *_ = set_aside(sqlite_queue, {"a": 3, "b": 2, "c": 2, "d": 1, "e": 1})
    sqlite_queue.admin.change_ring(service_weight=Weight(10**10, 1 << 30))

    run = run_dag(
        f"""
        from airflow_mq.operators.set_aside import DiscardSetAsideOperator, RequeueSetAsideOperator

        @task
        def chosen(address="{first}"):
            return address and [address]

        common = {{"mq_conn_id": "mq_stage", "why": "test"}}
        with DAG("scene", schedule=None, params={{"origin": "b", "reason": ""}}):
            one = DiscardSetAsideOperator(task_id="xcom", addresses=chosen(), **common)
            two = DiscardSetAsideOperator.partial(task_id="mapped", **common).expand(addresses=["c:0:0", ["c:0:1"]])
            three = DiscardSetAsideOperator(
                task_id="form", origin="{{{{ params.origin }}}}", reason="{{{{ params.reason }}}}", all=True, **common)
            four = RequeueSetAsideOperator.partial(task_id="requeue", **common).expand(origin=["d", "none"])
            none = DiscardSetAsideOperator(
                task_id="no_filter", origin=chosen.override(task_id="none")(None), **common)
            # Without a reason, a discarded message would leave nothing.
            DiscardSetAsideOperator(task_id="no_why", addresses="{first}", mq_conn_id="mq_stage",
                                    why=chosen.override(task_id="no_reason")(None))
            five = RequeueSetAsideOperator(
                task_id="one", addresses=chosen.override(task_id="again")("a:0:1"), ring="{{{{ params.reason }}}}",
                mq_conn_id="mq_stage", why=chosen.override(task_id="unasked")(None))
            [one, two, three, four, none, five] >> RequeueSetAsideOperator(task_id="everything", all=True, **common)
        """
    )

    found = states(run)
    assert found.pop("no_why") == "failed" and set(found.values()) == {"success"}
    assert sqlite_queue.set_aside.count() == 0
    counts = {origin: found.count for origin, found in sqlite_queue.footprints() if found.count}
    assert counts == {"a": 2, "d": 1, "e": 1}
    assert {event.why.partition(";")[0] for event in sqlite_queue.inspect.events(name="Requeued")} == {
        "test",
        "it fits by now",
    }


@pytest.mark.uses("PauseQueueOperator", "ResumeQueueOperator", "ReapPageOperator", "HousekeepingOperator")
def test_queues_are_paused_and_resumed(run_dag: RunDag, sqlite_queue: MessageQueue) -> None:
    sqlite_queue.enqueue_messages([(origin, b"x") for origin in "abcd"])

    run = run_dag(
        """
        from airflow_mq.operators.queues import (
            HousekeepingOperator, PauseQueueOperator, ReapPageOperator, ResumeQueueOperator)

        @task
        def names(value):
            return value

        common = {"mq_conn_id": "mq_stage"}
        with DAG("scene", schedule=None, params={"none": "", "page": 7}):
            some, none, missing = names(["a"]), names.override(task_id="none")([]), names.override(task_id="null")(None)
            resume = ResumeQueueOperator(task_id="resume", origins=some, **common)
            for number, origins in enumerate(["{{ params.none }}", [], none, missing, some, "{{ 'b' }}"]):
                PauseQueueOperator(task_id=f"pause_{number}", origins=origins, **common) >> resume
                ResumeQueueOperator(task_id=f"resume_{number}", origins=[], **common)
            mapped = PauseQueueOperator.partial(task_id="mapped", **common).expand(origins=["c", ["d"], []])
            PauseQueueOperator(task_id="as_text", origins="{{ ['a', 'b'] }}", **common)
            PauseQueueOperator(task_id="until", origins="e", reason=missing, until="{{ params.page * 100000 }}", **common)
            # Whether Airflow runs mapped tasks one after the other or not.
            of_template = ResumeQueueOperator(task_id="of_template", origins="{{ params.none or 'd' }}", **common)
            mapped >> of_template
            ResumeQueueOperator(task_id="of_null", origins=missing, ring=missing, **common)
            ResumeQueueOperator.partial(task_id="resume_mapped", **common).expand(origins=["z", ["z", "y"], []])
            # Not in a template: Airflow would make one text of several.
            keep = {"check": True, "mq_conn_id": "{{ params.none or 'mq_stage' }}"}
            [resume, of_template] >> HousekeepingOperator(task_id="keep", ring=missing, **keep)
            resume >> HousekeepingOperator(task_id="keep_again", ring=names.override(task_id="ring")("default"), **keep)
            HousekeepingOperator.partial(task_id="keep_mapped", **keep).expand(ring=["default", None])
            ReapPageOperator(task_id="reap", origin="a", page="{{ params.none }}", **common)
            ReapPageOperator(task_id="reap_none", origin="a", page=missing, **common)
            seven = names.override(task_id="seven")(7)
            ReapPageOperator(task_id="reap_old", origin="f", page=seven, why=missing, priority="{{ 'high' }}", **common)
            ReapPageOperator.partial(task_id="reap_mapped", origin="f", **common).expand(page=["0", 1])
        """
    )

    found = {name: state for ti in run.get_task_instances() for name, state in [(ti.task_id, str(ti.state))]}
    failed = {name for name, state in found.items() if state != "success"}
    assert failed == {"as_text", "reap", "reap_none", "reap_old", "reap_mapped"}, "there are no pages to reap"
    assert [one.origin for one in sqlite_queue.admin.paused()] == ["b", "c", "e"]


# -- sources --


@pytest.mark.uses("EnqueueFilesOperator")
def test_files(run_dag: RunDag, sqlite_queue: MessageQueue, tmp_path: Path, watched: Any) -> None:
    for name in ("acme/1.csv", "acme/2.csv", "birch/1.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{{{{ 1/0 }}}} {PAYLOAD}")

    run = run_dag(
        f"""
        from airflow_mq.operators.enqueue import EnqueueFilesOperator

        @task
        def where(*names):
            return [f"{tmp_path}/{{name}}/*.csv" for name in names]

        @task
        def nowhere():
            return None

        common = {{"mq_conn_id": "mq_stage", "origin": lambda path: "of " + path.split("/")[-2], "key_scope": "run"}}
        with DAG("scene", schedule=None, params={{"folder": "acme"}}):
            EnqueueFilesOperator(task_id="template", files="{tmp_path}/{{{{ params.folder }}}}/*.csv",
                                 **{{**common, "origin": "{{{{ params.folder }}}}.sql"}})
            EnqueueFilesOperator(task_id="none", files="{tmp_path}/{{{{ params.folder }}}}/*.none", **common)
            EnqueueFilesOperator(task_id="no_folder", files="{tmp_path}/absent/*.csv", **common)
            EnqueueFilesOperator(task_id="no_parent", files=["{tmp_path}/absent/1.csv"], **common)
            EnqueueFilesOperator.partial(task_id="mapped", **common).expand(files=where("acme", "birch"))
            EnqueueFilesOperator.partial(task_id="of_nothing", **common).expand(files=where.override(task_id="no")())
            EnqueueFilesOperator(task_id="several", files=where.override(task_id="both")("acme", "birch", "acme"),
                                 **{{**common, "origin": "several"}})
            EnqueueFilesOperator(task_id="of_none", files=nowhere(), **common)
            EnqueueFilesOperator(task_id="of_empty", files=where.override(task_id="empty")(), **common)
            EnqueueFilesOperator(task_id="as_text", files="{{{{ ['{tmp_path}/acme/*.csv'] }}}}", **common)
        """
    )

    found = states(run)
    assert found.pop("no_folder") == found.pop("no_parent") == found.pop("as_text") == "failed"
    said = watched()
    assert "invalid files: Airflow made text of a list" in said
    assert f"folder not found: '{tmp_path}/absent'" in said and f"{tmp_path}/acme/*.none: no file matches" in said
    assert found.pop("of_nothing") == "skipped" and set(found.values()) == {"success"}
    counts = {origin: footprint.count for origin, footprint in sqlite_queue.footprints()}
    assert counts == {"acme.sql": 2, "of acme": 2, "of birch": 1, "several": 3}, "of two patterns, each file once"
    assert sqlite_queue.inspect.peek("of birch")[0].payload == f"{{{{ 1/0 }}}} {PAYLOAD}".encode()
    tasks = ("template", "none", "mapped")
    refuse_payload(*kept(run, "rendered_task_instance_fields", *tasks).values(), *kept(run, "xcom", *tasks).values())


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A database of rows, behind a connection of Airflow."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE outbox (id INTEGER, tenant TEXT, body TEXT)")
        rows = [(1, "acme", PAYLOAD), (2, "birch", f"{{{{ 1/0 }}}} {PAYLOAD}"), (3, "it's", PAYLOAD)]
        connection.executemany("INSERT INTO outbox VALUES (?, ?, ?)", rows)
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "airflow_mq", "host": str(path)}))
    from airflow_mq.hooks import MessageQueueHook

    class Rows(MessageQueueHook):
        """A hook of a database; `read_only` is one of its parameters."""

        get_cursor = None

        def __init__(self, read_only: bool = False, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.read_only = read_only

        def get_conn(self) -> Any:
            if self.mq_conn_id != "shop":
                return super().get_conn()
            connection = sqlite3.connect(path)
            connection.execute(f"PRAGMA query_only = {self.read_only}")
            return connection

    monkeypatch.setattr("airflow_mq.hooks.MessageQueueHook", Rows)
    return path


@pytest.mark.uses("EnqueueSqlOperator")
def test_rows(run_dag: RunDag, dags_folder: Path, sqlite_queue: MessageQueue, shop: Path, watched: Any) -> None:
    (dags_folder / "of_one.sql").write_text("SELECT * FROM outbox WHERE tenant = :tenant AND id < {{ params.below }}")

    run = run_dag(
        """
        from airflow_mq.operators.enqueue import EnqueueSqlOperator

        @task
        def names(*given):
            return [{"tenant": name} for name in given]

        @task
        def name(given):
            return given and {"tenant": given}

        common = {"mq_conn_id": "mq_stage", "sql_conn_id": "shop", "payload_column": "body", "key_scope": "run"}
        by_name = "SELECT * FROM outbox WHERE tenant = :tenant"
        ddl = "INSERT INTO outbox VALUES (4, 'x', 'x') RETURNING *"
        with DAG("scene", schedule=None, params={"below": 10, "tenant": "it's"}):
            one = EnqueueSqlOperator.partial(origin_column="tenant", task_id="mapped", sql=by_name, **common)
            one.expand(parameters=names("acme", "birch"))
            EnqueueSqlOperator(task_id="file", sql="of_one.sql", parameters={"tenant": "acme"}, origin="a.sql", **common)
            EnqueueSqlOperator(task_id="template", sql="SELECT * FROM outbox WHERE tenant = ?", origin="quoted",
                               parameters=["{{ params.tenant }}"], **common)
            EnqueueSqlOperator(task_id="none", sql=by_name, parameters={"tenant": "missing"}, origin="x", **common)
            EnqueueSqlOperator(task_id="hooked", sql=ddl, hook_params={"read_only": True}, origin="x", **common)
            EnqueueSqlOperator(task_id="text", sql=by_name, parameters="acme", origin="x", **common)
            EnqueueSqlOperator(task_id="of_xcom", sql=by_name, parameters=name("birch"), origin="of_xcom", **common)
            none = name.override(task_id="no_name")(None)
            EnqueueSqlOperator(task_id="of_none", sql="SELECT * FROM outbox WHERE id = 1", parameters=none,
                               hook_params=none, origin="of_none", **common)
            EnqueueSqlOperator(task_id="function", sql="SELECT * FROM outbox", **common,
                               origin=lambda row: f"{row['tenant']} by function")
        """
    )

    found = states(run)
    assert found.pop("hooked") == found.pop("text") == "failed", "rows may not be written; text is no list"
    assert set(found.values()) == {"success"}
    counts = {origin: footprint.count for origin, footprint in sqlite_queue.footprints()}
    by_function = {f"{name} by function": 1 for name in ("acme", "birch", "it's")}
    assert counts == {"acme": 1, "birch": 1, "a.sql": 1, "quoted": 1, "of_xcom": 1, "of_none": 1, **by_function}
    assert sqlite_queue.inspect.peek("birch")[0].payload == f"{{{{ 1/0 }}}} {PAYLOAD}".encode()
    tasks = ("mapped", "file", "template", "none", "hooked", "text", "function")
    rendered = kept(run, "rendered_task_instance_fields", *tasks)
    assert "tenant = ?" in rendered["template"] and "{{" not in rendered["template"] and "id < 10" in rendered["file"]
    refuse_payload(watched(), *rendered.values(), *kept(run, "xcom", *tasks).values())


@pytest.mark.uses("ReceiveFilesOperator", "ReceiveMessagesOperator")
def test_received_files(run_dag: RunDag, sqlite_queue: MessageQueue, tmp_path: Path, watched: Any) -> None:
    for name in ("one", "two", "three", "four", "five", "six", "empty"):
        (tmp_path / name / "acme").mkdir(parents=True)
        if name != "empty":
            (tmp_path / name / "acme/1.json").write_text(f"{{{{ 1/0 }}}} {PAYLOAD}")

    run = run_dag(
        f"""
        from airflow_mq.adapters.landing import LandingFolder
        from airflow_mq.operators.receive import ReceiveFilesOperator, ReceiveMessagesOperator

        @task
        def most(value):
            return value

        def adapter(name):
            return lambda: LandingFolder(f"{tmp_path}/{{name}}", "{{origin}}/*.json", settle=0)

        @task
        def folders(*names):
            return [f"{tmp_path}/{{name}}" for name in names]

        common = {{"mq_conn_id": "mq_stage", "pattern": "{{origin}}/*.json", "settle": 0}}
        with DAG("scene", schedule=None, params={{"folder": "one", "most": "", "priority": "high"}}):
            ReceiveFilesOperator(task_id="template", folder="{tmp_path}/{{{{ params.folder }}}}",
                                 most="{{{{ params.most }}}}", priority="{{{{ params.priority }}}}", **common)
            ReceiveFilesOperator(task_id="none", folder="{tmp_path}/empty", **common)
            Receive = ReceiveMessagesOperator
            Receive(task_id="adapted", adapter=adapter("four"), most=most(1), mq_conn_id="mq_stage")
            Receive.partial(task_id="adapted_often", adapter=adapter("empty"), mq_conn_id="mq_stage").expand(
                most=[1, "2", None])
            Receive(task_id="of_template", adapter=adapter("empty"), most="{{{{ params.most }}}}", weight=most(None),
                    mq_conn_id="mq_stage")
            five = most.override(task_id="five")("{tmp_path}/five")
            ReceiveFilesOperator(task_id="of_xcom", folder=five, most=most.override(task_id="one")(1), **common)
            nothing = most.override(task_id="nothing")(None)
            ReceiveFilesOperator(task_id="of_none", folder="{tmp_path}/six", most=nothing, regex=nothing,
                                 storage_conn_id=nothing, **common)
            ReceiveFilesOperator(task_id="no_folder", folder=nothing, **common)
            ReceiveFilesOperator.partial(task_id="mapped", **common).expand(folder=folders("two", "three"))
            ReceiveFilesOperator.partial(task_id="of_nothing", **common).expand(folder=folders.override(task_id="no")())
        """
    )

    found = states(run)
    assert found.pop("of_nothing") == "skipped" and found.pop("no_folder") == "failed"
    assert set(found.values()) == {"success"}
    assert sqlite_queue.footprint("acme", "high").count == 1 and sqlite_queue.footprint("acme").count == 6
    tasks = ("template", "none", "mapped", "adapted", "adapted_often", "of_xcom", "of_none", "no_folder")
    rendered = kept(run, "rendered_task_instance_fields", *tasks)
    refuse_payload(watched(), *rendered.values(), *kept(run, "xcom", *tasks).values())


# -- checks and executions --


@pytest.mark.uses("CheckFairnessOperator")
def test_fairness_is_checked(run_dag: RunDag, sqlite_queue: MessageQueue) -> None:
    sqlite_queue.enqueue_messages([("a", b"1"), ("b", b"2")])
    sqlite_queue.blocks.settle(sqlite_queue.blocks.plan())

    run = run_dag(
        """
        from airflow_mq.operators.fairness import CheckFairnessOperator

        @task
        def bounds(value):
            return value

        common = {"mq_conn_id": "mq_stage"}
        with DAG("scene", schedule=None, params={"most": "", "error": "0.5"}):
            CheckFairnessOperator(task_id="template", most_wait="{{ params.most }}", most_error="{{ params.error }}",
                                  ring="{{ '' }}", blocks="{{ params.most }}", **common)
            CheckFairnessOperator(task_id="of_xcom", most_wait=bounds(3), **common)
            CheckFairnessOperator(task_id="of_none", most_wait=bounds.override(task_id="none")(None), **common)
            CheckFairnessOperator.partial(task_id="mapped", **common).expand(most_late=[1, "2", None])
        """
    )

    assert set(states(run).values()) == {"success"}
    assert "longest_wait" in kept(run, "xcom", "template")["template"]


@pytest.mark.uses("ExecuteOverweightOperator")
def test_one_message_is_executed(run_dag: RunDag, sqlite_queue: MessageQueue, watched: Any) -> None:
    sqlite_queue.enqueue_messages("a", [PAYLOAD.encode()] * 4, weight=Weight(10**9, 10))
    sqlite_queue.blocks.settle(sqlite_queue.blocks.plan())
    assert [str(one.address) for one in sqlite_queue.set_aside.list()] == [f"a:0:{place}" for place in range(4)]

    run = run_dag(
        """
        from airflow_mq.operators.set_aside import ExecuteOverweightOperator

        @task
        def address(value):
            return value

        common = {"mq_conn_id": "mq_stage", "processors": Processors(ALL)}
        with DAG("scene", schedule=None, params={"address": "a:0:0", "time": 2_000_000_000, "processor": ""}):
            first = ExecuteOverweightOperator(
                task_id="template", address="{{ params.address }}", limit="[{{ params.time }}, 100]",
                processor="{{ params.processor }}", ring="{{ '' }}", **common)
            xcom = ExecuteOverweightOperator(task_id="xcom", address=address("a:0:1"), limit=[2_000_000_000, 100], **common)
            ExecuteOverweightOperator(
                task_id="no_limit", address="a:0:3", limit="{{ params.processor }}", **common)
            none = ExecuteOverweightOperator(
                task_id="of_none", address=address.override(task_id="none")(None), **common)
            first >> xcom >> ExecuteOverweightOperator.partial(task_id="mapped", max_active_tis_per_dag=1, **common).expand(
                address=["a:0:2", "a:0:3"])
        """
    )

    found = states(run)
    assert found.pop("of_none") == found.pop("no_limit") == "failed" and set(found.values()) == {"success"}
    assert sqlite_queue.set_aside.count() == 0 and len(SEEN) == 4
    tasks = ("template", "xcom", "mapped", "of_none")
    rendered = kept(run, "rendered_task_instance_fields", *tasks)
    said = watched()
    assert "planned 1 message of 1 queue; weight " in said and "18,446,744" not in said
    refuse_payload(said, *rendered.values(), *kept(run, "xcom", *tasks).values())


def test_a_block_with_an_exchange_of_a_connection(run_dag: RunDag, sqlite_queue: MessageQueue, tmp_path: Path) -> None:
    sqlite_queue.enqueue_messages([("a1", b"1"), ("b", b"2")])

    run = run_dag(
        f"""
        from airflow.sdk import ObjectStoragePath

        with DAG("scene", schedule=None, params={{"name": "queues"}}):
            block(processors=ALL, mq_conn_id="mq_stage", share_below=1,
                  exchange=ObjectStoragePath("file://{tmp_path}/{{{{ params.name }}}}"))
        """
    )

    assert run.state == "success" and len(SEEN) == 2
    settled = kept(run, "rendered_task_instance_fields", "block.settle")["block.settle"]
    assert f"{tmp_path}/queues" in settled


@pytest.mark.kafka
@pytest.mark.uses("ReceiveKafkaOperator")
def test_topics(run_dag: RunDag, sqlite_queue: MessageQueue, tmp_path: Path, monkeypatch: Any, watched: Any) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    from confluent_kafka.admin import AdminClient, NewTopic

    from tests.store.adapters.broker import broker

    topics = ("one", "two", "three", "four")
    with broker(tmp_path) as server:
        admin = AdminClient({"bootstrap.servers": server})
        made = admin.create_topics([NewTopic(name, 1, 1) for name in topics])
        for name in topics:
            made[name].result(120)
        producer = confluent.Producer({"bootstrap.servers": server})
        for name in topics:
            for place in range(2):
                producer.produce(name, key=f"of {name}", value=f"{{{{ 1/0 }}}} {PAYLOAD} {place}".encode())
        assert producer.flush(120) == 0
        extra = {"bootstrap.servers": server, "group.id": "theirs"}
        monkeypatch.setenv("AIRFLOW_CONN_TOPICS", json.dumps({"conn_type": "kafka", "extra": extra}))

        run = run_dag(
            """
            from airflow_mq.operators.receive import ReceiveKafkaOperator

            @task
            def gives(what):
                return what

            common = {"mq_conn_id": "mq_stage", "kafka_config_id": "{{ params.conn }}", "group": "{{ run_id }}.{{ task.task_id }}"}
            with DAG("scene", schedule=None, params={"conn": "topics", "one": "one", "most": "1", "none": ""}):
                ReceiveKafkaOperator(task_id="template", topics="{{ params.one }}", origin="{{ params.one }}/{key}",
                                     most="{{ params.most }}", batch=1, priority="{{ 'high' }}", **common)
                nothing = gives.override(task_id="nothing")(None)
                several = gives.override(task_id="several")(["two", "three"])
                ReceiveKafkaOperator(task_id="of_xcom", topics=several, most=nothing, weight=nothing, **common)
                ReceiveKafkaOperator(task_id="of_none", topics=nothing, **common)
                ReceiveKafkaOperator(task_id="of_empty", topics=gives.override(task_id="no_topics")([]), **common)
                ReceiveKafkaOperator.partial(task_id="mapped", max_active_tis_per_dag=1, **common).expand(
                    topics=["four", ["four"]])
                ReceiveKafkaOperator.partial(task_id="of_nothing", **common).expand(
                    topics=gives.override(task_id="none_at_all")([]))
            """
        )

    found = states(run)
    assert found.pop("of_nothing") == "skipped"
    assert found.pop("of_none") == found.pop("of_empty") == "failed" and set(found.values()) == {"success"}
    counts = {origin: footprint.count for origin, footprint in sqlite_queue.footprints()}
    assert sqlite_queue.footprint("one/of one", "high").count >= 1
    assert counts == {"of two": 2, "of three": 2, "of four": 2} | {name: n for name, n in counts.items() if "/" in name}
    assert sqlite_queue.inspect.peek("of two")[0].payload == f"{{{{ 1/0 }}}} {PAYLOAD} 0".encode()
    tasks = ("template", "of_xcom", "of_none", "mapped")
    rendered = kept(run, "rendered_task_instance_fields", *tasks)
    refuse_payload(watched(), *rendered.values(), *kept(run, "xcom", *tasks).values())
