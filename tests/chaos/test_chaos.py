"""Scenarios with real faults of PostgreSQL: short runs of three, and all of them in `make soak`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.postgres_programs import find_bindirs

from .journal import Journal, read_journals
from .letters import Call
from .scenarios import SCENARIOS
from .verdict import Fault, recovery

pytestmark = [pytest.mark.slow, pytest.mark.postgres, pytest.mark.crash]

QUICK = ("immediate-shutdown", "terminated-backends", "killed-clients")


def assert_clean(name: str, store: str, seconds: float) -> None:
    kind = SCENARIOS[name]
    if not kind.is_possible():
        pytest.skip(f"{name} needs {kind.requirement}")
    verdict = kind(store, seconds).run()
    assert verdict.is_clean, (verdict, verdict.examples)


@pytest.mark.parametrize("name", QUICK)
def test_a_short_run_loses_nothing(name: str) -> None:
    assert_clean(name, "embedded", 5)


@pytest.mark.soak
@pytest.mark.parametrize("store", sorted(find_bindirs()))
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_loses_nothing(name: str, store: str) -> None:
    assert_clean(name, store, 20)


def test_a_journal_keeps_whole_lines(tmp_path: Path) -> None:
    call = Call(1, 7, "many", "acme", 2)
    Journal(tmp_path, "sender-1").write("intent", sender=1, number=7, way="many", origin="acme", parts=2)
    Journal(tmp_path, "sender-0").write("started")
    intent, started = read_journals(tmp_path)
    assert (intent.client, Call.of(intent), started.kind) == ("sender-1", call, "started")
    assert [letter.key for letter in call.letters] == ["1-7-0", "1-7-1"]


def test_recovery_waits_for_each_kind_of_progress(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "sender-0")
    fault = Fault("fault", time.monotonic(), time.monotonic())
    journal.write("progress", of="send")
    assert recovery(journal.entries(), [fault]) == 0.0
    before = Fault("before", 0.0, journal.entries()[0].at - 5)
    assert recovery(journal.entries(), [before]) == 5.0
    after = Fault("after", 0.0, time.monotonic())
    assert recovery(journal.entries(), [after]) is None
