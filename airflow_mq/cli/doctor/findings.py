"""Findings about a store."""

from __future__ import annotations

from dataclasses import dataclass

OK, NOTE, WRONG = "ok", "note", "wrong"


@dataclass(frozen=True)
class Finding:
    """The result of one check: its level, the fact, and the remedy."""

    check: str
    level: str
    what: str
    do: str = ""


def fine(check: str, what: str) -> Finding:
    """Return a finding that needs nothing."""
    return Finding(check, OK, what)


def note(check: str, what: str, do: str = "") -> Finding:
    """Return a finding worth knowing that is no problem."""
    return Finding(check, NOTE, what, do)


def wrong(check: str, what: str, do: str) -> Finding:
    """Return a problem that needs a person."""
    return Finding(check, WRONG, what, do)
