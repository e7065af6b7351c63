"""Lines of CSV for spreadsheets; no value of a sender becomes a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

#: First characters that make a spreadsheet read a cell as a formula, in all Unicode widths.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


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
