"""The recorded runs, and copies of them in which one value is wrong."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

TRACES = Path(__file__).parent / "traces.jsonl.gz"
#: Fewer runs of twice as many steps.
LONG = Path(__file__).parent / "long.jsonl.gz"
PARTS = ("result", "events", "queue_changed", "nested", "footprints", "state")
#: A value within a step: names and numbers, from the step down.
Place = tuple[str | int, ...]


@cache
def recorded_runs() -> list[dict[str, Any]]:
    """All runs. Whoever changes one copies it first."""
    with gzip.open(TRACES, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


class Example(NamedTuple):
    """Where a kind of value was met first, at a step as early as there is one."""

    run: int
    step: int
    place: Place

    @property
    def path(self) -> str:
        """The place, as the runner writes it."""
        return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.place).lstrip(".")

    def cut_out(self) -> dict[str, Any]:
        """The run up to and with this step, to be changed at will."""
        run = recorded_runs()[self.run]
        return copy.deepcopy({**run, "steps": run["steps"][: self.step + 1]})

    def changed(self, change: Callable[[Any], Any]) -> dict[str, Any]:
        """The same with a wrong value in this place."""
        run = self.cut_out()
        inner = run["steps"][-1]
        for part in self.place[:-1]:
            inner = inner[part]
        inner[self.place[-1]] = change(inner[self.place[-1]])
        return run


@cache
def examples() -> dict[str, Example]:
    """Every kind of value that a step has, by its name, with the earliest example of it."""
    found: dict[str, Example] = {}
    for number, run in enumerate(recorded_runs()):
        for at, step in enumerate(run["steps"]):
            for part in PARTS:
                for kind, place in _leaves(part, (part,), step[part]):
                    known = found.get(kind)
                    if known is None or at < known.step:
                        found[kind] = Example(number, at, place)
    return found


def _leaves(kind: str, place: Place, value: Any) -> Iterator[tuple[str, Place]]:
    """Single values, in kinds: an event's by its name, a page's whatever its number."""
    if isinstance(value, dict):
        kind += f"({value['event']})" if "event" in value else ""
        for name, inner in value.items():
            yield from _leaves(f"{kind}.{'N' if name.isdigit() else name}", (*place, name), inner)
    elif isinstance(value, list) and value:
        for at, inner in enumerate(value[:4]):
            # An item is a pair and a weight has two parts: each is a kind of its own.
            pair = len(value) == 2 and not isinstance(inner, (dict, list))
            yield from _leaves(f"{kind}[{at}]" if pair else f"{kind}[]", (*place, at), inner)
    elif not isinstance(value, list):
        yield kind, place


def otherwise(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return ("1" if value.startswith("0") else "0") + value[1:]
    return "not nothing"


def write_runs(path: Path, runs: list[dict[str, Any]]) -> Path:
    """A trace file of these runs, not packed."""
    path.write_text("".join(json.dumps(run) + "\n" for run in runs), encoding="utf-8")
    return path
