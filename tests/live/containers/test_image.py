"""The image builds, and the services of its compose file work together; `make soak` runs this file.

It proves that the Dockerfile's steps succeed, that the image has what the services need, and that their commands,
addresses, secrets, rights and health checks fit together. It does not show a container engine, the official base
images, or `depends_on`, restarts and volumes as Docker makes them.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lab.chaos.proxy import FaultyProxy
from tests.live.containers.engine import Buildah, Compose, bridge, wait_for
from tests.postgres_programs import find_bindirs
from tests.postgres_server import Server

pytestmark = [
    pytest.mark.soak, pytest.mark.postgres, pytest.mark.spark,
    pytest.mark.skipif(os.geteuid() != 0, reason="root makes networks and other roots"),
]  # fmt: skip

VARIABLES = {
    **{name: secrets.token_hex(16) for name in ("AIRFLOW_DB_PASSWORD", "QUEUE_DB_PASSWORD", "AIRFLOW_ADMIN_PASSWORD")},
    **{name: secrets.token_hex(32) for name in ("JWT_SECRET", "API_SECRET_KEY", "POSTGRES_PASSWORD")},
    "FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
}
GENERATE = "from airflow_mq.examples.orders import folder, generate; generate(folder())"
WORKERS = ("spark-worker-1", "spark-worker-2")


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Buildah:
    folder = tmp_path_factory.mktemp("image")
    built = Buildah(folder)
    built.build(folder)
    return built


@pytest.fixture
def compose(buildah: Buildah, tmp_path: Path) -> Iterator[Compose]:
    with (
        bridge() as address,
        contextlib.closing(_server()) as server,
        contextlib.closing(FaultyProxy(server.port, (address, 5432))),
    ):
        services = Compose(buildah, tmp_path, VARIABLES)
        try:
            yield services
        finally:
            services.close()


def _server() -> Server:
    """Return a PostgreSQL with the databases of `databases.sh`."""
    server = Server("embedded", find_bindirs()["embedded"])
    server.start()
    environment = {
        **os.environ, **VARIABLES, "PATH": f"{server.bindir}:{os.environ['PATH']}", "POSTGRES_USER": "mq",
        "POSTGRES_DB": "postgres", "PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGPASSWORD": server.password,
    }  # fmt: skip
    subprocess.run(["sh", "docker/databases.sh"], env=environment, check=True, capture_output=True)
    return server


def test_the_services_convert_the_orders(compose: Compose) -> None:
    prepared = compose.start("prepare")
    assert prepared.wait(300) == 0, compose.tail("prepare")
    compose.start("spark-master")
    compose.await_health("spark-master")
    for worker in WORKERS:
        compose.start("spark-worker", worker)
    for name in ("api-server", "scheduler", "dag-processor", "triggerer"):
        compose.start(name)
    for name in ("api-server", "scheduler", "dag-processor", "triggerer"):
        compose.await_health(name)
    for worker in WORKERS:
        compose.await_health("spark-worker", worker)

    # As docker/README.md describes it.
    for command in (("python", "-c", GENERATE), ("airflow", "dags", "unpause", "orders")):
        done = compose.execute("scheduler", *command)
        assert done.returncode == 0, done.stdout + done.stderr
    done = compose.execute("scheduler", "airflow", "dags", "trigger", "orders", "--run-id", "first")
    assert done.returncode == 0, done.stdout + done.stderr
    wait_for(
        lambda: _state(compose) in ("success", "failed"), lambda: f"the run did not end:\n{compose.tail('scheduler')}"
    )
    assert _state(compose) == "success", compose.tail("scheduler")
    status = compose.execute("scheduler", "airflow", "mq", "block", "list")
    assert status.returncode == 0, status.stderr
    assert "orders" in status.stdout

    for name in ("api-server", "scheduler", "spark-master"):
        processes = compose.processes(name)
        assert {(process.uids().real, _rights(process)) for process in processes} == {(50_000, 0)}
        lines = " ".join(word for process in processes for word in process.cmdline())
        assert [variable for variable, secret in VARIABLES.items() if secret in lines] == []


def _rights(process: psutil.Process) -> int:
    """Return the capabilities of a process."""
    (found,) = re.findall(r"^CapEff:\s+(\w+)", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
    return int(found, 16)


def _state(compose: Compose) -> str:
    done = compose.execute("scheduler", "airflow", "dags", "state", "orders", "first")
    return done.stdout.strip().rpartition("\n")[2].partition(",")[0]
