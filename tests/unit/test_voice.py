"""Voice check: the phrases it finds, and the places where it does not look."""

from __future__ import annotations

import pytest

from tests import voice


@pytest.mark.parametrize(
    ("path", "source", "phrases"),
    [
        ("a.py", '"""Whoever sends."""\n', ["Whoever"]),
        ("a.py", '"""What a queue returns."""\n', ["What …"]),
        ("a.py", 'def f():\n    """The same, but quick."""\n', ["The same …"]),
        ("a.py", 'raise ValueError(f"{key!r} is told twice")\n', ["told"]),
        ("a.py", "x = 1  # nobody reads it\n", ["nobody"]),
        ("a.py", "def test_a_block_is_told() -> None: ...\n", ["told"]),
        ("a.py", 'said = {"say": b"let go of it"}  # `tell()`\n', []),
        ("a.sql", "-- who says so\nSELECT 'told';\n", ["says"]),
        ("a.md", "Messages are judged again. Run `say`.", ["judged again"]),
        ("a.md", "A shelf-life of a minute, for example.", []),
        ("airflow_mq/page/src/a.tsx", "return <p>Nobody waits</p>;\n", ["Nobody"]),
        ("Makefile", "lint: ## Tell about style\n", ["Tell"]),
    ],
)
def test_banned_phrases_are_found_in_prose_only(path: str, source: str, phrases: list[str]) -> None:
    assert [finding.phrase for finding in voice.findings(path, source)] == phrases


def test_released_entries_of_the_changelog_stay() -> None:
    source = "# Changelog\n\n## [Unreleased]\n\n- It is told.\n\n## [0.1]\n\n- It says so.\n"
    assert [str(finding) for finding in voice.findings("CHANGELOG.md", source)] == [
        "CHANGELOG.md:5: 'told'; write: return, report, record, print, show"
    ]
