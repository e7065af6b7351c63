"""Branches that an input takes, counted by Python's tracer: they choose the inputs to keep."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from types import FrameType
from typing import Any

from .target import Target

#: Module, line before, line after.
Group = tuple[str, int, int]


def branches_of(target: Target, data: bytes) -> frozenset[Group]:
    """Return the branches of the target's modules that an input takes."""
    files = {str(import_module(name).__file__) for name in target.modules}
    found: set[Group] = set()

    def enter(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        name, last = frame.f_code.co_filename, -frame.f_code.co_firstlineno

        def step(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal last
            if event == "line":
                found.add((name, last, frame.f_lineno))
                last = frame.f_lineno
            return step

        return step

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        with suppress(Exception):
            target.run(data)
    finally:
        sys.settrace(before)
    return frozenset(found)


def shortest(target: Target, inputs: Iterable[bytes], most: int) -> tuple[list[bytes], int]:
    """Return short inputs that take all branches of many, in at most so many bytes, and the number of branches."""
    seen: set[Group] = set()
    chosen: list[bytes] = []
    for data in sorted(set(inputs), key=lambda data: (len(data), data)):
        branches = branches_of(target, data)
        if branches - seen and sum(map(len, chosen)) + len(data) <= most:
            seen |= branches
            chosen.append(data)
    return chosen, len(seen)
