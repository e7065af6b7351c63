"""Inbox rows as data of a binary COPY of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct

from .rows import InboxRow

_NUMBER = Struct("!i").pack
_COPY_HEAD, _COPY_END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
#: Number of columns; ring, size, items, more and refers with their lengths; the length of the origin.
_COPY_ROW = Struct("!hihiiiii?i?i").pack
#: Bytes of data that are handed over together.
_PART = 64 << 10


def copy_data(ring: int, rows: Iterable[InboxRow]) -> Iterator[bytes]:
    """Yield the data of a binary COPY, in parts."""
    part, size = [_COPY_HEAD], 0
    for origin, _, own, items, more, lengths, attributes, stored in rows:
        name, heap = origin.encode(), stored or b""
        part += (
            _COPY_ROW(9, 2, ring, 4, own, 4, items, 1, more, 1, attributes != b"", len(name)), name,
            _NUMBER(len(lengths)), lengths, _NUMBER(len(attributes)), attributes, _NUMBER(len(heap)), heap,
        )  # fmt: skip
        size += len(heap)
        if size > _PART:
            yield b"".join(part)
            part, size = [], 0
    yield b"".join((*part, _COPY_END))
