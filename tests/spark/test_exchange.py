"""The exchange through a folder, without any Spark."""

from __future__ import annotations

import json
import os
import random
import shutil
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import _registry

from airflow_mq import Done, MessageQueue, Processor, Weight, Yield
from airflow_mq.engine.queue.values import Batch, Report
from airflow_mq.engine.rules.errors import ConfigRefused, InvalidInput, StoreCorrupt, TokenRefused
from airflow_mq.engine.rules.message import message_ids
from airflow_mq.spark import exchange
from airflow_mq.spark.frames import Shares
from airflow_mq.spark.share import Reported, run_share
from airflow_mq.spark.store_side import StoreChannel, run_in_place, tasks_of, terms_of
from tests.conftest import SOAK
from tests.s3_server import S3Server
from tests.spark.conftest import processors, whole

MakeRing = Callable[..., MessageQueue]
ODD = ["{{ ds }}", "--conf x", "../../etc", "a b/ü\N{SNOWMAN}"]


def work(folder: str, routes: Any, **how: Any) -> Reported:
    """Do the work of a job in this process."""
    channel, total = exchange.FolderChannel(folder), Reported()
    for task in channel.tasks(routes):
        with channel.open(task.share) as side:
            total.add(run_share(task.processor, side, channel.terms(), again=True, **how))
    return total


def test_there_and_back(make_ring: MakeRing, tmp_path: Path) -> None:
    queue = make_ring()
    for origin in ODD:
        queue.enqueue_messages(origin, [bytes(range(1, 256)), b"used", b"enqueue new", b"bad", b"later", b"x"])
    routes, block = processors(), queue.blocks.plan()

    folder = exchange.hand_over(queue, block.token, routes, whole(routes), str(tmp_path))
    tally = work(folder, routes)
    count = exchange.take_back(queue, block.token, folder)
    settled = queue.blocks.settle(block)

    assert (tally.processed, tally.failed, tally.returned, count) == (12, 4, 4, 20)
    assert (settled.processed, settled.failed, settled.returned) == (12, 4, 8)
    assert settled.weight.time >= 4 * 50
    assert queue.footprint("new").count == 8
    assert not [path for path in tmp_path.rglob("*") if block.token in str(path) or path.suffix == ".tmp"]
    assert block.token.encode() not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.parametrize("how", ["with ids", "with some of another length"])
def test_ids_are_reported_if_the_job_wrote_them(make_ring: MakeRing, tmp_path: Path, how: str) -> None:
    queue = make_ring()
    payloads = [b"%d" % n for n in range(20)]
    queue.enqueue_messages("a", payloads)
    routes, block = processors(), queue.blocks.plan()
    folder = exchange.hand_over(queue, block.token, routes, whole(routes), str(tmp_path))
    assert work(folder, routes).processed == 20
    written = {path: pq.read_table(path) for path in (Path(folder) / "outcomes").glob("*.parquet")}
    assert any(any(table.column("ids").to_pylist()) for table in written.values())
    for path, table in written.items():
        if how != "with ids":
            short = pa.array([b"x"] * table.num_rows, pa.binary())
            pq.write_table(table.set_column(table.schema.get_field_index("ids"), "ids", short), path)

    assert exchange.take_back(queue, block.token, folder) == 20

    assert queue.blocks.settle(block).processed == 20
    assert {event.id for event in queue.inspect.events(origin="a")} == set(message_ids(payloads))


def test_outcomes_without_a_column_are_corrupt(make_ring: MakeRing, tmp_path: Path) -> None:
    queue = make_ring()
    queue.enqueue_message("a", b"1")
    routes, block = processors(), queue.blocks.plan()
    folder = exchange.hand_over(queue, block.token, routes, whole(routes), str(tmp_path))
    assert work(folder, routes).processed == 1
    for path in (Path(folder) / "outcomes").glob("*.parquet"):
        pq.write_table(pq.read_table(path).drop_columns(["epoch"]), path)

    with pytest.raises(StoreCorrupt, match="in the exchange folder cannot be read"):
        exchange.take_back(queue, block.token, folder)


def test_everything_may_be_done_twice(make_ring: MakeRing, tmp_path: Path, tried_folder: Path) -> None:
    queue = make_ring()
    queue.enqueue_messages("a", [b"%d" % n for n in range(2000)])
    routes, block = processors(), queue.blocks.plan()

    folders = {exchange.hand_over(queue, block.token, routes, whole(routes), str(tmp_path)) for _ in range(2)}
    (folder,) = folders
    assert work(folder, routes).processed == 2000
    second = work(folder, routes)
    assert (second.processed, second.before) == (0, 2000)
    for _ in range(2):
        exchange.take_back(queue, block.token, folder)

    assert queue.blocks.settle(block).processed == 2000


