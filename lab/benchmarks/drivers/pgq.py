"""PgQ, which rotates and truncates its tables, through its SQL functions.

`insert_event` for a single event, COPY into `current_event_table` for many, `next_batch`, `get_batch_events`
and `finish_batch` out. A process beside does the work of its daemon: ticks, and `maint_operations`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any

import psycopg
from psycopg import sql

from lab.benchmarks.drivers import load
from lab.benchmarks.drivers.common import Driver, Send, serve, stamped_json

#: Seconds from one call of the maintenance functions to the next.
MAINTENANCE = 2.0


class Pgq(Driver):
    def open(self) -> None:
        self.connection = psycopg.connect(self.dsn, autocommit=True)

    def setup(self) -> dict[str, str]:
        run = self.connection.execute
        run("CREATE EXTENSION pgq")
        run("SELECT pgq.create_queue('bench')")
        run("SELECT pgq.register_consumer('bench', 'bench')")
        for name, value in (
            ("ticker_max_lag", f"{load.ROUND} seconds"),
            ("ticker_idle_period", f"{load.ROUND} seconds"),
        ):
            run("SELECT pgq.set_queue_config('bench', %s, %s)", (name, value))
        version = run("SELECT extversion FROM pg_extension WHERE extname = 'pgq'").fetchone()
        assert version
        return {"version": f"pgq {version[0]}"}

    def keep(self, seconds: float) -> None:
        self.connection.execute("SELECT pgq.set_queue_config('bench', 'rotation_period', %s)", (f"{seconds} seconds",))

    def side(self) -> load.Side:
        return load.Side(stamped_json, self.connect_sender, self._connect_bulk, self._connect_consumer, self._keep)

    def connect_sender(self) -> Send:
        cursor = psycopg.connect(self.dsn, autocommit=True).cursor()

        def send(todo: Sequence[Any]) -> None:
            for message in todo:
                cursor.execute("SELECT pgq.insert_event('bench', 'bench', %s)", (message,), prepare=True)

        return send

    def _connect_bulk(self) -> Send:
        connection = psycopg.connect(self.dsn)

        def send(todo: Sequence[Any]) -> None:
            with connection.transaction(), connection.cursor() as cursor:
                row = cursor.execute("SELECT pgq.current_event_table('bench')", prepare=True).fetchone()
                assert row
                table = sql.Identifier(*row[0].split("."))
                # The time of an event has no default.
                now = datetime.now(timezone.utc)
                with cursor.copy(sql.SQL("COPY {} (ev_time, ev_type, ev_data) FROM STDIN").format(table)) as copy:
                    for message in todo:
                        copy.write_row((now, "bench", message))

        return send

    def _connect_consumer(self) -> Callable[[], Sequence[int]]:
        connection = psycopg.connect(self.dsn)
        cursor = connection.cursor()

        def consume() -> Sequence[int]:
            stamps: list[int] = []
            end = time.monotonic() + load.ROUND
            while time.monotonic() < end:
                with connection.transaction():
                    row = cursor.execute("SELECT pgq.next_batch('bench', 'bench')", prepare=True).fetchone()
                    if row is None or row[0] is None:
                        return stamps
                    cursor.execute("SELECT ev_data FROM pgq.get_batch_events(%s)", row, prepare=True)
                    stamps += [json.loads(data)["t"] for (data,) in cursor.fetchall()]
                    cursor.execute("SELECT pgq.finish_batch(%s)", row, prepare=True)
            return stamps

        return consume

    def _keep(self) -> None:
        """Tick and rotate, as the daemon does."""
        connection = psycopg.connect(self.dsn, autocommit=True)
        due = time.monotonic()
        while True:
            connection.execute("SELECT pgq.ticker()", prepare=True)
            if time.monotonic() >= due:
                due = time.monotonic() + MAINTENANCE
                self._maintain(connection)
            time.sleep(load.ROUND / 2)

    @staticmethod
    def _maintain(connection: psycopg.Connection[Any]) -> None:
        """Call each function that `maint_operations` returns."""
        for function, argument in connection.execute("SELECT func_name, func_arg FROM pgq.maint_operations()"):
            if function.lower().startswith("vacuum"):
                connection.execute(sql.SQL("VACUUM {}").format(sql.Identifier(*argument.split("."))))
                continue
            name = sql.Identifier(*function.split("."))
            arguments = sql.Literal(argument) if argument is not None else sql.SQL("")
            # A function that did something is called until it returns 0.
            while (row := connection.execute(sql.SQL("SELECT {}({})").format(name, arguments)).fetchone()) and row[0]:
                pass


if __name__ == "__main__":
    serve(Pgq())
