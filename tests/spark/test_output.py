"""Parquet of DataFrame processors: parts of a block side by side, and replaced when the block is repeated."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mq import MessageQueue, Part, Processor, Processors
from airflow_mq.errors import InvalidInput, ProcessorError, StoreError
from airflow_mq.spark import output, write_block
from airflow_mq.spark.frames import run_frames
from airflow_mq.spark.output import writing_for
from airflow_mq.spark.store_side import StoreChannel, tasks_of, terms_of

MakeRing = Callable[..., MessageQueue]
#: Where the processor writes, and whether it fails after that.
TARGET = "AIRFLOW_MQ_TEST_TARGET"
FAILS = "AIRFLOW_MQ_TEST_FAILS"
#: The message that is left out.
LATER = "AIRFLOW_MQ_TEST_LATER"


def keep(messages: Any) -> None:
    """Write each message down by its day."""
    rows = messages.selectExpr("origin", "CAST(payload AS STRING) AS text", "attempt", "substr(origin, 1, 1) AS day")
    write_block(rows, os.environ[TARGET], "day")
    if os.environ.get(FAILS):
        raise ConnectionError("the job dies before it has reported")


def keep_unless_told(messages: Any) -> Any:
    """Write each message down, and leave out the ones that the environment names: they are for later."""
    told = os.environ.get(LATER, "")
    rows = messages.selectExpr("origin", "priority", "page", "item", "CAST(payload AS STRING) AS text")
    write_block(rows.where(rows.text != told).select("text"), os.environ[TARGET])
    return rows.selectExpr("origin", "priority", "page", "item", f"IF(text = '{told}', 'yield', 'done') AS outcome")


ROUTES = Processors([Processor("orders", "tests.spark.test_output:keep", shape="dataframe", split=3)])


def run_part(
    spark: Any, queue: MessageQueue, token: str, part: int, routes: Processors = ROUTES, parts: int = 3
) -> None:
    mine = Part(name="orders", processors=["orders"], part=part, parts=parts, messages=0, where="spark")
    block = queue.blocks.get(token)
    terms = terms_of(queue, block)
    channel = StoreChannel(queue.store.address.uri, queue.ring, token)
    run_frames(spark, channel, tasks_of(block, terms, routes, mine, 2), terms, mine, lambda _: True)


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


@pytest.mark.spark
@pytest.mark.slow
def test_a_repeated_part_settles_no_message_that_its_output_lacks(
    spark: Any, session_store: str, make_ring: MakeRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_ring(session_store, f"ring-{secrets.token_hex(4)}")
    path = str(tmp_path / "out")
    monkeypatch.setenv(TARGET, path)
    queue.enqueue_messages("a", [b"1", b"2", b"3"])
    block = queue.blocks.plan()
    routes = Processors([Processor("orders", "tests.spark.test_output:keep_unless_told", shape="dataframe")])

    run_part(spark, queue, block.token, 0, routes, 1)
    assert texts(spark, path) == ["1", "2", "3"]
    # The task died after its report, and its retry answers something else.
    monkeypatch.setenv(LATER, "2")
    run_part(spark, queue, block.token, 0, routes, 1)
    settled = queue.blocks.settle(block)

    assert texts(spark, path) == ["1", "3"]
    assert (settled.processed, settled.returned) == (2, 1)
    monkeypatch.delenv(LATER)
    block = queue.blocks.plan()
    run_part(spark, queue, block.token, 0, routes, 1)
    queue.blocks.settle(block)
    assert set(texts(spark, path)) == {"1", "2", "3"}
    assert queue.footprint("a").count == 0


class Writer:
    """As much of Spark's writer as writes a folder."""

    def parquet(self, path: str) -> None:
        Path(path).mkdir(parents=True)
        (Path(path) / "part-0.parquet").write_text("new")


