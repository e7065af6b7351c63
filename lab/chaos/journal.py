"""Journal of a client process: one line of JSON for each intent, acknowledgement and error.

A line is one write to a file opened for appending, so that a killed client leaves whole lines.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

Value: TypeAlias = "str | int | float | bool"


@dataclass(frozen=True)
class Entry:
    """A line of a journal."""

    #: Seconds on the machine's monotonic clock, which all processes share and no skewed clock moves.
    at: float
    kind: str
    client: str
    values: dict[str, Value] = field(default_factory=dict)

    def text(self, name: str) -> str:
        return str(self.values.get(name, ""))

    def number(self, name: str) -> int:
        return int(self.values.get(name, 0))


class Journal:
    """The journal of one client."""

    def __init__(self, folder: Path, client: str) -> None:
        self.client = client
        self.path = folder / f"{client}.journal"
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, kind: str, **values: Value) -> None:
        line = json.dumps({"at": time.monotonic(), "kind": kind, **values})
        os.write(self._file, f"{line}\n".encode())

    def error(self, action: str, error: BaseException) -> None:
        self.write("error", action=action, error=type(error).__name__, text=str(error)[:300])

    def entries(self) -> list[Entry]:
        return list(_entries(self.path))


def read_journals(folder: Path) -> list[Entry]:
    """Return the entries of all clients in the order of their times."""
    entries = [entry for path in sorted(folder.glob("*.journal")) for entry in _entries(path)]
    return sorted(entries, key=lambda entry: entry.at)


def _entries(path: Path) -> Iterator[Entry]:
    for line in path.read_text().splitlines():
        values = json.loads(line)
        yield Entry(values.pop("at"), values.pop("kind"), path.stem, values)
