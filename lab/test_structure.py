"""The scripts that measure the structure of the package and count assertions."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import counts, structure

SOURCES = {
    "__init__.py": "",
    "engine/queue/__init__.py": (
        "from __future__ import annotations\n"
        "from typing import TYPE_CHECKING, Any\n"
        "from .reading import Reading\n"
        "if TYPE_CHECKING:\n"
        "    from ... import cli\n"
        "class MessageQueue(Reading):\n"
        "    def send(self, value: Any) -> 'list[Any]':  # noqa: X\n"
        "        self.unit.run('ready_books')\n"
        "        value = self.unit.rows('other')\n"
        "    def _private(self, value: Any) -> None: ...\n"
        "    @property\n"
        "    def ring(self) -> str: ...\n"
    ),
    "engine/queue/reading.py": "class Base: ...\nclass Reading(Base):\n    def read(self) -> None: ...\n",
    "cli/__init__.py": "from ..engine.queue import MessageQueue\n",
    "cli/parser.py": "TREE: tuple[int, ...] = (1, 2, 3)\n",
    "engine/store/__init__.py": "def run(unit):\n    unit.run('ready_books')\n",
    "engine/store/sql/book.sql": "-- name: ready_books\nSELECT 1\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        path = tmp_path / "airflow_mq" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_figures_of_a_small_package(checkout: Path) -> None:
    expected = {
        "MessageQueue: base classes": 2,
        "MessageQueue: public methods": 2,
        "SQL files": 1,
        "SQL files of two lines or fewer": 1,
        "statement names outside store/": 1,
        "uses of statement names outside store/": 1,
        "Any in the package": 3,
        "Any in public signatures": 2,
        "suppressed checks": 1,
        "fmt: skip": 0,
        "top-level commands": 3,
        "Python files": 6,
        "longest function": 3,
        "modules in import cycles": 0,
        "  with type-checking imports": 2,
    }
    figures = structure.measure(checkout)
    assert {title: figures[title] for title in expected} == expected


def test_a_folder_without_the_package_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no package 'airflow_mq'"):
        structure.measure(tmp_path)


def test_counts_of_a_small_folder(tmp_path: Path) -> None:
    (tmp_path / "tests" / "store" / "queue").mkdir(parents=True)
    text = "def test_one():\n    assert 1\n    with pytest.raises(OSError):\n        assert 2\ndef helper(): ...\n"
    (tmp_path / "tests" / "store" / "queue" / "test_it.py").write_text(text)
    kinds, folders = counts.count(tmp_path)
    assert kinds == {"assert statements": 2, "pytest.raises": 1, "test functions": 1}
    assert folders == {"tests/store/queue": 3}


@pytest.mark.slow
def test_the_table_has_a_column_for_each_checkout(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    structure.main([str(checkout), str(checkout)])
    lines = capsys.readouterr().out.splitlines()
    assert "| MessageQueue: base classes | 2 | 2 |" in lines
