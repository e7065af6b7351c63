"""The block of a set-aside message ends while a service holds the ring, which writes the same book."""

from __future__ import annotations

from tests.proofs.simulation.run import assert_survives
from tests.proofs.simulation.script import Script, Step

SCRIPT = Script(
    2018,
    [
        Step("sender-2", "send_overweight", 3069544188),
        Step("service-2", "serve_batches", 1428228356),
        Step("sender-1", "send_pairs", 4051972205),
        Step("sender-2", "send_keyed", 4047631209, cuts={2: 5}),
        Step("service-2", "serve", 3465690470),
        Step("executor-1", "execute_as_block", 987195035, wait=3.0),
        Step("sender-3", "send_keyed", 4167104758, wait=0.5, cuts={1: 1}),
        Step("planner-1", "settle", 1970909339, wait=20.0),
        Step("settler-1", "settle", 3708466106),
    ],
)


def test_the_block_of_a_set_aside_message_waits_for_a_service(sqlite_stores) -> None:
    assert_survives(SCRIPT, sqlite_stores)
