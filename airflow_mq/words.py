"""Words for people."""

from __future__ import annotations

from datetime import datetime


def many(count: int, noun: str) -> str:
    """How many of something: `1 message`, `1,234 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def when(moment: datetime) -> str:
    """A time of the store's clock: `2026-01-31 23:59:59 UTC`. The page shows it by the reader's own clock."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
