"""pgqueuer on asyncpg and uvloop: lists to `enqueue` in; a queue manager that drains in large batches out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

from lab.benchmarks.drivers.common import (
    FRAME,
    Driver,
    Send,
    chunks,
    json_messages,
    serve,
    stamped,
    stopwatch,
    wait_of,
)


class Pgqueuer(Driver):
    def open(self) -> None:
        self.loop = uvloop.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.connection = self.loop.run_until_complete(asyncpg.connect(self.dsn))
        self.queries = Queries(AsyncpgDriver(self.connection))

    def setup(self) -> dict[str, str]:
        self.loop.run_until_complete(self.queries.install())
        return {"version": f"pgqueuer {version('pgqueuer')}, asyncpg {version('asyncpg')}"}

    def make(self, count: int) -> Sequence[Any]:
        return [json.dumps(message, separators=(",", ":")).encode() for message in json_messages(count)]

    def bulk_in(self, count: int, call: int = 1000) -> dict[str, float]:
        todo = self.make(count)

        async def send() -> None:
            for chunk in chunks(todo, call):
                size = len(chunk)
                await self.queries.enqueue(["bench"] * size, list(chunk), [0] * size)

        with stopwatch() as told:
            self.loop.run_until_complete(send())
        return told

    def out_all(self, count: int, batch: int = 1000, connections: int = 4) -> dict[str, float]:
        done = 0

        async def drain() -> dict[str, float]:
            async with asyncpg.create_pool(self.dsn, min_size=connections, max_size=connections) as pool:
                manager = QueueManager(Queries(AsyncpgPoolDriver(pool)))

                @manager.entrypoint("bench")
                async def bench(job: Job) -> None:
                    nonlocal done
                    done += 1

                with stopwatch() as told:
                    await manager.run(batch_size=batch, mode=QueueExecutionMode.drain)
            return told

        told = self.loop.run_until_complete(drain())
        return {**told, "count": done}

    def stamp(self, message: bytes) -> bytes:
        return bytes(stamped(message, FRAME))

    def work(self, count: int, batch: int = 100, connections: int = 4) -> dict[str, list[int]]:
        """Run a queue manager, which listens for notifications."""
        waits: list[int] = []

        async def run() -> None:
            async with asyncpg.create_pool(self.dsn, min_size=connections, max_size=connections) as pool:
                manager = QueueManager(Queries(AsyncpgPoolDriver(pool)))

                @manager.entrypoint("bench")
                async def bench(job: Job) -> None:
                    waits.append(wait_of(job.payload or b"", FRAME))
                    if len(waits) == count:
                        manager.shutdown.set()

                await manager.run(batch_size=batch)

        self.loop.run_until_complete(run())
        return {"waits": waits}

    def connect_sender(self) -> Send:
        loop = uvloop.new_event_loop()
        asyncio.set_event_loop(loop)
        queries = Queries(AsyncpgDriver(loop.run_until_complete(asyncpg.connect(self.dsn))))

        async def enqueue(todo: Sequence[Any]) -> None:
            for payload in todo:
                await queries.enqueue("bench", payload, 0)

        return lambda todo: loop.run_until_complete(enqueue(todo))


if __name__ == "__main__":
    serve(Pgqueuer())
