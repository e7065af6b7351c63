"""Inbox rows as PostgreSQL receives them in binary: as values of one row, as arrays, and as data of a COPY."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from struct import Struct, pack

from .store import Outgoing

BOOL, BYTEA, INT2, INT4, TEXT = 16, 17, 21, 23, 25
BOOLS, BYTEAS, INT4S, TEXTS = 1000, 1001, 1007, 1009
#: Types of `row_values` and of `columns`.
ROW_TYPES = (INT2, INT4, INT4, BOOL, TEXT, BYTEA, BYTEA, BYTEA)
COLUMN_TYPES = (INT2, INT4S, INT4S, BOOLS, TEXTS, BYTEAS, BYTEAS, BYTEAS)
#: Types of `columns` and `fence_values`.
FENCED_TYPES = (*COLUMN_TYPES, TEXT, INT4)
_SHORT, _NUMBER, _FLAG = Struct("!h").pack, Struct("!i").pack, (b"\0", b"\1")
_COPY_HEAD, _COPY_END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
#: Number of columns; ring, size, items and more with their lengths; the length of the origin.
_COPY_ROW = Struct("!hihiiiii?i").pack


def row_values(ring: int, row: Outgoing) -> tuple[bytes, ...]:
    """Return the columns of one row."""
    origin, size, items, more, *rest = row
    return _SHORT(ring), _NUMBER(size), _NUMBER(items), _FLAG[more], origin.encode(), *rest


def columns(ring: int, rows: Sequence[Outgoing]) -> tuple[bytes, ...]:
    """Return the columns of many rows: arrays, but for the ring."""
    origins, sizes, items, more, *rest = zip(*rows)
    return (
        _SHORT(ring), _array(INT4, list(map(_NUMBER, sizes))), _array(INT4, list(map(_NUMBER, items))),
        _array(BOOL, [_FLAG[one] for one in more]), _array(TEXT, list(map(str.encode, origins))),
        *(_array(BYTEA, column) for column in rest),
    )  # fmt: skip


def fence_values(name: str, version: int) -> tuple[bytes, ...]:
    """Return the shard and the version of its layout that a send requires."""
    return name.encode(), _NUMBER(version)


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
            _COPY_ROW(8, 2, ring, 4, size, 4, items, 1, more, len(name)), name, _NUMBER(len(lengths)), lengths,
            _NUMBER(len(attributes)), attributes, _NUMBER(len(heap)), heap,
        ))  # fmt: skip
    yield _COPY_END
