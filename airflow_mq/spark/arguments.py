"""Command line and environment of a job, and the lines that it prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: Variables with the address of the store and the token of the block.
STORE, BLOCK = "AIRFLOW_MQ_STORE", "AIRFLOW_MQ_BLOCK"
#: Variable with a word that the task chose: the job's last line ends with it, and no line that a processor prints does.
MARK = "AIRFLOW_MQ_MARK"
#: Exit code of a job that came too late: "temporary failure, the user is invited to retry".
REFUSED = os.EX_TEMPFAIL
#: Exit code of a job with processors that do not load, whose errors it has reported: "configuration error".
NOT_LOADED = os.EX_CONFIG
#: Prefix of the lines that the job itself prints.
PREFIX = "airflow_mq: "
#: Arguments that are numbers.
NUMBERS: dict[str, type[int] | type[float]] = {"part": int, "parts": int, "lease": float}


@dataclass(frozen=True)
class Arguments:
    """The command line of a job."""

    routes: str
    processors: Sequence[str]
    ring: str = "default"
    part: int = 0
    parts: int = 1
    lease: float | None = None
    exchange: str | None = None

    @classmethod
    def read(cls, words: Sequence[str]) -> Arguments:
        """Read `--name value` and `--name=value`; a value may begin with dashes."""
        values: dict[str, str] = {}
        left, names = list(words), cls.__dataclass_fields__
        while left:
            name, is_whole, value = left.pop(0).partition("=")
            if not name.startswith("--") or name[2:] not in names:
                raise ValueError(f"unknown {name[:40]!r}: expected --{', --'.join(names)}")
            if not is_whole and not left:
                raise ValueError(f"{name} needs a value")
            values[name[2:]] = value if is_whole else left.pop(0)
        for name in ("routes", "processors"):
            if not values.get(name):
                raise ValueError(f"--{name} is missing")
        read: dict[str, Any] = {**values, "processors": values["processors"].split(",")}
        for name in NUMBERS.keys() & values.keys():
            try:
                read[name] = NUMBERS[name](values[name])
            except ValueError:
                raise ValueError(f"invalid --{name} {values[name][:40]!r}: expected a number") from None
        return cls(**read)


def print_line(text: str) -> None:
    """Print a line of the job's own, with any line breaks in it removed."""
    print(f"{PREFIX}{' '.join(text.split())}", file=sys.stderr, flush=True)
