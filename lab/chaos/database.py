"""Database of a run: the schema, a second ring, and the table of the senders' own transactions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from airflow_mq import MessageQueue

from .letters import ARCHIVE

DATABASE = "chaos"


def prepare(uri: str) -> None:
    """Create the store's tables, the ring to which messages are transferred, and the table `orders`."""
    subprocess.run(
        [sys.executable, "-m", "airflow_mq", "--store", uri, "store", "upgrade"], check=True, capture_output=True
    )
    with MessageQueue(uri) as queue:
        queue.admin.create_ring(ARCHIVE)
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (sender int, number int, PRIMARY KEY (sender, number))")


@contextmanager
def run_folder() -> Iterator[Path]:
    """Yield a folder for the journals of a run."""
    with TemporaryDirectory(prefix="mq_chaos_") as folder:
        yield Path(folder) / "run"
