"""Spark format `airflow_mq`: read a queue, write to it, stream from it.

    register(spark)
    spark.read.format("airflow_mq").option("origins", "acme/").load()          # reads waiting messages, changes nothing
    spark.read.format("airflow_mq").option("block", "environment").load()      # the messages of a block
    df.write.format("airflow_mq").mode("append").option("job", run_id).save()  # enqueues every row
    spark.readStream.format("airflow_mq").option("stream", "orders").load()    # micro-batches are blocks

The environment of the driver holds the store's address, `AIRFLOW_MQ_STORE`: plans and Spark's UI show options. `ring`
names the ring (`default` if left out), `partitions` is the largest number of partitions.

**Reading** returns the columns origin, priority, page, item, payload, headers, id, address, attempt, sent_at and block.
A schema with some of them (`spark.read.schema("origin STRING, payload BINARY")`) saves the time of the others. With
`origins` it returns the waiting messages of all origins with that prefix, up to `limit` of each. With `block` it
returns the messages that a block claimed, for `report`: the value is the block's token, or better `environment`, which
reads the token from `AIRFLOW_MQ_BLOCK`.

**Writing** takes the columns origin and payload, and optionally key, headers and priority; the option `priority`
applies to rows without one. Rows are committed task by task, not all at the end: a job that fails has enqueued a part.
So the store keeps a digest of each row without a key, under the option `job` and the row's partition: repeated rows
are accepted once. If `job` is left out, each write is a job of its own; if it names the DAG run, a whole write may be
repeated with the same rows in the same partitions; rows that may move between partitions need a key. A stream is
written with `foreachBatch`, and the batch's number in the job's name; a new checkpoint needs a new name.

**Streaming** services the queue: each micro-batch is a block of the ring, planned within its weight, fair between
origins, and settled as done when Spark has committed it. Spark may repeat a micro-batch, so a message is processed at
least once. The block's lease is kept while the query lives. A query that restarts within the lease repeats its last
micro-batch with the same messages. After the lease, Spark repeats the number of that micro-batch as an empty one, and
its messages come again under a later number: a sink that skips a number it has written loses none of them. `stream`
names the query and makes the keys of its blocks; a ring has one stream of a name.

For runs on a schedule, use `trigger(availableNow=True)`: the query services as many messages as waited when it began,
settles them and ends. A micro-batch is settled when Spark asks for the next one. If a query ends before, as with
`trigger(once=True)`, it must restart within the lease, or the messages of its last micro-batch come again.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from ..engine.queue import MessageQueue
from ..engine.queue.blocks.block import Block
from ..engine.queue.sending.repeats import DIGEST, RepeatedSender, SentRow
from ..engine.queue.sending.sender import Sender, SendTerms
from ..engine.queue.values import Report
from ..engine.rules.errors import (
    Busy,
    CommitInDoubt,
    InvalidInput,
    StoreBusy,
    StoreUnreachable,
    TokenRefused,
    UnknownBlock,
)
from ..engine.rules.message import Message, read_number
from ..engine.rules.outcome import Yield
from ..engine.rules.priority import REGULAR, check_priority, origin_of
from ..engine.rules.units import check_seconds
from .arguments import BLOCK, STORE
from .lease import BlockLease
from .reports import patiently
from .share import done
from .store_side import StoreChannel, block_name, from_environment, live_block, shares_of, terms_of, with_payloads
from .tables import MESSAGES, MESSAGES_DDL, tables_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

log = logging.getLogger("airflow_mq.spark")

#: The options of each use. An option that another use has would be ignored.
OPTIONS = {
    "read": ("ring", "origins", "limit", "partitions"),
    "read a block": ("ring", "block", "partitions"),
    "write": ("ring", "job", "priority"),
    "stream": ("ring", "stream", "lease", "partitions"),
}
#: Rows that are enqueued in one transaction.
ROWS = 5_000
#: Columns of a write, with the beginnings of their types; `void` is the type of a column of nulls.
_TEXT = ("void", "char", "varchar", "string")
_COLUMNS = {"origin": _TEXT, "payload": (*_TEXT, "binary"), "key": _TEXT, "headers": ("void", "map"), "priority": _TEXT}
#: The number of a micro-batch, and the name of its block.
Offset = dict[str, Any]


def register(session: SparkSession) -> None:
    """Register the format in a session."""
    session.dataSource.register(MessageQueueSource)


class Options:
    """The options of the format, checked."""

    def __init__(self, given: Mapping[str, str]) -> None:
        known = {"path", *chain.from_iterable(OPTIONS.values())}
        self.names = [name for name, value in given.items() if value or name.lower() not in known]
        if given.get("path"):
            raise InvalidInput("the format airflow_mq has no path: set AIRFLOW_MQ_STORE in the driver's environment")
        self.ring = given.get("ring") or "default"
        self.block = given.get("block")
        self.origins = given.get("origins") or ""
        self.job, self.stream = given.get("job"), given.get("stream") or "stream"
        self.priority = check_priority(given.get("priority") or REGULAR)
        self.limit = self._number(given, "limit", 100_000)
        self.partitions = self._number(given, "partitions", 8)
        lease = given.get("lease")
        self.lease = check_seconds(lease, "option lease", bare=True) if lease else None

    def to(self, use: str) -> Options:
        """Return these options for a use. Raises `InvalidInput` for one that it does not have."""
        unknown = [name for name in self.names if name.lower() not in OPTIONS[use]]
        if unknown:
            raise InvalidInput(
                f"unknown option {unknown[0][:40]!r} to {use} with the format airflow_mq: expected one of "
                f"{', '.join(OPTIONS[use])}"
            )
        return self

    def _number(self, given: Mapping[str, str], name: str, default: int) -> int:
        text = str(given.get(name) or default)
        number = read_number(text, 1 << 31)
        if not number:
            raise InvalidInput(f"invalid option {name} {text[:40]!r}: expected a whole number of at least 1")
        return number

    def channel(self, token: str = "") -> StoreChannel:
        """Return the access to the store that the environment names."""
        return StoreChannel(from_environment(STORE), self.ring, token)


class MessageQueueSource(DataSource):
    """The format `airflow_mq`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.checked = Options(options)

    @classmethod
    def name(cls) -> str:
        return "airflow_mq"

    def schema(self) -> str:
        return MESSAGES_DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        names = check_columns(schema)
        if self.checked.block:
            return BlockReader(self.checked.to("read a block"), names)
        return WaitingReader(self.checked.to("read"), names)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return QueueWriter(self.checked.to("write"), schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return BlockStream(self.checked.to("stream"), check_columns(schema))


def check_columns(schema: StructType) -> list[str]:
    """Return the columns to read: all, or those of a schema that the caller gave."""
    unknown = [name for name in schema.names if name not in MESSAGES.names]
    if unknown:
        raise InvalidInput(f"unknown column {unknown[0][:40]!r}: expected some of {', '.join(MESSAGES.names)}")
    return list(schema.names)


class Share(InputPartition):
    """The share of one task.

    Spark replaces an empty list of partitions with a partition of its own class, so readers return at least one share.
    """

    def __init__(self, share: Sequence[Any], block: int | None = None, token: str = "") -> None:
        super().__init__(None)
        self.share, self.block, self.token = share, block, token

    def __repr__(self) -> str:
        return "Share()"


# -- reading --


class BlockReader(DataSourceReader):
    """Reader of a block's claims."""

    def __init__(self, options: Options, names: Sequence[str]) -> None:
        self.names = names
        token = from_environment(BLOCK) if options.block == "environment" else str(options.block)
        self.channel, self.most = options.channel(token), options.partitions

    def partitions(self) -> Sequence[InputPartition]:
        """Return pieces of the block; an ordered origin is never divided."""
        with self.channel.connect() as queue:
            return _shares(queue, self.channel.token, self.most) or [Share(())]

    def read(self, partition: Share) -> Iterator[pa.RecordBatch]:
        yield from _read(self.channel, partition, self.names)


def _shares(queue: MessageQueue, token: str, most: int) -> list[InputPartition]:
    block = live_block(queue, token)
    claims = [claim for claim in block.claims if claim.messages]
    return [Share(share, block.id, token) for share in shares_of(claims, terms_of(queue, block), most)]


def _read(channel: StoreChannel, partition: Share, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    # A stream reads many blocks through one channel: the token is the partition's.
    with replace(channel, token=partition.token).open(partition.share) as side:
        with suppress(TokenRefused):
            side.begin()
        yield from tables_of(side.batches(), partition.block, names)


class WaitingReader(DataSourceReader):
    """Reader of waiting messages, which changes nothing."""

    def __init__(self, options: Options, names: Sequence[str]) -> None:
        self.channel, self.checked, self.names = options.channel(), options, names

    def partitions(self) -> Sequence[InputPartition]:
        groups: list[list[str]] = [[] for _ in range(self.checked.partitions)]
        loads = [0] * self.checked.partitions
        with self.channel.connect() as queue:
            after = ""
            while found := queue.footprints(self.checked.origins, after, 1000):
                for origin, footprint in found:
                    place = loads.index(min(loads))
                    groups[place].append(origin)
                    loads[place] += footprint.count
                after = found[-1][0]
        return [Share(group) for group in groups if group] or [Share(())]

    def read(self, partition: Share) -> Iterator[pa.RecordBatch]:
        # The first connection holds a snapshot while the second one opens external payloads.
        with (
            self.channel.connect() as queue,
            self.channel.connect() as payloads,
            closing(queue.inspect.waiting(*partition.share, limit=self.checked.limit)) as batches,
        ):
            found = with_payloads(payloads, batches, _missing) if "payload" in self.names else batches
            yield from tables_of(found, names=self.names)


def _missing(reports: Sequence[Report]) -> None:
    for report in reports:
        where = f"{origin_of(report.book)}:{report.page}:{report.first}"
        if isinstance(report.outcome, Yield):
            reason = report.outcome.reason
            raise StoreUnreachable(f"the external payload of the message {where!a} cannot be read: {reason}")
        log.warning("left out the message %s: it was serviced meanwhile, or its payload is missing", ascii(where))


# -- writing --


class Sent(WriterCommitMessage):
    """Counts of a task: rows enqueued, and rows enqueued before."""

    def __init__(self, count: int, repeated: int) -> None:
        self.count, self.repeated = count, repeated


class QueueWriter(DataSourceArrowWriter):
    """Writer that enqueues each row once, a few thousand to a transaction."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidInput('a queue is never overwritten: write with mode("append")')
        types = {field.name: field.dataType.simpleString() for field in schema.fields}
        if not types.keys() <= _COLUMNS.keys() or not types.keys() >= {"origin", "payload"}:
            raise InvalidInput(
                f"invalid columns {', '.join(types)[:200]}: expected origin and payload, and optionally key, headers "
                "and priority"
            )
        for name, kind in types.items():
            if not kind.startswith(_COLUMNS[name]):
                raise InvalidInput(f"invalid type of column {name} ({kind[:40]}): expected {_COLUMNS[name][-1]}")
        self.channel, self.priority = options.channel(), options.priority
        self.job = options.job or secrets.token_hex(8)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        name = f"{self.job}/{context.partitionId() if context else 0}"
        sent = repeated = 0
        with self.channel.connect() as queue:
            sender = patiently(lambda: RepeatedSender(Sender(queue.session), name, SendTerms(priority=self.priority)))
            for batch in iterator:
                for start in range(0, batch.num_rows, ROWS):
                    rows = sent_rows(batch.slice(start, ROWS))
                    result = patiently(lambda rows=rows: sender.send(rows))  # type: ignore[misc]
                    sent, repeated = sent + result.count, repeated + result.repeated
        return Sent(sent, repeated)

    def commit(self, messages: Sequence[Sent | None]) -> None:
        """Log the counts: every row is enqueued already."""
        known = [message for message in messages if message]
        log.info(
            "enqueued %d messages; %d had been before", sum(m.count for m in known), sum(m.repeated for m in known)
        )

    def abort(self, messages: Sequence[Sent | None]) -> None:
        """Log the counts: enqueued rows stay, and the same job, written again, enqueues the rest."""
        log.warning(
            "the write failed; finished tasks enqueued %d messages, and failed ones maybe more; written again with the "
            "option job=%s in the same partitions, none is enqueued twice",
            sum(m.count for m in messages if m),
            self.job,
        )


def sent_rows(batch: pa.RecordBatch) -> list[SentRow]:
    """Return the rows of a record batch, each with the digest of its content unless it has a key."""
    empty = [None] * batch.num_rows
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns["payload"] = columns["payload"].cast(pa.binary())
    rows = zip(*(columns[name].to_pylist() if name in columns else empty for name in _COLUMNS))
    return [_row(*row) for row in rows]


def _row(origin: str, payload: bytes, key: str | None, headers: object, priority: str | None) -> SentRow:
    if not (key or headers or priority):
        return SentRow(_digest(origin, payload), origin, payload)
    texts: dict[str, str] = dict(headers or {})  # type: ignore[call-overload]
    digest = None if key else _digest(origin, payload, (repr(sorted(texts.items())) + (priority or "")).encode())
    return SentRow(digest, origin, Message(payload, key or None, None, texts or None, priority))


def _digest(origin: object, payload: bytes | None, headers: bytes = b"[]") -> bytes:
    start = str(origin).encode("utf-8", "replace")
    frame = b"%d %d " % (len(start), len(headers))
    return blake2b(b"".join((frame, start, headers, payload or b"")), digest_size=DIGEST).digest()


# -- streaming --


class BlockStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream that services the queue: each micro-batch is a block, which its offset names.

    An offset has the number of its micro-batch and the name of its block. When Spark repeats a micro-batch whose block
    has ended, the batch is empty and settles nothing: the messages of the block come under a later number, because a
    sink that has written this number before skips it.
    """

    def __init__(self, options: Options, names: Sequence[str]) -> None:
        self.checked, self.channel, self.names = options, options.channel(), names
        self._queue: MessageQueue | None = None
        self._keeper: BlockLease | None = None
        #: Name of the block whose lease is kept.
        self._kept = ""
        #: Messages that the query may still plan.
        self._left = math.inf

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_queue": None, "_keeper": None}

    @property
    def queue(self) -> MessageQueue:
        """The queue, open while the query lives."""
        if self._queue is None:
            self._queue = self.channel.connect()
        return self._queue

    def initialOffset(self) -> Offset:
        return {"batch": 0, "block": None}

    def prepareForTriggerAvailableNow(self) -> None:
        """Stop planning after as many messages as are stored now; Spark ends the query when it is offered no more."""
        self._left = patiently(partial(len, self.queue))

    def latestOffset(self, start: Offset, limit: ReadLimit | None = None) -> Offset:
        """Settle the committed micro-batch, and plan the next if anything is ready."""
        try:
            return self._next(start)
        except (Busy, StoreBusy, StoreUnreachable, CommitInDoubt) as error:
            # A run on a schedule would end as if nothing waited, and a wrong address never fail.
            if self._left < math.inf or self._queue is None:
                raise
            log.warning("no micro-batch could be planned (%s); trying again", error)
            time.sleep(1.0)
            return start

    def _next(self, start: Offset) -> Offset:
        self.commit(start)
        if self._left <= 0:
            return start
        number = batch_number(start) + 1
        # A query that ended before Spark had logged its offset left its block.
        if not self.queue.inspect.pulse() and self.queue.blocks.live(self._key(number)) is None:
            # Spark asks again after 10 ms.
            time.sleep(0.2)
            return start
        block = self.queue.blocks.plan(self._key(number), lease=self.checked.lease, reports_begin=True)
        if not block.messages:
            # The block may still hold messages to set aside, or expired ones.
            self.queue.blocks.settle(block)
            return start
        self._left -= block.messages
        self._keep(block)
        return {"batch": number, "block": block_name(block)}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if batch_number(end) == batch_number(start):
            return []
        block = self._block_of(end)
        if block is not None:
            with suppress(TokenRefused, UnknownBlock):
                self._keep(block)
                return patiently(partial(_shares, self.queue, block.token, self.checked.partitions))
        log.warning(
            "the block of micro-batch %d has ended: the batch stays empty, and its messages come in a later one",
            batch_number(end),
        )
        return []

    def read(self, partition: Share) -> Iterator[pa.RecordBatch]:
        yield from _read(self.channel, partition, self.names)

    def commit(self, end: Offset) -> None:
        """Settle the block that Spark has committed."""
        block = self._block_of(end)
        # Spark also commits a micro-batch when the next one is planned already.
        was_kept = self._keeper is not None and self._kept == end.get("block")
        is_lost = was_kept if block is None else not self._settle(block)
        if was_kept:
            self._stop_keeping()
        if is_lost:
            log.warning(
                "micro-batch %d was committed after its lease ran out; its messages will be serviced again",
                batch_number(end),
            )

    def _settle(self, block: Block) -> bool:
        """Settle a block as done, without what could not be read; return whether it lived."""
        try:
            answered = patiently(partial(self.queue.blocks.reported, block))
            for reports in done(block.batches(), answered, terms_of(self.queue, block)):
                patiently(partial(self.queue.blocks.report, block, reports))
            patiently(partial(self.queue.blocks.settle, block))
        except (TokenRefused, UnknownBlock):
            return False
        return True

    def stop(self) -> None:
        self._stop_keeping()
        if self._queue is not None:
            self._queue.close()

    def _block_of(self, offset: Offset) -> Block | None:
        """Return the live block that an offset names; None if it has ended."""
        block = patiently(partial(self.queue.blocks.live, self._key(batch_number(offset))))
        return block if block and block_name(block) == offset["block"] else None

    def _keep(self, block: Block) -> None:
        """Keep the lease of a block, and of no other one."""
        self._stop_keeping()
        keeper = BlockLease(self.queue, block.token, self.checked.lease)
        keeper.start()
        self._keeper, self._kept = keeper, block_name(block)

    def _stop_keeping(self) -> None:
        if self._keeper is not None:
            self._keeper.stop()
            self._keeper = None

    def _key(self, number: int) -> str:
        return f"stream/{self.checked.stream}/{number}"


def batch_number(offset: Offset) -> int:
    """Return the number of an offset's micro-batch."""
    number = offset.get("batch")
    if type(number) is not int:
        raise InvalidInput(
            f"invalid offset in the checkpoint ({str(offset)[:80]}): expected one of this format; start the query with "
            "another checkpointLocation"
        )
    return number
