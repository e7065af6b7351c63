"""A real Airflow for these tests, on each kind of metadata: started once in each test process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_mq.testing.live import LiveAirflow
from tests.postgres_server import Servers

DAGS = Path(__file__).parent / "dags"
Starter = Callable[..., LiveAirflow]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder is slow, needs Airflow, and runs in one process, because starting Airflow takes long."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.airflow)
            item.add_marker(pytest.mark.xdist_group("live"))


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory, postgres_servers: Servers) -> Iterator[Starter]:
    """Starts an Airflow on `sqlite` or `postgres` metadata, to be stopped when all is done."""
    with contextlib.ExitStack() as stack:

        def start(metadata: str, dags: Path = DAGS, **more: Any) -> LiveAirflow:
            home = tmp_path_factory.mktemp(f"airflow-{metadata}")
            if metadata == "postgres":
                metadata = stack.enter_context(postgres_servers["embedded"].database())
            return stack.enter_context(LiveAirflow(home, dags, metadata=metadata, **more))

        yield start
