"""Wait for a condition, with time to spare for a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def eventually(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Call `condition` until it returns a true value, and return that value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"condition not met within {seconds} s"
        time.sleep(0.05)
    return value
