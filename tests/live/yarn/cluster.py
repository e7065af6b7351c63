"""HDFS and YARN on this machine: Hadoop's own daemons, each in a process of its own, on loopback alone.

Hadoop's mini cluster consists of these daemons in one process. Here a node manager can be killed like a machine. All of
them come from the jar of the mini cluster and from the Hadoop client that PySpark brings.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from airflow_mq.spark.java import cache_folder, java_home, spark_home
from airflow_mq.testing.loopback import free_port
from tests.maven import fetch_jar
from tests.waiting import eventually

#: The version of the client in PySpark 4.2.0.
HADOOP = "3.5.0"
JARS = dict(line.split() for line in Path(__file__).with_name(f"hadoop-{HADOOP}.txt").read_text().splitlines())
#: Addresses of the node managers, all of them loopback.
NODES = ("127.0.0.1", "127.0.0.2")
JAVA = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-opens=java.base/java.lang=ALL-UNNAMED")
#: Milliseconds without a heartbeat after which a node, and the first process of an application, count as lost.
LOST = {"nm": 15_000, "am": 60_000}
LOGGING = """\
rootLogger.level=info
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %c{1}: %m%n%ex
"""


class Yarn:
    """A name node, a data node, a resource manager and node managers.

    :param environment: further variables for the containers
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder, self.conf = folder, folder / "conf"
        self.hdfs, self.web_hdfs = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self.web = f"127.0.0.1:{free_port()}"
        self.environment = {
            **os.environ, **(environment or {}), "JAVA_HOME": str(java_home()), "HADOOP_CONF_DIR": str(self.conf),
        }  # fmt: skip
        self._write_conf()
        self._classes = os.pathsep.join([str(self.conf), f"{spark_home()}/jars/*", *map(str, _jars())])
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        try:
            name_node = "hdfs.server.namenode.NameNode"
            assert self._run("format", name_node, "-format", "-nonInteractive").wait(120) == 0
            self._start("name-node", name_node)
            self._start("data-node", "hdfs.server.datanode.DataNode")
            self._start("resource-manager", "yarn.server.resourcemanager.ResourceManager")
            for host in NODES:
                self.start_node(host)
            eventually(self._is_ready, 300)
        except BaseException:
            self.close()
            raise

    def _write_conf(self) -> None:
        own = "127.0.0.1:{}".format
        sites = {
            "core-site": {"fs.defaultFS": f"hdfs://{self.hdfs}", "hadoop.tmp.dir": self.folder / "tmp"},
            "hdfs-site": {
                "dfs.replication": 1, "dfs.namenode.http-address": self.web_hdfs, "dfs.datanode.address": own(0),
                "dfs.datanode.http.address": own(0), "dfs.datanode.ipc.address": own(0),
                "dfs.namenode.name.dir": f"file://{self.folder}/names",
                "dfs.datanode.data.dir": f"file://{self.folder}/data",
            },
            "yarn-site": {
                "yarn.resourcemanager.address": own(free_port()),
                "yarn.resourcemanager.scheduler.address": own(free_port()),
                "yarn.resourcemanager.resource-tracker.address": own(free_port()),
                "yarn.resourcemanager.admin.address": own(free_port()),
                "yarn.resourcemanager.webapp.address": self.web,
                "yarn.resourcemanager.scheduler.class":
                    "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler",
                **{f"yarn.{kind}.liveness-monitor.expiry-interval-ms": LOST[kind] for kind in LOST},
                "yarn.scheduler.minimum-allocation-mb": 256,
                "yarn.nodemanager.resource.memory-mb": 4096,
                "yarn.nodemanager.resource.cpu-vcores": 4,
                "yarn.nodemanager.vmem-check-enabled": "false",
                "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 100,
                "yarn.nodemanager.env-whitelist": "JAVA_HOME,HADOOP_CONF_DIR",
            },
        }  # fmt: skip
        self.conf.mkdir()
        (self.conf / "log4j2.properties").write_text(LOGGING)
        for site, settings in sites.items():
            properties = "".join(
                f"<property><name>{name}</name><value>{value}</value></property>\n" for name, value in settings.items()
            )
            (self.conf / f"{site}.xml").write_text(f"<configuration>\n{properties}</configuration>\n")

    def _run(self, name: str, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        java = Path(self.environment["JAVA_HOME"], "bin", "java")
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [java, *JAVA, "-cp", self._classes, f"org.apache.hadoop.{program}", *arguments],
                env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                start_new_session=True,
            )  # fmt: skip

    def _start(self, name: str, program: str, *arguments: str) -> None:
        self.daemons[name] = self._run(name, program, *arguments)

    def start_node(self, host: str) -> None:
        """Start a node manager."""
        place = self.folder / host
        settings = {
            "hostname": host, "bind-host": host, "address": f"{host}:{free_port()}",
            "localizer.address": f"{host}:{free_port()}", "webapp.address": f"{host}:{free_port()}",
            "local-dirs": place / "local", "log-dirs": place / "logs",
        }  # fmt: skip
        words = [word for name, value in settings.items() for word in ("-D", f"yarn.nodemanager.{name}={value}")]
        self._start(host, "yarn.server.nodemanager.NodeManager", *words)

    def kill_node(self, host: str, *, containers: bool) -> None:
        """Kill a node manager: alone, so that its containers go on unattended, or with them, as a machine fails."""
        daemon = self.daemons.pop(host)
        daemon.kill()
        daemon.wait()
        if containers:
            for process in self.containers(host):
                with suppress(psutil.NoSuchProcess):
                    process.kill()

    def containers(self, host: str) -> list[psutil.Process]:
        """Return the processes of a node's containers."""
        place, found = str(self.folder / host / "local"), []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.cwd().startswith(place):
                    found.append(process)
        return found

    def get(self, path: str) -> Any:
        """Return an answer of the resource manager."""
        with urllib.request.urlopen(f"http://{self.web}/ws/v1/cluster/{path}", timeout=10) as answer:
            return json.load(answer)

    def running_nodes(self) -> list[str]:
        """Return the hosts of the nodes that the resource manager uses."""
        with suppress(OSError):
            nodes = (self.get("nodes")["nodes"] or {}).get("node", [])
            return [node["nodeHostName"] for node in nodes if node["state"] == "RUNNING"]
        return []

    def _is_ready(self) -> bool:
        ended = [name for name, daemon in self.daemons.items() if daemon.poll() is not None]
        assert not ended, "\n".join((self.folder / f"{name}.log").read_text()[-2000:] for name in ended)
        return len(self.running_nodes()) == len(NODES) and self._data_nodes() == 1

    def _data_nodes(self) -> int:
        address = f"http://{self.web_hdfs}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        with suppress(OSError, LookupError), urllib.request.urlopen(address, timeout=10) as answer:
            return int(json.load(answer)["beans"][0]["NumLiveDataNodes"])
        return 0

    def applications(self, *states: str) -> list[dict[str, Any]]:
        """Return the applications in these states, the earliest first; without a state, all."""
        found = (self.get(f"apps?states={','.join(states)}" if states else "apps")["apps"] or {}).get("app", [])
        return sorted(found, key=lambda application: str(application["id"]))

    def running(self) -> list[dict[str, Any]]:
        """Return the applications that have not ended."""
        return self.applications("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")

    def attempts(self, application: str) -> list[dict[str, Any]]:
        """Return the attempts at an application, each with a first process of its own; the earliest first."""
        found = self.get(f"apps/{application}/appattempts")["appAttempts"]["appAttempt"]
        return sorted(found, key=lambda attempt: int(attempt["id"]))

    def host_of(self, application: str) -> str:
        """Return the node of an application's first process, in cluster mode the driver."""
        name = self.get(f"apps/{application}")["app"]["amHostHttpAddress"].partition(":")[0]
        return socket.gethostbyname(name)

    def kill(self, application: str) -> None:
        """Kill an application, as an operator of the cluster does."""
        address = f"http://{self.web}/ws/v1/cluster/apps/{application}/state"
        body, kind = json.dumps({"state": "KILLED"}).encode(), {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(address, body, kind, method="PUT"), timeout=10).close()

    def output(self, application: str) -> str:
        """Return what the containers of an application printed."""
        files = sorted(self.folder.glob(f"*/logs/{application}/*/std*"))
        return "\n".join(f"--- {file}\n{file.read_text(errors='replace')}" for file in files)

    def close(self) -> None:
        """End everything that was started, and all containers."""
        for daemon in self.daemons.values():
            with suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait(60)
        for host in NODES:
            for process in self.containers(host):
                with suppress(psutil.NoSuchProcess):
                    process.kill()


def _jars() -> Sequence[Path]:
    folder = cache_folder() / f"hadoop-{HADOOP}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return [fetch_jar(folder, *entry) for entry in JARS.items()]
