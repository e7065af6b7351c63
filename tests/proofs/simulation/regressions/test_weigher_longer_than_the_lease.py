"""A weigher that runs for longer than the lease: the plan begins again, and does not take deleted rows for corruption."""

from __future__ import annotations

from tests.proofs.simulation.run import run
from tests.proofs.simulation.script import Script, Step

SCRIPT = Script(
    33,
    [
        Step("sender-3", "send_parents", 2496059898),
        Step("sender-3", "send_in_transaction", 2131261402),
        Step("planner-2", "plan_weighing", 284702546),
        Step("service-2", "serve_batches", 1144206909),
    ],
)


def test_a_plan_whose_rows_are_gone_begins_again(sqlite_stores) -> None:
    outcome = run(SCRIPT, sqlite_stores)
    assert outcome.failure is None
    assert outcome.figures.met["stalls"] == 1
    assert outcome.results[-1].startswith("planner-2 plan_weighing: block ")
