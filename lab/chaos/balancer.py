"""HAProxy in front of a cluster: one name that follows the server that accepts writes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from airflow_mq.testing.loopback import free_port
from tests.debian import debian_program, libraries

from .cluster import Cluster

# As the documentation of Patroni has it: its REST interface answers /primary with 200 on the leader only.
CONFIGURATION = """
defaults
  mode tcp
  timeout connect 2s
  timeout client 10m
  timeout server 10m
  timeout check 2s
listen primary
  bind 127.0.0.1:{own_port}
  option httpchk OPTIONS /primary
  http-check expect status 200
  default-server inter 1s fall 2 rise 1 on-marked-down shutdown-sessions
"""


class Balancer:
    """A running HAProxy."""

    def __init__(self, cluster: Cluster) -> None:
        self._folder = TemporaryDirectory(prefix="mq-balancer-")
        self.own_port = free_port()
        home = Path(self._folder.name)
        servers = [
            f"  server {node.name} 127.0.0.1:{node.path.own_port} check port {node.asked.own_port}\n"
            for node in cluster.nodes
        ]
        (home / "haproxy.cfg").write_text(CONFIGURATION.format(own_port=self.own_port) + "".join(servers))
        program = debian_program("haproxy", "haproxy")
        with (home / "log").open("wb") as log:
            # In the foreground: -db.
            self._process = subprocess.Popen(
                [str(program), "-db", "-f", str(home / "haproxy.cfg")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **libraries(program)},
            )  # fmt: skip

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()
