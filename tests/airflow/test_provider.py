"""Provider information: valid by Airflow's schema, shown by its form, and cheap to read."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.rules.errors import AddressRefused
from airflow_mq.engine.store.address import NUMBERS
from airflow_mq.provider import CONNECTION_TYPE, get_provider_info

pytestmark = pytest.mark.airflow


def test_the_information_is_valid_by_airflows_schema() -> None:
    import airflow
    import jsonschema

    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())

    jsonschema.validate(get_provider_info(), schema)


def test_it_is_nothing_but_data() -> None:
    assert json.loads(json.dumps(get_provider_info())) == get_provider_info()


def test_reading_it_imports_nothing() -> None:
    code = (
        "import sys; import typing; before = set(sys.modules); from airflow_mq import provider;"
        "provider.get_provider_info(); print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert set(done.stdout.split()) <= {"__future__", "airflow_mq", "airflow_mq.provider"}


def test_airflow_finds_the_hook_of_the_connection_type() -> None:
    from airflow.providers_manager import ProvidersManager

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # later versions warn that tasks have a manager of their own
        found = ProvidersManager().hooks[CONNECTION_TYPE]

    assert found is not None
    assert (found.hook_class_name, found.hook_name) == ("airflow_mq.hooks.MessageQueueHook", "Message queue")
    assert found.connection_id_attribute_name == "mq_conn_id"
    assert found.connection_testable


def test_the_form_shows_our_fields() -> None:
    # In a process of its own, as the API server asks first of all: Airflow 3.1 reads the forms only once.
    code = (
        "from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService as Forms;"
        f"print(*[one.model_dump_json() for one in Forms.hook_meta_data() if one.connection_type == {CONNECTION_TYPE!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    meta = json.loads(done.stdout.splitlines()[-1])

    assert meta["hook_name"] == "Message queue"
    assert meta["standard_fields"]["url_schema"]["title"] == "PostgreSQL database"
    extra = meta["extra_fields"]
    expected = ["driver", "path", "db_schema", "sslmode", *NUMBERS, "ring", "origins", "priority"]
    assert list(extra) == expected
    assert extra["driver"]["schema"]["enum"] == ["sqlite", "postgresql"]
    assert extra["driver"]["value"] is None


def test_the_form_has_the_bounds_of_addresses() -> None:
    fields = get_provider_info()["connection-types"][0]["conn-fields"]
    for name, (default, least, most) in NUMBERS.items():
        schema = fields[name]["schema"]
        assert (schema["minimum"], schema["maximum"]) == (least, most)
        assert f"{least} to {most}; {default} if left empty" in fields[name]["description"]


class FakeField:
    def __init__(self, label: str, *, validators: list[str], description: str, default: str | None) -> None:
        self.told = (type(self).__name__, label, validators, default)


class StringField(FakeField): ...


class IntegerField(FakeField): ...


def test_airflow_before_3_2_gets_the_same_form_from_the_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_mq.hooks import MessageQueueHook

    rules = SimpleNamespace(Optional=lambda: "optional", any_of=lambda values: f"any of {len(values)}")
    fields = SimpleNamespace(StringField=StringField, IntegerField=IntegerField, validators=rules)
    monkeypatch.setitem(sys.modules, "wtforms", fields)
    monkeypatch.setitem(sys.modules, "wtforms.validators", rules)

    widgets = MessageQueueHook.get_connection_form_widgets()
    behaviour = MessageQueueHook.get_ui_field_behaviour()

    assert {name: field.told for name, field in widgets.items()} == {
        "driver": ("StringField", "Driver", ["optional", "any of 2"], None),
        "path": ("StringField", "SQLite file", ["optional"], None),
        "db_schema": ("StringField", "PostgreSQL schema", ["optional"], None),
        "sslmode": ("StringField", "PostgreSQL SSL mode", ["optional", "any of 6"], None),
        "connect_timeout": ("IntegerField", "PostgreSQL connect timeout", ["optional"], None),
        "statement_timeout": ("IntegerField", "PostgreSQL statement timeout", ["optional"], None),
        "idle_in_transaction_session_timeout": (
            "IntegerField",
            "PostgreSQL idle transaction timeout",
            ["optional"],
            None,
        ),
        "tcp_user_timeout": ("IntegerField", "TCP user timeout", ["optional"], None),
        "keepalives_idle": ("IntegerField", "TCP keepalives idle", ["optional"], None),
        "keepalives_interval": ("IntegerField", "TCP keepalives interval", ["optional"], None),
        "keepalives_count": ("IntegerField", "TCP keepalives count", ["optional"], None),
        "ring": ("StringField", "Ring", ["optional"], None),
        "origins": ("StringField", "Origins to send with", ["optional"], None),
        "priority": ("StringField", "Priority to send with", ["optional", "any of 1"], None),
    }
    assert behaviour["relabeling"]["schema"] == "PostgreSQL database"
    assert behaviour["hidden_fields"] == []


def test_the_setting_may_be_left_out_or_set(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.models import Connection

    from airflow_mq.connections import target_of

    connection = Connection("queue", "airflow_mq", extra='{"path": "/tmp/queue.db"}')
    assert target_of(connection).address.path == Path("/tmp/queue.db").resolve()
    monkeypatch.setenv("AIRFLOW__AIRFLOW_MQ__SQLITE_ROOT", "")
    assert target_of(connection).address.path == Path("/tmp/queue.db").resolve()
    monkeypatch.setenv("AIRFLOW__AIRFLOW_MQ__SQLITE_ROOT", "/srv/queues")
    with pytest.raises(AddressRefused, match="'/srv/queues'"):
        target_of(connection)


def test_everything_that_is_named_is_there() -> None:
    from importlib import import_module

    from airflow.sdk.module_loading import import_string

    info = get_provider_info()

    for kind in ("operators", "sensors", "triggers", "hooks"):
        for one in info[kind]:
            for module in one["python-modules"]:
                assert import_module(module).__doc__
    named = [*info["extra-links"], *info["notifications"], *info["queues"], *info["cli"]]
    for path in [*named, *(one["class-name"] for one in info["task-decorators"])]:
        assert callable(import_string(path))


def test_every_notifier_is_named_to_airflow() -> None:
    from airflow_mq.notifications import QueueNotifier

    made = {f"{one.__module__}.{one.__qualname__}" for one in QueueNotifier.__subclasses__()}
    own = {name for name in made if name.startswith("airflow_mq.notifications.")}
    assert own == set(get_provider_info()["notifications"])


def test_every_operator_link_is_named_to_airflow() -> None:
    from airflow_mq.operators import blocks

    used = {
        f"{type(link).__module__}.{type(link).__qualname__}"
        for operator in (blocks.PlanBlockOperator, blocks.ProcessMessagesOperator, blocks.SettleBlockOperator)
        for link in operator.operator_extra_links
    }
    assert used == set(get_provider_info()["extra-links"])


@pytest.mark.parametrize(
    ("base", "begins"), [("", "/"), ("https://h/root/", "https://h/root/"), ("https://h", "https://h/")]
)
def test_links_begin_where_airflow_is_found(monkeypatch: pytest.MonkeyPatch, base: str, begins: str) -> None:
    """Without a configured address the browser knows it; nothing else does."""
    from airflow_mq.links import page_url, task_url

    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base)
    key = SimpleNamespace(dag_id="d", run_id="r", task_id="t")
    assert page_url("blocks", block=1) == f"{begins}plugin/airflow-mq#/blocks?block=1"
    assert task_url(key, "t") == f"{begins}dags/d/runs/r/tasks/t"


def test_a_task_that_plans_its_own_block_links_to_it() -> None:
    from airflow_mq.operators.set_aside import ExecuteOverweightOperator

    operator = ExecuteOverweightOperator(task_id="execute", address="a:0:0", processors="rules:RULES")
    told = {-1: {"id": 17, "ring": "default"}, 0: {"id": 18, "ring": "default"}, 1: {"id": 19, "ring": "default"}}

    def pull(task_ids: str, key: str, map_indexes: int | None = None) -> Any:
        # As Airflow does: of a task whose index is not given, the XComs of all.
        assert (task_ids, key) == ("execute", "block")
        return list(told.values()) if map_indexes is None else told.get(map_indexes)

    (link,) = operator.operator_extra_links
    for index, block in ((-1, "&block=17"), (0, "&block=18"), (1, "&block=19"), (2, "")):
        ti = SimpleNamespace(task_id="execute", map_index=index, xcom_pull=pull)
        ring = "&ring=default" if block else ""
        assert link.get_link(operator, ti_key=ti).endswith(f"#/blocks?conn=airflow_mq_default{ring}{block}")


def test_the_scheme_of_assets(sqlite_queue: MessageQueue) -> None:
    from airflow.sdk import Asset
    from airflow.sdk.module_loading import import_string

    (scheme,) = get_provider_info()["asset-uris"]
    assert scheme["schemes"] == ["airflow-mq"]
    create, convert = import_string(scheme["factory"]), import_string(scheme["to_openlineage_converter"])
    for given, uri, name in (
        (("mq_stage", "default", "acme/orders"), "airflow-mq://mq_stage/default/acme/orders", "default/acme/orders"),
        (("mq_stage", "default", "a b?#%"), "airflow-mq://mq_stage/default/a%20b%3F%23%25", "default/a b?#%"),
        (("mq_stage", "night"), "airflow-mq://mq_stage/night", "night"),
        (("mq_stage",), "airflow-mq://mq_stage/", "default"),
    ):
        asset = create(*given)
        assert asset.uri == uri == Asset(uri).uri
        found = convert(asset, None)
        assert (found.namespace, found.name) == (f"airflow_mq://{sqlite_queue.store.address.path}", name)
    assert convert(create("missing"), None) is None
    for wrong in ("airflow-mq://user@host/ring", "airflow-mq:///ring", "airflow-mq://c/r?x=1", "airflow-mq://h:1/r"):
        with pytest.raises(ValueError, match=r"expected airflow-mq://CONNECTION/RING/ORIGIN"):
            Asset(wrong)
    with pytest.raises(ValueError, match="without a ring"):
        create("mq_stage", origin="a")


def test_the_form_prefills_nothing() -> None:
    """A person who opens and saves a connection changes nothing that it leaves out."""
    from airflow_mq.provider import FIELDS

    assert not any("default" in field["schema"] for field in FIELDS.values())


def test_the_link_to_the_plan_leads_to_a_task_of_the_same_run() -> None:
    from airflow_mq.links import PlanLink

    key = SimpleNamespace(dag_id="d", run_id="scheduled__2026-11-21T00:00:00+00:00", task_id="block.settle")
    link = PlanLink().get_link(SimpleNamespace(plan_task_id="block.plan"), ti_key=key)

    assert link.endswith("/dags/d/runs/scheduled__2026-11-21T00%3A00%3A00%2B00%3A00/tasks/block.plan")


@pytest.mark.parametrize("plan_task_id", ["block.plan", None])
def test_the_link_to_a_block_leads_to_the_page_at_that_block(plan_task_id: str | None) -> None:
    from airflow_mq.links import BlockLink

    told = {("block.plan", "block"): {"id": 17, "ring": "night & day", "token": "secret"}}
    operator = SimpleNamespace(plan_task_id=plan_task_id, mq_conn_id="my queue", ring=None)

    def ti(task_id: str) -> SimpleNamespace:
        def pull(task_ids: str, key: str, map_indexes: int = -1) -> Any:
            assert map_indexes == -1
            return told.get((task_ids, key))

        return SimpleNamespace(task_id=task_id, map_index=-1, xcom_pull=pull)

    link = BlockLink().get_link(operator, ti_key=ti("block.settle" if plan_task_id else "block.plan"))
    assert link.endswith("/plugin/airflow-mq#/blocks?conn=my+queue&ring=night+%26+day&block=17")
    told.clear()
    link = BlockLink().get_link(operator, ti_key=ti("block.plan"))
    assert link.endswith("/plugin/airflow-mq#/blocks?conn=my+queue"), "no block was planned"
    # Airflow passes the mapped operator if the plan's XComs are gone.
    assert BlockLink().get_link(SimpleNamespace(plan_task_id="block.plan"), ti_key=ti("block.process")) == ""
