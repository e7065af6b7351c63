"""Texts for people: counts, parts, times and sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

#: Length up to which a text is short.
_SHORT = 7


def many(count: int, noun: str) -> str:
    """Return a count with its noun: `1 message`, `1,234 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def percent(part: float | None, sign: str = "") -> str | None:
    """Return a part as a percentage."""
    return None if part is None else f"{part:{sign}.1%}"


def when(moment: datetime) -> str:
    """Return a time of the store's clock as text: `2026-01-31 23:59:59 UTC`. The page shows local time instead."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def span(seconds: float) -> str:
    """Return a length of time: `40 s`, `9 min`, `5 h`, `3 d`."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{max(seconds, 0):,.0f} s"


def size(count: float) -> str:
    """Return a number of bytes: `999 B`, `1.5 kB`, `250 MB`."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            break
        value /= 1000
    return f"{value:,.0f} {unit}" if unit == "B" or value >= 99.95 else f"{value:.1f} {unit}"


def weight(exact: Sequence[int]) -> str:
    """Return a weight as short text: exact where that is short (`10 min · 1 GiB`), else rounded (`13 min · 1.2 MB`).

    :param exact: a `Weight`, whose text is exact
    """
    time, length = (part if len(part) <= _SHORT else None for part in str(exact).split(" · "))
    milliseconds, bytes_ = exact
    return f"{time or span(milliseconds / 1_000)} · {length or size(bytes_)}"


def outcomes(counts: Mapping[str, object], *, processed: bool = True) -> str:
    """Return the numbers of outcomes, of those other than success only where there are some."""
    others = (name for name in ("failed", "set_aside", "returned", "expired") if counts.get(name))
    names = [*["processed"] * processed, *others]
    return ", ".join(f"{counts.get(name, 0):,} {name.replace('_', ' ')}" for name in names)


def capitalised(sentence: str, *names: str) -> str:
    """Return a sentence with a capital, unless it begins with a name, which keeps its letters."""
    return sentence if sentence.startswith(names) else f"{sentence[:1].upper()}{sentence[1:]}"
