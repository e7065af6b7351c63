"""The least that a processor can be: a function of a message's bytes and of who sent it."""

from __future__ import annotations

import logging


def log(payload: bytes, origin: str) -> None:
    """Write down that a message came by, and from whom; nothing returned means done."""
    logging.getLogger(__name__).info("%s sent %d bytes", origin, len(payload))
