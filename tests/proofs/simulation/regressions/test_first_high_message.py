"""An error after the first high message was committed: the sender must not take it for a refusal, and send again."""

from __future__ import annotations

from tests.proofs.simulation.run import assert_survives
from tests.proofs.simulation.script import Fault, Script, Step

SCRIPT = Script(
    255,
    [
        Step("sender-2", "send_many", 881580681),
        Step("sender-2", "send_high", 2398077998, fault=Fault("error", 5)),
    ],
)


def test_an_error_behind_the_commit_of_the_first_high_message(sqlite_stores) -> None:
    assert_survives(SCRIPT, sqlite_stores)
