"""Arguments that several instruments have."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def at_least(least: int) -> Callable[[str], int]:
    """Return the type of an argument from which a figure follows: a number of runs, pairs or seconds."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}")
        return int(text)

    return read
