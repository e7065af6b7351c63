"""A queue on every store in turn, and programs that die at a given point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.store import parse, upgrade


@pytest.fixture
def queue(store_uri: str) -> Iterator[MessageQueue]:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        yield queue
        assert queue.check() == []


@pytest.fixture
def quick(sqlite_uri: str) -> Iterator[MessageQueue]:
    """A queue for what does not depend on the store."""
    upgrade(parse(sqlite_uri))
    with MessageQueue(sqlite_uri) as queue:
        yield queue
        assert queue.check() == []


def die_in(program: str, environment: Mapping[str, str]) -> None:
    """Run a program that kills itself, and see to it that it did."""
    root = str(Path(__file__).parents[3])
    known = {**os.environ, "PYTHONPATH": root, **environment}
    done = subprocess.run([sys.executable, "-c", program], env=known, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def contents(queue: MessageQueue) -> dict[str, list[bytes]]:
    """Return the messages of each origin, in order."""
    return {
        origin: [peeked.payload for peeked in queue.inspect.peek(origin, limit=10_000)]
        for origin, _ in queue.footprints()
    }