class Files:
    """A file system of Hadoop over local folders, in which a rename may fail."""

    def __init__(self, base: Path, fails: set[int], how: str) -> None:
        self.base, self.fails, self.how, self.renames = base, fails, how, 0

    def mkdirs(self, path: HadoopPath) -> None:
        Path(str(path)).mkdir(parents=True, exist_ok=True)

    def exists(self, path: HadoopPath) -> bool:
        return Path(str(path)).exists()

    def delete(self, path: HadoopPath, _: bool) -> None:
        shutil.rmtree(str(path), ignore_errors=True)

    def listStatus(self, path: HadoopPath) -> list[SimpleNamespace]:
        return [SimpleNamespace(getPath=lambda one=one: HadoopPath(one)) for one in Path(str(path)).iterdir()]

    def rename(self, path: HadoopPath, target: HadoopPath) -> bool:
        self.renames += 1
        if self.renames in self.fails:
            if self.how == "raises":
                raise OSError("no answer")
            if self.how == "dies":
                raise KeyboardInterrupt
            if self.how == "returns false":
                return False
            # Another attempt has put its own there.
            Path(str(target)).mkdir(parents=True)
        place = Path(str(target))
        shutil.move(str(path), str(place / path.getName() if place.is_dir() else place))
        return True


class HadoopPath:
    """A path of Hadoop."""

    files: Files

    def __init__(self, *parts: object) -> None:
        self.path = Path(*map(str, parts))

    def __str__(self) -> str:
        return str(self.path)

    toString = __str__

    def getName(self) -> str:
        return self.path.name

    def getParent(self) -> HadoopPath:
        return HadoopPath(self.path.parent)

    def getFileSystem(self, _: object) -> Files:
        return HadoopPath.files


@pytest.mark.parametrize("how", ["returns false", "raises", "moves it below another attempt's"])
@pytest.mark.parametrize("fails", [{1}, {2}])
def test_output_that_cannot_be_replaced_stays(tmp_path: Path, how: str, fails: set[int]) -> None:
    if how.startswith("moves") and fails == {1}:
        pytest.skip("nothing is where the earlier output goes")
    final = written_before(tmp_path)
    with pytest.raises((StoreError, OSError)):
        write_again(tmp_path, fails, how)
    if not how.startswith("moves"):
        assert (final / "part-0.parquet").read_text() == "old"

    write_again(tmp_path)
    assert [path.read_text() for path in final.rglob("*.parquet")] == ["new"]
    assert not (tmp_path / "_staging" / "part").exists()


def test_output_that_a_killed_process_moved_away_is_recovered(tmp_path: Path) -> None:
    final = written_before(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        write_again(tmp_path, {2, 3}, "dies")
    assert not final.exists()

    class Fails(Writer):
        def parquet(self, path: str) -> None:
            raise ConnectionError("Spark could not write")

    with pytest.raises(ConnectionError):
        write_again(tmp_path, writer=Fails())
    assert (final / "part-0.parquet").read_text() == "old"
    write_again(tmp_path)
    assert [path.read_text() for path in final.rglob("*.parquet")] == ["new"]


def written_before(base: Path) -> Path:
    final = base / "final"
    final.mkdir()
    (final / "part-0.parquet").write_text("old")
    return final


def write_again(base: Path, fails: Iterable[int] = (), how: str = "", writer: Any = None) -> None:
    """Write the part, and replace what is there."""
    HadoopPath.files = Files(base, set(fails), how)
    jvm = SimpleNamespace(
        org=SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(fs=SimpleNamespace(Path=HadoopPath))))
    )
    session: Any = SimpleNamespace(_jvm=jvm, _jsc=SimpleNamespace(hadoopConfiguration=lambda: None))
    aside = str(base / "_staging" / "part")
    output._write(writer or Writer(), session, str(base / "final"), aside, lambda: None)


class Frame:
    """As much of a DataFrame as is looked at before anything is written."""

    columns = ("mq_part",)
    write = None


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no block is processed here: call write_block in a dataframe processor"):
        write_block(Frame(), "/nowhere")
    with pytest.raises(InvalidInput, match="invalid name for output"):
        write_block(Frame(), "/nowhere", block="17", part="../x")
    with writing_for("17-a", "orders-1-of-1"), pytest.raises(InvalidInput, match="block and part belong together"):
        write_block(Frame(), "/nowhere", block="18")
    with writing_for("17-a", "orders-1-of-1"), pytest.raises(InvalidInput, match="reserved column 'mq_part'"):
        write_block(Frame(), "/nowhere")
