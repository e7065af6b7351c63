"""Waiting for what comes about, however long a busy machine takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def eventually(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What this returns, once it returns anything true."""
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.05)
    return found
