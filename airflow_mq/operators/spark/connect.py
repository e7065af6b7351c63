"""Jobs on a Spark Connect server: the task starts a client, which is Python alone, and no JVM.

A Spark connection names a server in one of two ways: its type is the provider's `spark_connect`, or its host begins
with `sc://`. As for the provider's `SparkConnectHook`, login is the user's id, password the token, and `use_ssl` an
extra. The token is no part of the address, because errors show addresses; it travels in an environment variable.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from logging import Logger
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_mq.operators.spark.job_listener import JobListener
from airflow_mq.operators.spark.processes import end_tree, signal_of
from airflow_mq.spark.cause import LONGEST

if TYPE_CHECKING:
    from airflow.sdk import Connection

#: Variables in which PySpark finds the server and the token.
REMOTE, TOKEN = "SPARK_REMOTE", "SPARK_CONNECT_AUTHENTICATE_TOKEN"
#: Variables that would make PySpark use another server, or none.
OTHERS = ("MASTER", "SPARK_LOCAL_REMOTE", REMOTE, TOKEN)
#: Options of a processor that apply to a server with settings of its own.
USED = ("env_vars", "name")


@dataclass(frozen=True)
class Server:
    """A Spark Connect server, and the token for it."""

    address: str
    token: str | None = field(default=None, repr=False)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a client."""
        return {REMOTE: self.address, **({TOKEN: self.token} if self.token else {})}


def server_of(connection: Connection, conn_id: str) -> Server | None:
    """Return the Spark Connect server that a connection names, or None."""
    host = str(connection.host or "").strip()
    if connection.conn_type not in ("spark_connect", "sc") and not host.startswith("sc://"):
        return None
    place = urlsplit(host if "://" in host else f"sc://{host}")
    extra = place.path.strip("/") or place.query or place.fragment or place.username or place.password
    if place.scheme != "sc" or not place.hostname or extra:
        # The host is not quoted: it may hold a token.
        raise AirflowFailException(
            f"the host of the Spark connection {conn_id!r} is no Spark Connect server: write sc://HOST or HOST and "
            "nothing else there; the port has a field, a token is the password, use_ssl an extra"
        )
    try:
        port = place.port or connection.port
    except ValueError as error:
        raise AirflowFailException(f"the host of the Spark connection {conn_id!r}: {error}") from None
    name = f"[{place.hostname}]" if ":" in place.hostname else place.hostname
    use_ssl = connection.extra_dejson.get("use_ssl")
    settings = {"user_id": connection.login, "use_ssl": None if use_ssl is None else str(use_ssl).strip().lower()}
    words = ";".join(f"{key}={quote(str(value), safe='')}" for key, value in settings.items() if value)
    address = f"sc://{name}:{port}" if port else f"sc://{name}"
    return Server(f"{address}/;{words}" if words else address, connection.password or None)


class ConnectClient:
    """The child process that is a server's client, for one job.

    :param environment: added to this process's own; secrets travel here and nowhere else
    :param log: receives the output, line by line
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Logger) -> None:
        self.command = [sys.executable, *command]
        self.environment = {name: value for name, value in os.environ.items() if name not in OTHERS}
        self.environment.update(environment, PYTHONUNBUFFERED="1")
        self.log = log
        self._process: subprocess.Popen[str] | None = None

    def run(self, listener: JobListener) -> None:
        """Run the client to its end. Raises if its exit code is not 0."""
        token = self.environment.get(TOKEN)
        with subprocess.Popen(  # noqa: S603 - this Python and the author's rules
            self.command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
        ) as self._process:  # fmt: skip
            try:
                lines: Iterable[str] = self._process.stdout or ()
                for line in listener.lines(lines):
                    self.log.info("%s", _without(token, line).rstrip())
                code = self._process.wait()
            finally:
                self.end()
        if code:
            # The job's own lines only: processors may print others, and quote messages.
            cause = _without(token, listener.cause or "")[:LONGEST]
            cause = cause or signal_of(code) or "its output is in the log of the task"
            raise AirflowException(f"the job ended with {code}: {cause}")

    @property
    def returncode(self) -> int | None:
        """Exit code, if the client has ended."""
        return None if self._process is None else self._process.poll()

    def end(self) -> None:
        """End the client and its descendants; it asks the server to stop, and is killed if that takes long."""
        if self._process is not None and self._process.poll() is None:
            end_tree(self._process.pid)


def _without(token: str | None, text: str) -> str:
    return text.replace(token, "***") if token else text
