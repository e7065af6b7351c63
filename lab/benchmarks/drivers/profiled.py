"""Where the microseconds of a message go: CPU of the client by module, of the server by statement.

A timer of CPU time interrupts the client and notes the module that runs. The time that the driver's library needs is
its own module. Beside it are physical limits, on the same machine and server.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from struct import pack
from types import FrameType
from typing import Any

import psycopg

import airflow_mq
from lab.benchmarks.drivers.accounting import Account, count_statements, grown, name_of, names_of
from lab.benchmarks.drivers.common import ORIGINS, SIZE, Driver, chunks, messages, origin_of, serve
from lab.benchmarks.drivers.ours import Ours

PACKAGE = str(Path(airflow_mq.__file__).parent)
LIBRARY = str(Path(psycopg.__file__).parent)
#: Seconds of CPU between two samples.
TICK = 0.002
FLUSHES = 200
PAGE = bytes(8192)
COPY = "COPY raw (payload) FROM STDIN (FORMAT BINARY)"


class Sampler:
    """Counts samples by module while a body runs."""

    def __init__(self) -> None:
        self.modules: Counter[str] = Counter()

    def __enter__(self) -> Sampler:
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, TICK, TICK)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _sample(self, _signal: int, frame: FrameType | None) -> None:
        self.modules[module_of(frame)] += 1


def module_of(frame: FrameType | None) -> str:
    """Return the innermost module of ours, or of the database library, that a frame runs in."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(LIBRARY):
            return "psycopg"
        if path.startswith(PACKAGE):
            return os.path.relpath(path, PACKAGE).removesuffix(".py").removesuffix("/__init__")
        frame = frame.f_back
    return "caller"


class Profiled(Driver):
    def setup(self) -> None:
        count_statements(self.dsn)
        self.ours = Ours()
        self.ours.setup()

    def single(self, count: int) -> dict[str, Any]:
        """Profile single sends by one client."""
        todo = messages(count)

        def send() -> None:
            for origin, payload in todo:
                self.ours.queue.enqueue_message(origin, payload)

        return self._profiled(send, count)

    def bulk(self, count: int, call: int = 1000) -> dict[str, Any]:
        """Profile calls of many messages to one origin each."""
        calls = [
            (origin_of(number % ORIGINS), [payload for _, payload in chunk])
            for number, chunk in enumerate(chunks(messages(count), call))
        ]

        def send() -> None:
            for origin, payloads in calls:
                self.ours.queue.enqueue_messages(origin, payloads)

        return self._profiled(send, count)

    def out(self, count: int, call: int, mode: str) -> dict[str, Any]:
        """Profile the way out of messages that were sent in such calls."""
        self.ours.fill(count // ORIGINS, call)
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("ANALYZE")
        return self._profiled(lambda: self.ours.out_all(count, mode), count)

    def _profiled(self, body: Callable[[], object], count: int) -> dict[str, Any]:
        store = self.ours.queue.store
        points: set[str] = set()
        account, sampler = Account(self.dsn, store.lent().connection), Sampler()
        store.probe = points.add
        before, server, ended = account.statements(), account.server_cpu(), account.ended_cpu()
        client, start = time.process_time(), time.perf_counter()
        with sampler:
            body()
        seconds, client = time.perf_counter() - start, time.process_time() - client
        # A thread that commits beside the processing has a connection of its own, which is closed by now.
        server, names = account.server_cpu() - server + account.ended_cpu() - ended, names_of(store, points)
        statements: Counter[str] = Counter()
        for query, counter in grown(before, account.statements()).items():
            statements[name_of(query, names)] += float(counter["ms"]) / 1000  # type: ignore[assignment]
        samples = max(sampler.modules.total(), 1)
        return {
            "count": count, "seconds": seconds, "client_cpu": client, "server_cpu": server,
            "modules": {name: number / samples * client for name, number in sampler.modules.most_common()},
            "statements": dict(statements.most_common()),
        }  # fmt: skip

    # -- limits --

    def limits(self, count: int) -> dict[str, float]:
        """Return the microseconds of each physical limit; by message, unless the name states another unit."""
        payloads = [payload for _, payload in messages(count)]
        rows = b"".join(pack("!hi", 1, len(payload)) + payload for payload in payloads)
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE raw (payload bytea NOT NULL)")
            start = time.perf_counter()
            with connection.cursor().copy(COPY) as copy:
                copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8) + rows + b"\xff\xff")
            copied = time.perf_counter() - start
            connection.execute("SET max_parallel_workers_per_gather = 0")
            scanned = _seconds(lambda: connection.execute("SELECT sum(length(payload)) FROM raw").fetchall())
        block = bytes(1 << 16)
        hashed = _seconds(lambda: [blake2b(payload, digest_size=32).digest() for payload in payloads])
        large = _seconds(lambda: [blake2b(block, digest_size=32).digest() for _ in range(500)])
        return {
            f"binary COPY of rows of {SIZE} bytes": copied / count * 1e6,
            "sequential scan of these rows": scanned / count * 1e6,
            f"blake2b of {SIZE} bytes": hashed / count * 1e6,
            "blake2b of 64 KiB, each": large / 500 * 1e6,
            "write of 8 KiB and fdatasync, each": _flushed() * 1e6,
        }


def _seconds(body: Callable[[], object]) -> float:
    body()
    start = time.perf_counter()
    body()
    return time.perf_counter() - start


def _flushed() -> float:
    """Return the seconds of one write that reaches the disk, in the folder of temporary files as the server's data."""
    with tempfile.TemporaryFile(buffering=0) as file:
        start = time.perf_counter()
        for _ in range(FLUSHES):
            file.seek(0)
            file.write(PAGE)
            os.fdatasync(file.fileno())
        return (time.perf_counter() - start) / FLUSHES


if __name__ == "__main__":
    serve(Profiled())
