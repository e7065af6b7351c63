"""What both do with a message or a number: nothing."""

from __future__ import annotations


def nothing(payload: bytes, origin: str) -> None:
    """Done."""
