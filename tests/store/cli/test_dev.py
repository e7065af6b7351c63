"""`airflow-mq dev`, as far as no Airflow is started; tests/live/test_first_steps.py starts one."""

from __future__ import annotations

import fcntl
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_mq.cli import dev
from airflow_mq.engine.store import parse
from airflow_mq.testing.live import LiveAirflow
from airflow_mq.testing.loopback import is_free
from tests.store.cli.conftest import Terminal

pytestmark = pytest.mark.airflow


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dags").mkdir()
    return tmp_path


def test_a_missing_dags_folder_is_an_error_with_the_command_that_makes_it(mq: Terminal, place: Path) -> None:
    said = mq("dev", "--dags", "my dags", code=2)

    assert "no DAGs folder ('my dags')" in said.err and "mkdir 'my dags'" in said.err
    assert not (place / dev.HOME).exists()


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http", "٣٣٣٣", "1" * 5_000])
def test_a_port_is_a_number(mq: Terminal, place: Path, port: str) -> None:
    assert "expected a number from 1 to 65535" in mq("dev", f"--port={port}", code=2).err


def test_a_taken_port_is_refused(mq: Terminal, place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
        assert not is_free(number)
        assert f"port is taken (--port {number})" in mq("dev", "--port", str(number), code=2).err


def test_a_second_one_in_a_folder_is_refused(mq: Terminal, place: Path) -> None:
    (place / "home").mkdir()
    with (place / "home" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another development Airflow runs in this folder" in mq("dev", "--home", "home", code=2).err


def test_a_home_that_cannot_be_a_folder_is_refused(mq: Terminal, place: Path) -> None:
    (place / "home").write_text("a file")
    for home, why in (("home", "File exists"), ("home/below", "Not a directory")):
        printed = mq("dev", "--home", home, code=2).err
        assert f"--home: '{place / home}' cannot be written: {why}; name another folder" in printed


def test_without_airflow_the_error_names_what_to_install(
    mq: Terminal, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev, "find_spec", lambda name: None)

    assert "pip install 'airflow-mq[airflow,spark]'" in mq("dev", code=2).err


@pytest.mark.empty_store
def test_a_store_without_tables_gets_them_and_another_one_stays_as_it_is(empty: Terminal, place: Path) -> None:
    session = SimpleNamespace(store=empty.uri, conn_id=None, address=lambda: parse(empty.uri))

    for _ in range(2):
        assert dev._store(session, place) == parse(empty.uri)  # type: ignore[arg-type]
    empty("store", "version")


def test_the_connection_leads_to_the_store(store_uri: str) -> None:
    from airflow.models import Connection

    from airflow_mq.connections import target_of

    for uri in (
        store_uri,
        "postgresql://u:p%40ss@db:7/queue?schema=other&sslmode=require&connect_timeout=3&origins=acme&priority=regular",
    ):
        address = parse(uri)
        assert target_of(Connection(**dev.connection_of(address))).address == address


def test_a_folder_keeps_its_password_and_its_keys(place: Path) -> None:
    """A later start reads what an earlier one stored, for example connections of the form."""
    first, second = (LiveAirflow(place / "home", place / "dags") for _ in range(2))

    assert first.login == second.login
    assert first._home.settings()["core.fernet_key"] == second._home.settings()["core.fernet_key"]
    assert (place / "home" / "secrets.json").stat().st_mode & 0o777 == 0o600
    assert LiveAirflow(place / "other", place / "dags").login != first.login
