"""Checks of the containers without a container engine: every name in them exists, and their scripts work."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest
import tomllib
import yaml

from tests.postgres_server import Server

REPOSITORY = Path(__file__).parents[3]
DOCKER = REPOSITORY / "docker"
BIN = Path(sys.executable).parent
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


def commands() -> Iterator[list[str]]:
    """Every command that a service runs, one by one."""
    for service in SERVICES.values():
        command = service.get("command", [])
        if command[:2] == ["sh", "-c"]:
            yield from (shlex.split(one) for one in command[2].split("&&"))
        elif command:
            yield command


def test_compose_is_valid_by_the_specification() -> None:
    command = [BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", DOCKER / "compose.yaml"]
    subprocess.run(command, check=True)


def test_the_dockerfile_is_well_made() -> None:
    subprocess.run([BIN / "hadolint", "--failure-threshold", "style", DOCKER / "Dockerfile"], check=True)


def test_what_is_copied_exists() -> None:
    copied = re.findall(r"^COPY (.*) \S+$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    assert len(copied) == 5
    assert [name for line in copied for name in line.split() if not (REPOSITORY / name).exists()] == []


def test_what_the_wheel_contains_is_copied_before_it_is_built() -> None:
    copied = (DOCKER / "Dockerfile").read_text().partition("RUN pip install")[0]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert {name.partition("/")[0] for name in included} == {"dags"}
    assert "COPY dags " in copied


def test_every_image_is_pinned_and_none_runs_as_root() -> None:
    (base,) = re.findall(r"^FROM (\S+)", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    for image in (base, *(service["image"] for service in SERVICES.values())):
        assert re.search(r":\d+\.\d+", image), image
    for name, service in SERVICES.items():
        assert name == "postgres" or service["user"].startswith("50000:")
        assert name == "prepare" or service["healthcheck"]["test"][0] == "CMD"


def test_every_variable_is_in_the_example() -> None:
    wanted = set(re.findall(r"\$\{(\w+)", (DOCKER / "compose.yaml").read_text()))
    said = {line.partition("=")[0] for line in (DOCKER / ".env.example").read_text().splitlines() if line[:1].isalpha()}
    assert wanted == said


def test_what_is_published_is_published_on_loopback() -> None:
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


@pytest.mark.airflow
def test_every_setting_is_one_of_airflows() -> None:
    from airflow.configuration import conf

    names = {name for service in SERVICES.values() for name in service.get("environment", {})}
    settings = [name.removeprefix("AIRFLOW__").lower().split("__") for name in names if name.startswith("AIRFLOW__")]
    assert len(settings) > 8
    known = conf.configuration_description
    assert [one for one in settings if one[1] not in known.get(one[0], {}).get("options", {})] == []


@pytest.mark.airflow
def test_every_command_exists() -> None:
    from airflow.cli import cli_parser

    seen = set()
    for program, *arguments in commands():
        assert (BIN / program).exists(), program
        if program == "airflow":
            namespace = cli_parser.get_parser().parse_args(arguments)
            assert namespace.subcommand
        else:
            assert program == "spark-class"
            assert arguments[0] in spark_classes()
        seen.add(program)
    assert seen == {"airflow", "spark-class"}


def spark_classes() -> set[str]:
    import pyspark

    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-core_*.jar")
    with zipfile.ZipFile(jar) as file:
        return {name.removesuffix(".class").replace("/", ".") for name in file.namelist()}


def test_the_entry_point_leaves_no_password_in_the_environment(tmp_path: Path) -> None:
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "AIRFLOW_ADMIN_PASSWORD": 'qu"ote'}
    environment.pop("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE", None)
    environment["PATH"] = f"{BIN}:{environment['PATH']}"
    done = subprocess.run(
        ["sh", DOCKER / "entrypoint.sh", "env"], env=environment, capture_output=True, text=True, check=True
    )
    assert "ADMIN_PASSWORD" not in done.stdout
    file = tmp_path / "passwords.json"
    assert json.loads(file.read_text()) == {"admin": 'qu"ote'}
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.fixture
def api() -> Iterator[str]:
    """The address of something that answers as Airflow's health check does."""

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"scheduler": {"status": "healthy"}, "triggerer": {"status": null}}')

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Health) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.parametrize(("asked", "code"), [("scheduler", 0), ("triggerer", 1), ("URL", 0), ("dead", 1)])
def test_the_health_check_returns_the_state(api: str, asked: str, code: int) -> None:
    words = {"URL": [api], "dead": ["http://127.0.0.1:1/"]}.get(asked, [asked, api])
    done = subprocess.run(
        [sys.executable, DOCKER / "health.py", *words],
        env={**os.environ, "no_proxy": "*"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == code


@pytest.mark.postgres
def test_the_databases_are_made(postgres_server: Server) -> None:
    # In a server that others use: what the script makes goes again.
    environment = {
        **os.environ, "PATH": f"{postgres_server.bindir}:{os.environ['PATH']}",
        "PGHOST": "127.0.0.1", "PGPORT": str(postgres_server.port), "PGPASSWORD": postgres_server.password,
        "POSTGRES_USER": "mq", "POSTGRES_DB": "postgres",
        "AIRFLOW_DB_PASSWORD": "it's", "QUEUE_DB_PASSWORD": 'qu"ote',
    }  # fmt: skip
    try:
        subprocess.run(["sh", DOCKER / "databases.sh"], env=environment, check=True, capture_output=True)
        for user, password in (("airflow", "it's"), ("queue", 'qu"ote')):
            where = {"host": "127.0.0.1", "port": postgres_server.port, "dbname": user}
            with psycopg.connect(user=user, password=password, **where) as connection:
                connection.execute("CREATE SCHEMA mine")
    finally:
        with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
            for name in (b"airflow", b"queue"):
                connection.execute(b"DROP DATABASE IF EXISTS %s" % name)
                connection.execute(b"DROP USER IF EXISTS %s" % name)
