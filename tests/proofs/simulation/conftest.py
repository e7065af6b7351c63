"""Fixtures of simulated runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres_server import Server

from .places import open_stores
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
        yield Stores(tmp_path, uri)
