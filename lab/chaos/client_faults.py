"""Faults of the clients: killed, stopped, stopped inside a transaction, and with wrong clocks."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import ClassVar

import psutil
import psycopg

from airflow_mq.engine.queue.holding import RING_LEASE

from .clocks import can_skew, skew
from .database import DATABASE
from .fleet import CREW
from .scenario import Scenario
from .workloads import BLOCK_LEASE

#: A session that waits for its client in the middle of a transaction that has written.
IN_TRANSACTION = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = %s AND client_port = ANY(%s) "
    "AND state = 'idle in transaction' AND backend_xid IS NOT NULL"
)
#: The lease by which a service holds the ring.
HELD = (
    "SELECT 1 FROM airflow_mq.ring_state s JOIN airflow_mq.ring r ON r.id = s.ring "
    "WHERE r.name = 'default' AND s.lease_token IS NOT NULL"
)


class ManyParents(Scenario):
    """No fault: most messages are parents, and processors enqueue as many messages as senders do."""

    crew: ClassVar[dict[str, int]] = {**CREW, "parent_sender": 2, "service": 2}

    def hurt(self) -> None:
        with self.fault():
            time.sleep(self.seconds)


class OppositeSenders(Scenario):
    """Two bulk senders send the same keyed messages to twelve origins in opposite orders, in one transaction each."""

    settings: ClassVar[dict[str, str]] = {"deadlock_timeout": "100ms"}
    crew: ClassVar[dict[str, int]] = {**CREW, "storm": 2}

    def hurt(self) -> None:
        with self.fault():
            time.sleep(self.seconds)


class SkewedClocks(Scenario):
    """Clients whose clocks are an hour ahead or an hour behind, half of them each."""

    requirement = "a C compiler"

    @classmethod
    def is_possible(cls) -> bool:
        return can_skew()

    def arm(self, folder: Path) -> None:
        for number, name in enumerate(self.fleet.names):
            self.fleet.environments[name] = skew(folder, 3_600 if number % 2 else -3_600)

    def hurt(self) -> None:
        with self.fault():
            time.sleep(self.seconds)


class KilledClients(Scenario):
    """SIGKILL of a random client, twice a second; each is replaced."""

    def hurt(self) -> None:
        with self.fault():
            for _ in self.until():
                self.fleet.kill_one()
                time.sleep(random.uniform(0.3, 0.7))


class KilledFleet(Scenario):
    """SIGKILL of all clients at the same moment, as their machine's power cut would; all are replaced."""

    def hurt(self) -> None:
        with self.fault():
            self.fleet.kill_all()
        time.sleep(self.seconds / 2)


class StoppedClients(Scenario):
    """SIGSTOP of planner, settlers, holder and mover for longer than the leases of their blocks and messages."""

    def hurt(self) -> None:
        roles = ("planner", "settler", "holder", "mover")
        with self.fault():
            self.fleet.send_signal(roles, signal.SIGSTOP)
            time.sleep(max(self.seconds, BLOCK_LEASE + 2))
            self.fleet.send_signal(roles, signal.SIGCONT)


class StoppedService(Scenario):
    """SIGSTOP of the service while it holds the ring, for longer than its lease of 30 seconds."""

    def hurt(self) -> None:
        with self.connect(autocommit=True) as connection, self.fault():
            while True:
                self.fleet.send_signal(("service",), signal.SIGSTOP)
                if connection.execute(HELD).fetchone():
                    break
                self.fleet.send_signal(("service",), signal.SIGCONT)
                time.sleep(random.uniform(0, 0.05))
            time.sleep(RING_LEASE + 3)
            self.fleet.send_signal(("service",), signal.SIGCONT)


class StoppedInTransaction(Scenario):
    """SIGSTOP of clients in the middle of transactions that hold locks, until the server ends these transactions."""

    parameters = "?idle_in_transaction_session_timeout=2"

    def hurt(self) -> None:
        stopped = 0
        with self.fault(), self.administer() as connection:
            for _ in self.until():
                process = self._stop_one(connection)
                time.sleep(2.5)
                process.resume()
                stopped += 1
        if not stopped:
            self.complaints.append("no client was stopped inside a transaction")

    def _stop_one(self, connection: psycopg.Connection) -> psutil.Process:
        while True:
            process = random.choice(self.fleet.processes())
            try:
                process.suspend()
                ports = [each.laddr.port for each in process.net_connections()]
                # The server may still work at the last statement.
                time.sleep(0.005)
                if connection.execute(IN_TRANSACTION, (DATABASE, ports)).fetchone():
                    return process
                process.resume()
            except psutil.NoSuchProcess:
                continue
            time.sleep(random.uniform(0, 0.02))
