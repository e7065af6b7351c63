"""Stores for runs outside of pytest."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.memory import in_memory
from tests.postgres_server import running_postgres

from .world import Stores


@contextmanager
def open_stores(names: Iterable[str]) -> Iterator[Stores]:
    """Yield stores in a temporary folder; PostgreSQL is started if it is asked for."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mq_simulation_", dir=in_memory()))
        uri = None
        if "postgres" in names:
            server = stack.enter_context(running_postgres("embedded", volatile=True))
            uri = stack.enter_context(server.database())
        yield Stores(Path(folder), uri)
