"""Tickets: the places of books in their rings, by the ids at which they entered."""

from __future__ import annotations

from ...core.priority import is_high

#: Ids from here on stand for mail that is not written yet.
POSTED = 1 << 62
#: The tickets of high books are ids so far down: below all others, in an order of their own.
HIGH_DOWN = 1 << 62
#: No regular book has a smaller ticket, no high one a larger, nor one below the least.
LEAST_TICKET, LEAST_REGULAR = -(1 << 63) + 1, -(1 << 60)


def ticket_of(origin: str, id_: int) -> int:
    """The place in its ring of a book that gets it by this id."""
    return id_ - HIGH_DOWN if is_high(origin) else id_


def level_of(origin: str) -> tuple[int, int]:
    """Between which tickets the books of this one's priority stand."""
    return (LEAST_TICKET, LEAST_REGULAR - 1) if is_high(origin) else (LEAST_REGULAR, -LEAST_TICKET)
