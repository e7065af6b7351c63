"""A Kafka broker for tests: fetched once into the user's cache, checked, and started on loopback.

The jars come from Maven Central, or from where `MAVEN_REPOSITORY`, or a mirror of it in Maven's own settings;
those in Maven's local repository are taken from there. Its Java is the one that Spark runs on.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import socket
import subprocess
import time
import urllib.request
import uuid
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from airflow_mq.spark.java import cache_folder, java_home
from airflow_mq.testing.loopback import free_port

VERSION = "4.1.0"
JARS = dict(line.split() for line in Path(__file__).with_name(f"kafka-{VERSION}.txt").read_text().splitlines())
CENTRAL = "https://repo.maven.apache.org/maven2"
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""


def jars() -> list[Path]:
    """The broker's jars, each with the checksum that it had when they were chosen."""
    folder = cache_folder() / f"kafka-{VERSION}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda entry: _jar(folder, *entry), JARS.items()))


def _jar(folder: Path, path: str, checksum: str) -> Path:
    jar = folder / path.rpartition("/")[2]
    if jar.exists() and _sum(jar.read_bytes()) == checksum:
        return jar
    data = _local(path) or _fetched(f"{_repository()}/{path}")
    if _sum(data) != checksum:
        raise RuntimeError(f"{path} has not the checksum that it should have; is the mirror sound?")
    # Written beside it and put in its place at once: other processes fetch at the same time.
    beside = jar.with_suffix(f".{os.getpid()}-{uuid.uuid4().hex}")
    beside.write_bytes(data)
    os.replace(beside, jar)
    return jar


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _local(path: str) -> bytes | None:
    with suppress(OSError):
        return (Path.home() / ".m2" / "repository" / path).read_bytes()
    return None


def _fetched(address: str) -> bytes:
    for attempt in range(4):
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 - a repository that was configured
                data: bytes = answer.read()
                return data
        except OSError:
            if attempt == 3:
                raise
            time.sleep(2**attempt)
    raise AssertionError


def _repository() -> str:
    return (os.environ.get("MAVEN_REPOSITORY") or _mirror() or CENTRAL).rstrip("/")


def _mirror() -> str | None:
    with suppress(OSError, ElementTree.ParseError):
        for mirror in ElementTree.parse(Path.home() / ".m2" / "settings.xml").iter():  # noqa: S314 - the user's own
            if mirror.tag.rpartition("}")[2] == "mirror":
                said = {child.tag.rpartition("}")[2]: (child.text or "").strip() for child in mirror}
                if {"*", "central", "external:*"} & set(said.get("mirrorOf", "").split(",")) and said.get("url"):
                    return said["url"]
    return None


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """A broker of one node, as long as it is needed; where it listens."""
    java = java_home() / "bin" / "java"
    classes = os.pathsep.join(map(str, jars()))
    port, controller = free_port(), free_port()
    settings = folder / "server.properties"
    settings.write_text(SETTINGS.format(port=port, controller=controller, folder=folder))
    # Fixed: a random id may begin with "-", which the tool takes for an option.
    name = base64.urlsafe_b64encode(b"airflow-mq-tests").decode().rstrip("=")
    run = [str(java), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", classes]
    subprocess.run(
        [*run, "kafka.tools.StorageTool", "format", "-t", name, "-c", str(settings)],
        check=True, capture_output=True, cwd=folder, timeout=120,
    )  # fmt: skip
    with open(folder / "broker.log", "wb") as log:
        server = subprocess.Popen([*run, "kafka.Kafka", str(settings)], stdout=log, stderr=log, cwd=folder)
    try:
        _wait_for(server, port, folder)
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        shutil.rmtree(folder / "data", ignore_errors=True)


def _wait_for(server: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    until = time.monotonic() + 90
    while time.monotonic() < until:
        if server.poll() is not None:
            break
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise RuntimeError(f"the broker did not start: {(folder / 'broker.log').read_text()[-2000:]}")
