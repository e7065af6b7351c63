"""Tables on terminals of any width."""

from __future__ import annotations

import io
from datetime import datetime, timezone

import pytest
from rich.console import Console

from airflow_mq.cli.output import shown
from airflow_mq.cli.tables import layout

NOW = datetime(2026, 11, 21, 20, 30, 35, tzinfo=timezone.utc)
COLUMNS = ("block>", "at", "queue", "stopped by")
ROWS = [(12, NOW, "acme/orders", "emptied"), (7, NOW, "quiet", "limit")]


def printed(width: int | None, columns: tuple[str, ...] = COLUMNS, rows: list[tuple[object, ...]] = ROWS) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=width or 1000)
    for table in layout(columns, rows, width, shown):
        console.print(table)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_what_fits_is_printed_in_full() -> None:
    wide = ["block  at                       queue        stopped by", "   12  2026-11-21 20:30:35 UTC  acme/orders  emptied",
            "    7  2026-11-21 20:30:35 UTC  quiet        limit"]  # fmt: skip
    assert printed(None) == printed(80) == wide


def test_columns_without_values_give_way_first() -> None:
    columns, rows = ("queue", "reason", "block>"), [("acme/orders", None, 7), ("quiet", None, None)]

    assert printed(30, columns, rows)[0] == "queue        reason  block"
    assert printed(22, columns, rows) == ["queue        block", "acme/orders      7", "quiet            -"]


def test_times_give_way_first_and_then_blanks() -> None:
    assert printed(50)[:2] == [
        "block  at, UTC         queue        stopped by",
        "   12  11-21 20:30:35  acme/orders  emptied",
    ]
    assert printed(44)[1] == "   12 11-21 20:30:35 acme/orders emptied"


def test_then_texts_are_folded_and_numbers_never() -> None:
    lines = printed(36)
    assert all(len(line) <= 36 for line in lines)
    assert any("11-21 20:30:35" in line for line in lines)


def test_what_would_be_unreadable_is_printed_row_by_row() -> None:
    assert printed(28) == ["block       12", "at          2026-11-21", "            20:30:35 UTC", "queue       acme/orders",
                           "stopped by  emptied", "", "block       7", "at          2026-11-21",
                           "            20:30:35 UTC", "queue       quiet", "stopped by  limit"]  # fmt: skip


@pytest.mark.parametrize("width", [8, 20, 41, 80, None])
def test_no_rows(width: int | None) -> None:
    assert len(printed(width, rows=[])) <= 3
