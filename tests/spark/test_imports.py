"""Modules that a small Spark job never needs: importing them takes longer than its messages."""

from __future__ import annotations

import subprocess
import sys

import pytest

_TALLY = """
import sys
from types import SimpleNamespace
from airflow_mq.spark.frames import Numbered, tallies_in
from airflow_mq.spark.share import Reported
from array import array
import pyarrow as pa

ids = pa.Array.from_buffers(pa.int64(), 2, [None, pa.py_buffer(array("q", [1, 0]))])
numbers = pa.RecordBatch.from_arrays([ids], names=["id"])
tallies = [Reported(1, 2, returned=3, before=4), Reported(5, refused="too late\\N{SNOWMAN}")]
found = Numbered(tallies, iter)([numbers])
rows = [SimpleNamespace(tally=text) for batch in found for text in batch.column("tally").to_pylist()]
assert list(tallies_in(rows)) == [tallies[1], tallies[0]], rows
"""
_STORE = """
import sys
import airflow_mq.spark.program
from airflow_mq import MessageQueue
from airflow_mq.engine.store import parse, upgrade

upgrade(parse("sqlite:///queue.db"))
with MessageQueue("sqlite:///queue.db") as queue:
    queue.enqueue_messages("a", [b"1", b"2"])
    assert queue.service_queues(lambda delivery: None).processed == 2
"""


@pytest.mark.parametrize(("code", "module"), [(_TALLY, "pandas"), (_STORE, "psycopg")])
def test_a_module_is_not_imported(code: str, module: str, tmp_path: object) -> None:
    ends = f"{code}\nassert {module!r} not in sys.modules"
    done = subprocess.run([sys.executable, "-c", ends], capture_output=True, text=True, cwd=str(tmp_path), check=False)
    assert done.returncode == 0, done.stderr
