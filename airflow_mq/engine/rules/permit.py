"""Permits: the origins and the priority that a connection may send with.

A permit comes from the address of a store or from a connection. Given an address that ends in
`?origins=acme|acme/*&priority=regular`, every client rejects messages with other origins or another priority.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

from .errors import InvalidInput, NotPermitted
from .message import check_origin

REGULAR = "regular"
MOST_PATTERN = 1_000


@dataclass(frozen=True)
class Permit:
    """The origins and the priority that a sender may use. By default all of them."""

    #: Shell patterns in which upper and lower case differ, separated by `|`: `acme|acme/*`.
    origins: str | None = None
    #: The only permitted priority: `regular`, or None for both.
    priority: str | None = None

    def __post_init__(self) -> None:
        if self.origins is not None:
            _rule(self.origins)
        if self.priority not in (None, REGULAR):
            raise InvalidInput(f"invalid priority of a permit {self.priority!r:.40}: expected {REGULAR!r} or None")

    def check_origin(self, origin: object) -> str:
        """Return the origin if it is valid and permitted.

        :raises NotPermitted: if the connection does not permit it.
        """
        text = check_origin(origin)
        if self.origins is not None and not _rule(self.origins).match(text):
            raise NotPermitted(
                f"this connection may send with origins that match {self.origins!r}, and {text[:80]!r} does not; "
                "send with one that does, or have the connection's origins widened",
                f"this connection may send with origins that match {self.origins!r}",
            )
        return text

    def check_priority(self, priority: str) -> str:
        """Return the priority if it is permitted.

        :raises NotPermitted: if the connection does not permit it.
        """
        if self.priority is not None and priority != self.priority:
            raise NotPermitted(
                f"this connection may send with the priority {self.priority}, not {str(priority)[:20]!r}; "
                "leave the priority out, or have the connection's priority widened",
                f"this connection may send with the priority {self.priority}",
            )
        return priority


@lru_cache(256)
def _rule(origins: object) -> re.Pattern[str]:
    if not isinstance(origins, str) or not 1 <= len(origins) <= MOST_PATTERN or not origins.isprintable():
        raise InvalidInput(f"the origins that may be sent with are a pattern of 1 to {MOST_PATTERN:,} characters")
    patterns = origins.split("|")
    if not all(patterns):
        raise InvalidInput("the origins that may be sent with are patterns between `|`, and one of them is empty")
    return re.compile("|".join(f"(?:{translate(pattern)})" for pattern in patterns))


OPEN = Permit()
