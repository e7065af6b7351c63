"""procrastinate: `batch_defer` in; one worker with many jobs at a time, which deletes finished jobs, out.

Its worker fetches one job per round trip; nothing in its documentation fetches several.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import procrastinate

from lab.benchmarks.drivers.common import Driver, Send, chunks, json_messages, serve, stopwatch, wait_of


class Procrastinate(Driver):
    def open(self) -> None:
        logging.getLogger("procrastinate").setLevel(logging.ERROR)
        self.done = 0
        self.heard: Callable[[str], None] = lambda _: None
        self.loop = asyncio.new_event_loop()
        self.app, self.task = self._app(20)
        self.loop.run_until_complete(self.app.open_async())

    def _app(self, connections: int) -> tuple[procrastinate.App, Any]:
        connector = procrastinate.PsycopgConnector(conninfo=self.dsn, min_size=1, max_size=connections)
        app = procrastinate.App(connector=connector)

        @app.task(name="bench", queue="bench")
        async def bench(o: str, m: str) -> None:
            self.done += 1
            self.heard(m)

        return app, bench

    def setup(self) -> dict[str, str]:
        self.loop.run_until_complete(self.app.schema_manager.apply_schema_async())
        return {"version": f"procrastinate {version('procrastinate')}"}

    def bulk_in(self, count: int, call: int = 1000) -> dict[str, float]:
        todo = json_messages(count)

        async def send() -> None:
            for chunk in chunks(todo, call):
                await self.task.batch_defer_async(*chunk)

        with stopwatch() as told:
            self.loop.run_until_complete(send())
        return told

    def out_all(self, count: int, concurrency: int = 20) -> dict[str, float]:
        self.done = 0
        with stopwatch() as told:
            self.loop.run_until_complete(
                self.app.run_worker_async(
                    queues=["bench"],
                    concurrency=concurrency,
                    wait=False,
                    delete_jobs="always",
                    listen_notify=False,
                    install_signal_handlers=False,
                )
            )
        return {**told, "count": self.done}

    def work(self, count: int, concurrency: int = 20) -> dict[str, list[int]]:
        """Run a worker that listens for notifications."""
        waits: list[int] = []

        async def run() -> None:
            worker = asyncio.create_task(
                self.app.run_worker_async(
                    queues=["bench"], concurrency=concurrency, delete_jobs="always", install_signal_handlers=False
                )
            )

            def hear(text: str) -> None:
                waits.append(wait_of(text))
                if len(waits) == count:
                    worker.cancel()

            self.heard = hear
            with suppress(asyncio.CancelledError):
                await worker

        self.loop.run_until_complete(run())
        return {"waits": waits}

    def connect_sender(self) -> Send:
        loop = asyncio.new_event_loop()
        app, task = self._app(1)
        loop.run_until_complete(app.open_async())

        async def defer(todo: Sequence[Any]) -> None:
            for message in todo:
                await task.defer_async(**message)

        return lambda todo: loop.run_until_complete(defer(todo))


if __name__ == "__main__":
    serve(Procrastinate())
