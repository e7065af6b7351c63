"""`python -m airflow_mq` is the command line."""

from __future__ import annotations

import sys

from airflow_mq.cli import main

if __name__ == "__main__":
    sys.exit(main())
