"""Which planted bugs each test reaches, so that a layer runs only those of its tests that could find a bug.

In a copy of the package, the functions in which bugs are planted and the statements report that a test reaches them, also
in its child processes. As a plugin of pytest, this module reports the seconds of each test there, and runs the chosen
tests, in their order.
"""

from __future__ import annotations

import ast
import json
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow_mq.engine.store.statements import texts_in
from tests.proofs.simulation.mutations import PACKAGE, Mutation

#: Environment variables: the file of reports, and the file with the names of the tests that run.
REPORTS, CHOSEN = "MQ_REACHED", "MQ_CHOSEN"

#: The modules whose method `text` returns a statement by its name.
STORES = ("engine/store/sqlite.py", "engine/store/postgres.py")

#: The module of the copy that reports: once for each test and function of a process.
PROBE = f'''"""Reports which test reaches a place."""
import json
import os

seen = set()


def reached(place):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if (test, place) not in seen and "{REPORTS}" in os.environ:
        seen.add((test, place))
        with open(os.environ["{REPORTS}"], "a", encoding="utf-8") as file:
            file.write(json.dumps([test, place]) + "\\n")
'''


def places(mutation: Mutation) -> list[str]:
    """Return the functions or statements that a bug changes; none if it changes something else, such as a class."""
    if mutation.file.endswith(".sql"):
        return statements(mutation)
    return [f"{mutation.file}:{node.lineno}" for node in functions(mutation)]


def statements(mutation: Mutation) -> list[str]:
    """Return the SQL statements that a bug changes, by themselves or in a part of their text."""
    files = [file.read_text("utf-8") for file in (PACKAGE / "engine/store/sql").glob("*.sql")]
    texts = [pair for file in files for pair in texts_in(file).items()]
    names = {name for (_, name, _), _ in texts_in(mutation.apply()).items() - set(texts)}
    while more := {name for (_, name, _), text in texts if any(f"{{part {part}}}" in text for part in names)} - names:
        names |= more
    return sorted(names)


def functions(mutation: Mutation) -> list[ast.FunctionDef]:
    """Return the functions that a bug in Python changes; none if it changes something else."""
    text = (PACKAGE / mutation.file).read_text("utf-8")
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    found = []
    for old, _ in mutation.changes:
        first = text[: text.index(old)].count("\n") + 1
        last = first + old.rstrip("\n").count("\n")
        around = [node for node in nodes if node.body[0].lineno <= first and last <= (node.end_lineno or 0)]
        if not around or around[-1].body[0].lineno == around[-1].lineno:
            return []
        found.append(around[-1])
    return found


def add_probes(folder: Path, mutations: Sequence[Mutation]) -> None:
    """Let the functions that bugs change, and all statements, report in a copy of the package."""
    (folder / "airflow_mq" / "probe.py").write_text(PROBE, "utf-8")
    probes = defaultdict[str, dict[int, tuple[int, str]]](dict)
    for mutation in mutations:
        for node in functions(mutation) if mutation.file.endswith(".py") else ():
            first = node.body[0]
            probes[mutation.file][first.lineno] = (first.col_offset, repr(f"{mutation.file}:{node.lineno}"))
    for name in STORES:
        classes = ast.parse((PACKAGE / name).read_text("utf-8")).body
        nodes = [node for one in classes if isinstance(one, ast.ClassDef) for node in one.body]
        first = next(node.body[0] for node in nodes if isinstance(node, ast.FunctionDef) and node.name == "text")
        probes[name][first.lineno] = (first.col_offset, "name")
    for name, own in probes.items():
        lines = (PACKAGE / name).read_text("utf-8").splitlines(keepends=True)
        for line, (indent, place) in sorted(own.items(), reverse=True):
            lines.insert(line - 1, f"{' ' * indent}__import__('airflow_mq.probe').probe.reached({place})\n")
        (folder / "airflow_mq" / name).write_text("".join(lines), "utf-8")


def choose(reports: Path, mutation: Mutation, most: float) -> list[str]:
    """Return the tests that reach a bug, the fastest first, of so many seconds in all."""
    lines = [json.loads(line) for line in reports.read_text("utf-8").splitlines()]
    seconds = {test: value for test, value in lines if isinstance(value, float)}
    needed = places(mutation)
    reached = {test for test, value in lines if value in needed} if needed else set(seconds)
    chosen: list[str] = []
    for test in sorted(seconds.keys() & reached, key=lambda test: seconds[test]):
        most -= seconds[test]
        if most >= 0:
            chosen.append(test)
    return chosen


class _Times:
    """Reports the seconds of each test that passes."""

    def __init__(self, reports: str) -> None:
        self.reports = Path(reports)
        self.passed: list[float] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.passed:
            self.passed.append(report.duration)
        if report.when == "teardown":
            if len(self.passed) == 3:
                with self.reports.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([report.nodeid, sum(self.passed)]) + "\n")
            self.passed = []


def pytest_configure(config: Any) -> None:
    """Report seconds if reports are asked for."""
    if reports := os.environ.get(REPORTS):
        config.pluginmanager.register(_Times(reports))


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Run the chosen tests only, in their order."""
    if chosen := os.environ.get(CHOSEN):
        places = {test: place for place, test in enumerate(json.loads(Path(chosen).read_text("utf-8")))}
        items[:] = sorted((item for item in items if item.nodeid in places), key=lambda item: places[item.nodeid])
