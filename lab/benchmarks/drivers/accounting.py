"""Costs of statements: bytes on the connection, counters and log of the server, and its CPU time."""

from __future__ import annotations

import os
import re
import socket
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psycopg

#: Offset of the counters of acknowledged and received bytes in Linux's `struct tcp_info`.
BYTES = 120
#: Counters of a statement, and the text of the server's view for each.
COUNTERS = {
    "calls": "calls",
    "ms": "total_exec_time",
    "rows": "rows",
    "hit": "shared_blks_hit",
    "read": "shared_blks_read",
    "dirtied": "shared_blks_dirtied",
    "wal": "wal_bytes::bigint",
}
COUNTED = f"""
SELECT query, {", ".join(COUNTERS.values())} FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
LOG = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
#: Parts of a text that differ between the statement that was sent and the one that the server shows.
VARIABLE = re.compile(r"--[^\n]*|%\(\w+\)[sbt]|\$\d+|'[^']*'|\b(?:true|false|null)\b|\b\d+\b|[\s()]", re.IGNORECASE)


def count_statements(dsn: str) -> None:
    """Let the server count the statements of later connections to this database."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        database = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{database}" SET pg_stat_statements.track = top'.encode())


class Account:
    """Counters of one connection. A second connection, which is not counted, reads them."""

    def __init__(self, dsn: str, connection: psycopg.Connection[Any]) -> None:
        self._socket = socket.socket(fileno=os.dup(connection.pgconn.socket))
        self._stat = Path(f"/proc/{connection.info.backend_pid}/stat")
        self._watch = psycopg.connect(dsn, autocommit=True)
        self._watch.execute("SET pg_stat_statements.track = none")
        #: Bytes written and read, by the name of the statement that `at` reported before them.
        self.by_name: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._name, self._before = "", self.wire()

    def wire(self) -> tuple[int, int]:
        """Return the bytes that the client wrote and read since it connected."""
        told = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, BYTES + 16)
        written, read = struct.unpack_from("QQ", told, BYTES)
        return written, read

    def at(self, name: str) -> None:
        """Charge the bytes since the last call to its name: a probe of the store."""
        now = self.wire()
        entry = self.by_name[self._name]
        entry[0] += now[0] - self._before[0]
        entry[1] += now[1] - self._before[1]
        self._name, self._before = name, now

    def log(self) -> int:
        row = self._watch.execute(LOG).fetchone()
        assert row
        return int(row[0])

    def server_cpu(self) -> float:
        """Return the CPU seconds of the connection's server process."""
        fields = _fields(self._stat)
        return (fields[11] + fields[12]) / os.sysconf("SC_CLK_TCK")

    def ended_cpu(self) -> float:
        """Return the CPU seconds of the server's processes that have ended, those of other connections included."""
        fields = _fields(Path(f"/proc/{_fields(self._stat)[1]}/stat"))
        return (fields[13] + fields[14]) / os.sysconf("SC_CLK_TCK")

    def statements(self) -> dict[str, Counter[str]]:
        """Return the counters of each statement text."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for query, *numbers in self._watch.execute(COUNTED.encode()):
            found[query].update(dict(zip(COUNTERS, numbers, strict=True)))
        return found


def _fields(stat: Path) -> list[int]:
    """Return what the kernel records of a process, from its state on; the state itself is 0."""
    _, *others = stat.read_text().rpartition(")")[2].split()
    return [0, *map(int, others)]


def grown(before: dict[str, Counter[str]], after: dict[str, Counter[str]]) -> dict[str, Counter[str]]:
    """Return what each statement added between two readings."""
    grown = {query: after[query] - before.get(query, Counter()) for query in after}
    return {query: counter for query, counter in grown.items() if counter["calls"]}


def key_of(text: str) -> str:
    """Return a text without what the server replaces in it."""
    return VARIABLE.sub("", text).lower()


def name_of(query: str, names: dict[str, str]) -> str:
    """Return the name of a statement, or its beginning if it has none."""
    return names.get(key_of(query)) or " ".join(query.split())[:40]


def names_of(store: Any, points: Iterable[str]) -> dict[str, str]:
    """Return the names of a store's statements by their keys; some of its points are no statements."""
    found = {}
    for name in points:
        try:
            found[key_of(store.text(name).decode())] = name
        except KeyError:
            continue
    return found
