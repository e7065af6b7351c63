"""What a look at a store found."""

from __future__ import annotations

import math
from dataclasses import dataclass

OK, NOTE, WRONG = "ok", "note", "wrong"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: how it is, and what to do about it."""

    check: str
    level: str
    what: str
    do: str = ""


def fine(check: str, what: str) -> Finding:
    """Nothing to do."""
    return Finding(check, OK, what)


def note(check: str, what: str, do: str = "") -> Finding:
    """Worth knowing; nothing is wrong."""
    return Finding(check, NOTE, what, do)


def wrong(check: str, what: str, do: str) -> Finding:
    """Somebody should do something."""
    return Finding(check, WRONG, what, do)


def span(seconds: float) -> str:
    """A length of time."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.1f} seconds"


def amount(size: float) -> str:
    """So many bytes."""
    if size < 1024:
        return f"{size:,.0f} bytes"
    power = min(int(math.log(size, 1024)), 4)
    return f"{size / 1024**power:,.1f} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
