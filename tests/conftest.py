"""Fixtures for every test: stores on SQLite and on real PostgreSQL servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres_programs import find_bindirs
from tests.postgres_server import Server, Servers

STORES = ["sqlite", *(f"postgres-{label}" for label in find_bindirs())]


@pytest.fixture(scope="session")
def postgres_servers() -> Iterator[Servers]:
    """The servers by label, `embedded` always, `system` where found; each starts when asked for."""
    servers = Servers()
    yield servers
    servers.close()


@pytest.fixture
def postgres_server(postgres_servers: Servers) -> Server:
    """The embedded server, running."""
    return postgres_servers["embedded"]


@pytest.fixture
def pg_uri(postgres_server: Server) -> Iterator[str]:
    """The address of a fresh database on the embedded server."""
    with postgres_server.database() as uri:
        yield uri


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.postgres) if name != "sqlite" else name for name in STORES]
)
def store_uri(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a fresh, empty store, on every database in turn."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'store.db'}"
        return
    # Asked for only now, so that a run on SQLite alone starts no server.
    servers: Servers = request.getfixturevalue("postgres_servers")
    with servers[request.param.removeprefix("postgres-")].database() as uri:
        yield uri
