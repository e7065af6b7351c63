"""Output of DataFrame processors: Parquet files that a repeated block replaces.

    <path>/mq_block=17-<hash>/mq_part=orders-1-of-3/<partition columns>/part-….parquet

Each part of a block writes to its own folder, so that the jobs of a block do not share Spark's `_temporary`. The folder
is written below `<path>/_staging` and renamed when it is complete: a reader sees all of a part or nothing, where the
file system renames a folder atomically (HDFS, local, ABFS with a hierarchical namespace; not `s3a://`, which copies
file by file). If the same part of the same block is repeated, the new folder replaces the old one. If it cannot, the
old one stays. A process that ends while it replaces the folder leaves the old one in `_staging`, where the next write
of the part finds it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..engine.rules.errors import InvalidInput, StoreError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

#: Columns that a reader derives from folder names.
BLOCK, PART = "mq_block", "mq_part"
#: Folder of incomplete output. Readers of Parquet skip names that begin with an underscore.
STAGING = "_staging"
#: End of the name of a folder with earlier output, while it is replaced.
_REPLACED = "-replaced"


@dataclass(frozen=True)
class Output:
    """The names of the current output, and the folders written so far."""

    block: str
    part: str
    #: Called before output replaces an earlier one. Raises `TokenRefused` if a later attempt has begun.
    check: Callable[[], None]
    written: set[str] = field(default_factory=set)


_current: ContextVar[Output | None] = ContextVar("airflow_mq_output", default=None)


def _allow() -> None:
    """Allow output that no attempt of a part owns."""


@contextmanager
def writing_for(block: str, part: str, check: Callable[[], None] = _allow) -> Iterator[None]:
    """Make `write_block` write for this part of a block while the context is open.

    :param check: called before output replaces an earlier one; raises if it must not
    """
    mark = _current.set(Output(block, part, check))
    try:
        yield
    finally:
        _current.reset(mark)


def write_block(
    df: DataFrame,
    path: str,
    partition_by: str | Sequence[str] = (),
    *,
    block: str | None = None,
    part: str | None = None,
    **options: str | bool | int | float | None,
) -> str:
    """Write a DataFrame as Parquet, for the part of the block that is being processed; return the folder.

    Call it once for each path in a part: a second call would replace the first output. If Spark cannot rename (Spark
    Connect), the part is overwritten in place, and is complete when `_SUCCESS` is in its folder.

    :param df: the rows, of any columns but `mq_block` and `mq_part`
    :param path: a folder that Spark can write, the same for all blocks
    :param partition_by: columns that become folders below the part's, as in `partitionBy`
    :param block: outside of a `dataframe` processor: a name of the block, the same when it is repeated
    :param part: outside of a `dataframe` processor: a name of the part within the block
    :param options: of Spark's Parquet writer, such as `compression="zstd"`
    """
    output = _output(block, part)
    columns = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    taken = [name for name in df.columns if name.lower() in (BLOCK, PART)]
    if taken:
        raise InvalidInput(f"reserved column {taken[0]!r}: {BLOCK} and {PART} come from folder names; rename it")
    base = path.rstrip("/")
    below = f"{BLOCK}={output.block}/{PART}={output.part}"
    final = f"{base}/{below}"
    if final in output.written:
        raise InvalidInput(
            f"path written twice in one part ({path!r}): write one DataFrame to each path; unite them first"
        )
    writer = df.write.options(**options).partitionBy(*columns).mode("overwrite")
    _write(writer, df.sparkSession, final, f"{base}/{STAGING}/{below}", output.check)
    output.written.add(final)
    return final


def _write(writer: DataFrameWriter, session: SparkSession, final: str, aside: str, check: Callable[[], None]) -> None:
    if getattr(session, "_jvm", None) is None:
        check()
        writer.parquet(final)
    else:
        place, staging = _Place(session, final, aside), f"{aside}/_{secrets.token_hex(8)}"
        place.recover()
        writer.parquet(staging)
        check()
        place.replace(staging)


def _output(block: str | None, part: str | None) -> Output:
    if (block is None) != (part is None):
        raise InvalidInput("block and part belong together: pass both, or none within a processor")
    if block is not None and part is not None:
        for name in (block, part):
            if not name or "/" in name or name.startswith((".", "_")):
                raise InvalidInput(
                    f"invalid name for output ({name[:80]!r}): expected text without '/', '.' or '_' in front"
                )
        return Output(block, part, _allow)
    output = _current.get()
    if output is None:
        raise InvalidInput(
            "no block is processed here: call write_block in a dataframe processor, or pass block and part"
        )
    return output


class _Place:
    """The folder of a part's output, and the folder beside it that has what is incomplete or was replaced."""

    def __init__(self, session: SparkSession, final: str, aside: str) -> None:
        self._path = session._jvm.org.apache.hadoop.fs.Path
        self._final, self._aside = final, aside
        self._files = self._path(final).getFileSystem(session._jsc.hadoopConfiguration())

    def recover(self) -> None:
        """Put the earlier output back if a process that replaced it ended between its two renames."""
        if self._exists(self._final) or not self._exists(self._aside):
            return
        for found in self._files.listStatus(self._path(self._aside)):
            if found.getPath().getName().endswith(_REPLACED):
                self._rename(found.getPath().toString(), self._final)
                return

    def replace(self, staging: str) -> None:
        """Rename a complete folder to its place, and delete the one that was there."""
        self._files.mkdirs(self._path(self._final).getParent())
        replaced = f"{staging}{_REPLACED}"
        is_repeated = self._exists(self._final)
        if is_repeated and not self._rename(self._final, replaced):
            raise StoreError(f"earlier output could not be moved away from {self._final!r}; it stands. Retry the task")
        moved = False
        try:
            moved = self._rename(staging, self._final)
        finally:
            if not moved and is_repeated:
                self._rename(replaced, self._final)
        if not moved:
            raise StoreError(
                f"output could not be renamed to {self._final!r}: another attempt writes the same part; retry the task"
            )
        # Including the leftovers of attempts that were killed.
        self._files.delete(self._path(self._aside), True)

    def _exists(self, path: str) -> bool:
        return bool(self._files.exists(self._path(path)))

    def _rename(self, path: str, target: str) -> bool:
        """Rename a folder; return whether it is in its new place."""
        if not self._files.rename(self._path(path), self._path(target)):
            return False
        # Hadoop moves a folder below a target that exists, and reports success.
        below = self._path(self._path(target), self._path(path).getName())
        if self._files.exists(below):
            self._files.rename(below, self._path(path))
            return False
        return True
