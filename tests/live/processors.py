"""Processors that write down what they did, where the test can read it, and take their time."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from tests.live.faults.gates import Gate

VARIABLE = "MQ_TEST_DIARY"


def slow(payload: bytes, origin: str) -> None:
    """Take a tenth of a second, or as many seconds as the message asks for, and wait while a test holds the message."""
    said = json.loads(payload)
    time.sleep(said.get("seconds", 0.1))
    diary = Path(os.environ[VARIABLE])
    gate_of(diary, said["ring"], said["number"]).pass_through()
    line = json.dumps({"ring": said["ring"], "origin": origin, "number": said["number"], "pid": os.getpid()})
    with diary.open("a") as file:
        file.write(line + "\n")


def gate_of(diary: Path, ring: str, number: int) -> Gate:
    """Return the gate of a message."""
    return Gate(diary.parent, ring, f"message-{number}")


def read(diary: Path, ring: str) -> list[dict[str, Any]]:
    """Return the processed messages of a ring, in order."""
    lines = diary.read_text().splitlines() if diary.exists() else []
    return [said for said in map(json.loads, lines) if said["ring"] == ring]
