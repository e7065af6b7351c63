"""SQL statements by name, and migrations, for both databases.

The files in `sql/` hold the statements of one noun each. A statement begins with `-- name: NAME` and is for both
databases; `-- name: NAME (postgres)` below it is the variant for PostgreSQL. A part, `-- part: NAME`, is text that
several statements share. Comment lines never reach a database. A read takes no lock unless its comment names one.

Markers stand for text that differs between the databases:

- `:x`: a parameter; `:x::text[]`: an array, sent in binary (PostgreSQL only)
- `{s}`: the prefix of table names
- `{part x}`: a part, which may contain parts
- `{at x}`: a timestamp as microseconds since 1970; `{clock}`: the current time as such
- `{json x}`: a parameter that is stored as JSON
- `{rows x, y bigint, z text[]}`: columns and values of an INSERT; columns with an array type have a value per row
- `{each x text[], …}`: one row per request, as `w`
- `{set w x, y}`: the columns of an UPDATE, each set to that of `w`
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files

Match = re.Match[str]
_HEADING = re.compile(r"^-- (name|part): (\w+)(?: \((\w+)\))?$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)
_PART = re.compile(r"\{part (\w+)\}")
_SET = r"\{\s*set (\w+) (.+?)\s*\}"


@cache
def statement(dialect: str, name: str, prefix: str) -> str:
    """Return the text of a statement with table names, without comments."""
    text = _text(dialect, "name", name)
    for marker, write in _MARKERS[dialect].items():
        text = re.sub(marker, write, text, flags=re.DOTALL)
    return text.replace("{s}", prefix)


def _text(dialect: str, kind: str, name: str) -> str:
    own = _texts().get((kind, name, dialect))
    text = _texts()[kind, name, ""] if own is None else own
    return _PART.sub(lambda match: _text(dialect, "part", match[1]), text)


@cache
def _texts() -> dict[tuple[str, str, str], str]:
    """Return all texts by kind, name, and database ("" for both)."""
    texts: dict[tuple[str, str, str], str] = {}
    for file in (entry for entry in (files(__package__) / "sql").iterdir() if entry.name.endswith(".sql")):
        texts |= texts_in(file.read_text("utf-8"))
    return texts


def texts_in(file: str) -> dict[tuple[str, str, str], str]:
    """Return the texts of a file in the same way."""
    _, *pieces = _HEADING.split(file)
    fields = zip(*[iter(pieces)] * 4)
    return {(kind, name, variant or ""): _COMMENT.sub("", text).strip("\n") for kind, name, variant, text in fields}


def _columns(match: Match) -> dict[str, str]:
    """Return columns by name, with the type of each ("" where it has none)."""
    return {name: "".join(kind) for name, *kind in (column.split() for column in match[1].split(","))}


def _values_of_one_row(match: Match) -> str:
    """Return columns and values for SQLite, which runs the statement once per row."""
    columns = _columns(match)
    return f"({', '.join(columns)}) VALUES ({', '.join(f':{name}' for name in columns)})"


def _values_of_all_rows(match: Match) -> str:
    """Return columns and values for PostgreSQL, which receives an array per column and runs the statement once."""
    columns = _columns(match)
    arrays = {name: kind for name, kind in columns.items() if kind.endswith("[]")}
    values = [
        f"w.{name}" if name in arrays else f":{name}::{kind}" if kind else f":{name}" for name, kind in columns.items()
    ]
    return f"({', '.join(columns)}) SELECT {', '.join(values)} FROM {_unnest(arrays)}"  # noqa: S608 (own names)


def _unnest(arrays: dict[str, str]) -> str:
    # A subquery hides the length of an array from the planner: it would else plan each execution anew, for its length.
    values = ", ".join(f"(SELECT :{name}::{kind})" for name, kind in arrays.items())
    return f"unnest({values}) AS w({', '.join(arrays)})"


def _one_request(match: Match) -> str:
    """Return the row of one request for SQLite, which runs the statement once per request."""
    return f"(SELECT {', '.join(f':{name} AS {name}' for name in _columns(match))}) AS w"


def _assignments(match: Match) -> str:
    return ", ".join(f"{name} = {match[1]}.{name}" for name in re.split(r",\s*", match[2]))


#: Replacements for each database, in order.
_MARKERS: dict[str, dict[str, str | Callable[[Match], str]]] = {
    "sqlite": {
        _SET: _assignments,
        r"\{clock\}": "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000",
        r"\{at (.+?)\}": r"\1",
        r"\{json (\w+)\}": r":\1",
        r"\{\s*rows (.+?)\s*\}": _values_of_one_row,
        r"\{\s*each (.+?)\s*\}": _one_request,
    },
    "postgres": {
        _SET: _assignments,
        r"\{clock\}": "{at clock_timestamp()}",
        r"\{at (.+?)\}": r"CAST(date_part('epoch', \1) * 1000000 AS bigint)",
        r"\{json (\w+)\}": r":\1::jsonb",
        r"\{\s*rows (.+?)\s*\}": _values_of_all_rows,
        r"\{\s*each (.+?)\s*\}": lambda match: _unnest(_columns(match)),
        r"(?<!:):(\w+)(?=::\w+\[\])": r"%(\1)b",
        r"(?<!:):(\w+)": r"%(\1)s",
    },
}


@cache
def migrations(dialect: str) -> list[tuple[int, str, str]]:
    """Return all migrations in order: number, name, and text with `{s}` in place of the prefix."""
    folder = files(__package__) / "migrations" / dialect
    scripts = [(entry.name, entry.read_text("utf-8")) for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return [(int(name[:4]), name.removesuffix(".sql"), text) for name, text in sorted(scripts)]
