"""Lengths of time and sizes as people write and read them: `90s`, `1.5 h`, `4GiB`.

The texts are exact: each reads back as the same number. `airflow_mq.words` has shorter, rounded ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Any

from .characters import shown
from .errors import InvalidInput

#: Units of time in milliseconds and of size in bytes, the largest first.
TIMES = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1_000, "ms": 1}
SIZES = {
    "TiB": 1 << 40, "TB": 10**12, "GiB": 1 << 30, "GB": 10**9, "MiB": 1 << 20, "MB": 10**6, "KiB": 1 << 10,
    "kB": 10**3, "B": 1,
}  # fmt: skip
_READ_TIMES = {**TIMES, "m": TIMES["min"]}
#: `GiB`, `gib` and `Gi` are the same.
_READ_SIZES = {**{name.lower(): size for name, size in SIZES.items()}, **{
    name.lower().removesuffix("b"): size for name, size in SIZES.items() if name != "B"
}}  # fmt: skip
#: Commas and underscores separate groups of three digits, and nothing else: `1,5h` is not 15 hours.
_AMOUNT = re.compile(r"((?:[0-9]{1,27}|[0-9]{1,3}(?:[,_][0-9]{3}){1,8})(?:\.[0-9]{1,9})?) ?([A-Za-z]{0,3})")


def milliseconds(value: Any, bare: bool = False) -> object:
    """Return a `timedelta` (rounded up) or a text such as `90s` as milliseconds, and any other value as it is.

    :param bare: read a text without a unit as milliseconds; otherwise, it is invalid.
    """
    if hasattr(value, "total_seconds"):
        return -(-round(value.total_seconds() * 1_000_000) // 1_000)
    return _whole(_read(value, _READ_TIMES, "ms" * bare, _TIME), value, _TIME) if isinstance(value, str) else value


def byte_count(value: object, bare: bool = False) -> object:
    """Return a text such as `4GiB` as bytes, and any other value as it is."""
    return _whole(_read(value, _READ_SIZES, "b" * bare, _SIZE), value, _SIZE) if isinstance(value, str) else value


def seconds(value: Any, bare: bool = False) -> object:
    """Return a `timedelta` or a text such as `90s` as seconds, and any other value as it is."""
    if hasattr(value, "total_seconds"):
        return value.total_seconds()
    return float(_read(value, _READ_TIMES, "s" * bare, _TIME) / 1_000) if isinstance(value, str) else value


def check_seconds(value: object, what: str, bare: bool = False, least: float = 0.0) -> float:
    """Return a caller's duration in seconds, or raise `InvalidInput`.

    :param what: the name of the value, for the error.
    """
    found = None
    with suppress(InvalidInput):
        found = seconds(value, bare)
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not least <= found <= 1e9:
        raise InvalidInput(
            f"invalid {what} {shown(value, 40, repr)}: expected seconds from {least:,.0f} to 1e9, "
            "or a duration such as 90s or 15m"
        )
    return float(found)


def time_text(time: int) -> str:
    """Return milliseconds as text: `250 ms`, `90 s`, `1.5 h`."""
    found = _text(time, TIMES)
    return found if not found.endswith(" ms") or time < 1_000 else f"{time // 1_000:,}.{time % 1_000:03} s"


def size_text(size: int) -> str:
    """Return bytes as text: `999 B`, `1.5 kB`, `4 GiB`."""
    return _text(size, SIZES)


_TIME = "a time such as 250ms, 90s, 20m, 1.5h or 1d"
_SIZE = "a size such as 512KiB, 4GiB or 100MB"


def _read(text: str, units: Mapping[str, int], bare: str, expected: str) -> Fraction:
    found = _AMOUNT.fullmatch(text.strip())
    unit = units.get(found[2].lower() or bare) if found else None
    if found is None or unit is None:
        raise InvalidInput(f"invalid value {shown(text, 40, repr)}: expected {expected}")
    return Fraction(re.sub("[,_]", "", found[1])) * unit


def _whole(amount: Fraction, value: object, expected: str) -> int:
    if amount.denominator != 1:
        raise InvalidInput(f"invalid value {shown(value, 40, repr)}: expected {expected}, in whole units")
    return amount.numerator


def _text(amount: int, units: Mapping[str, int]) -> str:
    for name, unit in units.items():
        if amount >= unit and not amount * 10 % unit:
            return f"{amount // unit:,}{f'.{amount * 10 // unit % 10}' if amount % unit else ''} {name}"
    return f"0 {name}"
