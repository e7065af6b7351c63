"""Samples of a soak: memory, connections, file descriptors, sizes of tables and indexes, and latency."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg

from .fleet import Fleet
from .journal import read_journals

SIZES = """
SELECT coalesce(sum(pg_table_size(c.oid)), 0)::bigint, coalesce(sum(pg_indexes_size(c.oid)), 0)::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'airflow_mq' AND c.relkind = 'r'
"""
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"


@dataclass(frozen=True)
class Sample:
    """Figures of one moment; latencies are those of the calls since the sample before."""

    seconds: float
    memory: int
    server_memory: int
    connections: int
    descriptors: int
    tables: int
    indexes: int
    accepted: int
    send_median: float
    send_p95: float


class Sampler:
    """Takes samples of a fleet and its database."""

    def __init__(self, fleet: Fleet, uri: str, server: int) -> None:
        self._fleet, self._uri, self._server = fleet, uri, psutil.Process(server)
        self._began = self._since = time.monotonic()

    def take(self) -> Sample:
        with psycopg.connect(self._uri, autocommit=True) as connection:
            (connections,) = connection.execute(CONNECTIONS).fetchone() or (0,)
            tables, indexes = connection.execute(SIZES).fetchone() or (0, 0)
        clients = self._fleet.processes()
        backends = [self._server, *self._server.children(recursive=True)]
        accepted, latencies = self._sends(self._fleet.folder)
        return Sample(
            round(time.monotonic() - self._began, 1),
            sum(process.memory_full_info().uss for process in clients),
            sum(_own_memory(process) for process in backends),
            # Without the sampler's own.
            connections - 1,
            sum(process.num_fds() for process in clients),
            tables,
            indexes,
            accepted,
            _quantile(latencies, 0.5),
            _quantile(latencies, 0.95),
        )

    def _sends(self, folder: Path) -> tuple[int, list[float]]:
        entries = read_journals(folder)
        since, self._since = self._since, time.monotonic()
        latencies = [
            float(entry.values["seconds"])
            for entry in entries
            if entry.kind == "progress" and entry.text("of") == "send" and entry.at > since
        ]
        return sum(entry.number("parts") for entry in entries if entry.kind == "accepted"), latencies


def _own_memory(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().uss)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)] if values else 0.0
