"""Run scenarios: `python -m lab.powerloss --help`."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lab.arguments import at_least
from lab.chaos.verdict import Verdict
from tests.scenarios import scenario_parser

from .scenarios import SCENARIOS, Scenario

HEADER = (
    "| fault | runs | accepted | lost | settled twice | recovered in | scenario |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | --- |"
)
#: A file system in memory, where a sync costs nothing; the model decides what a sync keeps.
MEMORY = Path("/dev/shm")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if a run is not clean, or a control is."""
    options = _parser().parse_args(arguments)
    names = options.scenario or list(SCENARIOS)
    if len(names) > 1:
        return max([_in_process(name, options) for name in names])
    kind = SCENARIOS[names[0]]
    if not kind.is_possible():
        print(f"{names[0]}: skipped; it needs {kind.requirement}", file=sys.stderr)
        return 0
    folder = Path(tempfile.mkdtemp(prefix="mq-power-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        verdicts = kind(folder / "disk", options.runs, options.seed).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(_row(names[0], kind, options.runs, verdicts))
    return 0 if is_expected(kind, verdicts) else 1


def _in_process(name: str, options: argparse.Namespace) -> int:
    """Run a scenario in a process of its own: clients of the same process share their environment."""
    command = [sys.executable, "-m", "lab.powerloss", "--scenario", name, "--runs", str(options.runs)]
    return subprocess.run([*command, "--seed", str(options.seed)], check=False).returncode


def is_expected(kind: type[Scenario], verdicts: Sequence[Verdict]) -> bool:
    """Return whether nothing is wrong; of a control, whether something is."""
    is_clean = all(verdict.is_sound for verdict in verdicts) and any(verdict.accepted for verdict in verdicts)
    return is_clean != kind.is_control


def _row(name: str, kind: type[Scenario], runs: int, verdicts: Sequence[Verdict]) -> str:
    """Print what is wrong and the errors of the clients; return the row of the table."""
    for verdict in verdicts:
        if not verdict.is_sound:
            print(verdict, *verdict.examples[:5], sep="\n  ", file=sys.stderr)
        for error, count in verdict.errors.items() if len(verdicts) == 1 else ():
            print(f"{count} times {error}", file=sys.stderr)
    total = {field: sum(getattr(verdict, field) for verdict in verdicts) for field in vars(Verdict())
             if isinstance(getattr(Verdict(), field), int)}  # fmt: skip
    wrong = ", ".join(f"{field} {count}" for field, count in total.items() if field != "accepted" and count)
    print(
        f"{name}: {sum(not verdict.is_sound for verdict in verdicts)} bad verdicts: {wrong or 'nothing'}",
        file=sys.stderr,
    )
    times = [verdict.recovered_in for verdict in verdicts if verdict.recovered_in is not None]
    recovered = f"{max(times):.1f} s" if len(times) == len(verdicts) else "never"
    cells = [kind.__doc__, runs, f"{total['accepted']:,}", f"{total['lost']:,}", total["settled_twice"], recovered]
    return f"{HEADER}\n| {' | '.join(map(str, cells))} | `--scenario {name}` |"


def _parser() -> argparse.ArgumentParser:
    parser = scenario_parser(
        "python -m lab.powerloss",
        "Run clients under real faults of a SQLite file, and compare what they acknowledged with the store.",
        SCENARIOS,
    )
    parser.add_argument(
        "--runs", type=at_least(1), default=20, metavar="N", help="faults of each scenario (default: 20)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="seed of the faults (default: 1)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
