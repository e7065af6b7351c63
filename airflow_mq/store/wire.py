"""Inbox rows as PostgreSQL receives them in binary: as values of one row, as arrays, and as data of a COPY."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from struct import Struct, pack
from typing import NamedTuple

from .shards import FenceRow
from .store import Outgoing

BOOL, BYTEA, INT2, INT4, TEXT = 16, 17, 21, 23, 25
BOOLS, BYTEAS, INT4S, TEXTS = 1000, 1001, 1007, 1009
_SHORT, _NUMBER, _FLAG = Struct("!h").pack, Struct("!i").pack, (b"\0", b"\1")
_COPY_HEAD, _COPY_END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
#: Number of columns; ring, size, items, more and refers with their lengths; the length of the origin.
_COPY_ROW = Struct("!hihiiiii?i?i").pack
_COLUMNS = INT2, INT4S, INT4S, BOOLS, TEXTS, BYTEAS, BYTEAS, BYTEAS


class Insert(NamedTuple):
    """The name of a statement that writes inbox rows, with its values and the OIDs of their types."""

    statement: str
    types: tuple[int, ...]
    values: tuple[bytes, ...]


def insert(ring: int, rows: Sequence[Outgoing]) -> Insert:
    """Return the statement that writes rows with the fewest values."""
    if all(map(_is_single, rows)):
        if len(rows) == 1:
            return insert_single(ring, rows[0].origin, rows[0].heap)
        values = _SHORT(ring), _texts(row.origin for row in rows), _array(BYTEA, [row.heap for row in rows])
        return Insert("insert_singles", (INT2, TEXTS, BYTEAS), values)
    if len(rows) > 1:
        return Insert("insert_mail", _COLUMNS, _columns(ring, rows))
    origin, size, items, more, *rest = rows[0]
    given = _SHORT(ring), _NUMBER(size), _NUMBER(items), _FLAG[more], origin.encode(), *rest
    return Insert("insert_one", (INT2, INT4, INT4, BOOL, TEXT, BYTEA, BYTEA, BYTEA), given)


def insert_single(ring: int, origin: str, payload: bytes) -> Insert:
    """Return the statement that writes one plain message."""
    return Insert("insert_single", (INT2, TEXT, BYTEA), (_SHORT(ring), origin.encode(), payload))


def insert_fenced(ring: int, rows: Sequence[Outgoing], fence: FenceRow) -> Insert:
    """Return the statement that writes rows if the ring is a shard with a version of the layout."""
    required = fence.name.encode(), _NUMBER(fence.version)
    if len(rows) == 1 and _is_single(rows[0]):
        _, types, values = insert_single(ring, rows[0].origin, rows[0].heap)
        return Insert("insert_single_fenced", (*types, TEXT, INT4), (*values, *required))
    return Insert("insert_fenced", (*_COLUMNS, TEXT, INT4), (*_columns(ring, rows), *required))


def _is_single(row: Outgoing) -> bool:
    """Return whether a row is one plain message, so that its other columns follow from its bytes."""
    return row.items == 1 and not (row.attributes or row.more or row.lengths) and row.size == len(row.heap)


def _columns(ring: int, rows: Sequence[Outgoing]) -> tuple[bytes, ...]:
    """Return the columns of many rows: arrays, but for the ring."""
    origins, sizes, items, more, *rest = zip(*rows)
    return (
        _SHORT(ring), _array(INT4, list(map(_NUMBER, sizes))), _array(INT4, list(map(_NUMBER, items))),
        _array(BOOL, [_FLAG[one] for one in more]), _texts(origins), *(_array(BYTEA, column) for column in rest),
    )  # fmt: skip


def _texts(texts: Iterable[str]) -> bytes:
    return _array(TEXT, list(map(str.encode, texts)))


def _array(kind: int, values: Sequence[bytes]) -> bytes:
    """Return an array of one dimension, without nulls, that begins at 1."""
    lengths = map(_NUMBER, map(len, values))
    return b"".join((pack("!5i", 1, 0, kind, len(values), 1), *chain.from_iterable(zip(lengths, values))))


def copy_data(ring: int, rows: Iterable[Outgoing]) -> Iterator[bytes]:
    """Yield the data of a binary COPY."""
    yield _COPY_HEAD
    for origin, size, items, more, lengths, attributes, heap in rows:
        name = origin.encode()
        yield b"".join((
            _COPY_ROW(9, 2, ring, 4, size, 4, items, 1, more, 1, attributes != b"", len(name)), name,
            _NUMBER(len(lengths)), lengths, _NUMBER(len(attributes)), attributes, _NUMBER(len(heap)), heap,
        ))  # fmt: skip
    yield _COPY_END
