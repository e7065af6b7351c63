"""The command line in this process, on a store of its own, on every database in turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_mq import MessageQueue
from airflow_mq.cli import main


@dataclass
class Said:
    """What a call printed, and how it ended."""

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
    """Runs commands on one store, and insists on success unless told what else to expect; `None` is any end."""

    def __init__(self, capsys: pytest.CaptureFixture[str], uri: str) -> None:
        self.capsys, self.uri = capsys, uri

    def __call__(self, *words: str, code: int | None = 0) -> Said:
        self.capsys.readouterr()
        found = main(words)
        out, err = self.capsys.readouterr()
        assert code in (None, found), f"{words} ended with {found}\n{out}{err}"
        assert "Traceback" not in out + err
        return Said(found, out, err)

    def json(self, *words: str, code: int = 0) -> Any:
        return self(*words, "--json", code=code).json


@pytest.fixture
def empty(store_uri: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A store without tables."""
    monkeypatch.setenv("AIRFLOW_MQ_STORE", store_uri)
    return Terminal(capsys, store_uri)


@pytest.fixture
def mq(empty: Terminal) -> Terminal:
    """A store with tables, and nothing in it."""
    empty("db", "upgrade", "--quiet")
    return empty


@pytest.fixture
def queue(mq: Terminal) -> Iterator[MessageQueue]:
    """The same store, from Python."""
    with MessageQueue(mq.uri) as queue:
        yield queue
