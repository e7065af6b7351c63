"""Messages and outcomes as Parquet below a path, for clusters that cannot reach the store.

The task, which reaches the store, writes the messages of its part (`hand_over`), submits the job with
`--exchange FOLDER`, and reports what the job wrote there (`take_back`), while it keeps the block's lease
(`lease.BlockLease`). The job reads and writes files, and knows neither address nor token. ::

    <path>/block-17-<token's hash>/orders-1-of-2/manifest.json     the contents; written last
                                                 messages/000000.parquet
                                                 outcomes/000000-<time>-<chance>.parquet

A path is a local folder or an address that `pyarrow.fs` or `fsspec` knows: `s3://bucket/path`, `gs://…`,
`abfs://…`, `hdfs://…`. Every step may be repeated: files of messages are equal, and outcomes have the number of
their attempt. `sweep` deletes the folders of blocks that have ended.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from importlib.util import find_spec
from io import BytesIO
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO, Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from ..engine.queue import MessageQueue
from ..engine.queue.blocks.block import Block
from ..engine.queue.blocks.reports import collected, ids_fit
from ..engine.queue.values import Batch, Report
from ..engine.rules.blob import Reference
from ..engine.rules.errors import ConfigRefused, InvalidInput, StoreCorrupt, UnknownBlock
from ..engine.rules.message import Attributes
from ..engine.rules.outcome import BEGUN, DONE, Mark
from ..engine.rules.page import Facts, Note
from ..engine.rules.patterns import Permit
from ..engine.rules.priority import book_name
from ..engine.rules.settle import Answers
from ..engine.rules.weight import Weight
from ..engine.store import codec
from ..engine.store.blob_files import by_fsspec
from ..processors import Part, Processors
from .items import Place, batches_of, neighbours_of
from .reports import chunked, patiently
from .share import Reported, Task, left_of
from .store_side import StoreSide, block_name, live_block, not_begun, tasks_of, terms_of
from .tables import MESSAGES, tables_of
from .terms import JobTerms

#: Files of messages for each processor of a part: the number of tasks that run at once.
FILES = 16
#: Seconds after which a running task writes its outcomes, however few.
SECONDS = 10.0
_OUTCOMES = pa.schema(
    {
        "book": pa.string(),
        "page": pa.int64(),
        "first": pa.int32(),
        "last": pa.int32(),
        "outcome": pa.string(),
        "ids": pa.binary(),
        "epoch": pa.int64(),
        "batch": pa.int64(),
        "took": pa.int64(),
    }
)
#: Schemes of object stores.
_OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory")
#: Columns that the job reads of messages; the first ones are their place.
_PLACE = ("origin", "priority", "page", "item")
_READ = (*_PLACE, "payload", "headers", "id", "attempt", "block", "sent_at")
#: File systems that a task opened by a connection, and their paths, by the address below which they are used.
_opened: dict[str, tuple[Any, str]] = {}
#: File systems of fsspec that this process has used. In a forked child, fsspec drops its references, and without any a
#: client of HDFS would end there: it would wait for ever, for threads that only the parent has.
_kept: set[Any] = set()


def open_by(files: Any, protocol: str, path: str) -> str:
    """Use a file system of `fsspec` below an address, in this process; return the address."""
    path = path.rstrip("/")
    _opened[f"{protocol}://{path}"] = files, path
    return f"{protocol}://{path}"


# -- files --


@dataclass(frozen=True)
class Folder:
    """A folder, by its path or address."""

    path: str

    def __truediv__(self, name: str) -> Folder:
        return Folder(f"{self.path.rstrip('/')}/{name}")

    @cached_property
    def _place(self) -> tuple[pafs.FileSystem, str]:
        if "://" not in self.path:
            return pafs.LocalFileSystem(), self.path
        for address, (files, path) in _opened.items():
            if f"{self.path}/".startswith(f"{address}/"):
                return pafs.PyFileSystem(pafs.FSSpecHandler(files)), path + self.path[len(address) :]
        is_hdfs = self.path.startswith(("hdfs://", "viewfs://"))
        if not (is_hdfs and find_spec("hdfs_native")):
            try:
                place: tuple[pafs.FileSystem, str] = pafs.FileSystem.from_uri(self.path)
                return place
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                pass
            except OSError as error:
                if not is_hdfs:
                    raise
                raise ConfigRefused(
                    f"HDFS cannot be used here: pyarrow found no working libhdfs ({str(error).partition(chr(10))[0]}); "
                    "run pip install 'airflow-mq[hdfs]' where tasks, drivers and executors run"
                ) from error
        files, path = by_fsspec(self.path)
        _kept.add(files)
        return pafs.PyFileSystem(pafs.FSSpecHandler(files)), path

    def write(self, name: str, data: IO[bytes]) -> None:
        """Write a file, whole or not at all."""
        files, place = self._place
        files.create_dir(place, recursive=True)
        target = f"{place}/{name}"
        # Object stores show a file when it is complete; a file system shows it as it grows.
        is_object_store = self.path.partition("://")[0] in _OBJECT_STORES
        written = target if is_object_store else f"{place}/.{secrets.token_hex(8)}.tmp"
        with files.open_output_stream(written) as stream:
            copyfileobj(data, stream)
        if not is_object_store:
            # HDFS renames nothing onto a file. Only files of messages are replaced, before there is a manifest.
            if not isinstance(files, pafs.LocalFileSystem) and files.get_file_info(target).type == pafs.FileType.File:
                files.delete_file(target)
            files.move(written, target)

    def write_table(self, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Write record batches as Parquet, each as a row group. Closing a stream would complete a part of a file."""
        with TemporaryFile() as file:
            with pq.ParquetWriter(file, schema, compression="zstd") as writer:
                for batch in batches:
                    writer.write_batch(batch)
            file.seek(0)
            self.write(name, file)

    def read(self, name: str) -> bytes:
        files, place = self._place
        try:
            with files.open_input_stream(f"{place}/{name}") as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            raise InvalidInput(f"missing file {name} in {self.path}: hand the part over again") from None

    def tables(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the row groups of a Parquet file, one at a time: all columns, or these."""
        files, place = self._place
        with (
            codec.reading(f"the file {name} in the exchange folder"),
            files.open_input_file(f"{place}/{name}") as stream,
            pq.ParquetFile(stream) as file,
        ):
            for group in range(file.num_row_groups):
                yield from file.iter_batches(row_groups=[group], columns=columns)

    def names(self) -> list[str]:
        """Return the names of the folder's files, in order."""
        files, place = self._place
        found = files.get_file_info(pafs.FileSelector(place, allow_not_found=True))
        return sorted(info.base_name for info in found if not info.base_name.startswith("."))

    def remove(self) -> None:
        """Delete the folder with its contents."""
        files, place = self._place
        if files.get_file_info(place).type == pafs.FileType.Directory:
            files.delete_dir(place)


def _block_folder(block: Block) -> str:
    # With the token itself, every reader of the folder could report to the block.
    return f"block-{block_name(block)}"


def _part_folder(part: Part) -> str:
    names = "+".join(part["processors"])
    short = names if len(names) <= 60 else f"{names[:40]}-{sha256(names.encode()).hexdigest()[:12]}"
    return f"{short}-{part['part'] + 1}-of-{part['parts']}"


# -- the task's side --


def hand_over(queue: MessageQueue, token: str, processors: Processors, part: Part, base: str) -> str:
    """Write the messages of a part below a path; return the folder for the job's `--exchange`.

    If it is repeated for the same block, the existing files stay.
    """
    block = live_block(queue, token)
    folder = Folder(base) / _block_folder(block) / _part_folder(part)
    if "manifest.json" in folder.names():
        return folder.path
    terms = terms_of(queue, block)
    answered = queue.blocks.reported(token)
    shares = []
    for number, task in enumerate(tasks_of(block, terms, processors, part, FILES)):
        name = f"{number:06}"
        # A function that takes a DataFrame replaces its output, so it receives all messages again.
        known = {} if task.processor.shape == "dataframe" else answered
        # With external payloads: the job cannot reach the store.
        batches = StoreSide(queue, token, task.share).batches()
        _write_messages(folder / "messages", f"{name}.parquet", batches, known, terms)
        shares.append({"processor": task.processor.name, "name": name, "messages": task.messages})
    epoch = max((answers.epoch for answers in answered.values()), default=0)
    plain = {**asdict(terms), "exceptions": sorted(terms.exceptions)}
    manifest = {"block": block.id, "manner": plain, "shares": shares, "epoch": epoch}
    folder.write("manifest.json", BytesIO(json.dumps(manifest).encode()))
    return folder.path


def _write_messages(
    folder: Folder, name: str, batches: Iterable[Batch], answered: Mapping[str, Answers], terms: JobTerms
) -> None:
    """Write the messages of a share that have none of these outcomes."""
    folder.write_table(name, MESSAGES, tables_of(batches_of(left_of(batches, answered, terms, Reported()))))


def take_back(queue: MessageQueue, token: str, folder: str) -> int:
    """Report the outcomes that a job wrote, and return their number. It may be repeated, also while the job runs."""
    count = 0
    for chunk in chunked(_reports(Folder(folder) / "outcomes")):
        patiently(partial(queue.blocks.report, token, chunk))
        count += sum(report.last - report.first + 1 for report in chunk if not isinstance(report.outcome, Mark))
    return count


def sweep(queue: MessageQueue, base: str) -> int:
    """Delete the folders of this ring's ended blocks, and return their number."""
    gone = 0
    # If one cannot be deleted, its error is raised after the others are.
    with ExitStack() as deleting:
        for name in Folder(base).names():
            found = re.fullmatch(r"block-(\d{1,18})-[0-9a-f]{16}", name)
            # Other files, and folders of other rings, stay.
            if found and _has_ended(queue, int(found[1]), name):
                deleting.callback((Folder(base) / name).remove)
                gone += 1
    return gone


def _has_ended(queue: MessageQueue, number: int, name: str) -> bool:
    """Return whether a folder is that of a block of this ring, which has ended."""
    try:
        block = queue.blocks.get(number)
    except UnknownBlock:
        return False
    return block.state != "planned" and name == _block_folder(block)


# -- the job's side --


@dataclass(frozen=True)
class FolderChannel:
    """Access to a folder; Spark ships it to executors."""

    path: str

    @contextmanager
    def manifest(self) -> Iterator[dict[str, Any]]:
        """Yield the manifest. Raises `InvalidInput` if it cannot be read, or lacks what is read of it."""
        data = Folder(self.path).read("manifest.json")
        try:
            with codec.reading("the manifest"):
                yield json.loads(data)
        except StoreCorrupt as error:
            raise InvalidInput(f"invalid manifest in {self.path} ({error}): hand the part over again") from None

    def terms(self) -> JobTerms:
        with self.manifest() as manifest:
            terms = manifest["manner"]
            largest, largest_of, (most, permit, most_headers) = terms["largest"], terms["largest_of"], terms["bounds"]
            read = {
                "largest": Weight(*largest) if largest else None,
                "bounds": (most, Permit(**permit), most_headers),
                "exceptions": frozenset(terms["exceptions"]),
                "largest_of": {origin: Weight(*weight) for origin, weight in largest_of.items()},
            }
            return JobTerms(**{**terms, **read})

    def tasks(self, processors: Processors) -> list[Task]:
        """Return a task for each file of messages."""
        with self.manifest() as manifest:
            return [
                Task(processors[share["processor"]], share["name"], share["messages"]) for share in manifest["shares"]
            ]

    def report_not_begun(self, processors: Processors, part: Part, error: Exception) -> None:
        """Report an error to all messages of a part, of which none was begun."""
        for task in self.tasks(processors):
            if task.processor.name in part["processors"]:
                FolderSide(Folder(self.path), task.share).begin(not_begun(error))

    def open(self, share: str | None, epoch: int = 0) -> AbstractContextManager[FolderSide]:
        """Open a file of messages; none stays open."""
        return nullcontext(FolderSide(Folder(self.path), share, epoch))

    def epoch(self, shares: Iterable[object]) -> int:
        """Return the epoch of the latest attempt at this part; 0 without one."""
        with self.manifest() as manifest:
            known = int(manifest["epoch"])
        return max([known, *(report.epoch for report in _reports(Folder(self.path) / "outcomes"))])


class FolderSide:
    """A file of messages, and the files of outcomes beside it."""

    seconds = SECONDS

    def __init__(self, folder: Folder, share: str | None, epoch: int = 0) -> None:
        self.folder, self.share, self.epoch = folder, share or "any", epoch
        self._chance = secrets.token_hex(4)

    def begin(self, mark: Mark = BEGUN) -> None:
        reports = [Report(*_place(run[0]), _place(run[-1])[2], mark) for run in self._runs(_PLACE)]
        if reports:
            self.report(reports)

    def batches(self) -> Iterator[Batch]:
        for rows in self._runs(_READ):
            book, page, first = _place(rows[0])
            _, _, _, at, stored, headers, ids, attempts, blocks, sent = zip(*rows)
            # The id of a plain message is its hash, which no message contains.
            payloads = [Reference.read(data) if data[8:40] == id_ else data for data, id_ in zip(stored, ids)]
            notes = {index: Note(attempts=attempt - 1) for index, attempt in zip(at, attempts) if attempt > 1}
            times = {index: time for index, time in zip(at, sent) if time is not None}
            attributes = {index: Attributes(headers=dict(given)) for index, given in zip(at, headers) if given}
            yield Batch(book, payloads, page, first, block=blocks[0], _facts=partial(Facts, notes, times, attributes))

    def _runs(self, names: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the file's messages as rows, in groups of neighbours in a row group."""
        for table in (self.folder / "messages").tables(f"{self.share}.parquet", names):
            columns = [table.column(name) for name in names]
            # Times as numbers: they have more digits than a date shows.
            plain = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in columns]
            yield from neighbours_of(zip(*(column.to_pylist() for column in plain)), _place)

    def report(self, reports: Sequence[Report]) -> None:
        rows = [
            (r.book, r.page, r.first, r.last, json.dumps(codec.plain_outcome(r.outcome)), r.ids, self.epoch, *r.took)
            for r in reports
        ]
        arrays = [pa.array(column, kind.type) for column, kind in zip(zip(*rows), _OUTCOMES)]
        name, table = f"{self.share}-{time.time_ns():020}-{self._chance}.parquet", pa.record_batch(arrays, _OUTCOMES)
        (self.folder / "outcomes").write_table(name, _OUTCOMES, [table])

    def answered(self) -> Mapping[str, Answers]:
        return collected(lambda: _reports(self.folder / "outcomes", self.share))


def _place(row: tuple[Any, ...]) -> Place:
    origin, priority, page, item = row[:4]
    return book_name(origin, priority), page, item


def _reports(folder: Folder, share: str | None = None) -> Iterator[Report]:
    """Yield the outcomes in a folder, of one file of messages or of all, earliest first."""
    names = [name for name in folder.names() if share is None or name.startswith(f"{share}-")]
    for name in sorted(names, key=lambda name: name.rpartition("-")[0].rpartition("-")[2]):
        for table in folder.tables(name):
            with codec.reading(f"the file {name} in the exchange folder"):
                rows = list(zip(*(table.column(one).to_pylist() for one in _OUTCOMES.names)))
            for row in rows:
                if None in row:
                    raise StoreCorrupt("an outcome in the exchange folder lacks a value; hand the part over again")
                book, page, first, last, outcome, ids, epoch, *took = row
                answer = DONE if outcome == '["done"]' else codec.outcome_of(codec.read_json(outcome))
                report = Report(book, page, first, last, answer, ids=ids, epoch=epoch, took=(took[0], took[1]))
                # Without ids, settling reads the payloads.
                yield report if ids_fit(report) else replace(report, ids=b"")
