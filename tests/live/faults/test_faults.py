"""Faults of Airflow and Spark at points of a block; `python -m tests.live.faults` has all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .matrix import ROWS
from .stage import Stage, open_stage
from .verdict import out_of_order

pytestmark = pytest.mark.postgres

#: Rows that take seconds each; `make soak` runs all of them.
QUICK = ("task-planning", "task-settling")


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with open_stage() as opened:
        yield opened


@pytest.mark.parametrize("name", QUICK)
def test_nothing_is_lost(stage: Stage, name: str, tmp_path: Path) -> None:
    try:
        verdict = ROWS[name].run(stage, name, tmp_path)
    except BaseException:
        stage.repair()
        raise
    assert verdict.is_clean, verdict


def test_a_message_before_an_earlier_one_is_out_of_order() -> None:
    def diary(*numbers: int) -> list[dict[str, object]]:
        return [{"origin": f"origin-{number % 3}", "number": number} for number in numbers]

    # A processor may get a message again.
    assert out_of_order(diary(0, 1, 3, 0, 3, 4, 2, 6)) == 0
    assert out_of_order(diary(0, 1, 6, 3)) == 1
