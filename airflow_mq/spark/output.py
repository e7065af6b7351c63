"""Output of DataFrame processors: Parquet files that a repeated block replaces.

    <path>/mq_block=17-<hash>/mq_part=orders-1-of-3/<partition columns>/part-….parquet

Each part of a block writes to its own folder, so that the jobs of a block do not share Spark's `_temporary`. The folder
is written below `<path>/_staging` and renamed when it is complete: a reader sees all of a part or nothing. If the same
part of the same block is repeated, the new folder replaces the old one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..core.errors import InvalidInput, StoreError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

#: Columns that a reader derives from folder names.
BLOCK, PART = "mq_block", "mq_part"
#: Folder of incomplete output. Readers of Parquet skip names that begin with an underscore.
STAGING = "_staging"


@dataclass(frozen=True)
class Output:
    """The names of the current output, and the folders written so far."""

    block: str
    part: str
    written: set[str] = field(default_factory=set)


_current: ContextVar[Output | None] = ContextVar("airflow_mq_output", default=None)


@contextmanager
def writing_for(block: str, part: str) -> Iterator[None]:
    """Make `write_block` write for this part of a block while the context is open."""
    mark = _current.set(Output(block, part))
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
    _write(writer, df.sparkSession, final, f"{base}/{STAGING}/{below}")
    output.written.add(final)
    return final


def _write(writer: DataFrameWriter, session: SparkSession, final: str, aside: str) -> None:
    if getattr(session, "_jvm", None) is None:
        writer.parquet(final)
    else:
        staging = f"{aside}/_{secrets.token_hex(8)}"
        writer.parquet(staging)
        _replace(session, staging, final, aside)


def _output(block: str | None, part: str | None) -> Output:
    if block is not None and part is not None:
        for name in (block, part):
            if not name or "/" in name or name.startswith((".", "_")):
                raise InvalidInput(
                    f"invalid name for output ({name[:80]!r}): expected text without '/', '.' or '_' in front"
                )
        return Output(block, part)
    output = _current.get()
    if output is None:
        raise InvalidInput(
            "no block is processed here: call write_block in a dataframe processor, or pass block and part"
        )
    return output


def _replace(session: SparkSession, staging: str, final: str, aside: str) -> None:
    """Rename a complete folder to its place, and delete the one that was there."""
    place = session._jvm.org.apache.hadoop.fs.Path
    files = place(final).getFileSystem(session._jsc.hadoopConfiguration())
    files.mkdirs(place(final).getParent())
    if files.exists(place(final)):
        files.rename(place(final), place(f"{staging}-replaced"))
    if not files.rename(place(staging), place(final)):
        raise StoreError(
            f"output could not be renamed to {final!r}: another attempt writes the same part; retry the task"
        )
    # Including the leftovers of attempts that were killed.
    files.delete(place(aside), True)
