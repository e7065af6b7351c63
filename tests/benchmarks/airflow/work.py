"""Work of both contenders on a message or a number: none."""

from __future__ import annotations


def nothing(payload: bytes, origin: str) -> None:
    """Done."""
