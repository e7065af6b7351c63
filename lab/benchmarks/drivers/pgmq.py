"""pgmq, whose interface is SQL: `send_batch`, `read` of a batch, `delete` of a batch.

The functions are called directly, with messages that are JSON text already, because that is faster
than the Python client, which only brings the SQL here. `pop` would be faster than `read` and
`delete`, but it loses what a dying client held, so it is no queue's acknowledgement.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import psycopg
from pgmq.install import get_embedded_sql_version, install_pgmq_from_sql

from lab.benchmarks.drivers import load
from lab.benchmarks.drivers.common import (
    FRAME,
    Driver,
    Send,
    chunks,
    json_messages,
    serve,
    stamped,
    stamped_json,
    stopwatch,
    wait_of,
)

SEND = "SELECT * FROM pgmq.send('bench', %s::jsonb)"
SEND_BATCH = "SELECT * FROM pgmq.send_batch('bench', %s::text[]::jsonb[])"
READ = "SELECT msg_id, message::text FROM pgmq.read('bench', 600, %s)"
POLL = "SELECT msg_id, message::text FROM pgmq.read_with_poll('bench', 600, %s, 5, %s)"
DELETE = "SELECT count(*) FROM pgmq.delete('bench', %s::bigint[])"
SEND_GROUPED = "SELECT * FROM pgmq.send_batch('bench', %s::text[]::jsonb[], %s::text[]::jsonb[])"
READ_GROUPED = "SELECT msg_id, message::text, headers->>'x-pgmq-group' FROM pgmq.read_grouped_rr('bench', 600, %s)"


def _group(name: str) -> str:
    return json.dumps({"x-pgmq-group": name})


class Pgmq(Driver):
    def open(self) -> None:
        self.connection = psycopg.connect(self.dsn, autocommit=True)
        self.connection.execute("SELECT 1")

    def setup(self) -> dict[str, str]:
        install_pgmq_from_sql(dsn=self.dsn)
        self.connection.execute("SELECT pgmq.create('bench')")
        return {"version": f"pgmq {get_embedded_sql_version()} from the SQL in pgmq-py {version('pgmq')}"}

    def make(self, count: int) -> Sequence[Any]:
        return [json.dumps(message, separators=(",", ":")) for message in json_messages(count)]

    def bulk_in(self, count: int, call: int = 1000) -> dict[str, float]:
        todo = self.make(count)
        with stopwatch() as told, self.connection.cursor() as cursor:
            for chunk in chunks(todo, call):
                cursor.execute(SEND_BATCH, (chunk,), prepare=True)
        return told

    def out_all(self, count: int, batch: int = 20_000) -> dict[str, float]:
        done = 0
        with stopwatch() as told, self.connection.cursor(binary=True) as cursor:
            while rows := cursor.execute(READ, (batch,), prepare=True).fetchall():
                done += len(rows)
                cursor.execute(DELETE, ([row[0] for row in rows],), prepare=True)
        return {**told, "count": done}

    def stamp(self, message: str) -> str:
        return str(stamped(message, FRAME))

    def work(self, count: int, batch: int = 100, poll: int = 100) -> dict[str, list[int]]:
        """Read with the server's poll, every `poll` milliseconds; 100 is its default."""
        waits: list[int] = []
        with self.connection.cursor(binary=True) as cursor:
            while len(waits) < count:
                rows = cursor.execute(POLL, (batch, poll), prepare=True).fetchall()
                waits += [wait_of(json.loads(row[1])["m"]) for row in rows]
                if rows:
                    cursor.execute(DELETE, ([row[0] for row in rows],), prepare=True)
        return {"waits": waits}

    # -- a flood, by groups --

    def flood(self, count: int, call: int = 1_000) -> None:
        """Send so many messages of one group, then one of another."""
        todo = self.make(count)
        with self.connection.cursor() as cursor:
            for chunk in chunks(todo, call):
                cursor.execute(SEND_GROUPED, (chunk, [_group("loud")] * len(chunk)), prepare=True)
            cursor.execute(SEND_GROUPED, (todo[:1], [_group("quiet")]), prepare=True)

    def until_quiet(self, block: int) -> dict[str, float]:
        """Read the groups in turn, so many messages at a time, until one is of the quiet group."""
        before = 0
        with stopwatch() as told, self.connection.cursor(binary=True) as cursor:
            while rows := cursor.execute(READ_GROUPED, (block,), prepare=True).fetchall():
                cursor.execute(DELETE, ([row[0] for row in rows],), prepare=True)
                groups = [row[2] for row in rows]
                if "quiet" in groups:
                    before += groups.index("quiet")
                    break
                before += len(rows)
        return {**told, "before": before}

    def connect_sender(self) -> Send:
        cursor = psycopg.connect(self.dsn, autocommit=True).cursor()

        def send(todo: Sequence[Any]) -> None:
            for message in todo:
                cursor.execute(SEND, (message,), prepare=True)

        return send

    def side(self) -> load.Side:
        return load.Side(stamped_json, self.connect_sender, self._connect_bulk, self._connect_consumer)

    def _connect_bulk(self) -> Send:
        cursor = psycopg.connect(self.dsn, autocommit=True).cursor()

        def send(todo: Sequence[Any]) -> None:
            cursor.execute(SEND_BATCH, (todo,), prepare=True)

        return send

    def _connect_consumer(self, batch: int = 20_000) -> Callable[[], Sequence[int]]:
        cursor = psycopg.connect(self.dsn, autocommit=True).cursor(binary=True)

        def consume() -> Sequence[int]:
            rows = cursor.execute(READ, (batch,), prepare=True).fetchall()
            if rows:
                cursor.execute(DELETE, ([row[0] for row in rows],), prepare=True)
            return [json.loads(row[1])["t"] for row in rows]

        return consume


if __name__ == "__main__":
    serve(Pgmq())
