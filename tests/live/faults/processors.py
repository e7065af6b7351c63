"""Processors that stop at a gate in the middle of their messages."""

from __future__ import annotations

import json

from tests.live import processors

from .gates import gate, gates_folder

#: Gate behind some of the messages.
MESSAGE = "message"


def process(payload: bytes, origin: str) -> None:
    """Write a message down; one with `gate` waits there before, one with `quote` fails once and quotes itself."""
    said = json.loads(payload)
    quoted = gates_folder() / f"{said['ring']}.quoted"
    if said.get("quote") and not quoted.exists():
        quoted.touch()
        raise ValueError(payload)
    if said.get("gate"):
        gate(said["ring"], MESSAGE).pass_through()
    processors.slow(payload, origin)
