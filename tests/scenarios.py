"""Command lines of programs that run scenarios by name."""

from __future__ import annotations

import argparse
from collections.abc import Mapping


def scenario_parser(prog: str, description: str, scenarios: Mapping[str, type]) -> argparse.ArgumentParser:
    """Return a parser whose help lists the scenarios with their docstrings."""
    names = "\n".join(f"  {name:24}{kind.__doc__}" for name, kind in scenarios.items())
    parser = argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog=f"scenarios:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--scenario", action="append", choices=list(scenarios), metavar="NAME",
        help="run this scenario, once or more often (default: all)",
    )  # fmt: skip
    return parser
