"""The table of planted bugs and layers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.layers import FOUND, LAYERS, known, table
from lab.reached import choose, places
from tests.proofs.simulation.mutations import MUTATIONS
from tests.proofs.simulation.mutations.planting import bug as planted_bug


def test_the_table_counts_what_only_one_layer_finds(tmp_path: Path) -> None:
    lines = [
        ("one", "unit", "tests/unit/test_a.py::test_a", 1),
        ("one", "crash", "", 9),
        ("two", "model", "x", 2),
    ]
    lines += [("two", "unit", "y", 2), ("three", "unit", "", 2)]
    write(tmp_path / FOUND, lines)
    header, _, *rows, found, alone = table(known(tmp_path)).splitlines()
    assert header == f"| planted bug | {' | '.join(LAYERS)} |"
    assert rows[0].startswith("| one | yes |") and rows[2].startswith("| three | - |")
    assert found.split("|")[2:5] == [" 2 ", " 0 ", " 1 "]
    assert alone.split("|")[2:5] == [" 1 ", " 0 ", " 0 "]


def test_nothing_is_known_without_a_file(tmp_path: Path) -> None:
    assert known(tmp_path / "none") == {}


@pytest.mark.parametrize("kind", [".py", ".sql"])
def test_a_layer_runs_the_fastest_tests_that_reach_a_bug(tmp_path: Path, kind: str) -> None:
    bug = next(one for one in MUTATIONS if one.file.endswith(kind))
    place = places(bug)[0]
    reported = [("slow", place), ("slow", 9.0), ("other", 0.1), ("fast", place), ("fast", 0.2), ("failed", place)]
    write(tmp_path / "reports", reported)
    assert choose(tmp_path / "reports", bug, 60) == ["fast", "slow"]
    assert choose(tmp_path / "reports", bug, 5) == ["fast"]


def test_a_bug_in_a_part_of_statements_is_reached_through_each_of_them() -> None:
    bug = planted_bug("part", "engine/store/sql/block.sql", "b.id, b.number, b.key,", "b.id, b.id, b.key,")
    assert {"block_columns", "block", "block_by_token"} <= set(places(bug))


def test_nearly_all_planted_bugs_are_in_functions_or_statements() -> None:
    others = [bug.name for bug in MUTATIONS if not places(bug)]
    assert len(others) <= 4, others


def write(file: Path, lines: Sequence[tuple[object, ...]]) -> None:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
