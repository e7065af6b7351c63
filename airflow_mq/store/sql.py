"""Statements by name: one file each, for both databases, or one for each where their words differ.

In what both share a parameter is `:name`, and `{at …}` is a moment in microseconds since 1970.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_AT, _PARAMETER = re.compile(r"\{at (.+?)\}"), re.compile(r":(\w+)")


@cache
def statement(dialect: str, name: str, prefix: str) -> str:
    """The text of a statement, with the tables' prefix filled in and its comment left out."""
    folder = files(__package__) / "queries"
    own = folder / dialect / f"{name}.sql"
    text = own.read_text("utf-8") if own.is_file() else _worded((folder / f"{name}.sql").read_text("utf-8"), dialect)
    lines = (line for line in text.splitlines() if not line.startswith("--"))
    return "\n".join(lines).replace("{s}", prefix)


def _worded(text: str, dialect: str) -> str:
    """What both share, in the words of one."""
    if dialect == "sqlite":
        return _AT.sub(r"\1", text)
    return _PARAMETER.sub(r"%(\1)s", _AT.sub(r"CAST(extract(epoch FROM \1) * 1000000 AS bigint)", text))


def migrations(dialect: str) -> list[tuple[int, str, str]]:
    """All migrations in order: number, name, text (with the prefix still to be filled in)."""
    folder = files(__package__) / "migrations" / dialect
    found = [(entry.name, entry.read_text("utf-8")) for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return [(int(name[:4]), name.removesuffix(".sql"), text) for name, text in sorted(found)]
