"""Replay of the kept inputs: each property holds, within the bounds of time and memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from .__main__ import CORPUS
from .target import Target, in_memory
from .targets import TARGETS

MOST = 400 << 10


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(target, id=target.name, marks=[pytest.mark.airflow] if target.needs_airflow else [])
        for target in TARGETS.values()
    ],
)
def test_kept_inputs(target: Target) -> None:
    inputs = {f"seed {number}": data for number, data in enumerate(target.seeds)}
    inputs |= {path.name: path.read_bytes() for path in sorted((CORPUS / target.name).glob("*"))}
    failures = {}
    target.load()
    for name, data in inputs.items():
        try:
            with in_memory():
                target.run(data)
        except Exception as error:
            failures[name] = f"{type(error).__name__}: {error}"
    assert failures == {}


def test_kept_inputs_are_few() -> None:
    sizes = {path: path.stat().st_size for path in Path(CORPUS).glob("*/*")}
    assert sum(sizes.values()) <= MOST
    assert {path.parent.name for path in sizes} <= set(TARGETS)
