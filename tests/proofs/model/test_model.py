"""The queue compared with a plain model of the contract: SQLite alone, and PostgreSQL with SQLite.

`MQ_MODEL_EXAMPLES=1000 python -m pytest tests/proofs/model` runs longer, with new random examples. A
failure prints the steps, and a blob that repeats them.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.stateful import run_state_machine_as_test

from airflow_mq.engine.store import parse, upgrade
from airflow_mq.engine.store import sqlite as sqlite_store
from tests.postgres_server import Server
from tests.proofs.model.clock import Clock
from tests.proofs.model.machine import PatientMachine, QueueMachine

EXAMPLES = int(os.environ.get("MQ_MODEL_EXAMPLES", "0"))


def chosen(examples: int, steps: int) -> settings:
    """Return settings with fixed examples, unless the environment requests more."""
    return settings(
        max_examples=EXAMPLES or examples, stateful_step_count=steps, derandomize=not EXAMPLES, deadline=None,
        database=None, print_blob=True, verbosity=Verbosity.normal, suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink) if not os.environ.get("MQ_MODEL_NO_SHRINK") else (Phase.generate,),
    )  # fmt: skip


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn off SQLite's synchronous writes, which these tests do not need."""
    careful = sqlite_store.configure

    def configure(connection: object) -> None:
        careful(connection)  # type: ignore[arg-type]
        connection.execute("PRAGMA synchronous = OFF")  # type: ignore[attr-defined]

    monkeypatch.setattr(sqlite_store, "configure", configure)


def run(uris: list[str], clock: Clock, options: settings, kind: type = QueueMachine) -> Counter[str]:
    for uri in uris:
        upgrade(parse(uri))
    met: Counter[str] = Counter()
    machine = type("Machine", (kind,), {"uris": uris, "clock": clock, "met": met})
    run_state_machine_as_test(machine, settings=options)
    return met


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_sqlite_matches_the_model(tmp_path: Path, clock: Clock, hasty: None) -> None:
    uris = [f"sqlite:///{tmp_path / 'queue.db'}"]
    met = run(uris, clock, chosen(150, 40)) + run(uris, clock, chosen(50, 40), PatientMachine)
    if 0 < EXAMPLES < 150:
        return  # A few random examples need not reach everything.
    for reason in ("overweight", "most", "fraction", "size", "attempts", "swept"):
        assert met[f"set aside: {reason}"], f"never met: {reason}"
    assert met["processed, ordered alone"] and met["waiting aside"] and met["a backoff was ended"]
    assert met["Requeued"] and met["Executed"] and met["held by two blocks"]


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(0)
def test_both_stores_match_the_model(tmp_path: Path, postgres_server: Server, clock: Clock, hasty: None) -> None:
    with postgres_server.database() as uri:
        run([f"sqlite:///{tmp_path / 'queue.db'}", uri], clock, chosen(25, 30))
