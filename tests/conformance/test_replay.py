"""All recorded runs of the pallet replay without a difference, on every store and in every way."""

from __future__ import annotations

import time
from typing import Any

import pytest

from airflow_mq.testing.conformance import replay_files
from tests.conformance.traces import TRACES
from tests.postgres_server import Servers

SEED = 20_260
WAYS = {"plain": {}, "blocks": {"blocks": True}, "sparse": {"sparse": SEED}}


def replay(said: list[str], **how: Any) -> tuple[int, int]:
    began = time.monotonic()
    counts = replay_files([TRACES], say=said.append, **how)
    print(f"{counts[0]} runs in {time.monotonic() - began:.1f} s ({how})")
    return counts


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("way", WAYS)
def test_all_runs_on_sqlite(way: str) -> None:
    said: list[str] = []
    assert (replay(said, **WAYS[way]), said) == ((300, 0), [])


@pytest.mark.parametrize("way", WAYS)
def test_a_few_runs_on_sqlite(way: str) -> None:
    said: list[str] = []
    assert (replay(said, limit=15, **WAYS[way]), said) == ((15, 0), [])


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(("way", "runs"), [("plain", 300), ("sparse", 300), ("blocks", 100)])
def test_runs_on_postgresql(pg_uri: str, way: str, runs: int) -> None:
    said: list[str] = []
    assert (replay(said, store=pg_uri, limit=runs, **WAYS[way]), said) == ((runs, 0), [])


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("way", WAYS)
def test_runs_on_another_postgresql(postgres_servers: Servers, way: str) -> None:
    if "system" not in postgres_servers:
        pytest.skip("there is no other PostgreSQL on this machine; the embedded one replays them all")
    said: list[str] = []
    with postgres_servers["system"].database() as uri:
        assert (replay(said, store=uri, limit=40, **WAYS[way]), said) == ((40, 0), [])
