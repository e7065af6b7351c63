"""Deleting inbox rows against truncating partitions of them, beside a transaction that stays open.

    python -m lab.benchmarks.rotation [--rounds 600] [--each 1000]

Both variants write the same rows to a table like the inbox, read them from a remembered id on, and remove them:
by DELETE of a range of ids, or by TRUNCATE of the partition whose rows are all read, ten rounds a partition. The
output has server CPU for each message, sizes, and how long senders wait for the lock of TRUNCATE.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import psutil
import psycopg

from lab.benchmarks.lab import SETTINGS
from tests.postgres_server import running_postgres

PARTS = 3
PER_PART = 10
COLUMNS = '(id bigint NOT NULL, ring smallint NOT NULL, origin text COLLATE "C" NOT NULL, heap bytea NOT NULL)'
INDEXES = "CREATE UNIQUE INDEX ON inbox{0} (ring, origin, id); CREATE INDEX ON inbox{0} (ring, id)"
INSERT = """
INSERT INTO inbox{0} SELECT %s + n, 1, 'origin-' || lpad((n %% 100)::text, 6, '0'), decode(repeat('78', 128), 'hex')
FROM generate_series(1, %s) n
"""
READ = """
SELECT count(*), sum(length(r.heap)) FROM generate_series(0, 99) o CROSS JOIN LATERAL (
    SELECT m.heap FROM inbox{0} m
    WHERE m.ring = 1 AND m.origin = 'origin-' || lpad(o::text, 6, '0') AND m.id > %s ORDER BY m.id LIMIT 10000
) r
"""
DELETE = """
DELETE FROM inbox m USING generate_series(0, 99) o
WHERE m.ring = 1 AND m.origin = 'origin-' || lpad(o::text, 6, '0') AND m.id > %s AND m.id <= %s
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--each", type=int, default=1000, help="messages a round")
    options = parser.parse_args()
    with running_postgres("embedded", {**SETTINGS, "synchronous_commit": "off"}) as server:
        for held in (False, True):
            for rotate in (False, True):
                with server.database() as uri, psycopg.connect(uri) as reader:
                    if held:
                        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                        reader.execute("SELECT count(*) FROM pg_database")
                    with psycopg.connect(uri, autocommit=True) as connection:
                        _run(connection, options.rounds, options.each, held=held, rotate=rotate)


def _run(connection: psycopg.Connection[Any], rounds: int, each: int, *, held: bool, rotate: bool) -> None:
    names = [f"_{number}" for number in range(PARTS)] if rotate else [""]
    for name in names:
        connection.execute(f"CREATE TABLE inbox{name} {COLUMNS}".encode())
        connection.execute(INDEXES.format(name).encode())
    pid = connection.info.backend_pid
    spent: dict[str, list[float]] = {"in": [], "read": [], "remove": []}
    waits: list[float] = []

    def timed(part: str, statement: str, *values: int) -> None:
        before = _cpu(pid)
        connection.execute(statement.encode(), values)
        spent[part].append(_cpu(pid) - before)

    for number in range(rounds):
        name, low = names[number // PER_PART % len(names)], number * each
        timed("in", INSERT.format(name), low, each)
        timed("read", READ.format(name), low)
        if not rotate:
            timed("remove", DELETE, low, low + each)
        elif number % PER_PART == PER_PART - 1:
            start = time.perf_counter()
            timed("remove", f"TRUNCATE inbox{name}")
            waits.append(time.perf_counter() - start)
    _print(connection, spent, waits, rounds * each, held=held, rotate=rotate)


def _print(
    connection: psycopg.Connection[Any], spent: dict[str, list[float]], waits: list[float], count: int, **kind: bool
) -> None:
    row = connection.execute(
        "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relname LIKE 'inbox%' AND relkind = 'r'"
    ).fetchone()
    assert row
    name = f"{'truncate' if kind['rotate'] else 'delete'}, {'held open' if kind['held'] else 'nothing held'}"
    halves = []
    for part in ("in", "read", "remove"):
        values = spent[part]
        third = max(1, len(values) // 3)
        share = count / len(values)
        first, last = (1e6 * sum(some) / (third * share) for some in (values[:third], values[-third:]))
        halves.append(f"{part} {first:.2f} then {last:.2f} µs a message")
    lock = f"; TRUNCATE takes {1000 * max(waits):.1f} ms at most" if waits else ""
    print(f"{name}: {', '.join(halves)}; {row[0] / (1 << 20):.1f} MiB at the end{lock}", flush=True)


def _cpu(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
