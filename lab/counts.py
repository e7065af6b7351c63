"""Counts of tests and assertions, for a comparison before and after a change.

`python -m lab.counts [PATH ...]` prints one column for each checkout; the default is this one. `--collect` also counts
the tests that pytest collects there, and `--folders` prints the assertions of each folder.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLLECTED = re.compile(r"^(?:(\d+)/)?(\d+) tests? collected", re.MULTILINE)


def count(root: Path) -> tuple[Counter[str], Counter[str]]:
    """Return the counts of one checkout by kind, and its assertions by folder."""
    kinds: Counter[str] = Counter()
    folders: Counter[str] = Counter()
    for path in sorted((*(root / "tests").rglob("*.py"), *(root / "lab").rglob("*.py"))):
        found = Counter(filter(None, map(_kind, ast.walk(ast.parse(path.read_text("utf-8"))))))
        kinds += found
        folders["/".join(path.relative_to(root).parent.parts[:3])] += (
            found["assert statements"] + found["pytest.raises"]
        )
    return kinds, folders


def _kind(node: ast.AST) -> str | None:
    if isinstance(node, ast.Assert):
        return "assert statements"
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.raises":
        return "pytest.raises"
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
        return "test functions"
    return None


def collect(root: Path, *options: str) -> int:
    """Return how many tests pytest collects in a checkout, after deselection."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *options]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    found = COLLECTED.search(ran.stdout)
    if found is None:
        raise SystemExit(f"pytest collected nothing (in {root}):\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    return int(found[1] or found[2])


def _column(root: Path, with_pytest: bool, with_folders: bool) -> dict[str, int]:
    kinds, folders = count(root)
    column = dict(sorted(kinds.items()))
    if with_pytest:
        column["tests collected"] = collect(root)
        column["tests collected, not slow"] = collect(root, "-m", "not slow")
    if with_folders:
        column.update({f"assertions in {name}": number for name, number in sorted(folders.items())})
    return column


def main(words: list[str]) -> None:
    """Print a Markdown table with one column for each checkout."""
    parser = argparse.ArgumentParser(prog="python -m lab.counts", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT], metavar="PATH", help="root of a checkout")
    parser.add_argument("--collect", action="store_true", help="count collected tests, too (runs pytest)")
    parser.add_argument("--folders", action="store_true", help="print the assertions of each folder")
    args = parser.parse_args(words)
    columns = [_column(path, args.collect, args.folders) for path in args.paths]
    print(f"| | {' | '.join(path.resolve().name for path in args.paths)} |")
    print(f"| --- |{' --- |' * len(columns)}")
    for title in dict.fromkeys(title for column in columns for title in column):
        print(f"| {title} | {' | '.join(str(column.get(title, 0)) for column in columns)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
