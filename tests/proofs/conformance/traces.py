"""Recorded runs, and copies of them with one wrong value."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

TRACES = Path(__file__).parent / "traces.jsonl.gz"
#: Fewer runs with twice as many steps.
LONG = Path(__file__).parent / "long.jsonl.gz"
PARTS = ("result", "events", "queue_changed", "nested", "footprints", "state")
#: The position of a value in a step: names and numbers, from the step down.
Place = tuple[str | int, ...]


@cache
def recorded_runs() -> list[dict[str, Any]]:
    """Return all recorded runs, which the caller must not modify."""
    with gzip.open(TRACES, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


class Example(NamedTuple):
    """The earliest occurrence of a kind of value."""

    run: int
    step: int
    place: Place

    @property
    def path(self) -> str:
        """Return the position in the runner's notation."""
        return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.place).lstrip(".")

    def cut_out(self) -> dict[str, Any]:
        """Return a copy of the run up to and including this step."""
        run = recorded_runs()[self.run]
        return copy.deepcopy({**run, "steps": run["steps"][: self.step + 1]})

    def changed(self, change: Callable[[Any], Any]) -> dict[str, Any]:
        """Return the copy with a wrong value in this position."""
        run = self.cut_out()
        inner = run["steps"][-1]
        for part in self.place[:-1]:
            inner = inner[part]
        inner[self.place[-1]] = change(inner[self.place[-1]])
        return run


@cache
def examples() -> dict[str, Example]:
    """Return the earliest example of each kind of value in a step, by name."""
    examples_by_kind: dict[str, Example] = {}
    for number, run in enumerate(recorded_runs()):
        for index, step in enumerate(run["steps"]):
            for part in PARTS:
                for kind, place in _leaves(part, (part,), step[part]):
                    known = examples_by_kind.get(kind)
                    if known is None or index < known.step:
                        examples_by_kind[kind] = Example(number, index, place)
    return examples_by_kind


def _leaves(kind: str, place: Place, value: Any) -> Iterator[tuple[str, Place]]:
    """Yield single values by kind: events by their name, pages regardless of number."""
    if isinstance(value, dict):
        kind += f"({value['event']})" if "event" in value else ""
        for name, inner in value.items():
            yield from _leaves(f"{kind}.{'N' if name.isdigit() else name}", (*place, name), inner)
    elif isinstance(value, list) and value:
        for at, inner in enumerate(value[:4]):
            # Items are pairs and weights have two parts; each part is its own kind.
            pair = len(value) == 2 and not isinstance(inner, (dict, list))
            yield from _leaves(f"{kind}[{at}]" if pair else f"{kind}[]", (*place, at), inner)
    elif not isinstance(value, list):
        yield kind, place


def otherwise(value: Any) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return ("1" if value.startswith("0") else "0") + value[1:]
    return "not nothing"


def write_runs(path: Path, runs: list[dict[str, Any]]) -> Path:
    """Write a trace file of these runs, uncompressed."""
    path.write_text("".join(json.dumps(run) + "\n" for run in runs), encoding="utf-8")
    return path
