"""Workloads on a SQLite file: those of `lab.chaos`, senders of their own, and checkpoints."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from airflow_mq.engine.store import sqlite as store
from lab.chaos.letters import Call
from lab.chaos.senders import Sender
from lab.chaos.workload import Desk, Workload
from lab.chaos.workloads import ROLES

#: A file in the folder of a run with statements that each connection runs after those of the package.
PRAGMAS = "pragmas.sql"
MODES = ("PASSIVE", "FULL", "RESTART", "TRUNCATE")
#: Seconds by which a delayed message is late.
DELAY = 0.3


def path_of(uri: str) -> Path:
    """Return the path of a SQLite store."""
    return Path(uri.removeprefix("sqlite:///"))


def weaken(pragmas: Path) -> None:
    """Run the statements of a file, if there is one, on each connection of the package in this process."""
    if not pragmas.exists():
        return
    statements, configure = pragmas.read_text(), store.configure

    def weakened(connection: sqlite3.Connection) -> None:
        configure(connection)
        connection.executescript(statements)

    store.configure = weakened


@contextmanager
def connected(desk: Desk) -> Iterator[sqlite3.Connection]:
    """Yield a connection beside those of the package."""
    with closing(sqlite3.connect(path_of(desk.uri), timeout=5.0, isolation_level=None)) as connection:
        if (desk.folder / PRAGMAS).exists():
            connection.executescript((desk.folder / PRAGMAS).read_text())
        yield connection


class FileSender(Sender):
    """A sender that also sends delayed messages and payloads in files, and whose transactions use `sqlite3`."""

    ways: ClassVar[tuple[str, ...]] = ("key", "plain", "many", "parent", "key", "delayed", "payload", "transaction")

    def _send_delayed(self, call: Call) -> None:
        letter = call.letters[0]
        # Beside those without delay it would break their order.
        origin = f"delayed-{call.sender}"
        self.queue.enqueue_message(origin, letter.payload, key=letter.key, not_before=timedelta(seconds=DELAY))

    def _send_payload(self, call: Call) -> None:
        letter = call.letters[0]
        self.queue.payloads.enqueue(call.origin, letter.payload, key=letter.key)

    def _send_transaction(self, call: Call) -> None:
        with connected(self.desk) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO orders VALUES (?, ?)", (call.sender, call.number))
            self.queue.commands(connection).push(call.origin, call.letters[0].payload).execute()
            connection.execute("COMMIT")


class Checkpointer(Workload):
    """Checkpoints in all modes, by a connection beside those of the package."""

    progress = "checkpoint"
    pause = 0.3

    def step(self) -> bool:
        self.action = "checkpoint"
        with connected(self.desk) as connection:
            connection.execute(f"PRAGMA wal_checkpoint({random.choice(MODES)})")
        return True


FILE_ROLES: dict[str, type[Workload]] = {**ROLES, "sender": FileSender, "checkpointer": Checkpointer}
