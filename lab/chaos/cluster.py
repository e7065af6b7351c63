"""Three servers under Patroni with synchronous replication, and etcd, each in a folder of its own on loopback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import psutil
import yaml

from airflow_mq.testing.loopback import free_port
from tests.debian import debian_program, libraries
from tests.postgres_programs import Owner, reachable_bindir
from tests.postgres_server import SETTINGS, USER, Server

from .proxy import FaultyProxy

PATIENCE = 120.0
#: Seconds after which the lease of a leader that no longer renews it ends: the least that Patroni takes.
LEASE = 20
#: How a client asks for the server that accepts writes.
WRITABLE = "target_session_attrs=read-write"
STATES = ("running", "streaming")
# Waits until the process that started the cluster ends, which closes its end of the pipe, and ends what it listed.
WATCHMAN = """
read -r word
if [ "$word" != end ]; then
  for pid in $(cat "$1/pids"); do kill -KILL "$pid"; done
  for pid in $(head -q -n 1 "$1"/*/data/postmaster.pid); do kill -CONT "$pid"; kill -QUIT "$pid"; done
  sleep 1
fi
rm -rf "$1"
"""


class Node:
    """A server of the cluster with its Patroni, behind proxies that cut it off from etcd and from all others."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name, self._cluster = name, cluster
        self.home = cluster.home / name
        self.home.mkdir()
        cluster.owner.give(self.home)
        self.data_dir = self.home / "data"
        self.port, self.rest = free_port(), free_port()
        #: Ways to the server, to its Patroni, and from there to etcd.
        self.path, self.asked, self.etcd = map(FaultyProxy, (self.port, self.rest, cluster.etcd_port))
        self._file = self.home / "patroni.yml"
        self._file.write_text(yaml.safe_dump(self._configuration()))
        cluster.owner.give(self._file)
        self.patroni: subprocess.Popen[bytes] | None = None

    def _configuration(self) -> dict[str, Any]:
        login = {"username": USER, "password": self._cluster.password}
        return {
            "scope": "mq",
            "name": self.name,
            "restapi": {"listen": f"127.0.0.1:{self.rest}", "connect_address": f"127.0.0.1:{self.asked.own_port}"},
            # Else Patroni would ask etcd for its own address, and go around the proxy.
            "etcd3": {"hosts": [f"127.0.0.1:{self.etcd.own_port}"], "use_proxies": True},
            "bootstrap": {
                "dcs": {
                    "ttl": LEASE,
                    "loop_wait": 2,
                    "retry_timeout": 5,
                    "synchronous_mode": True,
                    # A leader whose server has crashed gives way at once.
                    "primary_start_timeout": 0,
                    "postgresql": {"use_pg_rewind": True, "parameters": {"max_connections": 100}},
                }
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                # The other servers and the clients come through the proxy.
                "connect_address": f"127.0.0.1:{self.path.own_port}",
                "proxy_address": f"127.0.0.1:{self.path.own_port}",
                "data_dir": str(self.data_dir),
                "bin_dir": str(self._cluster.bindir),
                "pgpass": str(self.home / "pgpass"),
                "authentication": {"superuser": login, "replication": login, "rewind": login},
                "basebackup": [{"checkpoint": "fast"}],
                "remove_data_directory_on_diverged_timelines": True,
                "remove_data_directory_on_rewind_failure": True,
                "parameters": {**SETTINGS, "shared_buffers": "32MB", "unix_socket_directories": str(self.home)},
            },
        }

    def start(self) -> None:
        """Start Patroni, which starts the server."""
        with (self.home / "patroni.log").open("ab") as log:
            command = self._cluster.owner.reading(sys.executable, "-m", "patroni", str(self._file))
            self.patroni = self._cluster.spawn(command, log, self.home)

    def server(self) -> list[psutil.Process]:
        """Return the server and its children."""
        with suppress(OSError, IndexError, ValueError, psutil.NoSuchProcess):
            return _family(int((self.data_dir / "postmaster.pid").read_text().split()[0]))
        return []

    def send_signal(self, number: signal.Signals) -> list[psutil.Process]:
        """Send a signal to Patroni, the server and their children."""
        processes = (_family(self.patroni.pid) if self.patroni is not None else []) + self.server()
        return _send(processes, number)

    def kill(self) -> None:
        """Kill Patroni and the server at once, as a power cut would."""
        psutil.wait_procs(self.send_signal(signal.SIGKILL), timeout=PATIENCE)
        if self.patroni is not None:
            self.patroni.wait()

    def kill_server(self) -> None:
        """Kill the server, but not Patroni."""
        psutil.wait_procs(_send(self.server(), signal.SIGKILL), timeout=PATIENCE)

    def cut(self, mode: str) -> None:
        """Cut all bytes from and to other nodes, clients and etcd, or let them pass: `cut` or `pass`."""
        self.path.mode = self.asked.mode = self.etcd.mode = mode

    def ask(self, path: str, **values: str) -> tuple[int, str]:
        """Return the status and the text of an answer of Patroni's REST interface."""
        connection = HTTPConnection("127.0.0.1", self.rest, timeout=PATIENCE if values else 2)
        with closing(connection):
            connection.request("POST" if values else "GET", f"/{path}", json.dumps(values) if values else None)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()


def _family(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def _send(processes: list[psutil.Process], number: signal.Signals) -> list[psutil.Process]:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
    return processes


class Cluster:
    """Servers of which one accepts writes, and each commit waits until another one has it."""

    def __init__(self, original: Server) -> None:
        self.password, self.owner = original.password, Owner.choose()
        self.home = self.owner.make_directory("mq-cluster-")
        self.bindir = reachable_bindir(original.bindir, self.owner, self.home)
        self._watchman = subprocess.Popen(
            ["/bin/sh", "-c", WATCHMAN, "watchman", str(self.home)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
            start_new_session=True,
        )  # fmt: skip
        self.etcd_port = free_port()
        self._etcd = self._start_etcd()
        self.nodes = [Node(self, f"node{number}") for number in (1, 2, 3)]
        # The first node takes over the data of a stopped server; Patroni copies them to the others.
        subprocess.run(["cp", "-a", str(original.data_dir), str(self.nodes[0].data_dir)], check=True)

    def _start_etcd(self) -> subprocess.Popen[bytes]:
        program = debian_program("etcd", "etcd-server")
        own, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{free_port()}"
        command = [
            str(program), "--data-dir", str(self.home / "etcd"), "--name", "etcd",
            "--listen-client-urls", own, "--advertise-client-urls", own, "--listen-peer-urls", peer,
            "--initial-advertise-peer-urls", peer, "--initial-cluster", f"etcd={peer}",
        ]  # fmt: skip
        with (self.home / "etcd.log").open("ab") as log:
            return self.spawn(command, log, self.home, **libraries(program))

    def spawn(self, command: list[str], log: Any, folder: Path, **environment: str) -> subprocess.Popen[bytes]:
        """Start a process that ends with this one."""
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, start_new_session=True,
            env={**os.environ, **environment},
        )  # fmt: skip
        with (self.home / "pids").open("a") as pids:
            pids.write(f"{process.pid}\n")
        return process

    # -- addresses --

    def uri(self, database: str) -> str:
        """Return the documented address: all hosts, and the one that accepts writes is wanted."""
        hosts = ",".join(f"127.0.0.1:{node.path.own_port}" for node in self.nodes)
        return f"postgresql://{USER}:{self.password}@{hosts}/{database}?{WRITABLE}"

    @property
    def dsn(self) -> str:
        return self.uri("postgres")

    # -- life --

    def start(self) -> None:
        self.nodes[0].start()
        self.await_leader()
        for node in self.nodes[1:]:
            node.start()
        self.await_health()

    def members(self) -> dict[str, dict[str, Any]]:
        """Return what Patroni knows of each member, by its name."""
        for node in self.nodes:
            with suppress(OSError, HTTPException):
                return {member["name"]: member for member in json.loads(node.ask("cluster")[1])["members"]}
        return {}

    def leader(self) -> Node | None:
        """Return the node that holds the lease and accepts writes."""
        for node in self.nodes:
            with suppress(OSError, HTTPException):
                if node.ask("primary")[0] == 200:
                    return node
        return None

    def await_leader(self) -> Node:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if (leader := self.leader()) is not None:
                return leader
            time.sleep(0.2)
        raise RuntimeError(f"no server leads: {self.members()}\n{self.log_tail()}")

    def await_health(self) -> None:
        """Wait until all members run and one of them is synchronous."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            members = list(self.members().values())
            roles = sorted(member["role"] for member in members if member["state"] in STATES)
            if roles == ["leader", "replica", "sync_standby"]:
                return
            time.sleep(0.3)
        raise RuntimeError(f"the cluster is not whole: {self.members()}\n{self.log_tail()}")

    def switch_over(self) -> None:
        """Give the lease to the synchronous standby in an orderly way."""
        members = self.members()
        by_role = {member["role"]: member["name"] for member in members.values()}
        answer = self.await_leader().ask("switchover", leader=by_role["leader"], candidate=by_role["sync_standby"])
        if answer[0] != 200:
            raise RuntimeError(f"no switchover: {answer}")

    def log_tail(self) -> str:
        return "\n".join(
            line
            for path in sorted(self.home.glob("*/patroni.log"))
            for line in path.read_text(errors="replace").splitlines()[-12:]
        )

    def close(self) -> None:
        for node in self.nodes:
            node.send_signal(signal.SIGCONT)
            node.kill()
            for proxy in (node.path, node.asked, node.etcd):
                proxy.close()
        self._etcd.kill()
        self._etcd.wait()
        self._watchman.communicate(b"end\n")
        shutil.rmtree(self.home, ignore_errors=True)
