"""Readers of what a job and a task exchange: manifests and Parquet files, and batches of outcomes."""

from __future__ import annotations

import atexit
import json
import shutil
from functools import lru_cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from airflow_mq.engine.queue.values import Batch, Delivery, Report
from airflow_mq.engine.rules.errors import InvalidInput, StoreCorrupt
from airflow_mq.engine.rules.message import ID_BYTES, Attributes
from airflow_mq.engine.rules.outcome import DONE, Outcome, Yield
from airflow_mq.engine.rules.page import Facts, Note
from airflow_mq.processors import Processor, Processors
from airflow_mq.spark.items import messages_of, place_of

from ..draw import Draw
from ..target import Target, attempt

PROCESSORS = Processors([Processor("orders", "a:b")])
MANIFEST = {
    "block": 17,
    "manner": {
        "ordered": True, "bounds": [65_531, {"origins": "acme"}, 100], "largest": [1, 2], "exceptions": ["bolt"],
        "largest_of": {"acme": [3, 4]}, "block": 17, "block_name": "17-ff", "log_texts": False,
        "max_attempts": 3, "place": "x",
    },
    "shares": [{"processor": "orders", "name": "000000", "messages": 5}],
    "epoch": 2,
}  # fmt: skip


@lru_cache
def folder() -> Path:
    """Return a folder of this process, in memory where there is such a place."""
    memory = Path("/dev/shm")
    path = mkdtemp(prefix="mq-fuzz-", dir=memory if memory.is_dir() else None)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)


def check_exchange(data: bytes) -> None:
    """Read a manifest, a file of outcomes, a file of messages, or a processor's batch of outcomes."""
    draw = Draw(data)
    draw.pick((_check_manifest, _check_bytes, _check_outcomes, _check_messages, _check_batch))(draw)


def _check_manifest(draw: Draw) -> None:
    from airflow_mq.spark.exchange import FolderChannel

    (folder() / "manifest.json").write_bytes(draw.rest())
    channel = FolderChannel(str(folder()))
    terms = attempt(channel.terms, InvalidInput, StoreCorrupt)
    tasks = attempt(lambda: channel.tasks(PROCESSORS), InvalidInput, StoreCorrupt)
    assert isinstance(terms.stops("acme", Yield("")), bool) and all(task.processor in PROCESSORS.all for task in tasks)


def _outcomes(data: bytes) -> Any:
    from airflow_mq.spark.exchange import Folder

    path = folder() / "outcomes"
    path.mkdir(exist_ok=True)
    (path / "000000-1-a.parquet").write_bytes(data)
    return Folder(str(path))


def _check_bytes(draw: Draw) -> None:
    """Read a file of outcomes that is damaged from some place on."""
    from airflow_mq.spark.exchange import _reports

    whole = _parquet([("acme", 1, 0, 3, '["done"]', bytes(4 * ID_BYTES), 0, 7, 9)])
    place = draw.whole(2) % len(whole)
    damage = draw.rest()
    reports = _outcomes(whole[:place] + damage + whole[place + len(damage) :])
    # PyArrow raises plain OSErrors for damaged pages, as for a network that fails.
    attempt(lambda: list(_reports(reports)), InvalidInput, StoreCorrupt, OSError)


def _parquet(rows: list[tuple[Any, ...]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from airflow_mq.spark.exchange import _OUTCOMES

    sink = pa.BufferOutputStream()
    arrays = [pa.array(column, kind.type) for column, kind in zip(zip(*rows), _OUTCOMES)]
    table = pa.Table.from_arrays(arrays, schema=_OUTCOMES)
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())


def _check_outcomes(draw: Draw) -> None:
    """Read a file of outcomes in which the texts and numbers are foreign."""
    from airflow_mq.spark.exchange import Folder, FolderSide, _reports

    origin = draw.pick(("acme", "bolt", None))
    numbers = [draw.pick((0, 1, None, -1, draw.whole(3))) for _ in range(3)]
    text = draw.pick((None, draw.rest().decode("utf-8", "replace")))
    for ids in (None, (text or "").encode()):
        row = (origin, *numbers, text, ids, *(draw.pick((0, 1, None)) for _ in range(3)))
        reports = attempt(lambda row=row: list(_reports(_outcomes(_parquet([row])))), InvalidInput, StoreCorrupt)  # type: ignore[misc]
        answers = attempt(FolderSide(Folder(str(folder())), "000000").answered, InvalidInput, StoreCorrupt)
        assert len(reports) == 1 and isinstance(reports[0], Report) and answers
        assert len(reports[0].ids) in (0, (reports[0].last - reports[0].first + 1) * ID_BYTES)


def _check_messages(draw: Draw) -> None:
    """Write messages as a file, and read them."""
    from airflow_mq.spark.exchange import Folder, FolderSide
    from airflow_mq.spark.tables import MESSAGES, tables_of

    batches = []
    for at in range(draw.byte() % 5):
        headers = {draw.binary().decode("utf-8", "replace"): "v"} if draw.byte() % 2 else {}
        book, page, payload = draw.pick(("acme", "\x01acme", "bolt", "\U0001f600")), draw.pick((0, 5)), draw.binary()
        attributes = {at: Attributes(headers=headers)} if headers else {}
        facts = Facts({at: Note(attempts=draw.byte())}, {at: draw.whole(6)}, attributes)
        batches.append(Batch(book, [payload], page, at, block=17, _facts=partial(Facts, *facts)))
    Folder(str(folder() / "messages")).write_table("000000.parquet", MESSAGES, tables_of(batches))
    side = FolderSide(Folder(str(folder())), "000000")
    assert list(map(_values, messages_of(side.batches()))) == list(map(_values, messages_of(batches)))


def _values(message: Delivery) -> tuple[object, ...]:
    return (*place_of(message), message.payload, message.headers, message.attempt, message.sent_at, message.block)


def _check_batch(draw: Draw) -> None:
    """Read a processor's batch of outcomes, with columns of foreign types."""
    import pyarrow as pa

    from airflow_mq.spark.tables import answers_in

    values: tuple[Any, ...] = (
        "done",
        "yield",
        "overweight",
        None,
        7,
        -1,
        1.5,
        float("nan"),
        b"\xff",
        "text",
        True,
        1 << 62,
    )
    columns = {
        name: [draw.pick(values)]
        for name in ("origin", "priority", "page", "item", "outcome", "reason", "time", "size", "x")
    }
    left_out = draw.byte()
    chosen = {name: column for at, (name, column) in enumerate(columns.items()) if not left_out >> at & 1}
    if not chosen:
        return
    for _, outcome in attempt(lambda: list(answers_in(pa.RecordBatch.from_pydict(chosen))), InvalidInput):
        assert isinstance(outcome, Outcome) and (outcome == DONE or outcome is not None)


TARGETS = (
    Target(
        "exchange",
        ("airflow_mq.spark.exchange", "airflow_mq.spark.tables", "airflow_mq.engine.store.codec", "airflow_mq.spark.items"),
        "InvalidInput, StoreCorrupt; damaged Parquet: OSError", "messages and outcomes are read as they were written", check_exchange,
        (
            b"\0" + json.dumps(MANIFEST).encode(), b"\0{}", b"\1\2\1\0\xff", b'\2\0\0\0\0\1["overweight",{"weight":[1,2]}]',
            b'\2\0\0\0\0\1["done"]', b"\3\4\0\0\0\3abc\1\0\1\1\1h\1\2x", b"\4\0\0\0\0\0\0\0\0\x80", b"\4\x09\4\4\2\x09\4\4\0\0",
        ),
        needs_airflow=True,
    ),
)  # fmt: skip
