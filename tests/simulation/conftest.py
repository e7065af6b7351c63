"""Fixtures of simulated runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.postgres_server import Server

from .places import open_stores
from .script import SHARDS
from .world import Stores


@pytest.fixture(scope="session")
def sqlite_stores() -> Iterator[Stores]:
    """Stores in a folder in memory."""
    with open_stores(["sqlite"]) as stores:
        yield stores


@pytest.fixture
def both_stores(postgres_server: Server, tmp_path) -> Iterator[Stores]:
    """Stores of both kinds."""
    with postgres_server.database() as uri:
        yield Stores(tmp_path, [uri])


@pytest.fixture
def sharded_stores(postgres_server: Server, tmp_path) -> Iterator[Stores]:
    """Stores of both kinds for the shards of a sharded queue."""
    with ExitStack() as stack:
        yield Stores(tmp_path, [stack.enter_context(postgres_server.database()) for _ in SHARDS])
