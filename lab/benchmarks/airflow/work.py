"""Work on a message: none, or a note of how long it waited."""

from __future__ import annotations

import os
from pathlib import Path

from lab.benchmarks.drivers.common import wait_of


def nothing(payload: bytes, origin: str) -> None:
    """Done."""


def note(payload: bytes, origin: str) -> None:
    """Append the microseconds since the message was stamped to a file of its ring, which its origin names."""
    file = Path(os.environ["MQ_BENCH_WAITS"], f"{origin.partition('-')[0]}-{os.getpid()}.waits")
    with file.open("a") as lines:
        lines.write(f"{wait_of(payload)}\n")
