"""The clock is set back after a lease was completed: the message is neither completed nor transferred once more."""

from __future__ import annotations

from tests.proofs.simulation.run import assert_survives
from tests.proofs.simulation.script import Fault, Script, Step

SCRIPT = Script(
    2203,
    [
        Step("sender-2", "send", 775699863),
        Step("holder-1", "take", 129542610),
        Step("sender-2", "send", 2730136146, cuts={2: 8}),
        Step("sender-2", "send_overweight", 3336506868, fault=Fault("jump", "commit")),
        Step("holder-1", "complete_in_transaction", 224891907),
        Step("keeper-1", "resume", 2841912153),
        Step("sender-1", "send_heavy", 895552792),
        Step("landing-1", "receive", 1577509730),
        Step("holder-2", "transfer", 1943153844),
    ],
)


def test_a_completed_lease_stays_completed(sqlite_stores) -> None:
    assert_survives(SCRIPT, sqlite_stores)
