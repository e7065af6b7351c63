"""The command line: `airflow-mq`, `python -m airflow_mq`, and the same as `airflow mq`.

Each function declares its command once (see `command.py`). `parser.py` turns the declarations into parsers of
argparse, `airflow.py` into commands of Airflow. Declaring loads neither
a database driver nor Airflow, because Airflow looks at the declarations at every start.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    from .program import run_line

    return run_line(argv)
