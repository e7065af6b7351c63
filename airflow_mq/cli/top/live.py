"""Live view on a terminal: draws the snapshots of the reader, and handles keys."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from queue import Empty
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from .drawing import Marks, frame
from .plain import marks_of
from .reader import Reader
from .screen import Screen
from .view import View

if TYPE_CHECKING:
    from ...queue import MessageQueue

#: Seconds between two drawings: ages have seconds.
_TICK = 1.0


class Canvas:
    """Conversion of lines to the characters and colours of this terminal."""

    def __init__(self) -> None:
        self.outside = Console(file=sys.stdout, highlight=False)
        self.marks: Marks = marks_of(sys.stdout)

    @property
    def size(self) -> tuple[int, int]:
        """Return the present width and height."""
        return self.outside.size.width, self.outside.size.height

    def lines(self, texts: Sequence[Text]) -> list[str]:
        """Return lines with escape sequences for colours, if the terminal has any."""
        width = self.size[0]
        file = io.StringIO()
        inside = Console(
            file=file,
            width=width,
            force_terminal=True,
            highlight=False,
            markup=False,
            emoji=False,
        )
        for text in texts:
            inside.print(text, no_wrap=True, overflow="crop", crop=True)
        return file.getvalue().split("\n")[:-1]


def watch(queue: MessageQueue, store: str, interval: float, search: str, sort: str) -> None:
    """Show a ring until the user quits."""
    view, canvas = View(search=search, sort=sort), Canvas()
    with Screen() as screen:
        reader = Reader(queue, interval, screen.wake)
        try:
            reader.want(view)
            reader.start()
            _watch(view, canvas, screen, reader, store)
        finally:
            reader.stop()


def _watch(view: View, canvas: Canvas, screen: Screen, reader: Reader, store: str) -> None:
    while True:
        screen.draw(canvas.lines(frame(view, store, *canvas.size, canvas.marks)))
        reader.want(view)
        pressed = screen.wait(_TICK)
        if pressed is None:
            return
        for key in pressed:
            wish = view.press(key)
            if wish is None:
                continue
            if wish.what == "quit":
                return
            if wish.what == "look":
                reader.want(view, at_once=True)
            else:
                reader.grant(wish)
        _apply(view, reader)


def _apply(view: View, reader: Reader) -> None:
    while True:
        try:
            reader.updates.get_nowait()(view)
        except Empty:
            return
