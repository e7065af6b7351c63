"""Hook that submits a block's job: its command line, its environment, its master, and a processor's options."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_mq.engine.rules.errors import InvalidInput
from airflow_mq.operators.spark.job_listener import JobListener
from airflow_mq.operators.spark.processes import end_tree
from airflow_mq.processors import Part, Processor, Processors
from airflow_mq.spark import job as spark_job

if TYPE_CHECKING:
    from airflow.sdk import Connection

#: The script that spark-submit runs.
JOB = Path(spark_job.__file__)
#: Arguments of the provider's hook that a processor cannot set: they name the job or the connection.
_OF_THE_JOB = ("conn_id", "application_args", "java_class", "yarn_rm_auth")
#: The options that a processor may set, as `SparkSubmitOperator` names them.
OPTIONS = tuple(name for name in signature(SparkSubmitHook).parameters if name not in _OF_THE_JOB)
#: Options that add to the task's, key by key, instead of replacing them.
ADDED = ("conf", "env_vars")


class MessageSparkHook(SparkSubmitHook):
    """Hook that passes secrets to a job by the environment alone.

    On some masters the provider's hook turns `env_vars` into `--conf`: every user of the machine can read them in the
    process list, and Spark's UI shows them. `secrets` stay in the environment of `spark-submit`, which a driver in
    client mode inherits.

    :param secrets: environment of the job that no other process may read
    :param trace: environment of the job that carries its trace
    :param listener: reads the job's output
    :param small: whether the job is expected to take seconds
    :param arguments: the arguments of `SparkSubmitHook`
    """

    def __init__(
        self, *, secrets: Mapping[str, str], trace: Mapping[str, str], listener: JobListener | None, small: bool,
        **arguments: Any,
    ) -> None:  # fmt: skip
        try:
            super().__init__(**arguments)
        except NameError:
            # Without that package, the provider checks a name that it has not defined.
            raise AirflowFailException(
                f"the Spark connection {arguments.get('conn_id')!r} names Kubernetes: run pip install "
                "'airflow-mq[kubernetes]' where tasks run"
            ) from None
        self.listener = listener
        self.environment = {**job_environment(self.master, self.is_cluster), **trace, **secrets}
        if self.is_cluster and trace and (self._is_kubernetes or self._is_yarn):
            # A trace is no secret.
            self._env_vars: dict[str, Any] | None = {**(self._env_vars or {}), **trace}
        if self.master.startswith("local"):
            from airflow_mq.spark.java import local_conf

            self._conf: dict[str, Any] = {**local_conf(small=small), **(self._conf or {})}

    @property
    def master(self) -> str:
        """The master that the Spark connection resolves to."""
        return str(self._connection["master"])

    @property
    def is_cluster(self) -> bool:
        """Whether the driver runs on the cluster."""
        return bool(self._connection["deploy_mode"] == "cluster")

    @property
    def returncode(self) -> int | None:
        """Exit code of spark-submit, if it has ended."""
        return None if self._submit_sp is None else self._submit_sp.poll()

    def end_job(self) -> None:
        """End spark-submit and its descendants: a Python driver is a child of the JVM."""
        if self._submit_sp is not None and self._submit_sp.poll() is None:
            end_tree(self._submit_sp.pid)

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        try:
            # Python workers may print any bytes.
            driver: str | None = super().submit(application, errors="replace", **kwargs)
        except BaseException:
            # A driver in client mode would renew the lease while a retry runs; one on the cluster is found again.
            if not self.is_cluster:
                self.end_job()
            raise
        return driver

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(itr if self.listener is None else self.listener.lines(itr))

    def _build_spark_submit_command(self, application: str) -> list[str]:
        command: list[str] = super()._build_spark_submit_command(application)
        self._env: dict[str, Any] | None = {**(getattr(self, "_env", None) or {}), **self.environment}
        return command


def job_arguments(
    ring: str, processors: Processors, part: Part, exchange: str | None, lease: float | None
) -> list[str]:
    """Return the command line of a job: the author's rules and numbers, and nothing of any message."""
    words = [
        "--ring", ring, "--routes", processors.routes_json(), "--processors", ",".join(part["processors"]),
        "--part", str(part["part"]), "--parts", str(part["parts"]),
    ]  # fmt: skip
    if exchange:
        words += ["--exchange", exchange]
    if lease is not None:
        words += ["--lease", f"{lease:g}"]
    return words


def resume_keys(token: str) -> tuple[str, str]:
    """Return the keys under which a block's job on a cluster is stored: a retry finds it, another block does not."""
    block = hashlib.sha256(token.encode()).hexdigest()[:16]
    return f"spark_job_id_{block}", f"k8s_driver_status_{block}"


def job_environment(master: str, on_cluster: bool = False) -> dict[str, str]:
    """Return the environment that `spark-submit` needs: this Python, its Spark unless there is another, and a Java.

    :param on_cluster: whether the driver runs on the cluster, where this Python is not
    """
    from airflow_mq.spark.java import spark_environment

    added = spark_environment(loopback=master.startswith("local"))
    if on_cluster:
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
            added.pop(name, None)
    submit = shutil.which("spark-submit")
    if "SPARK_HOME" in os.environ or (submit and Path(submit).parent != Path(sys.executable).parent):
        # This machine has a Spark of its own.
        added.pop("SPARK_HOME", None)
        added.pop("PATH", None)
    return added


def refuse_other_master(master: str, connection: Connection, conn_id: str) -> None:
    """Fail for a connection that the provider does not understand, and would take for YARN with a log line only."""
    named = f"{connection.conn_type}://{connection.host or ''}"
    if master == "yarn" and "yarn" not in (connection.host, connection.conn_type):
        raise AirflowFailException(
            f"invalid Spark connection {conn_id!r} ({named}): Spark would silently use YARN; write it as JSON: "
            '{"conn_type": "spark", "host": "local[*]"}'
        )
    if not connection.host and connection.conn_type == "spark":
        raise AirflowFailException(f"the Spark connection {conn_id!r} names no master: set host, such as local[*]")


def spark_options(processor: Processor, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the Spark options of a processor. Raises `InvalidInput` for any that is not one of `OPTIONS`.

    :param given: the options after templates are rendered; the processor's own if left out
    """
    options = processor.spark if given is None else given
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise InvalidInput(
            f"unknown Spark option {unknown[0]!r} of processor {processor.name!r}: expected one of {', '.join(OPTIONS)}"
        )
    return dict(options)


def merged(arguments: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a task's hook with a processor's options in place."""
    result = {**arguments, **options}
    for name in ADDED:
        if name in options:
            result[name] = {**(arguments.get(name) or {}), **options[name]}
    return result
