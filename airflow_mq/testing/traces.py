"""Recorded traces of the message-queue pallet: JSON lines, plain or compressed."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeAlias, TypedDict

#: A recorded call and its observations, as in JSON.
Step: TypeAlias = "dict[str, Any]"


class Config(TypedDict):
    """Settings of the ring of a trace."""

    origins: int
    heap_size: int
    max_stale: int
    service_weight: list[int] | None
    costs: dict[str, list[int]]


class Run(TypedDict):
    """A recorded run."""

    seed: int
    config: Config
    steps: list[Step]


def read_runs(path: Path) -> Iterator[Run]:
    """Yield the runs of a trace file: JSON lines, plain or compressed."""
    openers: dict[str, Callable[..., IO[str]]] = {".gz": gzip.open, ".xz": lzma.open}
    with openers.get(path.suffix, open)(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)
