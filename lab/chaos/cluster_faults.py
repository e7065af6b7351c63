"""Faults of the leader of a cluster under Patroni, directly or behind a pooler."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import ClassVar

from tests.debian import can_have
from tests.postgres_server import USER

from .balancer import Balancer
from .cluster import Cluster, Node
from .copies import prepared
from .database import DATABASE
from .fleet import CREW
from .pooler import Pooler
from .scenario import Scenario
from .verdict import Fault


class Clustered(Scenario):
    """Three servers with synchronous replication; the clients' address lists all of them."""

    #: A client of a stopped server waits until its own time-out; those of the default take minutes.
    parameters: ClassVar[str] = "&connect_timeout=3&statement_timeout=8"
    crew: ClassVar[Mapping[str, int]] = {**CREW, "follower": 1, "spark_sender": 1}
    #: A machine with other work needs a minute to start Spark.
    patience = 180.0
    rounds = 2
    programs: ClassVar[tuple[str, ...]] = ("etcd",)
    requirement = "PySpark, and etcd (behind a pooler also PgBouncer and HAProxy) or apt-get to fetch it"

    @classmethod
    def is_possible(cls) -> bool:
        return find_spec("pyspark") is not None and all(map(can_have, cls.programs))

    def open_server(self) -> Cluster:
        cluster = Cluster(prepared(self.label))
        self.stack.callback(cluster.close)
        cluster.start()
        return cluster

    def hurt(self) -> None:
        self.server.await_health()
        with self.injured(self.server.await_leader()):
            self.await_progress(self.faults)

    @contextmanager
    def injured(self, leader: Node) -> Iterator[None]:
        """Hurt the leader, and repair it at the end."""
        self.injure(leader)
        now = time.monotonic()
        # The seconds to recovery begin when the leader is lost.
        self.faults.append(Fault(type(self).__name__, now, now))
        yield
        self.repair(leader)

    def injure(self, leader: Node) -> None:
        raise NotImplementedError

    def repair(self, leader: Node) -> None:
        """Let the server join again."""


class KilledLeader(Clustered):
    """SIGKILL of the leader and of its Patroni; both start again after the failover."""

    def injure(self, leader: Node) -> None:
        leader.kill()

    def repair(self, leader: Node) -> None:
        leader.start()


class CrashedLeader(Clustered):
    """SIGKILL of the leader's server alone: its Patroni gives way at once."""

    def injure(self, leader: Node) -> None:
        leader.kill_server()


class CutLeader(Clustered):
    """No byte between the leader and all others (etcd, standbys, clients) until another server leads."""

    def injure(self, leader: Node) -> None:
        leader.cut("cut")

    def repair(self, leader: Node) -> None:
        leader.cut("pass")


class StoppedLeader(Clustered):
    """SIGSTOP of the leader and of its Patroni until another server leads."""

    def injure(self, leader: Node) -> None:
        leader.send_signal(signal.SIGSTOP)

    def repair(self, leader: Node) -> None:
        leader.send_signal(signal.SIGCONT)


class SwitchedLeader(Clustered):
    """Orderly switchover to the synchronous standby."""

    def injure(self, leader: Node) -> None:
        self.server.switch_over()


class Pooled(Clustered):
    """The clients reach PgBouncer in transaction mode, and from there HAProxy, which follows the leader."""

    parameters = "?connect_timeout=3&statement_timeout=8"
    programs = ("etcd", "pgbouncer", "haproxy")

    def path(self, uri: str) -> str:
        balancer = Balancer(self.server)
        self.stack.callback(balancer.close)
        pooler = Pooler(balancer.own_port, self.server.password)
        self.stack.callback(pooler.close)
        pooler.start()
        return f"postgresql://{USER}:{self.server.password}@127.0.0.1:{pooler.own_port}/{DATABASE}"


class PooledChangedLeader(Pooled, CrashedLeader):
    """SIGKILL of the leader's server and a switchover in turn, behind PgBouncer in transaction mode."""

    def injure(self, leader: Node) -> None:
        if len(self.faults) % 2:
            self.server.switch_over()
        else:
            leader.kill_server()


class PooledKilledLeader(Pooled, KilledLeader):
    """SIGKILL of the leader and of its Patroni, behind PgBouncer in transaction mode."""


class PooledCutLeader(Pooled, CutLeader):
    """No byte between the leader and all others, behind PgBouncer in transaction mode."""


class PooledStoppedLeader(Pooled, StoppedLeader):
    """SIGSTOP of the leader and of its Patroni, behind PgBouncer in transaction mode."""


class PooledSwitchedLeader(Pooled, SwitchedLeader):
    """Orderly switchover, behind PgBouncer in transaction mode."""
