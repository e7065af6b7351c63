"""Busy rings: seeds in which no queue starves and equal queues get the same, and planted bugs that break it."""

from __future__ import annotations

import os

import pytest

from .busy import run_busy
from .world import Stores

#: Seeds on SQLite; `make soak` sets more.
SEEDS = int(os.environ.get("MQ_SIMULATION_SEEDS", "280")) // 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, 7))
def test_seeds_on_sqlite(sqlite_stores: Stores, first: int) -> None:
    for seed in range(first, min(first + 7, SEEDS)):
        assert run_busy(seed, sqlite_stores) is None, seed


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("seed", [3, 8])
def test_seeds_on_postgres(both_stores: Stores, seed: int) -> None:
    assert run_busy(seed, both_stores, "postgres") is None
