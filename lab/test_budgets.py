"""The check of budgets: what it counts in a small package, and that an excess fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import budgets
from lab.budgets import Budget, excesses, source_figures

SOURCES = {
    "__init__.py": "",
    "engine/rules/weight.py": "LIMIT = 4 << 20\nRATIO: float = -0.5\nNAME = 'x'\nPAIR = (1, 2)\ndef one():\n    return 1\n",
    "engine/store/rows.py": "class Row(NamedTuple):\n    id: int\nclass Other: ...\n",
    "engine/store/sql/inbox.sql": (
        "-- name: insert_inbox_row\nINSERT INTO {s}inbox\n-- name: insert_inbox_row (postgres)\nINSERT INTO {s}inbox\n"
        "-- name: inbox_rows\nSELECT 1 FROM {s}inbox m\n-- name: move\nINSERT INTO {s}inbox\nSELECT 1 FROM {s}page\n"
    ),
    "cli/parser.py": "TREE = 1\n",
}


def test_figures_of_a_small_package(tmp_path: Path) -> None:
    for name, text in SOURCES.items():
        path = tmp_path / "airflow_mq" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    figures = source_figures(tmp_path)
    assert figures == {
        "lines of rules": 6,
        "lines of store": 3,
        "lines of queue": 0,
        "lines of the engine": 9,
        "lines of the command line": 1,
        "lines of the package": 10,
        "lines of SQL without migrations": 9,
        "named statements": 3,
        "statements that read the inbox": 1,
        "statements that write the inbox": 2,
        "row types of the store": 1,
        "numeric constants of modules": 3,
        "longest function": 2,
    }


def test_an_excess_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(budgets, "BUDGETS", {"lines": Budget(10, 5), "files": Budget(3)})
    monkeypatch.setattr(budgets, "measure", lambda: {"lines": 11, "files": 3})
    assert budgets.main() == 1
    assert capsys.readouterr().err == (
        "lines: 11, and 10 are allowed; a commit of its own may raise this, with the reason\n"
    )
    monkeypatch.setattr(budgets, "measure", lambda: {"lines": 10, "files": 3})
    assert budgets.main() == 0
    assert "| lines | 10 | 10 | 5 |" in capsys.readouterr().out


@pytest.mark.slow
def test_each_budget_is_measured() -> None:
    figures = budgets.measure()
    assert set(figures) >= set(budgets.BUDGETS)
    assert excesses(figures) == []
