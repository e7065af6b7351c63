"""Statements by name: one file each, for both databases, or one for each where their words differ.

In what both share a parameter is `:name`, `{at …}` is a moment in microseconds since 1970, and `{rows …}` are columns
and what is written into them: one value for all rows, or, of a type with `[]`, one for each. `{part …}` is what
several statements have in common, a file in `parts`.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_PART, _AT, _ROWS, _PARAMETER = (
    re.compile(r"\{part (\w+)\}"),
    re.compile(r"\{at (.+?)\}"),
    re.compile(r"\{\s*rows (.+?)\s*\}", re.DOTALL),
    re.compile(r":(\w+)"),
)


@cache
def statement(dialect: str, name: str, prefix: str) -> str:
    """The text of a statement, with the tables' prefix filled in and its comment left out."""
    text = _PART.sub(lambda match: _read(dialect, f"parts/{match[1]}"), _read(dialect, name))
    lines = (line for line in text.splitlines() if not line.startswith("--"))
    return "\n".join(lines).replace("{s}", prefix)


def _read(dialect: str, name: str) -> str:
    folder = files(__package__) / "queries"
    own = folder / f"{dialect}/{name}.sql"
    return own.read_text("utf-8") if own.is_file() else _worded((folder / f"{name}.sql").read_text("utf-8"), dialect)


def _worded(text: str, dialect: str) -> str:
    """What both share, in the words of one."""
    if dialect == "sqlite":
        return _ROWS.sub(_one_by_one, _AT.sub(r"\1", text))
    text = _PARAMETER.sub(r"%(\1)s", _AT.sub(r"CAST(extract(epoch FROM \1) * 1000000 AS bigint)", text))
    return _ROWS.sub(_all_at_once, text)


def _columns(match: re.Match[str]) -> dict[str, str]:
    """Columns, and the types that were said."""
    return {name: "".join(kind) for name, *kind in (one.split() for one in match[1].split(","))}


def _one_by_one(match: re.Match[str]) -> str:
    """SQLite runs the statement for each row."""
    columns = _columns(match)
    return f"({', '.join(columns)}) VALUES ({', '.join(f':{name}' for name in columns)})"


def _all_at_once(match: re.Match[str]) -> str:
    """PostgreSQL gets a column at a time, and runs it once."""
    columns = _columns(match)
    each = {name: kind for name, kind in columns.items() if kind.endswith("[]")}
    said = [
        f"w.{name}" if name in each else f"%({name})s::{kind}" if kind else f"%({name})s"
        for name, kind in columns.items()
    ]  # fmt: skip
    source = f"unnest({', '.join(f'%({name})b::{kind}' for name, kind in each.items())}) AS w({', '.join(each)})"
    return f"({', '.join(columns)}) SELECT {', '.join(said)} FROM {source}"  # noqa: S608 (names of ours)


def migrations(dialect: str) -> list[tuple[int, str, str]]:
    """All migrations in order: number, name, text (with the prefix still to be filled in)."""
    folder = files(__package__) / "migrations" / dialect
    found = [(entry.name, entry.read_text("utf-8")) for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return [(int(name[:4]), name.removesuffix(".sql"), text) for name, text in sorted(found)]
