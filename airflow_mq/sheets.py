"""Columns of tables, and CSV for spreadsheets, in which no value of a sender becomes a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any, TypeAlias

#: First characters that make a spreadsheet read a cell as a formula, in all Unicode widths.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")

#: A column of a table: the heading, and the attribute or function that its cells come from. A heading alone stands for
#: the attribute of its name. A heading that ends in `>` is of numbers.
Column: TypeAlias = "str | tuple[str, str | Callable[[Any], object]]"
Columns: TypeAlias = Sequence[Column]
#: Columns of usage.
USAGE: Columns = (
    "period", "name", "messages", ("bytes", "size"), "attempts", "set_aside", ("planned_time", "planned.time"),
    ("planned_size", "planned.size"), ("charged_time", "charged.time"), ("charged_size", "charged.size"), "measured",
    "cost", "currency",
)  # fmt: skip


def cells(columns: Columns, items: Iterable[object]) -> tuple[list[str], Iterator[list[object]]]:
    """Return the headings of a table, and the cells of its rows."""
    headings, getters = zip(*map(_column, columns))
    return list(headings), ([get(item) for get in getters] for item in items)


def _column(column: Column) -> tuple[str, Callable[[Any], object]]:
    heading, cell = (column, column.rstrip(">").replace(" ", "_")) if isinstance(column, str) else column
    return heading, attrgetter(cell) if isinstance(cell, str) else cell


def sheet(columns: Columns, items: Iterable[object]) -> Iterator[str]:
    """Yield the lines of a table as CSV, the headings first."""
    headings, rows = cells(columns, items)
    yield line(headings)
    yield from map(line, rows)


def line(row: Sequence[object]) -> str:
    """Return a line of CSV with every cell quoted."""
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerow([cell(value) for value in row])
    return out.getvalue()


def cell(value: object) -> str:
    """Return a value as text that a spreadsheet does not read as a formula."""
    if value is None:
        return ""
    if isinstance(value, (bool, int, float, Decimal)):
        return str(value)
    text = value.isoformat() if isinstance(value, datetime) else value.hex() if isinstance(value, bytes) else str(value)
    return f"'{text}" if text.lstrip(" \u00a0\u200b\ufeff").startswith(FORMULA) else text
