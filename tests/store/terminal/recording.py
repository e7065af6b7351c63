"""Record a program on a terminal, and draw the recording as an SVG that moves.

    python -m tests.store.terminal.recording demo.cast demo.svg -- airflow-mq demo --leave

Writes an asciicast (version 2, which asciinema plays), and draws it: frames side by side in one picture, moved by CSS,
so that it runs wherever pictures are shown, without a script. It goes quicker than life.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pyte

from tests.store.terminal.emulator import Emulated

WIDTH, HEIGHT = 92, 34
#: The screen is looked at every so many seconds of the recording, and each look stays for so many; the last for more.
EVERY, STAYS, LAST = 5.0, 0.6, 8.0
#: Of a cell, and of the frame around all.
ACROSS, DOWN, EDGE = 8.4, 18, 12
COLOURS = {
    "default": "#d4d8de", "black": "#1b1f27", "red": "#ff6b6b", "green": "#6cc57c", "brown": "#e0b354",
    "blue": "#6ea8fe", "magenta": "#d08cf0", "cyan": "#55c2d6", "white": "#f2f4f8",
}  # fmt: skip
GROUND = "#14171c"


def record(words: Sequence[str], path: Path) -> int:
    """Run it, and write down what it wrote and when."""
    with Emulated(words, os.environ, WIDTH, HEIGHT) as emulated, path.open("w", encoding="utf-8") as file:
        head = {"version": 2, "width": WIDTH, "height": HEIGHT, "title": "make demo", "env": {"TERM": "xterm-256color"}}
        file.write(json.dumps(head) + "\n")
        began, seen = time.monotonic(), 0
        going = True
        while going:
            going = emulated.process.poll() is None
            emulated.read(0.1) if going else emulated.drain()
            text = emulated.raw[seen:].decode("utf-8", "ignore")
            if text and emulated.raw[seen:].decode("utf-8", "replace") == text:
                seen = len(emulated.raw)
                file.write(json.dumps([round(time.monotonic() - began, 3), "o", text]) + "\n")
        return emulated.process.returncode


@dataclass(frozen=True)
class Frame:
    """Screens, each with its duration."""

    rows: tuple[str, ...]
    seconds: float


def frames(path: Path) -> list[Frame]:
    """The screens of a recording, quicker than they were."""
    found: list[Frame] = []
    for rows in _screens(path):
        if not found or found[-1].rows != rows:
            found.append(Frame(rows, STAYS))
    return [*found[:-1], Frame(found[-1].rows, LAST)]


def _screens(path: Path) -> Iterator[tuple[str, ...]]:
    """Screens as they stood, one for each stretch of time."""
    with path.open(encoding="utf-8") as file:
        head = json.loads(file.readline())
        screen = pyte.Screen(head["width"], head["height"])
        stream, until = pyte.Stream(screen), EVERY
        for line in file:
            at, _, text = json.loads(line)
            if at >= until:
                yield _drawn(screen)
                until = at + EVERY
            stream.feed(text)
        yield _drawn(screen)


def _drawn(screen: pyte.Screen) -> tuple[str, ...]:
    return tuple(_row(screen, number) for number in range(screen.lines))


def _row(screen: pyte.Screen, number: int) -> str:
    """A row as text of a picture: one piece for each stretch of one colour."""
    pieces, column, cells = [], 0, [screen.buffer[number][place] for place in range(screen.columns)]
    while column < len(cells):
        look = _look(cells[column])
        until = column
        while until < len(cells) and _look(cells[until]) == look:
            until += 1
        pieces.append(_piece(column, "".join(cell.data for cell in cells[column:until]), until - column, look))
        column = until
    return "".join(pieces)


def _look(cell: Any) -> tuple[str, str, bool]:
    front, back = (cell.bg, cell.fg) if cell.reverse else (cell.fg, cell.bg)
    return ("black" if cell.reverse and front == "default" else front), back if cell.reverse else "", cell.bold


def _piece(column: int, text: str, width: int, look: tuple[str, str, bool]) -> str:
    front, back, bold = look
    drawn = ""
    if back:
        drawn += (
            f'<rect x="{column * ACROSS:g}" y="-13" width="{width * ACROSS:g}" height="{DOWN}" fill="{_colour(back)}"/>'
        )
    blank = len(text) - len(text.lstrip(" "))
    text = text.strip(" ")
    if not text:
        return drawn
    classes = f' fill="{_colour(front)}"' if front != "default" else ""
    weight = ' font-weight="700"' if bold else ""
    length = len(text) * ACROSS
    return (
        f'{drawn}<text x="{(column + blank) * ACROSS:g}" textLength="{length:g}"'
        f"{classes}{weight}>{escape(text, quote=False)}</text>"
    )


def _colour(name: str) -> str:
    return COLOURS.get(name, f"#{name}" if len(name) == 6 else COLOURS["default"])


def picture(path: Path) -> str:
    """A recording as an SVG: each row that differs once, each frame a column of them, and one movement over all."""
    shown = frames(path)
    rows: dict[str, str] = {}
    for frame in shown:
        for row in filter(None, frame.rows):
            rows.setdefault(row, f"r{len(rows):x}")
    wide, high = int(WIDTH * ACROSS + 2 * EDGE), HEIGHT * DOWN + 2 * EDGE
    defined = "".join(f'<g id="{name}">{row}</g>' for row, name in rows.items())
    strip = "".join(
        f'<g transform="translate({place * wide})">'
        + "".join(f'<use href="#{rows[row]}" y="{number * DOWN}"/>' for number, row in enumerate(frame.rows) if row)
        + "</g>"
        for place, frame in enumerate(shown)
    )
    total, at, steps = sum(frame.seconds for frame in shown), 0.0, []
    for place, frame in enumerate(shown):
        steps.append(f"{100 * at / total:.3f}%{{transform:translateX({-place * wide}px)}}")
        at += frame.seconds
    last = -(len(shown) - 1) * wide
    style = (
        f"@keyframes roll{{{''.join(steps)}100%{{transform:translateX({last}px)}}}}"
        f".strip{{animation:roll {total:.1f}s steps(1,end) infinite}}"
        f"@media (prefers-reduced-motion:reduce){{.strip{{animation:none;transform:translateX({last}px)}}}}"
        "text{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
        f'role="img" aria-label="A recording of make demo"><style>{style}</style><defs>{defined}</defs>'
        f'<rect width="{wide}" height="{high}" rx="8" fill="{GROUND}"/>'
        f'<svg x="{EDGE}" y="{EDGE + 13}" width="{wide - EDGE}" height="{high}" overflow="visible">'
        f'<g class="strip" fill="{COLOURS["default"]}">{strip}</g></svg></svg>\n'
    )


def main() -> int:
    cast, svg, *rest = sys.argv[1:]
    Path(cast).parent.mkdir(parents=True, exist_ok=True)
    code = record(rest[1:], Path(cast)) if rest else 0
    Path(svg).write_text(picture(Path(cast)), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
