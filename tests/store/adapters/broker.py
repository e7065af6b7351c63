"""A Kafka broker for tests: fetched once into the user's cache, checked, and started on loopback.

Its Java is the one that Spark runs on.
"""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from airflow_mq.spark.java import cache_folder, java_home
from airflow_mq.testing.loopback import free_port
from tests.maven import fetch_jar

VERSION = "4.1.0"
JARS = dict(line.split() for line in Path(__file__).with_name(f"kafka-{VERSION}.txt").read_text().splitlines())
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
        return list(pool.map(lambda entry: fetch_jar(folder, *entry), JARS.items()))


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
    until = time.monotonic() + 300
    while time.monotonic() < until:
        if server.poll() is not None:
            break
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise RuntimeError(f"the broker did not start: {(folder / 'broker.log').read_text()[-2000:]}")
