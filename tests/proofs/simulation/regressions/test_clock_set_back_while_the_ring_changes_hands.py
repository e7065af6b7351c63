"""The clock is set back between the look at an expired lease and the commit that takes the ring."""

from __future__ import annotations

from tests.proofs.simulation.run import assert_survives
from tests.proofs.simulation.script import Fault, Script, Step

SCRIPT = Script(
    2133,
    [
        Step("sender-2", "send_overweight", 2096127570),
        Step("planner-1", "plan", 2105496585),
        Step("executor-1", "execute", 2682402715, cuts={4: 2}),
        Step("settler-1", "settle", 3462171690),
        Step("sender-2", "send_many", 142438145),
        Step("sender-2", "send_high", 378693132),
        Step("sender-3", "send_keyed", 3182831196),
        Step("service-1", "serve", 3533748650),
        Step("executor-1", "execute_as_block", 1779340722, fault=Fault("jump", 5)),
    ],
)


def test_a_process_takes_the_ring_whose_lease_had_run_out(sqlite_stores) -> None:
    assert_survives(SCRIPT, sqlite_stores)
