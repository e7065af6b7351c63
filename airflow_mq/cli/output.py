"""What is printed: for people or for programs, and never what a terminal would obey."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from enum import Enum
from typing import Any, TextIO

from ..core.blob import Reference
from ..core.characters import visible
from ..core.message import Address
from ..core.weight import Weight
from ..words import when
from .progress import Tell, progress, silent

#: Wide enough that nothing is folded where nobody looks.
_WIDE = 100_000
_ADDRESS_PASSWORD = re.compile(r"(://[^:/@\s]*:)\S+@")


class Output:
    """Where a command puts its answers."""

    def __init__(self, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json, self.quiet = as_json, quiet

    def value(self, value: Any) -> None:
        """An answer for programs: one JSON value on a line of its own."""
        if self.as_json:
            text = json.dumps(plain(value), separators=(",", ":")).replace("\x7f", "\\u007f")
            sys.stdout.write(text + "\n")

    def line(self, text: str) -> None:
        """A line of an answer, for people."""
        if not self.as_json:
            sys.stdout.write(shown(text) + "\n")

    def remark(self, text: str) -> None:
        """A line beside the answer: what was done, what could be done next."""
        if not self.quiet:
            self.line(text)

    def warn(self, text: str) -> None:
        """A line that nobody should overlook."""
        if self.as_json:
            sys.stderr.write(json.dumps({"warning": text}) + "\n")
        else:
            sys.stderr.write(f"warning: {shown(text)}\n")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Rows for people; a column whose name ends in `>` holds numbers."""
        from rich.console import Console

        from .tables import layout

        width = Console(file=sys.stdout).width if sys.stdout.isatty() else None
        for table in layout(columns, list(rows), width, shown):
            self._print(table)

    def fields(self, pairs: Mapping[str, Any]) -> None:
        """Names and values, one pair a line."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, show_header=False)
        for name, value in pairs.items():
            table.add_row(Text(name, "bold"), Text(shown(value)))
        self._print(table)

    def _print(self, renderable: Any) -> None:
        from rich.console import Console

        width = None if sys.stdout.isatty() else _WIDE
        text = Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)
        with text.capture() as captured:
            text.print(renderable)
        # Columns are padded to their width; nobody wants the blanks at the end of lines.
        sys.stdout.write("\n".join(line.rstrip(" ") for line in captured.get().split("\n")))

    def progress(self, what: str) -> AbstractContextManager[Tell]:
        """Tell how far work is, beside the answer, and only to somebody who looks."""
        return nullcontext(silent) if self.quiet or self.as_json else progress(what)


def error_line(error: str, name: str, code: int, *, as_json: bool, file: TextIO | None = None) -> None:
    """One line that says what went wrong; a password in an address is not repeated."""
    text = without_passwords(error)
    line = json.dumps({"error": name, "message": text, "exit_code": code}) if as_json else f"error: {shown(text)}"
    (file or sys.stderr).write(line + "\n")


def without_passwords(text: str) -> str:
    """The text, with nothing between the user and the host of an address."""
    return _ADDRESS_PASSWORD.sub(r"\1***@", text)


def shown(value: Any, most: int | None = None) -> str:
    """Any value as text in which a terminal finds nothing to obey."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return when(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Reference):
        return f"kept apart: {value.hash.hex()}"
    if isinstance(value, bytes):
        value = value.decode("utf-8", errors="backslashreplace")
    text = visible(value if isinstance(value, str) else str(value))
    return text if most is None or len(text) <= most else text[: most - 1] + "…"


def payload_fields(payload: bytes) -> dict[str, str]:
    """A payload in JSON: as text where it is text, else in base 64; `enqueue --ndjson` reads both.

    One that is kept apart is told by its hash, of which `payload get` makes the payload.
    """
    if isinstance(payload, Reference):
        return {"kept_apart": payload.hash.hex()}
    try:
        return {"payload": payload.decode("utf-8")}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


def plain(value: Any) -> Any:
    """Any value in JSON's terms."""
    if isinstance(value, Weight):
        return {"time": value.time, "size": value.size}
    if isinstance(value, Address):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
