"""Priorities: regular and high books of an origin, and their names.

Every origin has a regular book, and a high book once a message of high priority was sent. The high book is named by a
mark that no origin can contain, followed by the origin. Books are identified by name; people see origin and priority.
"""

from __future__ import annotations

from .characters import quoted, shown
from .errors import InvalidInput

REGULAR, HIGH = "regular", "high"
PRIORITIES = (REGULAR, HIGH)
#: Prefix of the names of high books.
MARK = "\x01"
#: Upper bound of the names of high books, below every regular one.
PAST_HIGH = "\x02"
#: A name above all, which have at most 255 bytes: also an upper bound of those with a prefix.
PAST_ALL = "\U0010ffff" * 64


def check_priority(priority: object) -> str:
    """Return a priority given by a caller, or raise `InvalidInput`."""
    if priority not in PRIORITIES:
        raise InvalidInput(f"invalid priority {shown(priority)!r}: expected {' or '.join(PRIORITIES)}")
    return str(priority)


def book_name(origin: str, priority: str = REGULAR) -> str:
    """Return the name of the book of an origin and priority."""
    return MARK + origin if priority == HIGH else origin


def is_high(name: str) -> bool:
    """Return whether a name is the name of a high book."""
    return name.startswith(MARK)


def origin_of(name: str) -> str:
    """Return the origin of a book."""
    return name[1:] if name.startswith(MARK) else name


def priority_of(name: str) -> str:
    """Return the priority of a book."""
    return HIGH if name.startswith(MARK) else REGULAR


class OfBook:
    """A message, or messages, of one book. The name of a book in place of the origin sets origin and priority."""

    origin: str
    priority: str

    def __post_init__(self) -> None:
        name: object = self.origin
        if isinstance(name, str) and is_high(name):
            object.__setattr__(self, "origin", origin_of(name))
            object.__setattr__(self, "priority", HIGH)

    @property
    def book(self) -> str:
        """Name of the book that holds the message, or the messages."""
        return book_name(self.origin, self.priority)


def queue_name(origin: str, priority: str) -> str:
    """Return the name of a queue for display; the priority is appended unless it is regular."""
    return origin if priority == REGULAR else f"{origin} ({priority})"


def told(name: str) -> str:
    """Return the name of a book for an error or a violation."""
    return f"{quoted(origin_of(name))} (high)" if is_high(name) else quoted(name)


def books_of(origin: str) -> tuple[str, str]:
    """Return the names of both books of an origin, the high one first."""
    return MARK + origin, origin
