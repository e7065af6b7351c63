"""Preparation of a store in a folder: `python -m lab.powerloss.preparation FOLDER`."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from airflow_mq import MessageQueue
from airflow_mq.engine.store import parse, upgrade
from lab.chaos.letters import ARCHIVE

#: Folders of the store and of the clients' journals.
STORE, RUN = "store", "run"


def uri_of(folder: Path) -> str:
    """Return the address of the store in a folder."""
    return f"sqlite:///{folder / STORE / 'queue.db'}"


def prepare(folder: Path) -> None:
    """Make or upgrade the store, the folder of its payloads, and the table `orders`."""
    (folder / STORE).mkdir(parents=True, exist_ok=True)
    uri = uri_of(folder)
    upgrade(parse(uri))
    with closing(sqlite3.connect(folder / STORE / "queue.db", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS orders (sender int, number int, PRIMARY KEY (sender, number))")
    blobs = str(folder / STORE / "payloads")
    with MessageQueue(uri) as queue:
        if queue.config.blob_path != blobs:
            queue.admin.change_ring(blob_path=blobs)
        if ARCHIVE not in queue.admin.rings():
            queue.admin.create_ring(ARCHIVE)


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
