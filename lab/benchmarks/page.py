"""How long the page waits for its first data, on a store of 100,000 origins and 1,000,000 messages (L7).

    python -m lab.benchmarks.page                     build the store, serve it, ask, and report
    python -m lab.benchmarks.page --store FILE        ask of a store that was built before, or build it there
    python -m lab.benchmarks.page --singles           each message sent by itself: a million inbox rows

The first data is the overview and the first page of queues, asked for one after the other with a bearer token, of
Airflow's own application in this process: connecting to the store, authentication and JSON are in the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

ORIGINS, EACH = 100_000, 10
R = "/airflow-mq/api/v1/stores/mq_bench/rings/default"
#: Milliseconds that the first data may take.
TARGET = 200


def build(path: Path, *, singles: bool) -> None:
    """Send a million messages of a hundred thousand origins, without servicing any."""
    from airflow_mq import MessageQueue
    from airflow_mq.engine.store import parse, upgrade

    uri = f"sqlite:///{path}"
    upgrade(parse(uri))
    origins = [f"tenant-{number % 1000:04}/source-{number // 1000:03}" for number in range(ORIGINS)]
    payload = b"x" * 100
    with MessageQueue(uri) as queue:
        for first in range(0, ORIGINS, 5_000):
            some = origins[first : first + 5_000]
            if not singles:
                queue.enqueue_messages((origin, payload) for origin in some for _ in range(EACH))
                continue
            for _ in range(EACH):
                queue.enqueue_messages((origin, payload) for origin in some)


def client(home: Path, path: Path) -> Any:
    """Airflow's application, asked by an administrator."""
    passwords = home / "passwords.json"
    passwords.write_text('{"admin": "admin"}')
    os.environ.update(
        AIRFLOW_HOME=str(home),
        AIRFLOW__CORE__LOAD_EXAMPLES="False",
        AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS="admin:admin",
        AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE=str(passwords),
        AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{home}/airflow.db",
        AIRFLOW__API_AUTH__JWT_SECRET="a secret for one benchmark, long enough for its hash function: 64 bytes",
        AIRFLOW_CONN_MQ_BENCH=json.dumps({"conn_type": "airflow_mq", "extra": {"path": str(path)}}),
    )
    from airflow.api_fastapi.app import create_app
    from airflow.utils.db import initdb
    from fastapi.testclient import TestClient

    initdb()
    made = TestClient(create_app(apps="core"))
    token = made.post("/auth/token", json={"username": "admin", "password": "admin"}).json()["access_token"]
    made.headers["Authorization"] = f"Bearer {token}"
    # Built for the first visitor of all; that is once in the life of a server.
    made.get("/airflow-mq/api/v1/me")
    return made


def main() -> int:
    """Measure, and return whether the target was met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--store", type=Path, help="where the store is, or is built (default: a file that goes)")
    parser.add_argument("--singles", action="store_true", help="send each message by itself")
    parser.add_argument("--turns", type=int, default=20, help="how often to ask (default: 20)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mq-page-bench-") as folder:
        path = options.store or Path(folder) / "store.db"
        if not path.exists():
            began = time.monotonic()
            build(path, singles=options.singles)
            print(f"built in {time.monotonic() - began:.0f} s: {path.stat().st_size / 1e6:.0f} MB")
        return measure(client(Path(folder), path), options.turns)


def measure(asking: Any, turns: int) -> int:
    """Ask for the first data again and again; the first time is the one that counts."""
    first = sum(ask(asking, what) for what in ("overview", "queues"))
    told = asking.get(f"{R}/overview").json()
    print(f"first data: {first:.0f} ms, the target is {TARGET} ms; totals exact: {told['exact']}")
    began = time.monotonic()
    while not asking.get(f"{R}/overview").json()["exact"]:
        time.sleep(0.5)
    print(f"totals exact after {time.monotonic() - began:.1f} s more")
    for what in (
        "overview", "queues", "queues?sort=messages", "queues?search=0042", "queue?origin=tenant-0042/source-042",
        "messages?origin=tenant-0042/source-042", "blocks", "events", "set-aside", "fairness",
    ):  # fmt: skip
        times = [ask(asking, what) for _ in range(turns)]
        print(f"{what:42} median {statistics.median(times):7.1f} ms   largest {max(times):7.1f} ms")
    return 0 if first <= TARGET else 1


def ask(asking: Any, what: str) -> float:
    """The milliseconds that an answer takes."""
    began = time.perf_counter()
    answer = asking.get(f"{R}/{what}")
    assert answer.status_code == 200, answer.text
    return 1_000 * (time.perf_counter() - began)


if __name__ == "__main__":
    raise SystemExit(main())
