"""Rings of many queues: seeds in which progress is an invariant of each block, and planted bugs that break it."""

from __future__ import annotations

import os

import pytest

from airflow_mq.engine.queue.walk import walk_ring
from airflow_mq.engine.rules.orders import Ledger
from airflow_mq.engine.rules.service import Ladder
from airflow_mq.engine.store.working_set import StoredSet

from .crowd import run_crowd
from .messages import Violation
from .world import Stores

#: Seeds on SQLite; `make soak` sets more.
SEEDS = int(os.environ.get("MQ_SIMULATION_SEEDS", "280")) // 14
#: A seed that needs the place of the last look.
FORGETFUL = 34


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, 5))
def test_seeds_on_sqlite(sqlite_stores: Stores, first: int) -> None:
    for seed in range(first, min(first + 5, SEEDS)):
        assert run_crowd(seed, sqlite_stores) is None, seed


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("seed", [7, 11])
def test_seeds_on_postgres(both_stores: Stores, seed: int) -> None:
    assert run_crowd(seed, both_stores, "postgres") is None


def test_a_seed_finds_that_a_look_forgets_its_place(sqlite_stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(ladder: Ladder, ledger: Ledger, seed: bytes | None, working_set: StoredSet) -> bytes | None:
        if not ladder.looks_only:
            working_set.loader.ring.look_anew()
        return walk_ring(ladder, ledger, seed, working_set)

    monkeypatch.setattr("airflow_mq.engine.queue.walk.walk_ring", forgetful)
    failure = run_crowd(FORGETFUL, sqlite_stores)
    assert isinstance(failure, Violation) and failure.invariant == "I6 progress"
