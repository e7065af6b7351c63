"""A message that was handed on waits aside in its new queue before its former block is settled."""

from __future__ import annotations

from tests.proofs.simulation.run import assert_survives
from tests.proofs.simulation.script import Script, Step

SCRIPT = Script(
    895111,
    [
        Step("sender-1", "send_overweight", 3329530595),
        Step("sender-2", "send_overweight", 1940760819),
        Step("holder-1", "take", 1823260391),
        Step("holder-2", "take_several", 1766246392, wait=600.0),
        Step("worker-2", "repeat_part", 3906115372, cuts={1: 1}),
        Step("sender-2", "send_pairs", 856979152, wait=20.0),
        Step("planner-1", "plan", 256899940, cuts={41: 8}),
        Step("sender-1", "send_many", 1603477871),
        Step("holder-2", "transfer", 4248464182),
        Step("worker-2", "die_of_a_message", 1087657842),
    ],
)


def test_a_message_that_was_handed_on_may_wait_aside(sqlite_stores) -> None:
    assert_survives(SCRIPT, sqlite_stores)
