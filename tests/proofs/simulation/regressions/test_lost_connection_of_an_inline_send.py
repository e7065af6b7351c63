"""A connection lost while a message is executed at once: it is stored, so its sender must get no error."""

from __future__ import annotations

from tests.proofs.simulation.run import assert_survives
from tests.proofs.simulation.script import Fault, Script, Step

SCRIPT = Script(
    2387,
    [
        Step("sender-1", "send_expiring", 3828550003),
        Step("sender-1", "send_inline", 754934934, fault=Fault("cut", 11)),
    ],
)


def test_a_sender_gets_no_error_after_its_message_is_stored(sqlite_stores) -> None:
    assert_survives(SCRIPT, sqlite_stores, "sqlite")
