"""Sharded queues in Airflow: the connection, the hook, the example DAG, and mapping over shards."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_mq import ShardedQueue
from airflow_mq.core.errors import AddressRefused
from airflow_mq.store import parse, upgrade
from tests.airflow.conftest import connection_of

pytestmark = [pytest.mark.airflow]
DAGS = Path(__file__).parents[2] / "dags"
ORIGINS = [f"o{number}" for number in range(12)]


def connect(monkeypatch: pytest.MonkeyPatch, **extra: Any) -> None:
    text = json.dumps({"conn_type": "airflow_mq", **extra.pop("fields", {}), "extra": extra})
    monkeypatch.setenv("AIRFLOW_CONN_MQ_FLEET", text)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShardedQueue:
    """The sharded queue of the connection `mq_fleet`."""
    from airflow_mq.hooks import MessageQueueHook

    for name in ("mq_one", "mq_two"):
        uri = f"sqlite:///{tmp_path / name}.db"
        upgrade(parse(uri))
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", connection_of(uri))
    connect(monkeypatch, shards="mq_one, mq_two=2")
    hook = MessageQueueHook("mq_fleet")
    queue = hook.sharded_queue()
    queue.apply(hook.shards())
    return queue


def test_a_connection_names_shards(fleet: ShardedQueue) -> None:
    from airflow_mq.hooks import MessageQueueHook

    assert fleet.layout().shards == {"mq_one": 1, "mq_two": 2}
    is_good, text = MessageQueueHook("mq_fleet").test_connection()
    assert is_good
    assert "mq_one: sqlite" in text
    assert "mq_two: sqlite" in text
    with pytest.raises(AddressRefused, match="one store"):
        MessageQueueHook("mq_fleet").queue()
    with pytest.raises(AddressRefused, match="names no shards"):
        MessageQueueHook("mq_one").sharded_queue()


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"shards": "mq_one=65"}, "0 to 64"),
        ({"shards": "mq_one, mq_one=2"}, "once each"),
        ({"shards": "mq one=x"}, "0 to 64"),
        ({"shards": "mq_one=0"}, "weight above 0"),
        ({"shards": "postgresql://u:secret-word@h/d"}, "ids of connections"),
        ({"shards": "mq_one", "path": "/secret-word"}, "has no path"),
        ({"shards": "mq_one", "fields": {"password": "secret-word"}}, "has no password"),
        ({"shards": ["mq_one"]}, "not text"),
    ],
)
def test_a_wrong_connection_is_refused_without_its_secrets(
    monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any], message: str
) -> None:
    from airflow_mq.hooks import MessageQueueHook

    connect(monkeypatch, **extra)
    with pytest.raises(AddressRefused, match=message) as raised:
        MessageQueueHook("mq_fleet").shards()
    assert "secret-word" not in str(raised.value)
    assert "secret-word" not in MessageQueueHook("mq_fleet").test_connection()[1]


def dag_of(path: Path, dag_id: str) -> Any:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.utils.db import initdb

    initdb()
    bag = DagBag(dag_folder=str(path))
    assert bag.import_errors == {}
    return bag.dags[dag_id]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example DAG, whose processors need no Spark."""
    folder = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    folder.mkdir(exist_ok=True)
    (folder / "processing_rules.py").write_text(
        "from __future__ import annotations\n"
        "from airflow_mq.processors import Processor, Processors\n"
        "RULES = Processors([Processor('all', 'tests.airflow.functions:process', where='in place')])\n"
    )
    (folder / "sharded_blocks.py").write_text((DAGS / "sharded_blocks.py").read_text())
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(__import__("sys").modules, "processing_rules", raising=False)
    yield folder / "sharded_blocks.py"
    for file in folder.glob("*.py"):
        file.unlink()


@pytest.mark.slow
def test_the_example_plans_a_block_on_each_shard(fleet: ShardedQueue, example: Path) -> None:
    fleet.enqueue_messages((origin, b"x") for origin in ORIGINS)

    run = dag_of(example, "sharded_blocks").test()

    assert str(run.state) == "success"
    states = {ti.task_id: str(ti.state) for ti in run.get_task_instances()}
    assert states["block_mq_one.settle"] == states["block_mq_two.settle"] == states["drain"] == "success"
    assert [backlog.messages for backlog in fleet.backlog().all().values()] == [0, 0]


@pytest.mark.slow
def test_a_shard_that_is_down_fails_its_own_block_and_the_run(
    fleet: ShardedQueue, example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block of the other shard is processed. The run fails, too."""
    fleet.enqueue_messages((origin, b"x") for origin in ORIGINS)
    # Nothing listens on the discard port of this machine.
    monkeypatch.setenv("AIRFLOW_CONN_MQ_TWO", connection_of("postgresql://mq@127.0.0.1:9/db?connect_timeout=1"))

    run = dag_of(example, "sharded_blocks").test()

    assert str(run.state) == "failed"
    states = {ti.task_id: str(ti.state) for ti in run.get_task_instances()}
    assert states["block_mq_one.settle"] == states["drain"] == "success"
    assert states["block_mq_two.plan"] == "failed"
    assert all(task.startswith("block_mq_two.") for task, state in states.items() if state == "failed")
    assert fleet.shard("mq_one").inspect.backlog().messages == 0
    assert fleet.shard("mq_two").inspect.backlog().messages > 0


@pytest.mark.slow
def test_servicing_maps_over_the_shards_of_the_connection(fleet: ShardedQueue) -> None:
    folder = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    folder.mkdir(exist_ok=True)
    (folder / "mapped.py").write_text(
        textwrap.dedent(
            """
            from __future__ import annotations
            from airflow.sdk import DAG, task
            from airflow_mq.operators.blocks import ServiceQueuesOperator

            @task
            def shards():
                from airflow_mq.hooks import MessageQueueHook
                return sorted(MessageQueueHook("mq_fleet").shards())

            with DAG("mapped", schedule=None):
                ServiceQueuesOperator.partial(
                    task_id="service", processor="tests.airflow.functions:process"
                ).expand(mq_conn_id=shards())
            """
        )
    )
    fleet.enqueue_messages((origin, b"x") for origin in ORIGINS)
    run = dag_of(folder / "mapped.py", "mapped").test()
    (folder / "mapped.py").unlink()
    assert str(run.state) == "success"
    assert len([ti for ti in run.get_task_instances() if ti.task_id == "service"]) == 2
    assert [backlog.messages for backlog in fleet.backlog().all().values()] == [0, 0]
