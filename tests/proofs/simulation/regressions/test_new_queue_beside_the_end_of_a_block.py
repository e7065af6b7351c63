"""A service meets a new queue whose high-priority messages are in flight, and their block ends meanwhile."""

from __future__ import annotations

from tests.proofs.simulation.run import assert_survives
from tests.proofs.simulation.script import Script, Step

SCRIPT = Script(
    11875,
    [
        Step("sender-1", "send_overweight", 673787081, cuts={0: 8, 2: 8}),
        Step("executor-1", "execute", 75053063, cuts={1: 2, 8: 3}),
        Step("sender-1", "send_high", 1512749408),
        Step("holder-1", "take", 3956109952),
        Step("planner-1", "plan", 3217424847, cuts={10: 1}),
        Step("executor-2", "execute_as_block", 3062531323),
        Step("settler-1", "settle_completed", 4228641132, cuts={2: 2}),
        Step("sender-2", "send_heavy", 841007452),
        Step("holder-1", "complete", 2825570507),
        Step("sender-3", "send_high", 2610089936, cuts={8: 8}),
        Step("keeper-1", "grow", 4133911021, cuts={0: 1, 1: 5}),
        Step("sender-3", "send_keyed", 3635969505),
        Step("holder-1", "take_several", 1107354681),
        Step("executor-1", "execute", 3410311211),
        Step("sender-1", "send_high", 1881075324),
        Step("planner-1", "plan", 815408813),
        Step("holder-1", "complete", 225475486),
        Step("service-1", "serve", 3968113936),
        Step("planner-1", "settle", 421678629),
    ],
)


def test_a_later_operation_meets_the_queue(sqlite_stores) -> None:
    assert_survives(SCRIPT, sqlite_stores)
