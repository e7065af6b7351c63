"""Airflow's API server in this process, with the page's API on it, users of every role, and stores of every kind."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mq import MessageQueue, RingConfig, Weight
from airflow_mq.engine.store import parse, upgrade
from tests.airflow.conftest import connection_of

ROLES = ("admin", "op", "user", "viewer")
SECRET = "hunter2-canary"
#: A payload that runs as a script if a page shows it as HTML.
SCRIPT = "<script>alert('pwned')</script><img src=x onerror=alert(1)>"
FORMULA = "=cmd|'/bin/sh'!A1"


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """The server, and a store that has something of everything."""
    folder = tmp_path_factory.mktemp("page")
    uri = f"sqlite:///{folder / 'store.db'}"
    fill(uri)
    passwords = folder / "passwords.json"
    passwords.write_text(json.dumps({name: name for name in ROLES}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", ",".join(f"{name}:{name}" for name in ROLES))
        patch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE", str(passwords))
        patch.setenv(
            "AIRFLOW__API_AUTH__JWT_SECRET", "a secret for one test run, long enough for its hash function: 64 bytes!"
        )
        patch.setenv("AIRFLOW_CONN_MQ_PAGE", connection_of(uri))
        for name, said in others(folder, uri).items():
            patch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(said))
        yield SimpleNamespace(uri=uri, folder=folder, **serve())


def serve() -> dict[str, Any]:
    """Airflow's application, and what each role signs in with."""
    from airflow.api_fastapi.app import create_app
    from airflow.models import Connection
    from airflow.utils.db import initdb
    from airflow.utils.session import create_session
    from fastapi.testclient import TestClient

    initdb()
    with create_session() as session:
        if not session.query(Connection).filter_by(conn_id="mq_stored").count():
            session.add(Connection(conn_id="mq_stored", conn_type="airflow_mq", extra='{"path": "/nowhere/store.db"}'))
            session.add(Connection(conn_id="another_kind", conn_type="postgres", host="db", password=SECRET))
    # Return faults as responses, as a browser sees them.
    client = TestClient(create_app(apps="core"), base_url="http://airflow.test", raise_server_exceptions=False)
    tokens = {}
    for name in ROLES:
        answer = client.post("/auth/token", json={"username": name, "password": name})
        tokens[name] = answer.json()["access_token"]
    client.cookies.clear()
    return {"client": client, "tokens": tokens}


def others(folder: Path, uri: str) -> dict[str, Any]:
    """Connections at which something is wrong."""
    source = parse(uri).path
    assert source is not None
    found: dict[str, Any] = {
        "mq_unreachable": {
            "conn_type": "airflow_mq", "host": "127.0.0.1", "port": 1, "login": "someone", "password": SECRET,
            "schema": "db",
        },
        "mq_driver": {"conn_type": "airflow_mq", "password": SECRET, "extra": {"driver": "mysql"}},
        "mq_folder": {"conn_type": "airflow_mq", "extra": {"path": str(folder)}},
    }  # fmt: skip
    for name, change in {
        "mq_older": "UPDATE mq_migration SET version = 0",
        "mq_newer": "UPDATE mq_migration SET version = 999",
        "mq_broken": "UPDATE mq_ring SET config = '{'",
    }.items():
        path = folder / f"{name}.db"
        shutil.copy(source, path)
        with sqlite3.connect(path) as connection:
            connection.execute(change)
        connection.close()
        found[name] = {"conn_type": "airflow_mq", "extra": {"path": str(path)}}
    garbage = folder / "garbage.db"
    garbage.write_bytes(b"no database at all " * 500)
    found["mq_garbage"] = {"conn_type": "airflow_mq", "extra": {"path": str(garbage)}}
    return found


def fill(uri: str) -> None:
    """Something of everything: waiting, high, in flight, set aside, paused, gone, and names that mean harm."""
    from airflow_mq import Message

    upgrade(parse(uri))
    with MessageQueue(uri) as first:
        first.admin.create_ring("full", RingConfig(service_weight=Weight(10_000, 100_000), high=True))
        first.admin.create_ring("empty", RingConfig())
    with MessageQueue(uri, "full", actor=SCRIPT) as queue:
        queue.enqueue_messages("loud/orders", (b'{"order": %d}' % number for number in range(500)))
        queue.enqueue_message(SCRIPT, SCRIPT.encode(), headers={"authorization": SECRET, "content-type": SCRIPT})
        queue.enqueue_messages(FORMULA, [b"a"], headers={"x": "tests.airflow.functions:process"})
        queue.enqueue_messages("odd/json", ODD)
        queue.enqueue_message("urgent", b"\x00\xff", priority="high")
        queue.enqueue_messages("archive", [Message(b"x" * 5_000, weight=Weight(90_000, 5_000))] * 3)
        queue.enqueue_messages(f"{FORMULA}/archive", [Message(b"x", weight=Weight(90_000, 1))])
        for _ in range(2):
            block = queue.blocks.plan("here:orders/scheduled__2026/plan", limit=Weight(10_000, 2_000))
            queue.blocks.report(block, [batch.answer() for batch in block.batches()])
            queue.blocks.settle(block)
        queue.enqueue_messages("loud/orders", [b"later"] * 200)
        queue.enqueue_messages(SCRIPT, [SCRIPT.encode()])
        queue.enqueue_messages("odd/json", ODD)
        queue.admin.pause("quiet", SCRIPT)
        queue.blocks.plan("here:orders/manual__<b>/plan", limit=Weight(10_000, 200), lease=86_400)


#: Payloads that are almost JSON, or JSON that cannot be encoded again.
ODD = [
    b"NaN", b"[1e999]", b'"\\ud800"', b"[" * 3_000 + b"]" * 3_000, b"[" * 400 + b"]" * 400, b"9" * 5_000, b'{"a": 1, "a": 2}', b"\xff\xfe",
    "\U0001f600".encode() * 1_500, b"{}", b"null",
]  # fmt: skip


@pytest.fixture
def ask(page: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Send a request as a user of this role, with a bearer token: ask("admin", "GET", "/me")."""
    from airflow_mq.api import counting, queues, ring

    # However slow the machine, and however soon after the last look: everything is counted.
    for module, name, value in (
        (ring, "WAIT", 60),
        (queues, "WAIT", 60),
        (counting, "LEAST", 0),
        (counting, "PART", 0),
    ):
        monkeypatch.setattr(module, name, value)

    def asked(role: str | None, method: str, path: str, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {page.tokens[role]}"} if role else {}
        headers |= more.pop("headers", {})
        page.client.cookies.clear()
        return page.client.request(method, f"/airflow-mq{path}", headers=headers, follow_redirects=False, **more)

    return asked


@pytest.fixture
def ring(page: SimpleNamespace, request: pytest.FixtureRequest) -> Iterator[MessageQueue]:
    """A ring of this test's own, in the same store."""
    name = "r" + str(abs(hash(request.node.nodeid)))[:12]
    with MessageQueue(page.uri) as first:
        first.admin.create_ring(name, RingConfig(service_weight=Weight(1_000, 1_000)))
    with MessageQueue(page.uri, name) as queue:
        yield queue
        assert queue.check() == []


assert os.environ["AIRFLOW_HOME"], "set before anything imports Airflow"
