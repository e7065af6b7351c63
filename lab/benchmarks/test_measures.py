"""Each measure runs with the package as it is: the drivers reach into it, and only the report would show that one failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.benchmarks.__main__ import MEASURES
from lab.benchmarks.contenders import BARE, OURS
from lab.benchmarks.lab import SETTINGS, Lab
from lab.benchmarks.sizes import QUICK
from tests.postgres_server import Server, running_postgres

TINY = replace(
    QUICK, name="tiny", bulk=1_000, rounds=1, least=100, turn=10, turns=1, life=1_000, life_single=50, block=200, few=200,
    many=2_000, crowd=200, blocks=1, held=1, passed=50, inspected=(100,), planned=500, load=40, load_seconds=1, flood=1_000,
    flood_peers=100, storage=1, profiled_single=20, profiled=500,
)  # fmt: skip
#: These take minutes, or Spark; `make bench` runs them.
LONG = ("sustained", "spark")
#: These reach deepest into the package. `make soak` runs the others.
DEEP = ("plan", "inspect", "storage", "profile")
MARKED = [pytest.param(name, marks=[] if name in DEEP else pytest.mark.soak) for name in MEASURES if name not in LONG]

pytestmark = [pytest.mark.slow, pytest.mark.postgres]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_postgres("embedded", SETTINGS) as server:
        yield server


@pytest.mark.parametrize("name", MARKED)
def test_a_measure_runs(name: str, server: Server, tmp_path: Path) -> None:
    lab = Lab(server, TINY, tmp_path / "raw.jsonl")
    MEASURES[name](lab, [OURS, BARE])
    assert [sample for sample in lab.samples if sample["measure"] == "failed"] == []
    assert any(sample["contender"] == OURS.name for sample in lab.samples)
