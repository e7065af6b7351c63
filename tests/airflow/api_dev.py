"""An API server of Airflow with the page on it, over a store that has something to show: for work on the page.

    python -m tests.airflow.api_dev [PORT] [STORE]

Users are admin, op, user and viewer, each with that word as the password; STORE is an address, and without it a
demonstration is built. It serves on loopback, from a home of its own that goes when it ends.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

USERS = ("admin", "op", "user", "viewer")


def prepare(home: Path, uri: str) -> None:
    """Set Airflow up before anything imports it."""
    passwords = home / "passwords.json"
    passwords.write_text(json.dumps({name: name for name in USERS}))
    path = uri.removeprefix("sqlite:///") if uri.startswith("sqlite:") else None
    assert path, "this server shows a SQLite store"
    os.environ.update(
        AIRFLOW_VAR_AIRFLOW_MQ_INSTALLATION="here",
        AIRFLOW_HOME=str(home),
        AIRFLOW__CORE__DAGS_FOLDER=str(Path(__file__).parents[2] / "dags"),
        AIRFLOW__CORE__LOAD_EXAMPLES="False",
        AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS=",".join(f"{name}:{name}" for name in USERS),
        AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE=str(passwords),
        AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{home}/airflow.db",
        AIRFLOW__API_AUTH__JWT_SECRET="a secret for one afternoon, long enough for its hash function to be content",
        AIRFLOW_CONN_MQ_DEMO=json.dumps({"conn_type": "airflow_mq", "extra": {"path": path}}),
    )


def fill(uri: str) -> None:
    """A ring with a loud tenant, quiet ones, high messages, something set aside, paused, and in flight."""
    from airflow_mq import MessageQueue, RingConfig, Weight
    from airflow_mq.engine.store import parse, upgrade

    upgrade(parse(uri))
    with MessageQueue(uri) as queue:
        queue.admin.create_ring("demo", RingConfig(service_weight=Weight(2_000, 200_000), high=True))
    with MessageQueue(uri, "demo") as queue:
        queue.enqueue_messages(
            "loud/orders", (b'{"order": %d, "note": "<script>alert(1)</script>"}' % n for n in range(3_000))
        )
        for n in range(80):
            queue.enqueue_messages(f"tenant-{n:02}/mail", [b"mail %d" % m for m in range(1 + n % 7)])
        queue.enqueue_message("tenant-03/alerts", b"\x00\x01\xfe binary", priority="high")
        queue.enqueue_messages("old-archive", [b"x" * 9_000], weight=Weight(90_000, 9_000))
        queue.enqueue_messages("=cmd()|'/bin/sh'!A1", [b"a spreadsheet would like this"])
        for _ in range(3):
            block = queue.blocks.plan(limit=Weight(2_000, 1_200))
            queue.blocks.report(block, [batch.answer() for batch in block.batches()])
            queue.blocks.settle(block)
        queue.admin.pause("tenant-05/mail", "their receiver is down")
        queue.blocks.plan("here:orders/scheduled__2026-01-01/plan", limit=Weight(2_000, 2_000), lease=86_400)


def main() -> None:
    """Serve until Ctrl-C."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8793
    with tempfile.TemporaryDirectory(prefix="mq-page-") as folder:
        home = Path(folder)
        uri = sys.argv[2] if len(sys.argv) > 2 else f"sqlite:///{home / 'store.db'}"
        prepare(home, uri)
        if len(sys.argv) <= 2:
            fill(uri)
        import uvicorn
        from airflow.api_fastapi.app import create_app
        from airflow.utils.db import initdb

        initdb()
        print(f"http://127.0.0.1:{port}/airflow-mq/  users {', '.join(USERS)}, each by its name", flush=True)
        uvicorn.run(create_app(apps="core"), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
