"""Contenders: how to start the driver of each, and how to check that nothing of it remains."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lab.benchmarks import install

PATIENCE = 1800.0


@dataclass(frozen=True)
class Contender:
    """One queue and how it is used.

    `tables` hold a row as long as a message is there; `slow` is how many times fewer messages it gets than the
    fastest, so that it takes as long; `call` is how many messages a bulk call takes, the fastest
    of 1,000 and 10,000.
    """

    name: str
    command: Callable[[], list[str]]
    tables: tuple[str, ...]
    slow: int = 1
    call: int = 1000


PEERS = (
    Contender("pgmq", lambda: install.python_driver("pgmq"), ("q_bench",)),
    Contender(
        "procrastinate",
        lambda: install.python_driver("procrastinate"),
        ("procrastinate_jobs",),
        slow=20,
    ),
    Contender("pgqueuer", lambda: install.python_driver("pgqueuer"), ("pgqueuer",), slow=2),
    Contender(
        "graphile-worker",
        lambda: install.node_driver("graphile_worker"),
        ("_private_jobs",),
        slow=2,
        call=10_000,
    ),
    Contender("pg-boss", lambda: install.node_driver("pg_boss"), ("job",), slow=2),
    Contender("river", lambda: install.go_driver("river"), ("river_job",), slow=2, call=10_000),
)
#: Only on the system's PostgreSQL, and only for the mixed load.
PGQ = Contender("pgq", lambda: install.own_driver("pgq"), ())
BARE = Contender("bare", lambda: install.own_driver("bare"), ("bare",))
OURS = Contender("ours", lambda: install.own_driver("ours"), ("inbox", "delayed", "page", "claim", "outcome"))


class DriverFailed(Exception):
    """Error that a driver reported for a command."""


class Running:
    """A driver that runs against one database; calling it gives an order and returns the answer."""

    def __init__(self, contender: Contender, dsn: str) -> None:
        self.name = contender.name
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            contender.command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=install.ROOT,
            env={**os.environ, "BENCH_DSN": dsn},
        )

    def __call__(self, do: str, **order: Any) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        watchdog = threading.Timer(PATIENCE + order.get("seconds", 0), self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(json.dumps({"do": do, **order}) + "\n")
            self._process.stdin.flush()
            for line in self._process.stdout:
                if line.startswith("= "):
                    told: dict[str, Any] = json.loads(line[2:])
                    break
            else:
                raise DriverFailed(f"{self.name} ended while doing {do}: {self._complaint()}")
        except BrokenPipeError:
            raise DriverFailed(f"{self.name} was gone before {do}: {self._complaint()}") from None
        finally:
            watchdog.cancel()
        if "error" in told:
            raise DriverFailed(f"{self.name} could not do {do}: {told['error']}\n{told.get('traceback', '')}")
        return told

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _complaint(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-2000:]
