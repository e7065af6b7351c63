"""A statement fails between the beginning of a transaction and its first change: the transaction must not stay open."""

from __future__ import annotations

from tests.proofs.simulation.run import assert_survives
from tests.proofs.simulation.script import Fault, Script, Step

SCRIPT = Script(
    48,
    [
        Step("sender-2", "send_keyed", 3272837315),
        Step("sender-2", "send_inline", 2847288263, fault=Fault("cut", 6)),
        Step("sender-2", "send_overweight", 2765860113),
    ],
)


def test_a_thread_goes_on_after_an_interrupted_beginning(sqlite_stores) -> None:
    assert_survives(SCRIPT, sqlite_stores)
