"""Planted bugs of blocks and calls that reach a part of the busy queues: each is a line of the rules that share alike."""

from __future__ import annotations

from .planting import Mutation, bug


def _bug(name: str, file: str, *texts: str) -> Mutation:
    return bug(name, file, *texts, runs="busy")


PARTS = (
    # Deficit order.
    _bug(
        "queue of a later round does not count", "engine/rules/deficit.py",
        "        if self._may_go_on(origin):\n            # A later", "        if False:\n            # A later",
    ),
    _bug(
        "later part visits queues that it cannot pay", "engine/rules/deficit.py",
        "return self.ladder.is_resumed and not self.ladder.can_service", "return False and not self.ladder.can_service",
    ),
    _bug(
        "served queue comes first for its next turn", "engine/rules/deficit.py",
        "if not self.ledger.entry(origin).messages}", "if True}",
    ),
    _bug(
        "queue that saves up loses its place", "engine/rules/deficit.py",
        "for origin in {**first, **self.saving} if", "for origin in first if",
    ),
    _bug(
        "turn longer than a block is followed by the next one", "engine/rules/deficit.py",
        "            self.owed[origin] = self.owed.pop(origin)\n", "            pass\n",
    ),
    _bug(
        "order of owed turns forgotten between levels", "engine/rules/deficit.py",
        "for origin in {**self.owed, **self.purses} if", "for origin in self.purses if",
    ),
    _bug(
        "queue leaves the ring while it is read", "engine/rules/deficit.py",
        "fresh = list(islice((origin for origin in self.ring if origin not in self.met), LOOK_PAST))",
        "fresh = islice((origin for origin in self.ring if origin not in self.met), LOOK_PAST)",
    ),
    # Paths.
    _bug(
        "served queue of a path is owed its next turn", "engine/rules/paths.py",
        "if self.is_part and self.ledger.entry(origin).messages}", "if False}",
    ),
    _bug(
        "turn of a path is owed by a later part", "engine/rules/paths.py",
        "        if self.ladder.is_resumed:\n            return\n", "",
    ),
    # Rotation and levels.
    _bug("head moves that the other level left too little", "engine/rules/orders.py", "(is_second and self._waits", "(False and self._waits"),
    _bug("each part keeps a share for regular", "engine/rules/levels.py", "share = 0 if ladder.is_resumed else", "share ="),
    _bug("only place of a block is always high's", "engine/rules/levels.py", " or places == most)", ")"),
)  # fmt: skip
