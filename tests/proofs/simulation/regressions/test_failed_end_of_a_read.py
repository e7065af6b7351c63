"""A read transaction whose end fails on SQLite: it must not stay open, or all later transactions would fail."""

from __future__ import annotations

from tests.proofs.simulation.run import run
from tests.proofs.simulation.script import Fault, Script, Step

SCRIPT = Script(
    5,
    [
        Step("sender-1", "send", 1),
        Step("planner-1", "plan", 2),
        Step("planner-1", "report", 3, fault=Fault("error", "commit")),
        Step("planner-1", "report", 4),
        Step("planner-1", "settle", 5),
    ],
)


def test_a_thread_goes_on_after_a_failed_end_of_a_read(sqlite_stores) -> None:
    outcome = run(SCRIPT, sqlite_stores)
    assert outcome.failure is None
    assert outcome.figures.faults == {"error": 1}
    assert outcome.results[-3] == "planner-1 report: StoreUnreachable"
