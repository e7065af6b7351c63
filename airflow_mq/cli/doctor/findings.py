"""Findings about a store."""

from __future__ import annotations

import math
from dataclasses import dataclass

OK, NOTE, WRONG = "ok", "note", "wrong"


@dataclass(frozen=True)
class Finding:
    """The result of one check: its level, the fact, and the remedy."""

    check: str
    level: str
    what: str
    do: str = ""


def fine(check: str, what: str) -> Finding:
    """Return a finding that needs nothing."""
    return Finding(check, OK, what)


def note(check: str, what: str, do: str = "") -> Finding:
    """Return a finding worth knowing that is no problem."""
    return Finding(check, NOTE, what, do)


def wrong(check: str, what: str, do: str) -> Finding:
    """Return a problem that needs a person."""
    return Finding(check, WRONG, what, do)


def span(seconds: float) -> str:
    """Return a length of time in words."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.1f} seconds"


def amount(size: float) -> str:
    """Return a number of bytes in words."""
    if size < 1024:
        return f"{size:,.0f} bytes"
    power = min(int(math.log(size, 1024)), 4)
    return f"{size / 1024**power:,.1f} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
