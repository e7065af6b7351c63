"""All stored rows of a ring, for comparison before and after an operation."""

from __future__ import annotations

import re
from typing import Any

from airflow_mq import MessageQueue

TABLES = {
    "inbox": "id", "delayed": "id", "book": "origin", "page": "origin, page", "set_aside": "origin, page, item",
    "pause": "origin", "setting": "origin", "bucket": "path", "origin_group": "path", "block": "id", "event": "id", "charge": "id", "usage_day": "day", "bill_day": "day", "bill_leaf": "day, tenant", "ledger": "block", "sent_key": "key, origin",
    "measure": "processor, origin", "ring_state": "ring",
}  # fmt: skip
#: Columns that may change when a ring is locked and released: floors and marks are hints that grow.
HINTS = ("marks", "lease_until")


def everything(queue: MessageQueue) -> dict[str, Any]:
    """Return all rows of the ring; claims and outcomes by their blocks."""
    rows_by_table: dict[str, Any] = {}
    prefix = queue.store.prefix
    with queue.store.reading() as unit:
        connection = unit.connection
        for table, order in TABLES.items():
            cursor = connection.execute(
                f"SELECT * FROM {prefix}{table} WHERE ring = {queue.session.ring_id} ORDER BY {order}"
            )
            names = [column[0] for column in cursor.description]
            rows_by_table[table] = [
                {name: value for name, value in zip(names, row) if name not in HINTS} for row in cursor.fetchall()
            ]
        blocks = f"SELECT id FROM {prefix}block WHERE ring = {queue.session.ring_id}"
        for table, order in {"claim": "block, seq", "outcome": "id"}.items():
            cursor = connection.execute(f"SELECT * FROM {prefix}{table} WHERE block IN ({blocks}) ORDER BY {order}")
            rows_by_table[table] = cursor.fetchall()
        names = ("id", "name", "config")
        rows_by_table["ring"] = connection.execute(
            f"SELECT {', '.join(names)} FROM {prefix}ring WHERE id = {queue.session.ring_id}"
        ).fetchall()
    return rows_by_table


#: Columns that differ in each ring: numbers, names and times; then columns that pack them.
DRAWN = {
    "ring", "id", "block", "first_row", "last_row", "ticket", "floor", "ticket_floor", "look_floor", "arrived_block",
    "token", "lease_token", "lease_holder", "version",
    "sent_at", "at", "arrived_at", "planned_at", "ended_at", "deadline",
}  # fmt: skip
PACKED = {"slices", "ahead", "data"}
TIME = re.compile(rb"\d{13,}")


def alike(queue: MessageQueue) -> str:
    """Return the rows of a ring as text, without the columns that differ in each ring."""
    rows_by_table = everything(queue)
    config = [row[2] for row in rows_by_table.pop("ring")]
    counts = {table: len(rows_by_table.pop(table)) for table in ("claim", "outcome")}
    rows = {
        table: [
            {name: _alike(name, value) for name, value in row.items() if name not in DRAWN}
            for row in rows_by_table[table]
        ]
        for table in rows_by_table
    }  # fmt: skip
    return repr((config, counts, rows))


def _alike(name: str, value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    return len(value) if name in PACKED else TIME.sub(b"a time", value)
