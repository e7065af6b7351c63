"""Examples of other languages: each sends by SQL to a real server, as a role that holds a sender's grant alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.store import StoreAddress
from airflow_mq.engine.store.roles import grant
from airflow_mq.spark.java import cache_folder
from tests.maven import fetch_jar
from tests.store.test_roles import Roles, owner, roles

__all__ = ["owner", "roles"]
pytestmark = [pytest.mark.postgres, pytest.mark.slow]

HERE = Path(__file__).parent
DOCS = HERE.parents[2] / "docs" / "sending.md"
DRIVER = "org/postgresql/postgresql/42.7.7/postgresql-42.7.7.jar"
DRIVER_CHECKSUM = "157963d60ae66d607e09466e8c0cdf8087e9cb20d0159899ffca96bca2528460"


def program(name: str) -> str:
    """Return the path of a program, or skip the test."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def psql(folder: Path) -> list[str]:
    return [program("psql"), "--no-psqlrc", "--file", str(HERE / "send.sql")]


def java(folder: Path) -> list[str]:
    jar = fetch_jar(cache_folder(), DRIVER, DRIVER_CHECKSUM)
    program("javac")
    return [program("java"), "-cp", str(jar), str(HERE / "Send.java")]


def go(folder: Path) -> list[str]:
    for name in ("send.go", "go.mod", "go.sum"):
        shutil.copy(HERE / name, folder)
    # The first time, this fetches modules and compiles a part of Go's library.
    build = [program("go"), "build", "-mod=readonly", "-o", "send", "."]
    done = subprocess.run(build, cwd=folder, capture_output=True, text=True, timeout=1000)
    assert done.returncode == 0, done.stderr
    return [str(folder / "send")]


def node(folder: Path) -> list[str]:
    for name in ("send.mjs", "package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder)
    install = [program("npm"), "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=5"]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return [program("node"), "send.mjs"]


@pytest.mark.parametrize("example", [psql, java, go, node], ids=lambda example: example.__name__)
def test_an_example_sends(
    example: Callable[[Path], list[str]], owner: StoreAddress, roles: Roles, tmp_path: Path
) -> None:
    user = roles("sender")
    grant(owner, "sender", str(user.user), origins="acme")
    place = {
        "PGHOST": user.host, "PGPORT": user.port, "PGUSER": user.user, "PGPASSWORD": user.password,
        "PGDATABASE": user.database,
    }  # fmt: skip
    done = subprocess.run(
        example(tmp_path),
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
        env={**os.environ, **{name: str(value) for name, value in place.items()}},
    )  # fmt: skip
    assert done.stdout.split() == ["1", "2", "MQ105"], done.stderr
    with MessageQueue(owner.uri) as queue:
        sent = [message.payload for message in queue.inspect.peek("acme", limit=10)]
        assert sent == [b"order 17", b"order 18", b"order 19"]
        assert queue.check() == []


def test_the_documentation_links_each_example() -> None:
    for name in ("send.sql", "Send.java", "send.go", "send.mjs"):
        assert f"tests/store/sending/{name}" in DOCS.read_text("utf-8")
