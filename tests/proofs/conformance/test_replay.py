"""Replay of all recorded runs of the pallet, on each store and in each mode."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from airflow_mq.engine.queue.blocks import settling
from airflow_mq.testing.conformance import Replay, replay_files
from tests.memory import in_memory
from tests.postgres_server import Servers
from tests.proofs.conformance.traces import LONG, TRACES
from tests.store.test_sending_by_sql import STATES

SEED = 20_260
WAYS = {"plain": {}, "blocks": {"blocks": True}, "sparse": {"sparse": SEED}}


def replay(differences: list[str], traces: Path = TRACES, **options: Any) -> tuple[int, int]:
    began = time.monotonic()
    counts = replay_files([traces], report=differences.append, **options)
    print(f"{counts[0]} runs in {time.monotonic() - began:.1f} s ({options})")
    return counts


# The parts let test processes share the runs.
#: All runs in the plain way, and a sixth of them in each of the others. `make soak` replays all runs in all ways.
SIXTHS = [
    pytest.param(way, first, marks=[] if way == "plain" or first == kept else pytest.mark.soak)
    for way, kept in (("plain", None), ("blocks", 101), ("sparse", 201))
    for first in range(1, 301, 50)
]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("way", "first"), SIXTHS)
def test_runs_replay_on_sqlite(way: str, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", in_memory())
    differences: list[str] = []
    assert (replay(differences, first=first, limit=50, **WAYS[way]), differences) == ((50, 0), [])


@pytest.mark.slow
def test_runs_whose_blocks_are_settled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message is a part of its own."""
    monkeypatch.setattr(tempfile, "tempdir", in_memory())
    monkeypatch.setattr(settling, "PART", 1)
    differences: list[str] = []
    assert (replay(differences, limit=40, **WAYS["blocks"]), differences) == ((40, 0), [])


@pytest.mark.slow
def test_long_runs_replay_on_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", in_memory())
    differences: list[str] = []
    assert (replay(differences, LONG), differences) == ((40, 0), [])


#: A twelfth of each way. `make soak` runs each part.
PARTS = [
    pytest.param(way, first, marks=[] if first == kept else pytest.mark.soak)
    for way, kept in (("plain", 1), ("sparse", 151), ("blocks", 101))
    for first in range(1, 301, 25)
]


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize(("way", "first"), PARTS)
def test_runs_replay_on_postgresql(pg_uri: str, way: str, first: int) -> None:
    differences: list[str] = []
    assert (replay(differences, store=pg_uri, first=first, limit=25, **WAYS[way]), differences) == ((25, 0), [])


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("first", [1, *(pytest.param(first, marks=pytest.mark.soak) for first in range(26, 301, 25))])
def test_runs_whose_sender_uses_sql(pg_uri: str, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_mq.testing.conformance.Replay", half_by_sql(Replay))
    differences: list[str] = []
    assert (replay(differences, store=pg_uri, first=first, limit=25), differences) == ((25, 0), [])


def half_by_sql(replay_class: type[Replay]) -> type[Replay]:
    """Return a replay that sends every other time through the SQL functions of the database."""

    class BySql(replay_class):  # type: ignore[misc, valid-type]
        calls = 0

        def _enqueue_message(self, origin: int, message: str) -> None:
            self._send(super()._enqueue_message, origin, [message], message)

        def _enqueue_messages(self, origin: int, messages: list[str]) -> None:
            self._send(super()._enqueue_messages, origin, messages, messages)

        def _send(self, by_python: Callable[..., None], origin: int, payloads: list[str], given: Any) -> None:
            type(self).calls += 1
            if self.calls % 2:
                by_python(origin, given)
                return
            text = f"SELECT {self.sender.session.store.prefix}send_many(%s, %s, %b)".encode()
            values = [self.sender.session.ring, [str(origin)] * len(payloads), [text.encode() for text in payloads]]
            with self.sender.session.store.writing() as unit:
                try:
                    unit.connection.execute(text, values)
                except psycopg.Error as error:
                    error_class = STATES[str(error.sqlstate)]
                    raise error_class.__new__(error_class) from None
            self.sender.session.tell_listeners()

    return BySql


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("first", [1, *(pytest.param(first, marks=pytest.mark.soak) for first in (11, 21, 31))])
def test_long_runs_replay_on_postgresql(pg_uri: str, first: int) -> None:
    differences: list[str] = []
    assert (replay(differences, LONG, store=pg_uri, first=first, limit=10), differences) == ((10, 0), [])


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("way", WAYS)
def test_runs_replay_on_installed_postgresql(postgres_servers: Servers, way: str) -> None:
    if "system" not in postgres_servers:
        pytest.skip("no PostgreSQL is installed; the embedded one replays all runs")
    differences: list[str] = []
    with postgres_servers["system"].database() as uri:
        assert (replay(differences, store=uri, limit=20, **WAYS[way]), differences) == ((20, 0), [])
