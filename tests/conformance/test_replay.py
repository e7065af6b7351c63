"""All recorded runs of the pallet replay without a difference, on every store and in every way."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_mq.testing.conformance import replay_files
from tests.conformance.traces import LONG, TRACES
from tests.memory import in_memory
from tests.postgres_server import Servers

SEED = 20_260
WAYS = {"plain": {}, "blocks": {"blocks": True}, "sparse": {"sparse": SEED}}


def replay(said: list[str], traces: Path = TRACES, **how: Any) -> tuple[int, int]:
    began = time.monotonic()
    counts = replay_files([traces], report=said.append, **how)
    print(f"{counts[0]} runs in {time.monotonic() - began:.1f} s ({how})")
    return counts


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("way", WAYS)
def test_all_runs_on_sqlite(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", in_memory())
    said: list[str] = []
    assert (replay(said, **WAYS[way]), said) == ((300, 0), [])


@pytest.mark.parametrize("way", WAYS)
def test_a_few_runs_on_sqlite(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", in_memory())
    said: list[str] = []
    assert (replay(said, limit=15, **WAYS[way]), said) == ((15, 0), [])


@pytest.mark.slow
def test_long_runs_on_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", in_memory())
    said: list[str] = []
    assert (replay(said, LONG), said) == ((40, 0), [])


# In parts, so that the test processes can share them: every run as recorded, and a sixth of the other two ways, all of
# which run on SQLite. `make soak` runs every part.
PLAIN_PARTS = [("plain", first) for first in range(1, 301, 50)]
OTHER_PARTS = [
    pytest.param(way, first, marks=[] if first == kept else pytest.mark.soak)
    for way, kept in (("sparse", 151), ("blocks", 101))
    for first in range(1, 301, 50)
]


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize(("way", "first"), [*PLAIN_PARTS, *OTHER_PARTS])
def test_runs_on_postgresql(pg_uri: str, way: str, first: int) -> None:
    said: list[str] = []
    assert (replay(said, store=pg_uri, first=first, limit=50, **WAYS[way]), said) == ((50, 0), [])


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("first", [1, *(pytest.param(first, marks=pytest.mark.soak) for first in (11, 21, 31))])
def test_long_runs_on_postgresql(pg_uri: str, first: int) -> None:
    said: list[str] = []
    assert (replay(said, LONG, store=pg_uri, first=first, limit=10), said) == ((10, 0), [])


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("way", WAYS)
def test_runs_on_another_postgresql(postgres_servers: Servers, way: str) -> None:
    if "system" not in postgres_servers:
        pytest.skip("there is no other PostgreSQL on this machine; the embedded one replays them all")
    said: list[str] = []
    with postgres_servers["system"].database() as uri:
        assert (replay(said, store=uri, limit=20, **WAYS[way]), said) == ((20, 0), [])
