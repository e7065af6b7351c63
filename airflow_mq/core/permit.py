"""Who may send: what the address of a store, or a connection, confines its users to.

An origin is worth what the delivery stage vouches for. Whoever gives a team an address that ends in
`?origins=acme|acme/*&priority=regular` has every client refuse what they send as anybody else.
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
    """The origins and the priority that somebody may send with; everything, unless it says otherwise."""

    #: Shell patterns in which upper and lower case differ, separated by `|`: `acme|acme/*`.
    origins: str | None = None
    #: `regular`: nothing else may be said.
    priority: str | None = None

    def __post_init__(self) -> None:
        if self.origins is not None:
            _rule(self.origins)
        if self.priority not in (None, REGULAR):
            raise InvalidInput(f"who sends is confined to the priority {REGULAR}, or to none")

    def check_origin(self, origin: object) -> str:
        """An origin as a caller gave it, or the reason why nothing is sent with it."""
        text = check_origin(origin)
        if self.origins is not None and not _rule(self.origins).match(text):
            raise NotPermitted(
                f"this connection may send with origins that match {self.origins!r}, and {text[:80]!r} does not; "
                "send with one that does, or have the connection's origins widened",
                f"this connection may send with origins that match {self.origins!r}",
            )
        return text

    def check_priority(self, priority: str) -> str:
        """A priority as a caller gave it, or the reason why nothing is sent with it."""
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
