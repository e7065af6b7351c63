"""The command line: `airflow-mq`, `python -m airflow_mq`, and the same as `airflow mq`.

Each command is declared once, beside the function that runs it (`command.py` says how), and
drawn twice: for argparse in `parser.py`, for Airflow in `airflow.py`. Declaring loads neither
a database driver nor Airflow, because Airflow looks at the declarations at every start.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    from .program import run_line

    return run_line(argv)
