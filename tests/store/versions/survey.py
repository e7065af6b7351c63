"""Table of interrupted upgrades for docs/survival.md: `python -m tests.store.versions.survey`."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from airflow_mq import MessageQueue
from airflow_mq.store import parse
from tests.model.clock import SECOND, stopped_clock
from tests.postgres_server import running_postgres

from . import NEWEST, VERSIONS, load
from .interruption import interrupt_everywhere
from .processing import finish


def survey(version: int, uri: str) -> str:
    """Interrupt the upgrade of a store at every statement, process all messages, and return a row of the table."""
    address = parse(uri)
    dump = load(version, address)
    statements = interrupt_everywhere(address)
    with stopped_clock() as clock:
        clock.now = dump.facts["at"] + 7_200 * SECOND
        with MessageQueue(address) as queue:
            violations = len(queue.check())
            processed, expected = Counter(finish(queue, dump)), Counter(dump.expected)
            violations += len(queue.check())
    store = "SQLite" if address.driver == "sqlite" else "PostgreSQL"
    cells = (
        version, store, statements, statements + 1, expected.total() + 1,
        (expected - processed).total(), (processed - expected).total(), violations,
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    with running_postgres("embedded") as server, tempfile.TemporaryDirectory() as folder:
        for version in VERSIONS[: NEWEST - 1]:
            print(survey(version, f"sqlite:///{Path(folder) / f'{version}.db'}"), flush=True)
            with server.database() as uri:
                print(survey(version, uri), flush=True)


if __name__ == "__main__":
    main()
