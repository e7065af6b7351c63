"""A view takes a message heavier than the burst from a full budget, and forwards it before any check sees its claim."""

from __future__ import annotations

from tests.proofs.simulation.run import assert_survives
from tests.proofs.simulation.script import Script, Step
from tests.proofs.simulation.world import Stores

SCRIPT = Script(
    1099511687781,
    [
        Step("sender-2", "send_overweight", 3851209600),
        Step("holder-1", "forward", 3264912815),
    ],
)  # fmt: skip


def test_one_message_may_exceed_the_burst(sqlite_stores: Stores) -> None:
    assert_survives(SCRIPT, sqlite_stores, "sqlite")
