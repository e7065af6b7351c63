"""Ways of a worker to sleep until a sender writes."""

from __future__ import annotations

import time
from typing import Protocol


class Sleeper(Protocol):
    """Way to wait for senders."""

    def sleep(self, seconds: float) -> bool:
        """Sleep until a notification, at most so long; return whether one came."""

    def close(self) -> None:
        """Close the connection."""


#: Seconds between two reads of a store without notifications.
LONGEST = 0.05


class Clock:
    """Sleeper of a store without notifications: a short sleep bounds the delay of a message."""

    def sleep(self, seconds: float) -> bool:
        time.sleep(min(seconds, LONGEST))
        return False

    def close(self) -> None:
        """Do nothing: there is no connection."""
