"""The command line in this process, on a store of its own, on every database in turn."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from airflow_mq import MessageQueue
from airflow_mq.cli import main


@dataclass
class Said:
    """Output and exit code of a call."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Terminal:
    """Runs commands on one store, and insists on success unless another exit code is expected."""

    def __init__(self, capsys: pytest.CaptureFixture[str], uri: str) -> None:
        self.capsys, self.uri = capsys, uri

    def __call__(self, *words: str, code: int = 0) -> Said:
        self.capsys.readouterr()
        found = main(words)
        out, err = self.capsys.readouterr()
        assert found == code, f"{words} ended with {found}\n{out}{err}"
        assert "Traceback" not in out + err
        return Said(found, out, err)

    def json(self, *words: str, code: int = 0) -> Any:
        return self(*words, "--json", code=code).json


@pytest.fixture
def careful_server(request: pytest.FixtureRequest) -> Iterator[None]:
    """The doctor insists that a server waits for its disk, which those of tests do not: this one does for a while."""
    uris = [request.getfixturevalue(name) for name in ("store_uri", "pg_uri") if name in request.fixturenames]
    if not uris or uris[0].startswith("sqlite"):
        yield
        return
    with psycopg.connect(uris[0], autocommit=True) as connection:
        for change, then in (("SET fsync = on", "on"), ("RESET fsync", "off")):
            connection.execute(f"ALTER SYSTEM {change}")
            connection.execute("SELECT pg_reload_conf()")
            while connection.execute("SHOW fsync").fetchone() != (then,):
                time.sleep(0.01)
            if then == "on":
                yield


@pytest.fixture
def empty(store_uri: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A store without tables."""
    monkeypatch.setenv("AIRFLOW_MQ_STORE", store_uri)
    return Terminal(capsys, store_uri)


@pytest.fixture
def mq(empty: Terminal) -> Terminal:
    """A store with tables, and nothing in it."""
    empty("store", "upgrade", "--quiet")
    return empty


@pytest.fixture
def queue(mq: Terminal) -> Iterator[MessageQueue]:
    """A queue on the store of the commands."""
    with MessageQueue(mq.uri) as queue:
        yield queue
