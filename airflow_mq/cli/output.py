"""Output: for people or for programs, without characters that a terminal would obey."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from ..engine.rules.blob import Reference
from ..engine.rules.characters import visible
from ..engine.rules.weight import Weight
from ..sheets import Columns, cells
from ..words import weight, when
from .serialisation import to_json

if TYPE_CHECKING:
    from rich.text import Text

_ADDRESS_PASSWORD = re.compile(r"(://[^:/@\s]*:)\S+@")

#: Seconds of work without progress shown.
AFTER = 0.5


class Tell(Protocol):
    """Reports progress: a few words, and the finished part from 0 to 1, if known."""

    def __call__(self, text: str = "", part: float | None = None) -> None: ...


def silent(text: str = "", part: float | None = None) -> None:
    """Show nothing."""


class Output:
    """The place where a command puts its results."""

    def __init__(self, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json, self.quiet = as_json, quiet

    def value(self, value: object) -> None:
        """Print a result for programs: one JSON value in a line."""
        if self.as_json:
            sys.stdout.write(to_json(value) + "\n")

    def line(self, text: str) -> None:
        """Print a line of a result for people."""
        if not self.as_json:
            sys.stdout.write(shown(text) + "\n")

    def remark(self, text: str) -> None:
        """Print a line beside the result: what was done, or the next step."""
        if not self.quiet:
            self.line(text)

    def answer(self, value: object, text: str) -> None:
        """Print a result as JSON, or as a remark for people."""
        self.value(value)
        self.remark(text)

    def warn(self, text: str) -> None:
        """Print a warning to standard error."""
        sys.stderr.write((json.dumps({"warning": text}) if self.as_json else f"warning: {shown(text)}") + "\n")

    def items(
        self, items: Sequence[object], columns: Columns, empty: str, values: Iterable[object] | None = None
    ) -> bool:
        """Print a list as JSON or as a table; return whether a table was printed.

        :param empty: the remark where there are no items.
        :param values: the items for JSON, if they are not the same.
        """
        if self.as_json:
            self.value(items if values is None else list(values))
        elif not items:
            self.remark(empty)
        else:
            self.table(*cells(columns, items))
            return True
        return False

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print rows for people; a column whose name ends in `>` holds numbers."""
        from .tables import layout

        if not self.as_json:
            self.lines(layout(columns, rows, self.width(), shown))

    def lines(self, lines: Iterable[Text]) -> None:
        """Print lines for people: with their styles on a terminal, plainly in a pipe."""
        from rich.console import Console

        if self.as_json:
            return
        if sys.stdout.isatty():
            terminal = Console(file=sys.stdout, highlight=False)
            for line in lines:
                terminal.print(line, soft_wrap=True)
        else:
            sys.stdout.writelines(f"{line.plain}\n" for line in lines)

    def width(self) -> int | None:
        """Return the width of the terminal; None in a pipe, where nothing needs to fit."""
        from rich.console import Console

        return Console(file=sys.stdout).width if sys.stdout.isatty() else None

    def fields(self, pairs: Mapping[str, object], value: object = None) -> None:
        """Print names and values, one pair a line; or the value as JSON, which is that of the pairs by default."""
        from rich.text import Text

        if self.as_json:
            self.value(pairs if value is None else value)
        wide = max(map(len, pairs), default=0)
        self.lines(Text.assemble((f"{name:{wide}}", "bold"), f"  {shown(one)}") for name, one in pairs.items())

    @contextmanager
    def progress(self, what: str) -> Iterator[Tell]:
        """Show progress on standard error, if that is a terminal: a spinner, words, a bar, and the elapsed time."""
        if self.quiet or self.as_json or not sys.stderr.isatty():
            yield silent
            return
        line: dict[str, Any] = {"description": what, "total": None}
        shown: Any = None

        def show() -> None:
            nonlocal shown
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            text = TextColumn("{task.description}", markup=False)
            columns = SpinnerColumn(), text, BarColumn(24), TimeElapsedColumn()
            bar = Progress(*columns, console=Console(stderr=True, highlight=False), transient=True)
            shown, task = bar, bar.add_task(**line)
            bar.update(task, **line)  # with what was reported meanwhile
            bar.start()

        def tell(text: str = "", part: float | None = None) -> None:
            line["description"] = f"{what}: {text}" if text else what
            if part is not None:
                line.update(completed=part, total=1.0)
            if shown is not None:
                shown.update(shown.task_ids[0], **line)

        timer = threading.Timer(AFTER, show)
        timer.daemon = True
        timer.start()
        try:
            yield tell
        finally:
            timer.cancel()
            timer.join()
            if shown is not None:
                shown.stop()


def error_line(error: str, name: str, code: int, *, as_json: bool) -> None:
    """Print an error in one line, without the password of an address."""
    text = without_passwords(error)
    line = json.dumps({"error": name, "message": text, "exit_code": code}) if as_json else f"error: {shown(text)}"
    sys.stderr.write(line + "\n")


def without_passwords(text: str) -> str:
    """Return the text with the password of each address masked."""
    return _ADDRESS_PASSWORD.sub(r"\1***@", text)


def shown(value: object, most: int | None = None) -> str:
    """Return any value as text that is safe on a terminal."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return when(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Weight):
        return weight(value)
    if isinstance(value, Reference):
        return f"external payload: {value.hash.hex()}"
    if isinstance(value, bytes):
        value = value.decode("utf-8", errors="backslashreplace")
    text = visible(value if isinstance(value, str) else str(value))
    return text if most is None or len(text) <= most else text[: most - 1] + "…"
