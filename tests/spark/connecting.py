"""A Spark Connect server of this machine's, from the package pyspark: for tests and for what measures it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from airflow_mq.operators.spark.processes import end_tree
from airflow_mq.spark.java import local_conf, spark_environment
from airflow_mq.testing.loopback import free_port

ROOT = Path(__file__).resolve().parents[2]
KIND = "org.apache.spark.sql.connect.service.SparkConnectServer"

#: Becomes a program that ends when this process dies: a killed process cannot clean up after itself.
_BOUND = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 15)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def bound(command: Sequence[str]) -> list[str]:
    """The command of a child that does not outlive us, however we end (on Linux)."""
    return [sys.executable, "-IS", "-c", _BOUND, *command]


@contextmanager
def connect_server(folder: Path, *, small: bool = True, **environment: str) -> Iterator[int]:
    """A server on loopback, by its port; it ends with all its workers when this is left, however it is left.

    :param environment: of the server, such as the token that it requires
    """
    port = free_port()
    conf = {**local_conf(small=small), "spark.connect.grpc.binding.port": str(port),
            "spark.connect.grpc.binding.address": "127.0.0.1"}  # fmt: skip
    said = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    log = folder / "connect.log"
    known: Mapping[str, str] = {
        **os.environ, **spark_environment(), "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", **environment,
    }  # fmt: skip
    with log.open("wb") as stream:
        process = subprocess.Popen(
            bound(["spark-submit", "--master", "local[2]", *said, "--class", KIND, "spark-internal"]),
            env=known, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        until = time.monotonic() + 300
        while not _listens(port):
            if time.monotonic() > until or process.poll() is not None:
                raise RuntimeError(f"the Spark Connect server did not start: {log.read_text()[-5000:]}")
            time.sleep(0.2)
        yield port
    finally:
        end_tree(process.pid, 30)
        process.wait(30)


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
