"""Budgets of size and depth, which `make lint` checks: `python -m lab.budgets` fails above one of them.

A budget falls with each step that makes the package smaller, towards its aim. To raise one takes a commit of its own
that gives the reason.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from lab import hops
from lab.structure import PACKAGE, STATEMENT_HEADER, Module, Sources

ROOT = Path(__file__).resolve().parents[1]
#: The folders of the engine; elsewhere this number is about the whole package.
ENGINE = ("rules", "store", "queue")
WRITES_INBOX = re.compile(r"\bINSERT INTO \{s\}inbox\b")
READS_INBOX = re.compile(r"\b(?:FROM|JOIN) \{s\}inbox\b")


class Budget(NamedTuple):
    """The most that is allowed, and where it should be; None for a figure without an aim."""

    most: int
    aim: int | None = None


BUDGETS = {
    "lines of rules": Budget(7_467),
    "lines of store": Budget(8_958),
    "lines of queue": Budget(11_860),
    "lines of the engine": Budget(28_285, 19_500),
    "lines of the command line": Budget(5_876),
    "lines of the package": Budget(51_350, 38_000),
    "lines of SQL without migrations": Budget(1_869, 1_700),
    "named statements": Budget(169, 140),
    "statements that read the inbox": Budget(19, 8),
    "statements that write the inbox": Budget(5, 4),
    "row types of the store": Budget(29, 30),
    "numeric constants of modules": Budget(184, 150),
    "longest function": Budget(80),
    "calls of enqueue_message": Budget(34, 22),
    "files of enqueue_message": Budget(12, 6),
    "calls of plan_settle": Budget(913, 770),
    "files of plan_settle": Budget(63, 58),
    "calls of service": Budget(612, 450),
    "files of service": Budget(59, 30),
}


def size_figures(sources: Sources) -> Iterator[tuple[str, int]]:
    """Count the lines of Python by folder."""
    folders = {name: 0 for name in (*ENGINE, "cli")}
    total = 0
    for module in sources.modules.values():
        parts = module.path.relative_to(sources.root / PACKAGE).parts
        folder = parts[1] if parts[0] == "engine" else parts[0]
        total += len(module.lines)
        if folder in folders:
            folders[folder] += len(module.lines)
    for name in ENGINE:
        yield f"lines of {name}", folders[name]
    yield "lines of the engine", sum(folders[name] for name in ENGINE)
    yield "lines of the command line", folders["cli"]
    yield "lines of the package", total


def statement_figures(root: Path) -> Iterator[tuple[str, int]]:
    """Count the SQL; a pair of statements for two databases counts once."""
    texts = [path.read_text("utf-8") for path in sorted((root / PACKAGE / "engine" / "store" / "sql").glob("*.sql"))]
    statements: dict[str, str] = {}
    for text in texts:
        starts = [*STATEMENT_HEADER.finditer(text)]
        for start, end in zip(starts, [*(found.start() for found in starts[1:]), len(text)]):
            statements[start[1]] = statements.get(start[1], "") + text[start.end() : end]
    yield "lines of SQL without migrations", sum(len(text.splitlines()) for text in texts)
    yield "named statements", len(statements)
    writes = {name for name, text in statements.items() if WRITES_INBOX.search(text)}
    yield "statements that read the inbox", sum(bool(READS_INBOX.search(statements[name])) for name in statements)
    yield "statements that write the inbox", len(writes)


def declaration_figures(sources: Sources) -> Iterator[tuple[str, int]]:
    """Count row types and numbers that have a name, and the lines of the longest function."""
    modules = sources.modules
    rows = [
        node
        for name, module in modules.items()
        if name.startswith(f"{PACKAGE}.engine.store")
        for node in module.classes.values()
        if any(isinstance(base, ast.Name) and base.id == "NamedTuple" for base in node.bases)
    ]
    yield "row types of the store", len(rows)
    yield "numeric constants of modules", sum(_numeric_constants(module) for module in modules.values())
    functions = [function for module in modules.values() for function in module.functions]
    yield "longest function", max((function.end_lineno or 0) - function.lineno + 1 for function in functions)


def _numeric_constants(module: Module) -> int:
    found = 0
    for node in module.tree.body:
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        parts = list(ast.walk(value)) if value is not None else []
        plain = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
        found += bool(parts) and all(isinstance(part, plain) for part in parts) and _has_number(parts)
    return found


def _has_number(parts: list[ast.AST]) -> bool:
    return any(isinstance(part, ast.Constant) and type(part.value) in (int, float) for part in parts)


def hop_figures() -> Iterator[tuple[str, int]]:
    """Count calls and files of the ways through the package."""
    for way, found in hops.measure().items():
        calls, _, files = found.row()
        yield f"calls of {way}", calls
        yield f"files of {way}", files


def measure(root: Path = ROOT) -> dict[str, int]:
    """Return all figures; those of hops are of the package that Python imports."""
    with contextlib.redirect_stderr(io.StringIO()):
        return {**source_figures(root), **dict(hop_figures())}


def source_figures(root: Path) -> dict[str, int]:
    """Return the figures that the sources of a checkout show."""
    sources = Sources.read(root)
    return {**dict(size_figures(sources)), **dict(statement_figures(root)), **dict(declaration_figures(sources))}


def excesses(figures: Mapping[str, int], budgets: Mapping[str, Budget] = BUDGETS) -> list[str]:
    """Return a sentence for each figure above its budget."""
    return [
        f"{name}: {figures[name]:,}, and {budget.most:,} are allowed; a commit of its own may raise this, with the reason"
        for name, budget in budgets.items()
        if figures[name] > budget.most
    ]


def main() -> int:
    """Print the figures beside their budgets; return 1 if one is above."""
    figures = measure()
    print("| | now | budget | aim |\n| --- | --- | --- | --- |")
    for name, budget in BUDGETS.items():
        aim = "" if budget.aim is None else f"{budget.aim:,}"
        print(f"| {name} | {figures[name]:,} | {budget.most:,} | {aim} |")
    found = excesses(figures, BUDGETS)
    for sentence in found:
        print(sentence, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
