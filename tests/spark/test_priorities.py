"""Priorities in the format `airflow_mq`: what the tasks of a write and of a look do, without any Spark."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.rules.errors import InvalidInput


def test_rows_are_written_and_read_with_a_priority(
    make_ring: Callable[..., MessageQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.types import StructType

    from airflow_mq.spark import source

    queue = make_ring()
    monkeypatch.setenv("AIRFLOW_MQ_STORE", queue.store.address.uri)
    rows = {"origin": ["a", "a"], "payload": [b"1", b"2"], "priority": [None, "regular"]}
    schema = StructType().add("origin", "string").add("payload", "binary").add("priority", "string")
    writer = source.QueueWriter(source.Options({"priority": "high", "ring": queue.ring}), schema, False)
    (batch,) = pa.Table.from_pydict(rows).to_batches()

    assert writer.write(iter([batch])).count == 2  # type: ignore[attr-defined]

    assert [(one.payload, one.address.priority) for one in queue.inspect.peek("a")] == [
        (b"1", "high"),
        (b"2", "regular"),
    ]
    reader = source.WaitingReader(source.Options({"ring": queue.ring}), ["origin", "priority", "page"])
    (share,) = reader.partitions()
    (found,) = reader.read(share)
    assert found.column("priority").to_pylist() == ["high", "regular"]
    assert found.column("page").to_pylist() == [0, 0]
    with pytest.raises(InvalidInput, match="invalid priority"):
        source.Options({"priority": "urgent"})
