"""Two priorities: an origin has a regular book, and a high one once something of it was sent so.

The high book lies beside the other under a name of its own: the origin behind a mark that no origin can
hold. Inside, a book goes by its name; whoever shows it to people shows the origin and the priority.
"""

from __future__ import annotations

from .characters import quoted
from .errors import InvalidInput

REGULAR, HIGH = "regular", "high"
PRIORITIES = (REGULAR, HIGH)
#: Begins the name of a high book. By itself it names the book of no origin, in whose deficit is kept
#: what high messages owe to regular ones.
MARK = "\x01"
#: Above every high book's name, and below every regular one's.
PAST_HIGH = "\x02"
#: Above every origin: the largest text there is, as origins go.
LAST = "\U0010ffff"


def check_priority(priority: object) -> str:
    """A priority as a caller gave it, or the reason why it is none."""
    if priority not in PRIORITIES:
        raise InvalidInput(f"a priority is {' or '.join(PRIORITIES)}, not {str(priority)[:40]!r}")
    return str(priority)


def book_name(origin: str, priority: str = REGULAR) -> str:
    """The name of the book of this origin and priority."""
    return MARK + origin if priority == HIGH else origin


def is_high(name: str) -> bool:
    """Whether this is the name of a high book."""
    return name.startswith(MARK)


def origin_of(name: str) -> str:
    """Whose book this is."""
    return name[1:] if name.startswith(MARK) else name


def priority_of(name: str) -> str:
    """Which of its origin's books this is."""
    return HIGH if name.startswith(MARK) else REGULAR


def signed(page: int, priority: str) -> int:
    """A page as tables have it, which know no priorities: that of a high book is below zero."""
    return -1 - page if priority == HIGH else page


def queue_name(origin: str, priority: str) -> str:
    """A queue, as tables have it: regular is what goes without saying."""
    return origin if priority == REGULAR else f"{origin} ({priority})"


def told(name: str) -> str:
    """A book, as an error or a violation tells it."""
    return f"{quoted(origin_of(name))} (high)" if is_high(name) else quoted(name)


def books_of(origin: str) -> tuple[str, str]:
    """The names of both books of an origin, the high one first."""
    return MARK + origin, origin
