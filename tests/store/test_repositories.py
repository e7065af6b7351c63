"""Repositories are the only way to run statements: no other module names a statement or reads a row by position."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import airflow_mq
from airflow_mq.engine.store.primitives import Primitives, Repository
from airflow_mq.engine.store.unit import Unit
from tests.statement_names import names

PACKAGE = Path(airflow_mq.__file__).parent
STATEMENTS = names("sqlite") | names("postgres")
#: Methods that take the name of a statement; `point` is for probes, `text` is the store's own.
METHODS = {"rows", "run", "soon", "put", "only", "text", "point"}
#: Names of variables and attributes that hold a unit of work.
UNITS = {"unit", "real"}
OUTSIDE = sorted(path for path in PACKAGE.rglob("*.py") if PACKAGE / "engine" / "store" not in path.parents)
REPOSITORIES = [
    value.fget.__name__ for value in vars(Unit).values() if isinstance(value, property) and isinstance(value.fget, type)
]


def statement_uses(tree: ast.AST) -> Iterator[str]:
    """Yield calls with the name of a statement, and calls of a primitive on a unit."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            first = node.args[0] if node.args else None
            word = first.value if isinstance(first, ast.Constant) else None
            owner = node.func.value
            holder = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if holder in UNITS or word in STATEMENTS:
                yield ast.unparse(node)


def positional_reads(tree: ast.AST) -> Iterator[str]:
    """Yield reads of a column by position: a row of a unit's method, subscripted by a number."""
    results = set(unit_results(tree))
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)):
            continue
        inner = node.value
        is_row = isinstance(inner, ast.Name) and inner.id in results
        is_row |= isinstance(inner, ast.Subscript) and isinstance(inner.value, ast.Name) and inner.value.id in results
        if is_row and isinstance(node.slice.value, int) and not is_element(node, results):
            yield ast.unparse(node)


def unit_results(tree: ast.AST) -> Iterator[str]:
    """Yield names of variables that hold rows of a unit, and of loop variables over them."""
    holders: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.NamedExpr)) and reads_unit(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            holders |= {target.id for target in targets if isinstance(target, ast.Name)}
    yield from holders
    for node in ast.walk(tree):
        if isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.target, ast.Name):
            source = node.iter
            if reads_unit(source) or (isinstance(source, ast.Name) and source.id in holders):
                yield node.target.id


def reads_unit(node: ast.AST) -> bool:
    """Return whether an expression calls a method of a repository: `unit.books.ready(...)`."""
    call = node.func if isinstance(node, ast.Call) else None
    owner = call.value if isinstance(call, ast.Attribute) else None
    unit = owner.value if isinstance(owner, ast.Attribute) else None
    return (unit.attr if isinstance(unit, ast.Attribute) else getattr(unit, "id", "")) in UNITS


def is_element(node: ast.Subscript, results: set[str]) -> bool:
    """Return whether a subscript takes a row of a list, as in `rows[-1].id`, rather than a column of a row."""
    return isinstance(node.value, ast.Name) and node.value.id.endswith("s") and node.value.id in results


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_outside_the_store_names_a_statement_or_a_position(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    assert list(statement_uses(tree)) == []
    assert list(positional_reads(tree)) == []


def test_the_scan_finds_what_it_looks_for() -> None:
    code = "rows = unit.books.line(1)\nfor row in rows:\n    row[0]\nrows[0][1]\nrows[0].origin\nunit.rows('line')\n"
    assert list(positional_reads(ast.parse(code))) == ["rows[0][1]", "row[0]"]
    assert list(statement_uses(ast.parse(code))) == ["unit.rows('line')"]
    assert len(OUTSIDE) > 150 and len(STATEMENTS) > 100


def test_every_repository_is_on_the_unit_and_uses_primitives_only() -> None:
    assert sorted(REPOSITORIES) == sorted(
        kind.__name__ for kind in Repository.__subclasses__() if kind.__name__[0] != "_"
    )
    assert issubclass(Unit, Primitives) and not issubclass(Repository, Primitives)
