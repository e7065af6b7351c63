"""Patterns of origins: those that a block services, and those that a connection may send with.

A pattern is a shell pattern in which upper and lower case differ. A permit comes from the address of a store or from a
connection. Given an address that ends in `?origins=acme|acme/*&priority=regular`, every client rejects messages with
other origins or another priority.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import translate
from functools import lru_cache

from .characters import listed
from .errors import InvalidInput, NotPermitted
from .message import check_origin, check_visible
from .priority import REGULAR, origin_of

#: Limits: the length of a pattern, the number of patterns of a block, and the length of all patterns of a permit.
MOST_PATTERN, MOST_PATTERNS, MOST_PERMIT = 255, 1_000, 1_000


@lru_cache(512)
def _rule(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{translate(pattern)})" for pattern in patterns))


@dataclass(frozen=True)
class OriginPatterns:
    """The origins that a block services: those that match one of these patterns."""

    patterns: tuple[str, ...]

    @classmethod
    def of(cls, given: Iterable[str] | None) -> OriginPatterns | None:
        """Return the patterns of a block, or None if it services all origins."""
        if given is None:
            return None
        patterns = (given,) if isinstance(given, str) else tuple(given)
        if not 1 <= len(patterns) <= MOST_PATTERNS:
            raise InvalidInput(
                f"invalid origins ({len(patterns):,} patterns): expected 1 to {MOST_PATTERNS:,} patterns"
            )
        for pattern in patterns:
            value: object = pattern
            if not isinstance(value, str) or not 1 <= len(pattern) <= MOST_PATTERN:
                raise InvalidInput(
                    f"invalid pattern of origins {str(pattern)[:40]!r}: expected text of 1 to {MOST_PATTERN} characters"
                )
        return None if "*" in patterns else cls(tuple(dict.fromkeys(patterns)))

    def takes(self, name: str) -> bool:
        """Return whether a block with these patterns services the book of this name."""
        return _rule(self.patterns).match(origin_of(name)) is not None

    def __str__(self) -> str:
        return listed(self.patterns)


@dataclass(frozen=True)
class Permit:
    """The origins and the priority that a sender may use. By default all of them."""

    #: Patterns, separated by `|`: `acme|acme/*`.
    origins: str | None = None
    #: The only permitted priority: `regular`, or None for both.
    priority: str | None = None
    #: Whether origins with invisible characters are refused.
    visible: bool = False

    def __post_init__(self) -> None:
        origins: object = self.origins
        if origins is not None:
            if not isinstance(origins, str) or not 1 <= len(origins) <= MOST_PERMIT or not origins.isprintable():
                raise InvalidInput(
                    f"the origins that may be sent with are a pattern of 1 to {MOST_PERMIT:,} characters"
                )
            if not all(origins.split("|")):
                raise InvalidInput(
                    "the origins that may be sent with are patterns between `|`, and one of them is empty"
                )
        if self.priority not in (None, REGULAR):
            raise InvalidInput(f"invalid priority of a permit {self.priority!r:.40}: expected {REGULAR!r} or None")

    def check_origin(self, origin: object) -> str:
        """Return the origin if it is valid and permitted.

        :raises NotPermitted: if the connection does not permit it.
        """
        text = check_visible(check_origin(origin)) if self.visible else check_origin(origin)
        if self.origins is not None and not _rule(tuple(self.origins.split("|"))).match(text):
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


OPEN = Permit()


@lru_cache(64)
def strict(permit: Permit) -> Permit:
    """Return a permit that also refuses origins with invisible characters."""
    return replace(permit, visible=True)
