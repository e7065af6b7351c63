"""Run rows of the matrix: `python -m tests.live.faults --help`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .matrix import ROWS
from .stage import open_stage
from .table import table
from .verdict import Verdict


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if a run is not clean."""
    options = _parser().parse_args(arguments)
    verdicts: dict[str, list[Verdict]] = {}
    if options.logs is not None:
        options.logs.mkdir(parents=True, exist_ok=True)
    with open_stage() as stage:
        for number in range(1, options.runs + 1):
            for name in options.row or ROWS:
                began = time.monotonic()
                try:
                    verdict = ROWS[name].run(stage, f"{name}-{number}", options.logs)
                except Exception as error:
                    verdict = Verdict(problems=[f"{type(error).__name__}: {error}"])
                    stage.repair()
                verdicts.setdefault(name, []).append(verdict)
                took = time.monotonic() - began
                print(f"{name}, run {number} of {options.runs}, {took:.0f} s: {verdict}", file=sys.stderr, flush=True)
    print(table(verdicts))
    return 0 if all(verdict.is_clean for found in verdicts.values() for verdict in found) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.live.faults",
        description="Let faults happen at each point of a block in a real Airflow, and compare the store with what was "
        "sent.",
        epilog="rows:\n" + "\n".join(f"  {name:26}{row.title}, {row.point}" for name, row in ROWS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--row", action="append", choices=list(ROWS), metavar="NAME", help="run this row (default: all)"
    )
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="runs of each row (default: 1)")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="write the logs of the tasks to this folder")
    return parser


if __name__ == "__main__":
    sys.exit(main())
