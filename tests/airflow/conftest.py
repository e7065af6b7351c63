"""A home of its own for Airflow, set before anything imports it."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from airflow_mq.engine.store import parse, upgrade

_HOME = tempfile.mkdtemp(prefix="mq-airflow-home-")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)

os.environ.update(
    AIRFLOW_HOME=_HOME,
    AIRFLOW_VAR_AIRFLOW_MQ_INSTALLATION="here",
    AIRFLOW__CORE__DAGS_FOLDER=f"{_HOME}/dags",
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{_HOME}/airflow.db",
)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def stage_uri(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a store with a schema, on each kind of database."""
    with _store(request, tmp_path, request.param) as uri:
        yield uri


@pytest.fixture
def queue(stage_uri: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The queue of the connection `mq_stage`, on each kind of database."""
    with _staged(stage_uri, monkeypatch) as made:
        yield made


@pytest.fixture
def sqlite_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The queue of the connection `mq_stage`, on SQLite."""
    uri = f"sqlite:///{tmp_path / 'store.db'}"
    upgrade(parse(uri))
    with _staged(uri, monkeypatch) as made:
        yield made


@contextmanager
def _store(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> Iterator[str]:
    uri = f"sqlite:///{tmp_path / 'store.db'}" if kind == "sqlite" else request.getfixturevalue("pg_uri")
    upgrade(parse(uri))
    yield uri


@contextmanager
def _staged(uri: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from airflow_mq import MessageQueue

    monkeypatch.setenv("AIRFLOW_CONN_MQ_STAGE", connection_of(uri))
    with MessageQueue(uri) as made:
        yield made
        assert made.check() == []


def connection_of(uri: str) -> str:
    """An Airflow connection to a store."""
    address = parse(uri)
    if address.path is not None:
        return json.dumps({"conn_type": "airflow_mq", "extra": {"driver": "sqlite", "path": str(address.path)}})
    fields = {"host": address.host, "port": address.port, "login": address.user, "password": address.password}
    return json.dumps(
        {"conn_type": "airflow_mq", **fields, "schema": address.database, "extra": {"driver": "postgresql"}}
    )


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    from tests.airflow.functions import SEEN

    SEEN.clear()
