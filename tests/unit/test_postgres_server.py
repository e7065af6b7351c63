from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.postgres_programs import find_bindirs
from tests.postgres_server import SETTINGS, Server, Servers, new_database

pytestmark = pytest.mark.postgres


@pytest.fixture(params=list(find_bindirs()))
def server(request: pytest.FixtureRequest, postgres_servers: Servers) -> Server:
    return postgres_servers[request.param]


def tables(uri: str) -> list[str]:
    with psycopg.connect(uri) as connection:
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        return [name for (name,) in rows]


def make_table(uri: str, name: str) -> None:
    with psycopg.connect(uri) as connection:
        connection.execute(f"CREATE TABLE {name} (id int)")


def test_new_databases_are_empty(server: Server) -> None:
    with server.database() as first, server.database() as second:
        make_table(first, "mine")
        assert tables(first) == ["mine"]
        assert tables(second) == []


def test_new_database_copies_its_template(server: Server) -> None:
    with server.database() as original:
        make_table(original, "kept")
        copy = new_database(server, template=original.rpartition("/")[2])
        assert tables(copy) == ["kept"]
        server.drop_database(copy)


def test_restart_keeps_data_and_address(server: Server) -> None:
    with server.database() as uri:
        make_table(uri, "kept")
        server.restart()
        assert tables(uri) == ["kept"]


def test_committed_data_survives_a_kill(server: Server) -> None:
    with server.database() as uri:
        make_table(uri, "kept")
        server.kill()
        assert not server.is_running
        server.start()
        assert tables(uri) == ["kept"]


def test_server_listens_on_loopback_and_is_durable_by_default(server: Server) -> None:
    assert SETTINGS["fsync"] == "on"
    with psycopg.connect(server.dsn) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("off",)
        assert connection.execute("SHOW listen_addresses").fetchone() == ("127.0.0.1",)
        assert connection.info.server_version // 10_000 == server.version


def test_server_runs_its_programs(server: Server) -> None:
    assert server.run("postgres", "--version").stdout.startswith("postgres (PostgreSQL)")


def test_server_refuses_a_wrong_password(server: Server) -> None:
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server.dsn.replace(server.password, "wrong"))


@pytest.mark.slow
@pytest.mark.crash
def test_server_stops_when_its_starter_is_killed() -> None:
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.postgres_server"], cwd=root, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        uri = starter.stdout.readline().strip()
        assert tables(uri) == []
        children = psutil.Process(starter.pid).children(recursive=True)
        starter.kill()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive


def test_store_fixture_yields_an_address(store_uri: str) -> None:
    assert store_uri.startswith(("sqlite:///", "postgresql://"))
