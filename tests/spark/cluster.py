"""Spark cluster on this machine: a master and two workers, started as the pip package has them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from airflow_mq.spark.java import spark_environment
from airflow_mq.testing.loopback import free_port
from tests.spark.conftest import ROOT
from tests.waiting import eventually

#: Addresses of the workers, all of them loopback.
HOSTS = ("127.0.0.1", "127.0.0.2")


class Cluster:
    """A master and its workers, each in a process group of its own and on an address of its own.

    :param environment: further variables for the executors
    :param hosts: addresses of the workers
    """

    def __init__(
        self, folder: Path, environment: Mapping[str, str] | None = None, hosts: Sequence[str] = HOSTS
    ) -> None:
        self.folder = folder
        self.port, self.ui = free_port(), free_port()
        self.master = f"spark://127.0.0.1:{self.port}"
        # The executors find what tests need, and write what they tried where the driver expects it.
        plain = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_MQ_")}
        self.environment = {
            **plain, **spark_environment(), "PYTHONPATH": str(ROOT), "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "AIRFLOW_MQ_TEST_TRIED": str(folder / "tried"), **(environment or {}),
        }  # fmt: skip
        (folder / "tried").mkdir()
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            self._start(
                "master", "master.Master", "--host", HOSTS[0], "--port", str(self.port), "--webui-port", str(self.ui)
            )
            eventually(lambda: self.status().get("status") == "ALIVE", 180)
            # Spark starts a speculative attempt on another host only.
            for name, host in [(f"worker-{number}", host) for number, host in enumerate(hosts, 1)]:
                self._start(
                    name, "worker.Worker", "--host", host, "--port", "0", "--webui-port", str(free_port()),
                    "--cores", "1", "--memory", "700m", "--work-dir", str(folder / name), self.master,
                )  # fmt: skip
            eventually(lambda: self.status().get("aliveworkers") == len(hosts), 180)
        except BaseException:
            self.close()
            raise

    def _start(self, name: str, kind: str, *arguments: str) -> None:
        program = Path(self.environment["SPARK_HOME"], "bin", "spark-class")
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes.append(subprocess.Popen(
                [program, f"org.apache.spark.deploy.{kind}", *arguments],
                env=self.environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            ))  # fmt: skip

    def status(self) -> dict[str, Any]:
        """Return the master's state, or nothing while it starts: its first answers on any address are a page in HTML."""
        with (
            suppress(OSError, ValueError),
            urllib.request.urlopen(f"http://127.0.0.1:{self.ui}/json/", timeout=5) as page,
        ):
            said: dict[str, Any] = json.loads(page.read())
            return said
        return {}

    def workers(self) -> list[psutil.Process]:
        """The Python processes of its executors in which messages are tried."""
        found = []
        for process in self.processes[1:]:
            for child in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    above = child.parent()
                    if above and all("pyspark.daemon" in " ".join(one.cmdline()) for one in (child, above)):
                        found.append(child)
        return found

    def close(self) -> None:
        """End everything that was started."""
        family = []
        for process in self.processes:
            with suppress(psutil.Error):
                family += [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for process in reversed(self.processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        _, left = psutil.wait_procs(family, timeout=10)
        for one in left:
            with suppress(psutil.Error):
                one.kill()
        for process in self.processes:
            process.wait(60)
