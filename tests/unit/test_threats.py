"""Threat model: each boundary that docs/security.md states has a test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
#: Actors that the threat model must name.
ACTORS = {
    "DAG author", "connection editor", "viewer", "user", "op", "admin", "sender role", "runtime role", "reader role",
    "tenant curious about others", "local user of the machine", "other users of the Spark cluster",
}  # fmt: skip


def rows() -> list[list[str]]:
    """Return the rows of the threat model."""
    section = PAGE.split("## Threat model")[1].split("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return cells[2:]


def test_each_actor_has_a_boundary_and_each_boundary_a_test() -> None:
    assert {row[0] for row in rows()} >= ACTORS
    for row in rows():
        assert row[1] and re.fullmatch(r"`tests/[\w/]+\.py::test_\w+`", row[2]), row


def test_each_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", PAGE))
    assert len(named) > 40
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert not name or name in functions, f"{path}::{name}"
