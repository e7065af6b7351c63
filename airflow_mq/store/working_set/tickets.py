"""Tickets: the places of books in their rings, by the ids at which they entered."""

from __future__ import annotations

from ...core.priority import is_high

#: Tickets of high books are ids lowered by this much: below all others, in an order of their own.
HIGH_DOWN = 1 << 62
#: No regular book has a smaller ticket, no high one a larger, nor one below the least.
LEAST_TICKET, LEAST_REGULAR = -(1 << 63) + 1, -(1 << 60)


def ticket_of(origin: str, id_: int) -> int:
    """Return the place in its ring of a book that enters it by this id."""
    return id_ - HIGH_DOWN if is_high(origin) else id_


def level_of(origin: str) -> tuple[int, int]:
    """Return the least and the largest ticket of books of this one's priority."""
    return (LEAST_TICKET, LEAST_REGULAR - 1) if is_high(origin) else (LEAST_REGULAR, -LEAST_TICKET)
