"""What a Spark job is told: by its command line, its environment, and the provider's hook."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_mq.operators.spark.job_listener import JobListener
from airflow_mq.operators.spark.processes import end_tree
from airflow_mq.processors import Part, Processors
from airflow_mq.spark import job as spark_job

#: The script that spark-submit runs.
JOB = Path(spark_job.__file__)


class MessageSparkHook(SparkSubmitHook):
    """Submits a job whose secrets reach it by its environment, and by nothing that others can read.

    `env_vars` of the provider's hook become `--conf` on some masters, which is a command line that everybody
    on the machine can read, and a page of Spark's UI. What is given here never leaves the environment of
    `spark-submit`, which a driver in client mode inherits.
    """

    #: What the job is told by its environment.
    environment: Mapping[str, str] = {}
    #: Hears what the job prints.
    listener: JobListener | None = None

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(itr if self.listener is None else self.listener.lines(itr))

    def _build_spark_submit_command(self, application: str) -> list[str]:
        command: list[str] = super()._build_spark_submit_command(application)
        self._env: dict[str, Any] | None = {**(getattr(self, "_env", None) or {}), **self.environment}
        return command

    @property
    def returncode(self) -> int | None:
        """How spark-submit ended, if it did."""
        return None if self._submit_sp is None else self._submit_sp.poll()

    def end_job(self) -> None:
        """End spark-submit with all that it started; a driver in Python is a child of the JVM."""
        if self._submit_sp is not None and self._submit_sp.poll() is None:
            end_tree(self._submit_sp.pid)


def job_arguments(
    ring: str, processors: Processors, part: Part, exchange: str | None, lease: float | None
) -> list[str]:
    """The command line of a job: the author's words and numbers, and nothing of any message."""
    said = [
        "--ring", ring, "--routes", processors.routes_json(), "--processors", ",".join(part["processors"]),
        "--part", str(part["part"]), "--parts", str(part["parts"]),
    ]  # fmt: skip
    if exchange:
        said += ["--exchange", exchange]
    if lease is not None:
        said += ["--lease", f"{lease:g}"]
    return said


def resume_keys(token: str) -> tuple[str, str]:
    """Under which keys a block's job on a cluster is remembered: a retry finds it again, another block does not."""
    block = hashlib.sha256(token.encode()).hexdigest()[:16]
    return f"spark_job_id_{block}", f"k8s_driver_status_{block}"


def job_environment(master: str, on_cluster: bool = False) -> dict[str, str]:
    """What `spark-submit` needs of its environment: this Python, its Spark unless there is another, and a Java.

    :param on_cluster: the driver runs elsewhere, where this Python is not
    """
    from airflow_mq.spark.java import spark_environment

    said = spark_environment(loopback=master.startswith("local"))
    if on_cluster:
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
            said.pop(name, None)
    found = shutil.which("spark-submit")
    if "SPARK_HOME" in os.environ or (found and Path(found).parent != Path(sys.executable).parent):
        # Somebody chose a Spark for this machine.
        said.pop("SPARK_HOME", None)
        said.pop("PATH", None)
    return said


def refuse_other_master(hook: SparkSubmitHook, connection: Any, conn_id: str) -> None:
    """The provider falls back to YARN, with a line in the log, when it does not understand a connection."""
    master = hook._connection["master"]
    named = f"{connection.conn_type}://{connection.host or ''}"
    if master == "yarn" and "yarn" not in (connection.host, connection.conn_type):
        raise AirflowFailException(
            f"the Spark connection {conn_id!r} ({named}) is not understood, and would silently become YARN; write it "
            'as JSON: {"conn_type": "spark", "host": "local[*]"}'
        )
    if not connection.host and connection.conn_type == "spark":
        raise AirflowFailException(f"the Spark connection {conn_id!r} names no master; say host, for example local[*]")
