"""Stores for tests that kill clients, not machines: nothing here has to reach a disk, so nothing waits for one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres_server import Server, running_postgres

MEMORY = Path("/dev/shm")


@pytest.fixture(scope="session")
def hasty_server() -> Iterator[Server]:
    """A server that does not wait for its disk."""
    with running_postgres("embedded", {"fsync": "off"}) as server:
        yield server


@pytest.fixture
def hasty_file() -> Iterator[str]:
    """The address of a file that is kept in memory, where the machine has such a place."""
    usable = MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    with tempfile.TemporaryDirectory(prefix="mq_crash_", dir=MEMORY if usable else None) as folder:
        yield f"sqlite:///{Path(folder) / 'store.db'}"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store_uri(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a fresh, empty store, on each kind of database."""
    if request.param == "sqlite":
        yield request.getfixturevalue("hasty_file")
        return
    server: Server = request.getfixturevalue("hasty_server")
    with server.database() as uri:
        yield uri
