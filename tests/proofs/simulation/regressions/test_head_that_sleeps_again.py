"""A queue that woke sleeps again, because the clock was set back before it was made the head of the ring."""

from __future__ import annotations

from tests.proofs.simulation.run import assert_survives
from tests.proofs.simulation.script import Fault, Script, Step

SCRIPT = Script(
    1099512399761,
    [
        Step("planner-1", "plan", 655825465),
        Step("holder-1", "take", 1667979302, cuts={19: 2}),
        Step("settler-1", "release", 357493961, cuts={1: 1, 2: 1}),
        Step("holder-1", "take", 1634396226, cuts={0: 8}),
        Step("sender-2", "send_in_transaction", 2675676385, cuts={0: 5, 4: 2}),
        Step("planner-2", "report", 1146961735),
        Step("filler-2", "fill_many", 333631757, cuts={0: 5, 16: 5}),
        Step("planner-2", "settle", 2918506651),
        Step("planner-1", "settle", 3342384970, cuts={5: 3}),
        Step("sender-2", "send_heavy", 2559504593),
        Step("planner-1", "plan", 1741444074, cuts={1: 8, 4: 1}),
        Step("sender-2", "send_high", 825325359),
        Step("keeper-1", "force_head", 4041804430),
        Step("executor-1", "discard", 739814305),
        Step("holder-1", "complete", 3017754655),
        Step("holder-1", "forward", 1795750039),
        Step("settler-1", "settle", 742207280, wait=70.0, cuts={2: 3, 33: 8}),
        Step("holder-2", "take_several", 203385376, wait=70.0, cuts={1: 8}, fault=Fault("jump", 1)),
        Step("keeper-1", "force_head", 238253935),
    ],
)


def test_a_queue_that_sleeps_again_is_not_made_the_head(sqlite_stores) -> None:
    assert_survives(SCRIPT, sqlite_stores)
