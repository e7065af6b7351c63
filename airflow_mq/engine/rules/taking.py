"""Origin patterns: the queues of a ring that a block services."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

from .errors import InvalidInput
from .priority import origin_of

#: Limits: the length of a pattern, and the number of patterns of a block.
MOST_PATTERN, MOST_PATTERNS = 255, 1_000


@dataclass(frozen=True)
class OriginPatterns:
    """The origins that a block services: those that match one of these case-sensitive shell patterns."""

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
        shown = ", ".join(self.patterns[:5])
        return shown if len(self.patterns) <= 5 else f"{shown} and {len(self.patterns) - 5:,} more"


@lru_cache(256)
def _rule(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{translate(pattern)})" for pattern in patterns))
