"""PgBouncer in transaction mode, in front of a server."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from airflow_mq.testing.loopback import free_port
from tests.debian import debian_program, libraries
from tests.postgres_programs import Owner
from tests.postgres_server import USER

PROGRAM = PACKAGE = "pgbouncer"
CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 8
max_client_conn = 200
server_login_retry = 1
ignore_startup_parameters = extra_float_digits,options
"""


class Pooler:
    """A running PgBouncer."""

    def __init__(self, port: int, password: str) -> None:
        self._owner = Owner.choose()
        self._home = self._owner.make_directory("mq-pooler-")
        self.own_port = free_port()
        self._path: Path = self._home / "pgbouncer.ini"
        values = {"port": port, "user": USER, "password": password, "own_port": self.own_port}
        self._path.write_text(CONFIGURATION.format(**values))
        self._owner.give(self._path)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = debian_program(PROGRAM, PACKAGE)
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._owner.reading(str(program), str(self._path)),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **libraries(program)},
            )  # fmt: skip

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._home, ignore_errors=True)
