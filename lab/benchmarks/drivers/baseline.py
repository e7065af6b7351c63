"""Baseline of planning: read the same inbox rows and walk their lengths, and do nothing else.

It knows the table and the packing of lengths, decides nothing, and writes nothing. Fixed, so that
the measure stays the same while the package changes: change it only when the table changes.
"""

from __future__ import annotations

import struct
from array import array
from typing import Any

import psycopg

HEAD = struct.Struct("<cIQ")
ROWS = "origin, id, lengths, items, size"
# The inbox rows of each origin in their order, until there are as many messages as a block would take.
READ = """
SELECT {columns} FROM (
    SELECT m.*, sum(m.items) OVER (PARTITION BY m.origin ORDER BY m.id) - m.items AS before
    FROM {inbox} m JOIN {ring} r ON r.id = m.ring WHERE r.name = %s AND m.origin = ANY (%s)
) m WHERE before < %s ORDER BY origin, id
"""


def lengths_of(packed: bytes, items: int, size: int) -> Any:
    if not packed:
        return (size,)
    kind, count, value = HEAD.unpack_from(packed)
    if kind == b"=":
        return [value] * count
    row = array(kind.decode())
    row.frombytes(packed[HEAD.size : HEAD.size + count * row.itemsize])
    return row


def read_and_walk(connection: psycopg.Connection[Any], ring: str, origins: list[str], each: int, payloads: bool) -> int:
    """Return the number of messages walked; with `payloads`, read their bytes too."""
    inbox, rings = _tables(connection)
    columns = ROWS + (", heap" if payloads else "")
    statement = READ.format(columns=columns, inbox=inbox, ring=rings)
    walked = 0
    for row in connection.execute(statement, (ring, origins, each), binary=True):
        offset = 0
        for length in lengths_of(row[2], row[3], row[4]):
            offset += length
            walked += 1
        assert offset == row[4]
    return walked


def _tables(connection: psycopg.Connection[Any]) -> tuple[str, ...]:
    """Return the tables of inbox rows and of rings, in any schema."""
    found = connection.execute(
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind = 'r' AND c.relname ~ '(^|_)(inbox|ring)$' ORDER BY c.relname"
    ).fetchall()
    return tuple(f'"{schema}"."{name}"' for schema, name in found)
