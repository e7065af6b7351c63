"""Run scenarios: `python -m lab.chaos --help`."""

from __future__ import annotations

import argparse
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import psycopg

from airflow_mq.engine.rules.errors import MessageQueueError
from lab.arguments import at_least
from tests.postgres_programs import find_bindirs
from tests.scenarios import scenario_parser

from .copies import prepared
from .scenarios import SCENARIOS
from .table import append, read, table, totals
from .verdict import Verdict


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if a run of the file is not clean, or it has none."""
    options = _parser().parse_args(arguments)
    if not options.report:
        names = [name for name in options.scenario or SCENARIOS if _is_possible(name)]
        # Each round runs each scenario once, so that an interrupted series has runs of all.
        for number in range(options.runs):
            for name in names:
                _run(name, options, f"run {number + 1} of {options.runs}")
    rows = read(options.out) if options.out.exists() else []
    print(table(rows))
    print(totals(rows))
    return 0 if rows and all(verdict.is_clean for row in rows for verdict in row.verdicts) else 1


def _is_possible(name: str) -> bool:
    kind = SCENARIOS[name]
    if not kind.is_possible():
        print(f"{name}: skipped; it needs {kind.requirement}", file=sys.stderr)
        return False
    return True


def _run(name: str, options: argparse.Namespace, place: str) -> None:
    folder = options.out.parent
    folder.mkdir(parents=True, exist_ok=True)
    keep = folder / f"chaos-journals-{len(list(folder.glob('chaos-journals-*')))}-{name}"
    try:
        verdict = SCENARIOS[name](options.store, options.seconds).run(options.faults, keep)
    except (MessageQueueError, psycopg.Error, OSError, RuntimeError, subprocess.SubprocessError):
        # The run counts, but not as a clean one; the series goes on.
        verdict = Verdict(stuck=1, recovered_in=None, examples=traceback.format_exc().splitlines()[-5:])
    append(options.out, name, options.store, prepared(options.store).version, options.seconds, verdict)
    print(f"{name} on {options.store}, {place}: {verdict}", file=sys.stderr, flush=True)
    print(*verdict.examples[:5], sep="\n", end="\n" if verdict.examples else "", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = scenario_parser(
        "python -m lab.chaos",
        "Run clients under real faults of PostgreSQL, and compare what they acknowledged with the store.",
        SCENARIOS,
    )
    parser.add_argument("--store", choices=sorted(find_bindirs()), default="embedded", help="PostgreSQL of the runs")
    parser.add_argument("--runs", type=at_least(1), default=1, metavar="N", help="runs of each scenario (default: 1)")
    parser.add_argument(
        "--faults", type=at_least(1), default=1, metavar="N", help="times of the fault in a run (default: 1)"
    )
    parser.add_argument("--seconds", type=float, default=3, metavar="N", help="duration of a fault (default: 3)")
    parser.add_argument(
        "--out", type=Path, default=Path("build/chaos.jsonl"), metavar="FILE",
        help="append each run to this file, and print the table of all its runs (default: build/chaos.jsonl)",
    )  # fmt: skip
    parser.add_argument("--report", action="store_true", help="run nothing; print the table of the file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
