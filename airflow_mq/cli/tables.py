"""Tables for people: of any width in a pipe, fitted to the width of a terminal.

A table that does not fit loses columns without values, then the year of times, then blanks between columns. Then its
texts are folded. If too little of them would be left in a line, each row is shown as names and values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

#: Texts are folded as long as so much of their width is left.
_ENOUGH = 0.6


@dataclass
class _Column:
    name: str
    #: Numbers and times are never folded, nor any word of a heading.
    fixed: bool
    right: bool
    cells: list[str]

    @property
    def widest(self) -> int:
        return max(map(cell_len, [self.name, *self.cells]))

    @property
    def least(self) -> int:
        return max(map(cell_len, [*self.name.split(), *(self.cells if self.fixed else ())]), default=1)


def layout(
    columns: Sequence[str], rows: Sequence[Sequence[object]], width: int | None, shown: Callable[[object], str]
) -> list[Table]:
    """Return the table, or one of names and values for each row.

    :param columns: the headings; one that ends in `>` is of numbers.
    :param width: of the terminal; none where nothing needs to fit.
    """
    every = list(enumerate(columns))
    filled = [(at, name) for at, name in every if any(row[at] is not None for row in rows)] or every
    for chosen, short, gap in ((every, False, 2), (filled, False, 2), (filled, True, 2), (filled, True, 1)):
        found = [_column(name, [row[at] for row in rows], short, shown) for at, name in chosen]
        if width is None or sum(one.widest for one in found) + gap * (len(found) - 1) <= width:
            return [_table(found, gap)]
    assert width is not None
    texts = [one for one in found if not one.fixed]
    left = width - sum(one.least for one in found if one.fixed) - (len(found) - 1)
    if texts and left >= _ENOUGH * sum(one.widest for one in texts):
        return [_table(found, 1)]
    full = [_column(name, [row[at] for row in rows], False, shown) for at, name in enumerate(columns)]
    return [_record(full, place) for place in range(len(rows))]


def _column(name: str, cells: Sequence[object], short: bool, shown: Callable[[object], str]) -> _Column:
    right, heading = name.endswith(">"), name.rstrip(">")
    times = bool(cells) and all(isinstance(cell, datetime) for cell in cells)
    if times and short:
        return _Column(f"{heading}, UTC", True, right, [f"{cell:%m-%d %H:%M:%S}" for cell in cells])
    return _Column(heading, times or right, right, [shown(cell) for cell in cells])


def _table(columns: Sequence[_Column], gap: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, gap, 0, 0) if gap == 1 else (0, 1))
    for one in columns:
        table.add_column(one.name, justify="right" if one.right else "left", overflow="fold", min_width=one.least)
    for cells in zip(*(one.cells for one in columns)):
        table.add_row(*map(Text, cells))
    return table


def _record(columns: Sequence[_Column], place: int) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for one in columns:
        table.add_row(Text(one.name), Text(one.cells[place]))
    if place < len(columns[0].cells) - 1:
        table.add_row()
    return table
