"""Minimal processor: a function of the payload and the origin of a message."""

from __future__ import annotations

import logging


def log(payload: bytes, origin: str) -> None:
    """Log a message; returning nothing marks it as processed."""
    logging.getLogger(__name__).info("%s sent %d bytes", origin, len(payload))
