"""Stores of shards, on each database."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.memory import in_memory
from tests.templates import Templates

#: Make upgraded stores, and return their addresses by name.
MakeStores = Callable[[str], dict[str, str]]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def make_stores(request: pytest.FixtureRequest, templates: Templates) -> Iterator[MakeStores]:
    """Yield a function that makes an upgraded store per character of a text."""
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="mq_shards_", dir=in_memory()) as folder:

        def make(names: str) -> dict[str, str]:
            if request.param == "sqlite":
                for name in names:
                    shutil.copy(templates.sqlite(), Path(folder) / f"{name}.db")
                return {name: f"sqlite:///{folder}/{name}.db" for name in names}
            server = request.getfixturevalue("postgres_server")
            return {name: stack.enter_context(server.database(templates.postgres(server))) for name in names}

        yield make
