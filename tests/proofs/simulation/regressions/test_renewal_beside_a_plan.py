"""A holder renews its lease while a plan releases the blocks that it read as dead."""

from __future__ import annotations

from tests.proofs.simulation.run import assert_survives
from tests.proofs.simulation.script import Script, Step

SCRIPT = Script(
    18943,
    [
        Step("sender-2", "send_overweight", 1555532767),
        Step("planner-1", "plan", 4239196040),
        Step("holder-2", "complete", 4189756958),
        Step("settler-1", "release", 3917655169),
        Step("sender-2", "send_many", 2644124674),
        Step("holder-2", "take", 1159158914, cuts={0: 2, 4: 2}),
        Step("executor-1", "discard", 3363937263, cuts={2: 2}),
        Step("executor-1", "requeue", 610456489, wait=3.0, cuts={2: 8}),
        Step("sender-2", "send_expiring", 1365811814),
        Step("planner-1", "settle", 4153406804),
        Step("holder-2", "renew_token", 145743686, cuts={2: 8}),
        Step("sender-2", "send_again", 1549897400, wait=3.0),
        Step("planner-1", "plan", 1594541869),
    ],
)


def test_a_renewed_block_lives(sqlite_stores) -> None:
    assert_survives(SCRIPT, sqlite_stores)
