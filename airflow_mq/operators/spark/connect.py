"""Jobs on a Spark Connect server that is warm: the task starts the client, which is Python alone, and no JVM.

A Spark connection names a server in one of two ways: its type is the provider's `spark_connect`, or its host
begins with `sc://`. Login is the user's id, password the token, and `use_ssl` an extra, as for the provider's
`SparkConnectHook`. Its address is not taken, because it has the token in it, and addresses are what errors
show; a token of ours travels in an environment variable of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_mq.operators.spark.job_listener import JobListener
from airflow_mq.operators.spark.processes import end_tree
from airflow_mq.spark import job as spark_job
from airflow_mq.spark.cause import LONGEST

#: Where PySpark looks for the server, and for the token.
REMOTE, TOKEN = "SPARK_REMOTE", "SPARK_CONNECT_AUTHENTICATE_TOKEN"
#: What would make PySpark take another server, or none.
OTHERS = ("MASTER", "SPARK_LOCAL_REMOTE", REMOTE, TOKEN)
#: What a processor may say to Spark that makes sense for a server somebody else configured.
UNDERSTOOD = ("env_vars", "name")


@dataclass(frozen=True)
class Server:
    """A Spark Connect server, and how it is told who we are."""

    address: str
    token: str | None = field(default=None, repr=False)

    @property
    def environment(self) -> dict[str, str]:
        """What a client of it is told."""
        return {REMOTE: self.address, **({TOKEN: self.token} if self.token else {})}


def server_of(connection: Any, conn_id: str) -> Server | None:
    """The Spark Connect server that a connection names, if it names one."""
    host = str(connection.host or "").strip()
    if connection.conn_type not in ("spark_connect", "sc") and not host.startswith("sc://"):
        return None
    place = urlsplit(host if "://" in host else f"sc://{host}")
    extra = place.path.strip("/") or place.query or place.fragment or place.username or place.password
    if place.scheme != "sc" or not place.hostname or extra:
        # Not shown: it may have a token in it.
        raise AirflowFailException(
            f"the host of the Spark connection {conn_id!r} is no Spark Connect server; write sc://HOST or HOST and "
            "nothing else there: the port has a field, a token is the password, use_ssl an extra"
        )
    try:
        port = place.port or connection.port
    except ValueError as error:
        raise AirflowFailException(f"the host of the Spark connection {conn_id!r}: {error}") from None
    name = f"[{place.hostname}]" if ":" in place.hostname else place.hostname
    said = {"user_id": connection.login, "use_ssl": _flag(connection.extra_dejson.get("use_ssl"))}
    words = ";".join(f"{key}={quote(str(value), safe='')}" for key, value in said.items() if value)
    at = f"sc://{name}:{port}" if port else f"sc://{name}"
    return Server(f"{at}/;{words}" if words else at, connection.password or None)


def _flag(given: Any) -> str | None:
    return None if given is None else str(given).strip().lower()


def not_used(settings: Mapping[str, Any], conf: Mapping[str, Any] | None) -> list[str]:
    """What an author said to spark-submit, and a server that runs already cannot be told."""
    names = {name for name in settings if name not in UNDERSTOOD}
    return sorted(names | ({"conf"} if conf else set()))


class ConnectClient:
    """The child process that is the client of a server, for one job.

    :param environment: added to this process's own; secrets travel here and nowhere else
    :param log: takes its output, line by line
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Any) -> None:
        self.command = [sys.executable, *command]
        self.environment = {name: value for name, value in os.environ.items() if name not in OTHERS}
        self.environment.update(environment, PYTHONUNBUFFERED="1")
        self.log = log
        self._process: subprocess.Popen[str] | None = None

    def run(self, listener: JobListener | None = None) -> None:
        """Run it to its end, with somebody who listens; raises if that is not a good one."""
        token, last = self.environment.get(TOKEN), ""
        with subprocess.Popen(  # noqa: S603 - this Python, and the author's words
            self.command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
        ) as self._process:  # fmt: skip
            try:
                lines: Iterable[str] = self._process.stdout or ()
                for line in lines if listener is None else listener.lines(lines):
                    shown = (line.replace(token, "***") if token else line).rstrip()
                    self.log.info("%s", shown)
                    last = shown if shown.startswith(spark_job.PREFIX) else last
                code = self._process.wait()
            finally:
                self.end()
        if code:
            # Only the job's own word: other lines may be printed by processors, and quote messages.
            why = f"the last that it said: {last[:LONGEST]}" if last else "its output is in the task's log"
            raise AirflowException(f"the job ended with {code}; {why}")

    @property
    def returncode(self) -> int | None:
        """How it ended, if it did."""
        return None if self._process is None else self._process.poll()

    def end(self) -> None:
        """End it with all that it started; it tells the server to stop, and is made to end if that takes long."""
        if self._process is not None and self._process.poll() is None:
            end_tree(self._process.pid)
