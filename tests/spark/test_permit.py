"""Sending permits on executors: of rows that are written, and of messages exchanged through files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_mq import MessageQueue, Processor
from airflow_mq.engine.rules.errors import NotPermitted
from airflow_mq.engine.rules.patterns import Permit
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.processors import Processors

CONFINED = "origins=acme*&priority=regular"


@pytest.fixture
def uri(tmp_path: Path) -> str:
    found = f"sqlite:///{tmp_path}/store.db"
    upgrade(parse(found))
    return f"{found}?{CONFINED}"


def test_rows_are_written_by_whom_the_address_permits(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.types import StructType

    from airflow_mq.spark.source import Options, QueueWriter

    monkeypatch.setenv("AIRFLOW_MQ_STORE", uri)
    schema = StructType().add("origin", "string").add("payload", "binary")
    writer = QueueWriter(Options({"job": "one"}), schema, overwrite=False)
    rows = [{"origin": "acme", "payload": b"1"}]
    writer.write(iter([pa.RecordBatch.from_pylist(rows)]))
    with pytest.raises(NotPermitted, match="'birch' does not"):
        writer.write(iter([pa.RecordBatch.from_pylist([*rows, {"origin": "birch", "payload": b"2"}])]))
    with pytest.raises(NotPermitted, match="regular"):
        urgent = QueueWriter(Options({"job": "two", "priority": "high"}), schema, overwrite=False)
        urgent.write(iter([pa.RecordBatch.from_pylist(rows)]))
    with MessageQueue(uri) as queue:
        assert [origin for origin, _ in queue.footprints()] == ["acme"]


def test_files_carry_the_permit_of_a_job(uri: str, tmp_path: Path) -> None:
    from airflow_mq.spark.exchange import FolderChannel, hand_over

    with MessageQueue(uri) as queue:
        queue.enqueue_message("acme", b"1")
        block = queue.blocks.plan()
        routes = Processors([Processor("p", "m:f")])
        (part,) = routes.parts({"acme": 1})
        folder = hand_over(queue, block.token, routes, part, str(tmp_path / "exchange"))
        assert FolderChannel(folder).terms().bounds[1] == Permit("acme*", "regular", visible=True)
        queue.blocks.release(block)
