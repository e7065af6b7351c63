"""Words for people."""

from __future__ import annotations


def many(count: int, noun: str) -> str:
    """How many of something: `1 message`, `1,234 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
