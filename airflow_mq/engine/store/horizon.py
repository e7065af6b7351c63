"""Horizon of a ring on PostgreSQL: the id below which every inbox row is visible, or will never be."""

from __future__ import annotations


def horizon_of(marks: list[list[int]], mark: list[int] | None, own: int, oldest: int) -> tuple[int, list[list[int]]]:
    """Return the id below which every row is visible or will never be, and the marks to store.

    :param marks: pairs of a transaction's number and the last id drawn before it had that number
    :param mark: this transaction's own pair; none, if it had its number before the last id was read
    :param own: this transaction's number
    :param oldest: transactions with smaller numbers have all ended
    """
    # After a restore into another cluster, transaction numbers restart; marks with larger numbers are void.
    known = [pair for pair in marks if pair[0] <= own] + ([mark] if mark else [])
    certain = [pair for pair in known if pair[0] <= oldest]
    horizon = max((last_id for _, last_id in certain), default=0) + 1
    return horizon, certain[-1:] + _thinned([pair for pair in known if pair[0] > oldest])


def _thinned(marks: list[list[int]]) -> list[list[int]]:
    """Return every other mark if there are too many, because a transaction stays open for very long."""
    # Fewer marks only delay the ring's floors.
    return marks if len(marks) <= 32 else marks[:-1:2] + marks[-1:]