def test_what_was_answered_before_is_not_handed_over(make_ring: MakeRing, tmp_path: Path) -> None:
    queue = make_ring()
    queue.enqueue_messages("a", [b"1", b"2", b"3"])
    queue.enqueue_messages("b", [b"1", b"2"])
    routes, block = processors(), queue.blocks.plan()
    queue.blocks.report(block, [Report("a", 0, 0, 0), Report("b", 0, 0, 0, Yield())])

    folder = exchange.hand_over(queue, block.token, routes, whole(routes), str(tmp_path))

    assert work(folder, routes).processed == 2


def test_both_priorities_go_there_and_back(make_ring: MakeRing, tmp_path: Path) -> None:
    queue = make_ring(ordered=True)
    queue.enqueue_messages("a", [b"1", b"later", b"3"], priority="high")
    queue.enqueue_messages("a", [b"4", b"bad", b"6"])
    routes, block = processors(), queue.blocks.plan()
    assert {batch.priority for batch in block.batches()} == {"high", "regular"}

    folder = exchange.hand_over(queue, block.token, routes, whole(routes), str(tmp_path))
    assert work(folder, routes).returned == 1
    assert work(folder, routes).before == 5, "what is behind the one that returned is not tried"
    exchange.take_back(queue, block.token, folder)
    queue.blocks.settle(block)

    assert [(one.payload, str(one.address)) for one in queue.inspect.peek("a")] == [
        (b"later", "a:0:1:high"),
        (b"3", "a:0:2:high"),
    ]
    assert queue.check() == []


def test_a_part_of_both_priorities_in_this_process(make_ring: MakeRing) -> None:
    queue = make_ring(ordered=True)
    queue.enqueue_messages("a", [b"1", b"later", b"3"], priority="high")
    queue.enqueue_messages("a", [b"4", b"bad", b"6"])
    routes, block = processors(), queue.blocks.plan()

    for again in range(2):
        tally = run_in_place(queue, block.token, routes, whole(routes))
        assert (tally.processed, tally.failed, tally.returned) == ((3, 1, 1), (0, 0, 0))[again]
    queue.blocks.settle(block)

    assert [str(one.address) for one in queue.inspect.peek("a")] == ["a:0:1:high", "a:0:2:high"]


def test_parts_and_processors_lie_side_by_side(make_ring: MakeRing, tmp_path: Path) -> None:
    queue = make_ring()
    for n in range(20):
        queue.enqueue_messages(f"a/{n}", [b"x"] * 10)
        queue.enqueue_messages(f"b/{n}", [b"x"] * 10)
    routes = processors(Processor("first", "tests.spark.functions:arrow", ("a/*",), "arrow", split=3), split=2)
    block = queue.blocks.plan()

    for part in routes.parts({origin: 10 for origin in block.origins}, share_below=50):
        folder = exchange.hand_over(queue, block.token, routes, part, str(tmp_path))
        work(folder, routes)
        exchange.take_back(queue, block.token, folder)

    assert queue.blocks.settle(block).processed == 400


def test_folders_go_with_their_blocks(make_ring: MakeRing, tmp_path: Path) -> None:
    queue = make_ring(service_weight=Weight(30_000, 1 << 20))
    queue.enqueue_messages("a", [b"x"])
    routes = processors()
    old = queue.blocks.plan()
    exchange.hand_over(queue, old.token, routes, whole(routes), str(tmp_path))
    queue.blocks.release(old)
    live = queue.blocks.plan()
    exchange.hand_over(queue, live.token, routes, whole(routes), str(tmp_path))
    (tmp_path / "block-1-0123456789abcdef").mkdir()
    (tmp_path / "notes").mkdir()

    assert exchange.sweep(queue, str(tmp_path)) == 1
    assert len(list(tmp_path.glob("block-*"))) == 2
    assert exchange.sweep(queue, str(tmp_path)) == 0
    queue.blocks.settle(live)
    assert exchange.sweep(queue, str(tmp_path)) == 1
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["block-1-0123456789abcdef", "notes"]


