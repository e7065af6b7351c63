"""Texts for people: counts, parts and times."""

from __future__ import annotations

from datetime import datetime


def many(count: int, noun: str) -> str:
    """Return a count with its noun: `1 message`, `1,234 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def percent(part: float | None, sign: str = "") -> str | None:
    """Return a part as a percentage."""
    return None if part is None else f"{part:{sign}.1%}"


def when(moment: datetime) -> str:
    """Return a time of the store's clock as text: `2026-01-31 23:59:59 UTC`. The page shows local time instead."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
