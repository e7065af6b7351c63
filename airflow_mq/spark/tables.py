"""Messages and outcomes as Arrow tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from ..engine.queue.values import Batch
from ..engine.rules.errors import InvalidOutcome
from ..engine.rules.message import check_origin
from ..engine.rules.outcome import (
    DONE,
    BadFormat,
    Corrupt,
    Done,
    Outcome,
    Overweight,
    StackLimitReached,
    Unsupported,
    Yield,
)
from ..engine.rules.priority import HIGH, book_name, check_priority
from ..engine.rules.weight import LARGEST, Weight
from .items import GROUP_MESSAGES, Place

#: Bytes of payload after which a record batch is full: larger ones take fresh memory each time.
TABLE_BYTES = 1 << 20
MESSAGES = pa.schema(
    {
        "origin": pa.string(),
        "priority": pa.string(),
        "page": pa.int64(),
        "item": pa.int32(),
        "payload": pa.binary(),
        "headers": pa.map_(pa.string(), pa.string()),
        "id": pa.binary(),
        "address": pa.string(),
        "attempt": pa.int32(),
        "sent_at": pa.timestamp("us", "UTC"),
        "block": pa.int64(),
    }
)
#: The same for Spark.
MESSAGES_DDL = (
    "origin STRING, priority STRING, page BIGINT, item INT, payload BINARY, headers MAP<STRING, STRING>, "
    "id BINARY, address STRING, attempt INT, sent_at TIMESTAMP, block BIGINT"
)

#: The columns that a processor's record batch needs.
_ANSWER = ("origin", "priority", "page", "item", "outcome")
#: Outcomes without further columns.
_PLAIN: dict[str, Outcome] = {
    "done": DONE,
    "failed": Done(success=False),
    "bad": BadFormat(),
    "corrupt": Corrupt(),
    "unsupported": Unsupported(),
    "stack": StackLimitReached(),
}
NAMES = (*_PLAIN, "yield", "overweight")


def _items(batch: Batch) -> range:
    return range(batch.first, batch.first + len(batch))


def _addresses(batch: Batch, _block: int | None) -> Iterable[str]:
    start, end = f"{batch.origin}:{batch.page}:", f":{HIGH}" if batch.priority == HIGH else ""
    return [f"{start}{item}{end}" for item in _items(batch)]


def _sent(batch: Batch, _block: int | None) -> Iterable[int | None]:
    sent: Mapping[int, int] = batch._facts().sent if batch._facts else {}
    return [sent.get(item) for item in _items(batch)]


#: The values of a batch by column; without a block of the batch's own, with the given one.
_COLUMNS: dict[str, Callable[[Batch, int | None], Iterable[Any]]] = {
    "origin": lambda batch, _: [batch.origin] * len(batch),
    "priority": lambda batch, _: [batch.priority] * len(batch),
    "page": lambda batch, _: [batch.page] * len(batch),
    "item": lambda batch, _: _items(batch),
    "payload": lambda batch, _: batch.payloads,
    "headers": lambda batch, _: [list(texts.items()) for texts in batch.headers] or [()] * len(batch),
    "id": lambda batch, _: batch.ids,
    "address": _addresses,
    "attempt": lambda batch, _: batch.attempts,
    "sent_at": _sent,
    "block": lambda batch, block: [block if batch.block is None else batch.block] * len(batch),
}


def tables_of(
    batches: Iterable[Batch], block: int | None = None, names: Sequence[str] = MESSAGES.names
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of batches as record batches of about `GROUP_MESSAGES` or `TABLE_BYTES`."""
    columns: dict[str, list[Any]] = {name: [] for name in names}
    count = size = 0
    for batch in batches:
        for name, values in columns.items():
            values.extend(_COLUMNS[name](batch, block))
        count, size = count + len(batch), size + sum(map(len, batch.payloads))
        if count >= GROUP_MESSAGES or size >= TABLE_BYTES:
            yield _table(columns)
            columns, count, size = {name: [] for name in names}, 0, 0
    if count:
        yield _table(columns)


def _table(columns: Mapping[str, Sequence[Any]]) -> pa.RecordBatch:
    schema = pa.schema([MESSAGES.field(name) for name in columns])
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def answers_in(batch: pa.RecordBatch) -> Iterator[tuple[Place, Outcome]]:
    """Yield the place of each message in a processor's record batch, with its outcome."""
    names = set(batch.schema.names)
    missing = [name for name in _ANSWER if name not in names]
    if missing:
        raise InvalidOutcome(f"outcomes need the columns {', '.join(_ANSWER)}; {', '.join(missing)} is missing")
    count = batch.num_rows
    empty = [None] * count
    further = [batch.column(name).to_pylist() if name in names else empty for name in ("reason", "time", "size")]
    places = [_place_column(batch, name) for name in _ANSWER[:4]]
    for origin, priority, page, item, name, reason, time, size in zip(
        *places, batch.column("outcome").to_pylist(), *further
    ):
        book = book_name(check_origin(origin), check_priority(priority))
        yield (book, page, item), read_outcome(name, reason, time, size)


def _place_column(batch: pa.RecordBatch, name: str) -> list[Any]:
    """Return a column of places. pandas makes floats of whole numbers beside nulls."""
    column, kind = batch.column(name), MESSAGES.field(name).type
    with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if not column.null_count:
            return list(column.cast(kind).to_pylist())
    raise InvalidOutcome(
        f"invalid column {name} of outcomes ({column.type}, nulls: {column.null_count}): expected the value of a "
        f"message ({kind}) in each row"
    )


def read_outcome(
    name: str | None, reason: str | None = None, time: float | None = None, size: float | None = None
) -> Outcome:
    """Return the outcome in a row of a table. A DataFrame makes floats of whole numbers beside nulls."""
    parts: list[object] = [time or 0, size or 0]
    if not all(isinstance(part, (int, float)) and 0 <= part <= LARGEST for part in parts):
        return Yield("invalid time or size of an outcome: expected integers or doubles from 0, or null")
    weight = None if time is None and size is None else Weight(int(time or 0), int(size or 0))
    if name == "yield":
        return Yield(reason or "")
    if name == "overweight":
        return Yield("overweight without a weight: set time and size") if weight is None else Overweight(weight)
    outcome = _PLAIN.get("done" if name is None else name)
    if outcome is None:
        # The value is not quoted: a column that was mixed up may hold payloads.
        return Yield(f"unknown outcome: expected {', '.join(NAMES)} or null")
    if isinstance(outcome, Done) and weight is not None:
        return Done(outcome.success, used=weight)
    return outcome
