"""An execution in place that runs for longer than its lease: rows that others deleted meanwhile are no corruption."""

from __future__ import annotations

from tests.proofs.simulation.run import assert_survives
from tests.proofs.simulation.script import Script, Step

SCRIPT = Script(
    1095,
    [
        Step("sender-1", "send_overweight", 2209446682, cuts={2: 1, 4: 1}),
        Step("executor-2", "requeue", 1889884353, cuts={0: 2}),
        Step("executor-1", "requeue", 754717269),
        Step("service-2", "serve", 3017957913),
        Step("executor-1", "execute", 682366568, cuts={14: 8}),
        Step("service-2", "serve", 3943706016, wait=600.0),
        Step("executor-2", "discard", 3454841133),
    ],
)


def test_an_execution_that_lost_its_lease_is_refused(sqlite_stores) -> None:
    assert_survives(SCRIPT, sqlite_stores)
