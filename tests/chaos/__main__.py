"""Run scenarios: `python -m tests.chaos --help`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.postgres_programs import find_bindirs

from .scenarios import SCENARIOS
from .table import Row, table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if a run is not clean."""
    options = _parser().parse_args(arguments)
    rows = []
    for name in options.scenario or SCENARIOS:
        kind = SCENARIOS[name]
        if not kind.is_possible():
            print(f"{name}: skipped; it needs {kind.requirement}", file=sys.stderr)
            continue
        row = Row(name, options.store, options.seconds)
        rows.append(row)
        for number in range(1, options.runs + 1):
            verdict = kind(options.store, options.seconds).run()
            row.verdicts.append(verdict)
            print(f"{name} on {options.store}, run {number} of {options.runs}: {verdict}", file=sys.stderr, flush=True)
            print(*verdict.examples[:5], sep="\n", end="\n" if verdict.examples else "", file=sys.stderr, flush=True)
            if options.out is not None:
                result = [{**asdict(row), "command": row.command} for row in rows]
                options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(table(rows))
    return 0 if all(verdict.is_clean for row in rows for verdict in row.verdicts) else 1


def _parser() -> argparse.ArgumentParser:
    names = "\n".join(f"  {name:22}{kind.__doc__}" for name, kind in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description="Run clients under real faults of PostgreSQL, and compare what they acknowledged with the store.",
        epilog=f"scenarios:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--scenario", action="append", choices=list(SCENARIOS), metavar="NAME",
        help="run this scenario, once or more often (default: all)",
    )  # fmt: skip
    parser.add_argument("--store", choices=sorted(find_bindirs()), default="embedded", help="PostgreSQL of the runs")
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="runs of each scenario (default: 1)")
    parser.add_argument("--seconds", type=float, default=10, metavar="N", help="duration of a fault (default: 10)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write all verdicts to a JSON file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
