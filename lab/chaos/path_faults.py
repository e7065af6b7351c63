"""Faults of the path between the clients and the server: a proxy, a pooler, or a network between two machines."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

from tests.debian import can_have

from .database import DATABASE
from .network import Network, can_separate
from .pooler import PROGRAM, Pooler
from .proxy import FaultyProxy
from .scenario import TERMINATE, Scenario
from .senders import CALLER

#: Connections of the package's own sessions, by the clients' ports.
PORTS = "SELECT client_port FROM pg_stat_activity WHERE datname = %s AND client_port > 0 AND application_name <> %s"


class Proxied(Scenario):
    """A proxy between the clients and the server."""

    mode: ClassVar[str]

    def path(self, uri: str) -> str:
        self.proxy = FaultyProxy(self.server.port)
        self.stack.callback(self.proxy.close)
        return uri.replace(f":{self.server.port}/", f":{self.proxy.own_port}/")

    def hurt(self) -> None:
        with self.fault():
            self.proxy.mode = self.mode
            time.sleep(self.seconds)
            self.proxy.mode = "pass"


class DelayedPath(Proxied):
    """50 to 150 ms of delay in each direction."""

    mode = "delay"


class ResetPath(Proxied):
    """Connections reset at random, most often in the middle of a commit, whose answer is lost."""

    mode = "reset"


class BlackHole(Proxied):
    """No byte in either direction for 30 seconds, then all of them."""

    mode = "black hole"

    def hurt(self) -> None:
        self.seconds = max(self.seconds, 30.0)
        super().hurt()


class SlowClose(Proxied):
    """Ends of connections that arrive seconds late, while the server ends connections."""

    def hurt(self) -> None:
        with self.fault(), self.administer() as connection:
            self.proxy.mode = "slow close"
            for _ in self.until():
                connection.execute(TERMINATE, (DATABASE, 1_000))
                time.sleep(3)
            self.proxy.mode = "pass"


class PooledTransactions(Scenario):
    """PgBouncer in transaction mode, killed and started again, and server connections terminated behind it."""

    requirement = "PgBouncer, or apt-get to fetch it"

    @classmethod
    def is_possible(cls) -> bool:
        return can_have(PROGRAM)

    def path(self, uri: str) -> str:
        self.pooler = Pooler(self.server.port, self.server.password)
        self.stack.callback(self.pooler.close)
        self.pooler.start()
        return uri.replace(f":{self.server.port}/", f":{self.pooler.own_port}/")

    def hurt(self) -> None:
        with self.fault(), self.administer() as connection:
            for _ in self.until():
                connection.execute(TERMINATE, (DATABASE, 1))
                time.sleep(0.5)
        with self.fault():
            self.pooler.kill()
            self.pooler.start()


class Networked(Scenario):
    """Clients in a network namespace, which a pair of virtual interfaces connects with the server."""

    settings: ClassVar[dict[str, str]] = {
        "listen_addresses": "*",
        # For the senders' own connections; the package sets these for its sessions.
        "tcp_keepalives_idle": "2", "tcp_keepalives_interval": "1", "tcp_keepalives_count": "3",
        "tcp_user_timeout": "5s",
    }  # fmt: skip
    parameters = "?connect_timeout=3&tcp_user_timeout=4&keepalives_idle=2&keepalives_interval=1&keepalives_count=2"
    requirement = "the right to make network namespaces, with ip and nft on the PATH"

    @classmethod
    def is_possible(cls) -> bool:
        return can_separate()

    def path(self, uri: str) -> str:
        self.network = self.stack.enter_context(Network.opened())
        return uri.replace("@127.0.0.1:", f"@{self.network.server}:")

    def arm(self, folder: Path) -> None:
        self.fleet.namespace = self.network.namespace


class PacketLoss(Networked):
    """Loss of a fifth of all packets in each direction between two network namespaces."""

    def hurt(self) -> None:
        with self.fault():
            self.network.lose(20)
            time.sleep(self.seconds)
            self.network.heal()


class Partition(Networked):
    """Loss of all packets between two network namespaces for longer than the clients' TCP timeouts."""

    def hurt(self) -> None:
        with self.fault():
            self.network.cut()
            time.sleep(max(self.seconds, 7.0))
            self.network.heal()


class SilentLinks(Networked):
    """Open connections lose all packets for ever, without an end; both sides must free them by their timeouts."""

    def hurt(self) -> None:
        ports = self._ports()
        with self.fault():
            self.network.silence(ports)
        deadline = time.monotonic() + self.patience
        while ports & self._ports():
            if time.monotonic() > deadline:
                self.complaints.append(
                    f"the server kept {len(ports & self._ports())} of {len(ports)} silent connections"
                )
                return
            time.sleep(0.2)

    def _ports(self) -> set[int]:
        with self.administer() as connection:
            return {port for (port,) in connection.execute(PORTS, (DATABASE, CALLER))}
