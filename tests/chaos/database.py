"""Database of a run: the schema, and the table of the senders' own transactions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg


def prepare(uri: str) -> None:
    """Create the store's tables and the table `orders`."""
    subprocess.run(
        [sys.executable, "-m", "airflow_mq", "--store", uri, "store", "upgrade"], check=True, capture_output=True
    )
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (sender int, number int, PRIMARY KEY (sender, number))")


@contextmanager
def run_folder() -> Iterator[Path]:
    """Yield a folder for the journals of a run."""
    with TemporaryDirectory(prefix="mq_chaos_") as folder:
        yield Path(folder) / "run"
