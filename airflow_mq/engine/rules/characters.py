"""Text that others gave: escapes of invisible characters and of those that change its direction, and short lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

#: Characters without a glyph of their own, and characters that change the direction of text. An origin with one of them
#: can look like another origin.
INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)

#: How many names a sentence lists.
LISTED = 5


def visible(text: str) -> str:
    """Return a text with invisible and unprintable characters escaped."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def quoted(text: str) -> str:
    """Return an origin in quotes for a log line or an error. `repr` leaves some invisible characters unescaped."""
    return visible(repr(text))


def shown(value: object, most: int = 40, write: Callable[[object], str] = str) -> str:
    """Return the beginning of any value as text, for an error. Python writes no whole number above 4,300 digits."""
    try:
        return write(value)[:most]
    except ValueError:
        return f"{type(value).__name__} too long to show"


def listed(items: Sequence[T], write: Callable[[T], str] = str, most: int = LISTED, between: str = ", ") -> str:
    """Return the first of some items as text, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(items) - most:,} more" if len(items) > most else ""
    return between.join(map(write, items[:most])) + more


def _visible(character: str) -> str:
    if character.isprintable() and not INVISIBLE.search(character):
        return character
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character) or _escaped(ord(character))


def _escaped(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