@pytest.mark.parametrize("which", [0, 1])
def test_a_folder_that_cannot_be_deleted_keeps_no_other(
    make_ring: MakeRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    queue, routes = make_ring(), processors()
    for _ in range(2):
        queue.enqueue_messages("a", [b"x"])
        block = queue.blocks.plan()
        exchange.hand_over(queue, block.token, routes, whole(routes), str(tmp_path))
        queue.blocks.release(block)
    stays = sorted(path.name for path in tmp_path.glob("block-*"))[which]
    remove = exchange.Folder.remove

    def stubborn(folder: exchange.Folder) -> None:
        if folder.path.endswith(stays):
            raise PermissionError(13, "Permission denied")
        remove(folder)

    monkeypatch.setattr(exchange.Folder, "remove", stubborn)
    with pytest.raises(PermissionError):
        exchange.sweep(queue, str(tmp_path))
    assert [path.name for path in tmp_path.glob("block-*")] == [stays]


def test_a_block_that_ended_is_neither_handed_over_nor_reported_to(make_ring: MakeRing, tmp_path: Path) -> None:
    queue = make_ring()
    queue.enqueue_messages("a", [b"x"])
    routes, block = processors(), queue.blocks.plan()
    folder = exchange.hand_over(queue, block.token, routes, whole(routes), str(tmp_path))
    work(folder, routes)
    queue.blocks.release(block)

    with pytest.raises(TokenRefused):
        exchange.take_back(queue, block.token, folder)
    with pytest.raises(TokenRefused):
        exchange.hand_over(queue, block.token, routes, whole(routes), str(tmp_path))


def test_object_storage_by_its_address(make_ring: MakeRing) -> None:
    queue = make_ring()
    queue.enqueue_messages("a", [b"1", b"bad"])
    routes, block = processors(), queue.blocks.plan()

    folder = exchange.hand_over(queue, block.token, routes, whole(routes), "memory://bucket/exchange")
    work(folder, routes)

    assert exchange.take_back(queue, block.token, folder) == 2
    assert exchange.sweep(queue, "memory://bucket/exchange") == 0
    queue.blocks.settle(block)
    assert exchange.sweep(queue, "memory://bucket/exchange") == 1


class LikeHdfs(LocalFileSystem):
    """A file system that shows a file as it grows, and renames nothing onto a file."""

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        if self.exists(path2):
            raise FileExistsError(path2)
        super().mv(path1, path2, **kwargs)


@pytest.fixture
def like_hdfs(tmp_path: Path) -> str:
    return exchange.open_by(LikeHdfs(auto_mkdir=True), "hdfs", str(tmp_path / "hdfs"))


def test_a_file_is_there_whole_or_not_at_all(like_hdfs: str) -> None:
    folder = exchange.Folder(like_hdfs)

    with pytest.raises(TypeError):
        # As a process that dies, or a disk that is full, while it writes.
        folder.write("outcomes.parquet", StringIO("no bytes"))  # type: ignore[arg-type]
    assert folder.names() == []
    for data in (b"first", b"second"):
        folder.write("outcomes.parquet", BytesIO(data))
        assert (folder.names(), folder.read("outcomes.parquet")) == (["outcomes.parquet"], data)


def test_a_part_is_handed_over_again_where_nothing_is_renamed_onto_a_file(
    make_ring: MakeRing, like_hdfs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_ring()
    queue.enqueue_messages("a", [b"1", b"2"])
    routes, block = processors(), queue.blocks.plan()
    with monkeypatch.context() as patch:
        patch.setattr(exchange.json, "dumps", _fail)
        with pytest.raises(OSError):
            exchange.hand_over(queue, block.token, routes, whole(routes), like_hdfs)

    folder = exchange.hand_over(queue, block.token, routes, whole(routes), like_hdfs)
    assert work(folder, routes).processed == 2
    exchange.take_back(queue, block.token, folder)
    assert queue.blocks.settle(block).processed == 2
    assert exchange.sweep(queue, like_hdfs) == 1


class EndsInItsProcess(LocalFileSystem):
    """A file system that only the process that opened it can close, as a client with threads."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(auto_mkdir=True, **kwargs)
        self.owner = os.getpid()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("hdfs://")

    def __del__(self) -> None:
        if os.getpid() != self.owner:
            os._exit(3)


def test_the_files_of_a_folder_are_read_through_one_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "find_spec", lambda name: name)
    monkeypatch.setitem(_registry, "hdfs", EndsInItsProcess)
    folder = exchange.Folder(f"hdfs://{tmp_path}/queues")
    report = Report("a", 0, 0, 0, Done())
    for _ in range(3):
        exchange.FolderSide(folder, "000000").report([report])
    opened: list[str] = []
    by_fsspec = exchange.by_fsspec
    monkeypatch.setattr(exchange, "by_fsspec", lambda path: opened.append(path) or by_fsspec(path))

    assert len(list(exchange._reports(folder / "outcomes"))) == 3

    assert opened == [f"{folder.path}/outcomes"]


def test_a_forked_child_closes_no_file_system_of_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "find_spec", lambda name: name)
    monkeypatch.setitem(_registry, "hdfs", EndsInItsProcess)
    # A folder that is not used any more refers to no client.
    exchange.Folder(f"hdfs://{tmp_path}/queues").write("manifest.json", BytesIO(b"{}"))

    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert exchange.Folder(f"hdfs://{tmp_path}/queues").read("manifest.json") == b"{}"


def test_without_a_client_for_hdfs_the_error_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "find_spec", lambda name: None)
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", "/nowhere")
    with pytest.raises(ConfigRefused, match=r"HDFS cannot be used here: .* pip install 'airflow-mq\[hdfs\]' where"):
        exchange.Folder("hdfs://127.0.0.1:1/queues").names()


def test_what_is_not_there_or_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"missing file manifest\.json"):
        exchange.FolderChannel(str(tmp_path)).terms()
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(InvalidInput, match="hand the part over again"):
        exchange.FolderChannel(str(tmp_path)).terms()
    with pytest.raises(InvalidInput, match="no file system for nonsense://"):
        exchange.FolderChannel("nonsense://bucket").terms()


def test_the_manifest_is_written_last(make_ring: MakeRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = make_ring()
    queue.enqueue_messages("a", [b"1"])
    routes, block = processors(), queue.blocks.plan()
    monkeypatch.setattr(exchange, "_write_messages", _fail)
    with pytest.raises(OSError):
        exchange.hand_over(queue, block.token, routes, whole(routes), str(tmp_path))
    monkeypatch.undo()

    folder = exchange.hand_over(queue, block.token, routes, whole(routes), str(tmp_path))

    assert json.loads(Path(folder, "manifest.json").read_text())["shares"][0]["messages"] == 1


@pytest.mark.parametrize("external", [False, True])
def test_a_share_is_written_and_read_piece_by_piece(
    make_ring: MakeRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, external: bool
) -> None:
    queue, piece, count = make_ring(), 1 << 20, 250
    monkeypatch.setattr("airflow_mq.spark.items.GROUP_BYTES", piece)
    payloads = [random.Random(number).randbytes(60_000) for number in range(count)]
    if external:
        queue.admin.change_ring(blob_path=str(tmp_path / "blobs"))
        for payload in payloads:
            queue.payloads.enqueue("a", payload)
    else:
        queue.enqueue_messages("a", payloads)
    routes, block = processors(), queue.blocks.plan()
    (share,) = [task.share for task in tasks_of(block, terms_of(queue, block), routes, whole(routes), 1)]
    folder, held, before = exchange.Folder(str(tmp_path / "exchange")), [0], pa.total_allocated_bytes()

    def batches() -> Iterator[Batch]:
        for batch in exchange.StoreSide(queue, block.token, share).batches():
            held.append(pa.total_allocated_bytes() - before)
            yield batch

    exchange._write_messages(folder / "messages", "0.parquet", batches(), {}, terms_of(queue, block))
    ids: list[bytes] = []
    for batch in exchange.FolderSide(folder, "0").batches():
        held.append(pa.total_allocated_bytes() - before)
        assert sum(map(len, batch.payloads)) < 2 * piece
        ids.extend(batch.ids)
    assert ids == message_ids(payloads) and max(held) < 6 * piece < sum(map(len, payloads)) / 2


def _fail(*_: Any) -> None:
    raise OSError("no space left")


def frame_of(*rows: tuple[Any, ...]) -> list[pa.RecordBatch]:
    """Return the outcomes of a function that takes a DataFrame, as Spark passes them on."""
    names = ("origin", "page", "item", "outcome")
    return [pa.RecordBatch.from_pylist([dict(zip(names, row), priority="regular") for row in rows])]


@pytest.mark.parametrize("way", ["store", "exchange"])
def test_outcomes_of_the_attempt_whose_output_stands_win(make_ring: MakeRing, tmp_path: Path, way: str) -> None:
    """Its later attempt leaves a message out of the output that an earlier one had reported as done."""
    queue = make_ring()
    queue.enqueue_messages("a", [b"X", b"Y", b"Z"])
    routes, block = processors(function="frame", shape="dataframe"), queue.blocks.plan(reports_begin=True)
    terms = terms_of(queue, block)
    folder = exchange.hand_over(queue, block.token, routes, whole(routes), str(tmp_path))
    channel: Any = exchange.FolderChannel(folder)
    if way == "store":
        channel = StoreChannel(queue.store.address.uri, queue.ring, block.token)
        shares = [task.share for task in tasks_of(block, terms, routes, whole(routes), 1)]
    else:
        shares = [task.share for task in channel.tasks(routes)]
    first, second = Shares(channel, shares, terms), Shares(channel, shares, terms)

    first.begin()
    list(first.report_outcomes(frame_of(("a", 0, 0, "done"))))
    if way == "exchange":
        exchange.take_back(queue, block.token, folder)
        # Its folder was deleted meanwhile: the part is handed over again, with what was reported.
        shutil.rmtree(Path(folder).parent)
        assert exchange.hand_over(queue, block.token, routes, whole(routes), str(tmp_path)) == folder
    second.begin()
    assert [payload for batch in second.messages(numbers(0)) for payload in batch.column("payload").to_pylist()] == [
        b"X", b"Y", b"Z",
    ]  # fmt: skip
    # An executor of the first attempt goes on for a while.
    list(first.report_outcomes(frame_of(("a", 0, 1, "done"))))
    list(second.report_outcomes(frame_of(("a", 0, 0, "yield"), ("a", 0, 2, "done"))))
    with pytest.raises(TokenRefused, match="another attempt of this part began"):
        first.refuse_superseded()
    second.refuse_superseded()
    if way == "exchange":
        for _ in range(2):
            exchange.take_back(queue, block.token, folder)
    settled = queue.blocks.settle(block)

    assert (settled.processed, settled.returned) == (1, 2)
    assert [peeked.payload for peeked in queue.inspect.peek("a")] == [b"X", b"Y"]


def numbers(*share: int) -> list[pa.RecordBatch]:
    """Return numbers of shares, as Spark passes them on."""
    return [pa.RecordBatch.from_pydict({"id": list(share)})]


# -- on a server that speaks S3 --


@pytest.mark.slow
@pytest.mark.parametrize("client", ["pyarrow", "fsspec"])
def test_an_exchange_on_s3_outlasts_the_server(
    make_ring: MakeRing, s3: S3Server, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    """Two jobs write at once; the server is killed between all steps, and a step that finds it gone is repeated."""
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    base = f"s3://plain/exchange-{uuid.uuid4().hex}"
    if client == "fsspec":
        exchange.open_by(s3.files(config_kwargs={"retries": {"max_attempts": 1}}), "s3", base.removeprefix("s3://"))

    def gone(step: Callable[[], object]) -> None:
        """Let a step fail for want of a server, then start that again; Arrow's client gives up after ten seconds."""
        if client == "pyarrow" and not SOAK:
            return s3.restart()
        s3.kill()
        try:
            with pytest.raises(Exception) as failed:
                step()
        finally:
            s3.restart()
        assert not isinstance(failed.value, InvalidInput)

    queue = make_ring()
    for origin in ODD:
        queue.enqueue_messages(origin, [b"x%d" % n for n in range(40)])
    routes, block = processors(), queue.blocks.plan()
    gone(lambda: exchange.hand_over(queue, block.token, routes, whole(routes), base))
    folder = exchange.hand_over(queue, block.token, routes, whole(routes), base)
    assert exchange.hand_over(queue, block.token, routes, whole(routes), base) == folder
    gone(lambda: work(folder, routes))
    with ThreadPoolExecutor(2) as pool:
        # The second attempt at a part runs while the first one still does.
        jobs = [pool.submit(work, folder, routes) for _ in range(2)]
        s3.restart()
        while not all(job.done() for job in jobs):
            with suppress(OSError):
                exchange.take_back(queue, block.token, folder)
    ended = [job.exception() for job in jobs]
    if any(ended):
        work(folder, routes)
    gone(lambda: exchange.take_back(queue, block.token, folder))
    assert exchange.take_back(queue, block.token, folder) >= 160
    assert queue.blocks.settle(block).processed == 160
    gone(lambda: exchange.sweep(queue, base))
    assert exchange.sweep(queue, base) == 1 and exchange.Folder(base).names() == []
