"""Parquet of DataFrame processors: parts of a block side by side, and replaced when the block is repeated."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from airflow_mq import MessageQueue, Part, Processor, Processors
from airflow_mq.errors import InvalidInput, ProcessorError
from airflow_mq.spark import write_block
from airflow_mq.spark.frames import run_frames
from airflow_mq.spark.output import writing_for
from airflow_mq.spark.store_side import StoreChannel, tasks_of, terms_of

MakeRing = Callable[..., MessageQueue]
#: Where the processor writes, and whether it fails after that.
TARGET = "AIRFLOW_MQ_TEST_TARGET"
FAILS = "AIRFLOW_MQ_TEST_FAILS"


def keep(messages: Any) -> None:
    """Write each message down by its day."""
    rows = messages.selectExpr("origin", "CAST(payload AS STRING) AS text", "attempt", "substr(origin, 1, 1) AS day")
    write_block(rows, os.environ[TARGET], "day")
    if os.environ.get(FAILS):
        raise ConnectionError("the job dies before it has reported")


ROUTES = Processors([Processor("orders", "tests.spark.test_output:keep", shape="dataframe", split=3)])


def run_part(spark: Any, queue: MessageQueue, token: str, part: int) -> None:
    mine = Part(name="orders", processors=["orders"], part=part, parts=3, messages=0, where="spark")
    block = queue.blocks.get(token)
    terms = terms_of(queue, block)
    channel = StoreChannel(queue.store.address.uri, queue.ring, token)
    run_frames(spark, channel, tasks_of(block, terms, ROUTES, mine, 2), terms, mine)


def texts(spark: Any, path: str) -> list[str]:
    return sorted(row.text for row in spark.read.parquet(path).collect())


@pytest.mark.spark
@pytest.mark.slow
def test_parts_of_a_block_write_side_by_side_and_a_repeated_one_replaces_its_rows(
    spark: Any, session_store: str, make_ring: MakeRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_ring(session_store, f"ring-{secrets.token_hex(4)}")
    path = str(tmp_path / "out")
    monkeypatch.setenv(TARGET, path)
    sent = [f"{name} {n}" for name in "abcdefghi" for n in range(3)]
    for text in sent:
        queue.enqueue_message(text[0], text.encode())
    block = queue.blocks.plan()

    # All at once, as the jobs of a block: appended to one folder, they remove each other's _temporary.
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda part: run_part(spark, queue, block.token, part), range(3)))
    assert texts(spark, path) == sent
    rows = spark.read.parquet(path).collect()
    assert {row.mq_part for row in rows} == {f"orders-{n}-of-3" for n in (1, 2, 3)}
    assert {row.mq_block.partition("-")[0] for row in rows} == {str(block.id)}
    assert all(row.day == row.origin[0] for row in rows)

    # A part that is repeated has all of its messages, also those that have an answer, and replaces its rows.
    for part in range(3):
        run_part(spark, queue, block.token, part)
    assert texts(spark, path) == sent
    assert queue.blocks.settle(block).processed == len(sent)

    # One that failed after it wrote is replaced; what a killed one left is neither seen nor kept.
    queue.enqueue_message("a", b"a 3")
    block = queue.blocks.plan()
    monkeypatch.setenv(FAILS, "1")
    failed = 0
    for part in range(3):
        try:
            run_part(spark, queue, block.token, part)
        except ProcessorError:
            failed += 1
    assert failed == 1
    (written,) = Path(path).glob(f"mq_block={block.id}-*/mq_part=*")
    left = Path(path) / "_staging" / written.parent.name / written.name / "_killed"
    left.mkdir(parents=True)
    (left / "part-0.parquet").write_bytes(b"half")
    monkeypatch.delenv(FAILS)
    for part in range(3):
        run_part(spark, queue, block.token, part)
    assert texts(spark, path) == sorted([*sent, "a 3"])
    assert not left.exists()
    assert queue.blocks.settle(block).processed == 1


class Frame:
    """As much of a DataFrame as is looked at before anything is written."""

    columns = ("mq_part",)
    write = None


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no block is processed here: call write_block in a dataframe processor"):
        write_block(Frame(), "/nowhere")
    with pytest.raises(InvalidInput, match="invalid name for output"):
        write_block(Frame(), "/nowhere", block="17", part="../x")
    with writing_for("17-a", "orders-1-of-1"), pytest.raises(InvalidInput, match="reserved column 'mq_part'"):
        write_block(Frame(), "/nowhere")
