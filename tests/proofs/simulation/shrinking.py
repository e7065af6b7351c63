"""Shrinking: the shortest script that still violates the same invariant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from .script import Script, Step

#: Runs that a search may take.
MOST_RUNS = 600


def shrink(script: Script, fails: Callable[[Script], bool], most: int = MOST_RUNS) -> Script:
    """Return a part of a failing script that fails, too: without actors, steps, faults and cuts that do not matter."""
    search = _Search(fails, most)
    script = _without_actors(script, search)
    script = _without_steps(script, search)
    script = _simpler_steps(script, search)
    return _without_steps(script, search)


class _Search:
    """Runs within a bound."""

    def __init__(self, fails: Callable[[Script], bool], left: int) -> None:
        self._fails, self._left = fails, left

    def fails(self, script: Script) -> bool:
        if self._left <= 0:
            return False
        self._left -= 1
        return self._fails(script)


def _without_actors(script: Script, search: _Search) -> Script:
    for actor in sorted({step.actor for step in script.steps}):
        fewer = replace(script, steps=[step for step in script.steps if step.actor != actor])
        if search.fails(fewer):
            script = fewer
    return script


def _without_steps(script: Script, search: _Search) -> Script:
    """Delta debugging: leave out pieces of half the length, then of a quarter, down to single steps."""
    size = max(len(script.steps) // 2, 1)
    while True:
        start, steps = 0, list(script.steps)
        while start < len(steps):
            fewer = steps[:start] + steps[start + size :]
            if search.fails(replace(script, steps=fewer)):
                steps = fewer
            else:
                start += size
        script = replace(script, steps=steps)
        if size == 1:
            return script
        size = max(size // 2, 1)


def _simpler_steps(script: Script, search: _Search) -> Script:
    for place, step in enumerate(script.steps):
        for simpler in _simpler(step):
            changed = _with_step(script, place, simpler(script.steps[place]))
            if changed.steps[place] != script.steps[place] and search.fails(changed):
                script = changed
    return script


def _simpler(step: Step) -> Sequence[Callable[[Step], Step]]:
    return [
        lambda now: replace(now, fault=None),
        lambda now: replace(now, cuts={}),
        *(
            lambda now, cut=cut: replace(now, cuts={at: turns for at, turns in now.cuts.items() if at != cut})
            for cut in step.cuts
        ),
        lambda now: replace(now, wait=0.0),
    ]


def _with_step(script: Script, place: int, step: Step) -> Script:
    return replace(script, steps=[*script.steps[:place], step, *script.steps[place + 1 :]])
