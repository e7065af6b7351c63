"""Statements by name: one file each, in the words of its database."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def statement(dialect: str, name: str, prefix: str) -> str:
    """The text of a statement, with the tables' prefix filled in and its comment left out."""
    text = (files(__package__) / "queries" / dialect / f"{name}.sql").read_text("utf-8")
    lines = (line for line in text.splitlines() if not line.startswith("--"))
    return "\n".join(lines).replace("{s}", prefix)


def migrations(dialect: str) -> list[tuple[int, str, str]]:
    """All migrations in order: number, name, text (with the prefix still to be filled in)."""
    folder = files(__package__) / "migrations" / dialect
    found = [(entry.name, entry.read_text("utf-8")) for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return [(int(name[:4]), name.removesuffix(".sql"), text) for name, text in sorted(found)]
