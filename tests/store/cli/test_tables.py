"""Tables on terminals of any width."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from rich.cells import cell_len

from airflow_mq.cli.output import shown
from airflow_mq.cli.tables import fitted, layout

NOW = datetime(2026, 11, 21, 20, 30, 35, tzinfo=timezone.utc)
COLUMNS = ("block>", "at", "queue", "stopped by")
ROWS = [(12, NOW, "acme/orders", "emptied"), (7, NOW, "quiet", "limit")]


def printed(width: int | None, columns: tuple[str, ...] = COLUMNS, rows: list[tuple[object, ...]] = ROWS) -> list[str]:
    return [line.plain for line in layout(columns, rows, width, shown)]


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


def test_then_texts_are_shortened_and_numbers_never() -> None:
    assert printed(40) == [
        "block at, UTC        queue    stopped by",
        "   12 11-21 20:30:35 acm…ders emptied",
        "    7 11-21 20:30:35 quiet    limit",
    ]


@pytest.mark.parametrize("width", [1, 8, 20, 28, 36, 41, 80])
def test_a_row_is_one_line_of_the_terminal(width: int) -> None:
    lines = printed(width, rows=[*ROWS, (1, NOW, "漢字" * 30, "x" * 500)])

    assert len(lines) == 4
    assert all(cell_len(line) <= width for line in lines)


@pytest.mark.parametrize("width", [8, 20, 41, 80, None])
def test_no_rows(width: int | None) -> None:
    assert len(printed(width, rows=[])) == 1


def test_a_long_name_loses_its_middle() -> None:
    assert fitted("acme", 6) == "acme  "
    assert fitted("tenant-17/orders/of-long-ago", 17) == "tenant-1…long-ago"
    assert [fitted("漢字漢字漢字", width) for width in (1, 2, 5)] == ["…", "… ", "漢…字"]
