"""The bare table: one row per message, nothing else that a queue does.

Binary COPY in, 1,000 rows a transaction; DELETE of 1,000 rows that are not locked, in two
forms: with `IN (SELECT …)`, as it is mostly written, and with an array, the fastest one found.
That messages are lost when the client dies after the DELETE is forgiven.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from lab.benchmarks.drivers.common import Driver, Send, chunks, messages, serve, stopwatch

SCHEMA = """
CREATE TABLE bare (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    origin text NOT NULL,
    payload bytea NOT NULL
)
"""
COPY = "COPY bare (origin, payload) FROM STDIN (FORMAT BINARY)"
INSERT = "INSERT INTO bare (origin, payload) VALUES (%s, %s)"
RETURNING = "RETURNING id, origin, payload"
CHOOSE = "SELECT id FROM bare ORDER BY id LIMIT 1000 FOR UPDATE SKIP LOCKED"
TAKE = {
    "in": f"DELETE FROM bare WHERE id IN ({CHOOSE}) {RETURNING}",
    # An array makes the planner use the primary key, whatever it believes of the table.
    "array": f"DELETE FROM bare WHERE id = ANY (ARRAY({CHOOSE})) {RETURNING}",
}


class Bare(Driver):
    def open(self) -> None:
        self.connection = psycopg.connect(self.dsn, autocommit=True)
        self.connection.execute("SELECT 1")

    def setup(self) -> dict[str, str]:
        self.connection.execute(SCHEMA)
        return {"version": f"psycopg {psycopg.__version__}"}

    def bulk_in(self, count: int, call: int = 1000) -> dict[str, float]:
        todo = messages(count)
        with stopwatch() as told, self.connection.cursor() as cursor:
            for chunk in chunks(todo, call):
                with cursor.copy(COPY) as copy:
                    copy.set_types(("text", "bytea"))
                    for row in chunk:
                        copy.write_row(row)
        return told

    def out_all(self, count: int, form: str = "array") -> dict[str, float]:
        done = 0
        with stopwatch() as told, self.connection.cursor(binary=True) as cursor:
            while rows := cursor.execute(TAKE[form], prepare=True).fetchall():
                for _row in rows:
                    done += 1
        return {**told, "count": done}

    def make(self, count: int) -> Sequence[Any]:
        return messages(count)

    def connect_sender(self) -> Send:
        connection = psycopg.connect(self.dsn, autocommit=True)
        cursor = connection.cursor()

        def send(todo: Sequence[Any]) -> None:
            for row in todo:
                cursor.execute(INSERT, row, prepare=True, binary=True)

        return send


if __name__ == "__main__":
    serve(Bare())
