"""Tables for people: of any width in a pipe, fitted to the width of a terminal.

A table that does not fit loses columns without values, then the year of times, then blanks between columns. Then its
texts are shortened, the longest first, and headings last. A row is always one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.cells import cell_len, set_cell_size
from rich.text import Text

#: The least width of a shortened text.
_LEAST = 6


@dataclass
class _Column:
    name: str
    #: Numbers and times are never shortened.
    fixed: bool
    right: bool
    cells: list[str]
    width: int = 0

    def __post_init__(self) -> None:
        self.width = max(map(cell_len, [self.name, *self.cells]))


def layout(
    columns: Sequence[str], rows: Iterable[Sequence[object]], width: int | None, shown: Callable[[object], str]
) -> list[Text]:
    """Return the lines of a table, the headings first.

    :param columns: the headings; one that ends in `>` is of numbers.
    :param width: of the terminal; none where nothing needs to fit.
    """
    every, rows = list(enumerate(columns)), list(rows)
    filled = [(at, name) for at, name in every if any(row[at] is not None for row in rows)] or every
    for chosen, short, gap in ((every, False, 2), (filled, False, 2), (filled, True, 2), (filled, True, 1)):
        found = [_column(name, [row[at] for row in rows], short, shown) for at, name in chosen]
        excess = 0 if width is None else sum(one.width for one in found) + gap * (len(found) - 1) - width
        if excess <= 0:
            break
    texts = [one for one in found if not one.fixed]
    while excess > 0 and (
        long := [one for one in texts if one.width > max(cell_len(one.name), _LEAST)]
        or [one for one in texts if one.width > _LEAST]
    ):
        max(long, key=lambda one: one.width).width -= 1
        excess -= 1
    lines = [Text((" " * gap).join(_cell(one, one.name) for one in found).rstrip(), "bold")]
    lines += [Text((" " * gap).join(map(_cell, found, cells)).rstrip()) for cells in zip(*(one.cells for one in found))]
    return lines if width is None else [cut(line, width) for line in lines]


def _column(name: str, cells: Sequence[object], short: bool, shown: Callable[[object], str]) -> _Column:
    right, heading = name.endswith(">"), name.rstrip(">")
    times = bool(cells) and all(isinstance(cell, datetime) for cell in cells)
    if times and short:
        return _Column(f"{heading}, UTC", True, right, [f"{cell:%m-%d %H:%M:%S}" for cell in cells])
    return _Column(heading, times or right, right, [shown(cell) for cell in cells])


def _cell(column: _Column, text: str) -> str:
    return " " * (column.width - cell_len(text)) + text if column.right else fitted(text, column.width)


def fitted(text: str, width: int) -> str:
    """Return a text of exactly this width; a longer one loses its middle: tenants and paths differ at the ends."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    front, end = set_cell_size(text, (width - 1) // 2), text[-width:]
    while cell_len(end) > width - 1 - cell_len(front):
        end = end[1:]
    return set_cell_size(f"{front}…{end}", width)


def cut(line: Text, width: int) -> Text:
    """Return a line that is cut at the end, where it is wider than this."""
    line.no_wrap = True
    line.truncate(max(width, 1), overflow="ellipsis")
    return line
