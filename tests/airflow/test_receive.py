"""Receiving from a DAG: folders, object stores, and Kafka topics through the provider's hook."""

from __future__ import annotations

import json
import os
import runpy
import uuid
from pathlib import Path
from typing import Any

import pytest

from airflow_mq import MessageQueue, Weight
from tests.airflow.stage import CONN_ID, Airflow, Run
from tests.store.adapters.broker import broker

pytestmark = pytest.mark.airflow


@pytest.fixture
def run() -> Run:
    return Airflow().run()


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    (tmp_path / "landing/acme").mkdir(parents=True)
    (tmp_path / "landing/acme/1.json").write_bytes(b"one")
    (tmp_path / "landing/acme/2.json").write_bytes(b"")
    return tmp_path / "landing"


def files(folder: object, **kwargs: Any) -> Any:
    from airflow_mq.operators.receive import ReceiveFilesOperator

    return ReceiveFilesOperator(
        task_id="receive", mq_conn_id=CONN_ID, folder=str(folder), pattern="{origin}/*.json", settle=0, **kwargs
    )


def test_a_folder_is_received_once(queue: MessageQueue, run: Run, landing: Path) -> None:
    done = run.execute(files(landing))
    assert done == {"count": 1, "size": 3, "repeated": 0, "refused": 1, "left": 0, "unreadable": 0}
    assert [one.payload for one in queue.inspect.peek("acme")] == [b"one"]
    assert run.execute(files(landing))["count"] == 0


def test_a_task_can_fail_for_a_folder_that_cannot_be_read(
    sqlite_queue: MessageQueue, run: Run, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (landing / "birch").mkdir()
    scandir, denied = os.scandir, os.stat(landing / "birch").st_ino

    def refused(opened: int) -> Any:
        if os.fstat(opened).st_ino == denied:
            raise PermissionError(13, "Permission denied")
        return scandir(opened)

    (landing / "acme/2.json").unlink()
    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(Exception, match="received 1 message of 3 bytes; 1 cannot be read; the log lists which"):
        run.execute(files(landing, fail_on_refused=True))
    done = run.execute(files(landing))
    assert done == {"count": 0, "size": 0, "repeated": 0, "refused": 0, "left": 0, "unreadable": 1}


def test_files_that_the_pattern_does_not_match_are_logged(
    sqlite_queue: MessageQueue, run: Run, landing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (landing / "1.json").write_bytes(b"one")
    run.execute(files(landing))
    assert "does not match" not in capsys.readouterr().out
    run.execute(files(landing))
    assert (
        "Nothing was received; the pattern does not match what is there: 1 file, '1.json' first."
        in capsys.readouterr().out
    )


def test_a_weight_and_a_priority_for_all(sqlite_queue: MessageQueue, run: Run, landing: Path) -> None:
    run.execute(files(landing, weight="[70, 8]", priority="high"))
    (one,) = sqlite_queue.inspect.peek("acme")
    assert (one.address.priority, one.weight) == ("high", Weight(70, 8))


def test_who_may_not_send_what_is_urgent_puts_nothing_aside(
    sqlite_queue: MessageQueue, run: Run, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.exceptions import AirflowException

    plain = json.loads(os.environ["AIRFLOW_CONN_MQ_STAGE"])
    plain["extra"]["priority"] = "regular"
    monkeypatch.setenv("AIRFLOW_CONN_MQ_STAGE", json.dumps(plain))
    with pytest.raises(AirflowException, match="high"):
        run.execute(files(landing, priority="high"))
    assert not (landing / ".refused").exists()
    assert run.execute(files(landing))["count"] == 1


def test_an_object_store_by_its_address(sqlite_queue: MessageQueue, run: Run, landing: Path) -> None:
    assert run.execute(files(f"file://{landing}", lines=True))["count"] == 1
    assert (landing / ".received/acme/1.json").exists()


def test_a_task_can_fail_for_what_was_put_aside(sqlite_queue: MessageQueue, run: Run, landing: Path) -> None:
    from airflow.exceptions import AirflowException

    with pytest.raises(AirflowException, match="1 put aside"):
        run.execute(files(landing, fail_on_refused=True))
    assert sqlite_queue.footprint("acme").count == 1


def test_what_cannot_be_meant_is_refused(sqlite_queue: MessageQueue, run: Run, landing: Path) -> None:
    from airflow.exceptions import AirflowException

    from airflow_mq.operators.receive import ReceiveKafkaOperator, ReceiveMessagesOperator

    kafka = ReceiveKafkaOperator(task_id="kafka", mq_conn_id=CONN_ID, topics="t", origin="x")
    for operator in (
        files(landing, most="many"),
        files("/no/such/folder"),
        ReceiveMessagesOperator(task_id="nothing", mq_conn_id=CONN_ID),
    ):
        with pytest.raises(AirflowException):
            run.execute(operator)
    assert "origin" in kafka.template_fields and "folder" in files(landing).template_fields


def test_the_dag_of_a_landing_folder(
    sqlite_queue: MessageQueue, run: Run, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(__file__).parents[2] / "dags"
    monkeypatch.syspath_prepend(str(folder))
    operator = runpy.run_path(str(folder / "landing_folder.py"))["received"]
    operator.folder, operator.mq_conn_id, operator.settle = str(landing), CONN_ID, 0
    assert run.execute(operator)["count"] == 1
    assert operator.downstream_task_ids == {"block.plan"}


@pytest.mark.kafka
@pytest.mark.slow
def test_topics_through_the_hook_of_the_provider(
    sqlite_queue: MessageQueue, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    from confluent_kafka.admin import AdminClient, NewTopic

    from airflow_mq.operators.receive import ReceiveKafkaOperator

    topic = f"t-{uuid.uuid4().hex}"
    with broker(tmp_path) as server:
        admin = AdminClient({"bootstrap.servers": server})
        admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
        producer = confluent.Producer({"bootstrap.servers": server})
        for number in range(10):
            producer.produce(topic, key=f"o{number % 2}", value=b"%d" % number)
        assert producer.flush(30) == 0
        # The connection has no settings of offsets; the consumer adds them.
        extra = {"bootstrap.servers": server, "group.id": "theirs", "enable.auto.commit": True}
        connection = json.dumps({"conn_type": "kafka", "extra": extra})
        monkeypatch.setenv("AIRFLOW_CONN_TOPICS", connection)
        operator = ReceiveKafkaOperator(
            task_id="kafka", mq_conn_id=CONN_ID, topics=topic, kafka_config_id="topics", group="ours", batch=4
        )
        assert run.execute(operator) == {
            "count": 10, "size": 10, "repeated": 0, "refused": 0, "left": 0, "unreadable": 0,
        }  # fmt: skip
        assert run.execute(operator)["count"] == 0
    assert [one.payload for one in sqlite_queue.inspect.peek("o1")] == [b"1", b"3", b"5", b"7", b"9"]
