"""Names that a person may have meant by one that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from .characters import visible

#: Names that an error lists.
MOST_SUGGESTED = 30


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the existing name that is most like a name, if any is."""
    # The time grows with the square of the length.
    return next(iter(get_close_matches(name[:200], list(names), n=1)), None)


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return a question with the nearest name, or the first of those that exist."""
    known = list(names)
    if near := nearest(name, known):
        return f"did you mean {visible(near)}?"
    more = ", …" if len(known) > MOST_SUGGESTED else ""
    return f"expected one of {', '.join(map(visible, known[:MOST_SUGGESTED]))}{more}"
