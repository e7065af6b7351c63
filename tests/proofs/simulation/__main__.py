"""Run seeds: `python -m tests.proofs.simulation --help`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TextIO

from .places import open_stores
from .run import Figures, Outcome, budgeted, run
from .script import Script, draw
from .shrinking import shrink
from .world import Stores

STORES = ("sqlite", "postgres")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if an invariant does not hold."""
    options = _parser().parse_args(arguments)
    script_of = budgeted if options.budgets else draw
    with open_stores([options.store]) as stores:
        if options.replay is not None:
            return _replay(stores, options.store, script_of(options.replay))
        if options.shrink is not None:
            return _shrink(stores, options.store, script_of(options.shrink))
        return _search(stores, options, script_of)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proofs.simulation",
        description="Run actors, faults and cuts that seeds draw, in simulated time.",
    )
    parser.add_argument("--seeds", type=int, default=300, metavar="N", help="number of seeds (default: 300)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="first seed (default: 0)")
    parser.add_argument("--store", choices=STORES, default="sqlite", help="database of the runs (default: sqlite)")
    parser.add_argument("--met", action="store_true", help="print how often each action ended in which way")
    parser.add_argument("--budgets", action="store_true", help="give some origins and paths budgets over time")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--replay", type=int, metavar="SEED", help="run one seed and print each step with its result")
    only.add_argument("--shrink", type=int, metavar="SEED", help="print the shortest part of a failing seed, as a test")
    return parser


def _search(stores: Stores, options: argparse.Namespace, script_of: Callable[[int], Script]) -> int:
    store, first, seeds = options.store, options.first, options.seeds
    total, failures, began = Figures(), 0, time.monotonic()
    progress = Progress(sys.stderr, seeds)
    for seed in range(first, first + seeds):
        outcome = run(script_of(seed), stores, store)
        total.add(outcome.figures)
        if outcome.failure is not None:
            failures += 1
            progress.clear()
            print(f"seed {seed}, step {outcome.begun}: {_first_line(outcome)}", flush=True)
        progress.show(seed - first + 1, failures, total)
    progress.clear()
    print(f"{store}: {total}")
    if options.met:
        print("\n".join(f"{count:>8,} {name}" for name, count in sorted(total.met.items())))
    print(f"{failures} of {seeds} seeds violate an invariant; {time.monotonic() - began:,.0f} s")
    return 1 if failures else 0


def _replay(stores: Stores, store: str, script: Script) -> int:
    outcome = run(script, stores, store)
    for step in script.steps[: outcome.begun]:
        print(step)
    print(*outcome.results, sep="\n")
    print(outcome.figures)
    if outcome.failure is not None:
        print(f"step {outcome.begun}: {outcome.failure}")
    return 1 if outcome.failure else 0


def _shrink(stores: Stores, store: str, script: Script) -> int:
    outcome = run(script, stores, store)
    if outcome.failure is None:
        print(f"seed {script.setup} violates no invariant on {store}")
        return 0
    shortest = shrunk(outcome, lambda script: run(script, stores, store))
    failure = run(shortest, stores, store).failure
    print(shortest.as_test(f"seed_{script.setup}", str(failure), store))
    return 1


def shrunk(outcome: Outcome, run_again: Callable[[Script], Outcome]) -> Script:
    """Return the shortest part of a failed script that violates the same invariant."""

    def fails(script: Script) -> bool:
        return run_again(script).invariant == outcome.invariant

    begun = replace(outcome.script, steps=list(outcome.script.steps[: outcome.begun]))
    # While steps are left, an actor that pauses waits for longer.
    return shrink(begun if fails(begun) else outcome.script, fails)


def _first_line(outcome: Outcome) -> str:
    return str(outcome.failure or "").partition("\n")[0][:300] or repr(outcome.failure)


class Progress:
    """A line that replaces itself on a terminal; elsewhere, a line now and then."""

    def __init__(self, stream: TextIO, total: int) -> None:
        self.stream, self.total, self._shown = stream, total, 0.0

    def show(self, done: int, failures: int, figures: Figures) -> None:
        """Show how far the search is."""
        is_terminal, now = self.stream.isatty(), time.monotonic()
        if now - self._shown < (0.2 if is_terminal else 30.0):
            return
        self._shown = now
        faults = sum(figures.faults.values())
        text = f"{done:,} of {self.total:,} seeds, {failures} failed; {figures.hours:,.0f} hours, {faults:,} faults"
        self.stream.write(f"\r\033[K{text}" if is_terminal else f"{text}\n")
        self.stream.flush()

    def clear(self) -> None:
        """Remove the line."""
        if self.stream.isatty():
            self.stream.write("\r\033[K")


if __name__ == "__main__":
    sys.exit(main())
