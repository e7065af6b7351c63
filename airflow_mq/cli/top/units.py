"""Sizes, ages and rates in few characters."""

from __future__ import annotations

from datetime import datetime


def size(count: int) -> str:
    """Return a number of bytes in few characters."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 99.95 else f"{value:.1f} {unit}"


def span(since: datetime | None, now: datetime) -> str:
    """Return the time since a moment in few characters."""
    if since is None:
        return "-"
    seconds = max(0, int((now - since).total_seconds()))
    if seconds < 100:
        return f"{seconds}s"
    minutes, hours = seconds // 60, seconds // 3600
    if minutes < 100:
        return f"{minutes}m"
    return f"{hours}h" if hours < 100 else f"{hours // 24:,}d"


def rate(per_second: float | None) -> str:
    """Return a number of messages per second."""
    if per_second is None:
        return "-"
    return f"{per_second:,.0f}/s" if per_second >= 10 else f"{per_second:.1f}/s"
