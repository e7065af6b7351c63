"""Processors that write down what they did, where the test can read it, and take their time."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

VARIABLE = "MQ_TEST_DIARY"


def slow(payload: bytes, origin: str) -> None:
    """Take a tenth of a second, or as many seconds as the message asks for, and wait while a test holds the message."""
    said = json.loads(payload)
    time.sleep(said.get("seconds", 0.1))
    bar = bar_of(Path(os.environ[VARIABLE]), said["ring"], said["number"])
    while bar.exists():
        time.sleep(0.05)
    line = json.dumps({"ring": said["ring"], "origin": origin, "number": said["number"], "pid": os.getpid()})
    with Path(os.environ[VARIABLE]).open("a") as diary:
        diary.write(line + "\n")


def bar_of(diary: Path, ring: str, number: int) -> Path:
    """Return the file that holds a message while it exists."""
    return diary.with_name(f"{ring}-{number}.held")


def read(diary: Path, ring: str) -> list[dict[str, Any]]:
    """Return the processed messages of a ring, in order."""
    lines = diary.read_text().splitlines() if diary.exists() else []
    return [said for said in map(json.loads, lines) if said["ring"] == ring]
