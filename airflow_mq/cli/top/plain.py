"""One frame, for a pipe or a file."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from rich.console import Console
from rich.text import Text

from ...core.message import read_number
from ...queue.inspect.top import Look
from .drawing import ASCII, UNICODE, Marks, blocks, header, ring, waits

#: Width of a frame without a terminal and without COLUMNS.
_WIDTH = 100
_WIDEST = 10_000


def marks_of(stream: TextIO) -> Marks:
    """Return the marks that the encoding of a stream can express."""
    try:
        (UNICODE.full + UNICODE.parts + UNICODE.flight + UNICODE.cursor).encode(stream.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return UNICODE


def print_frame(look: Look, store: str) -> None:
    """Print a frame, as wide as the terminal if there is one."""
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    if not sys.stdout.isatty():
        console.width = read_number(os.environ.get("COLUMNS", ""), _WIDEST) or _WIDTH
    width, marks = console.width, marks_of(sys.stdout)
    lines = [*header(look, store, width), Text(), *ring(look, width, len(look.turns), marks)]
    lines += [Text(), *blocks(look, width, 10, marks), Text(), *waits(look, width, 10)]
    with console.capture() as captured:
        for line in lines:
            console.print(line, no_wrap=True, overflow="crop")
    sys.stdout.write("\n".join(line.rstrip(" ") for line in captured.get().split("\n")))
