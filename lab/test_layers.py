"""The table of planted bugs and layers."""

from __future__ import annotations

import json
from pathlib import Path

from lab.layers import LAYERS, known, table


def test_the_table_counts_what_only_one_layer_finds(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    lines = [
        ("one", "rules", "tests/unit/rules/test_a.py::test_a", 1),
        ("one", "crash", "", 9),
        ("two", "model", "x", 2),
    ]
    lines += [("two", "rules", "y", 2), ("three", "rules", "", 2)]
    results.write_text("".join(json.dumps(line) + "\n" for line in lines))
    header, _, *rows, found, alone = table(known(results)).splitlines()
    assert header == f"| planted bug | {' | '.join(LAYERS)} |"
    assert rows[0].startswith("| one | yes |") and rows[2].startswith("| three | - |")
    assert found.split("|")[2:5] == [" 2 ", " 0 ", " 1 "]
    assert alone.split("|")[2:5] == [" 1 ", " 0 ", " 0 "]


def test_nothing_is_known_without_a_file(tmp_path: Path) -> None:
    assert known(tmp_path / "none") == {}
