"""airflow_mq, through its public interface only."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice, pairwise
from typing import Any

import psycopg

import airflow_mq
from airflow_mq import Block, MessageQueue, Report, RingConfig, Weight, Yield, batch_processor
from airflow_mq.engine.store import parse, upgrade
from lab.benchmarks.drivers import load
from lab.benchmarks.drivers.baseline import read_and_walk
from lab.benchmarks.drivers.common import (
    ORIGINS,
    SIZE,
    Driver,
    Send,
    chunks,
    messages,
    origin_of,
    serve,
    stamped,
    stopwatch,
    wait_of,
)

RING = "bench"
HEADER = 5


class Ours(Driver):
    def open(self, ring: str = RING) -> None:
        self.queue = MessageQueue(self.dsn, ring=ring)
        self.queue.footprint(origin_of(0))

    def setup(self, block: int | None = None, rounds: int | None = None) -> dict[str, str]:
        """Make the ring. `block` is how many messages fit a full block, each weighing one unit of time."""
        upgrade(parse(self.dsn))
        settings: dict[str, Any] = {}
        if block is not None:
            settings["service_weight"] = Weight(block, 1 << 40)
        if rounds is not None:
            settings["rounds_per_block"] = rounds
        with MessageQueue(self.dsn) as queue:
            queue.admin.create_ring(RING, RingConfig(**settings))
        self.open()
        return {"version": f"airflow_mq {airflow_mq.__version__}"}

    # -- preparing --

    def half_full(self, origins: int = ORIGINS) -> None:
        """Give each origin a last page that is half full: as it is left when a block took all but one message."""
        config = self.queue.config
        half = config.heap_size // 2 // (SIZE + HEADER)
        self.queue.enqueue_messages((origin_of(n), bytes(SIZE)) for n in range(origins) for _ in range(half))

        def all_but_one(batch: Any) -> list[Any]:
            return [True] * (len(batch) - 1) + [Yield()]

        self.queue.service_queues(batch_processor(all_but_one), Weight(1 << 40, 1 << 40))

    def cut(self) -> None:
        """Cut all there is into pages: planning does it for all it meets, releasing forgets the claims."""
        with self._in_rotation():
            self.queue.blocks.release(self.queue.blocks.plan(limit=Weight(1 << 40, 1 << 40)))

    @contextmanager
    def _in_rotation(self) -> Iterator[None]:
        """In the order that leaves no deficits behind; the head is put back where it was."""
        self.queue.admin.change_ring(order="rotation")
        first = self.queue.inspect.ring_order(1)
        yield
        self.queue.admin.change_ring(order="deficit")
        for origin in first:
            self.queue.admin.force_set_head(origin)

    def fill(self, each: int, call: int, first: int = 0, last: int = ORIGINS) -> None:
        """`each` messages to each of the origins from `first` to before `last`, in calls of `call`, in turn."""
        payloads = self._payloads()
        for start in range(0, each, call):
            for origin in map(origin_of, range(first, last)):
                self._send(origin, list(islice(payloads, min(call, each - start))))

    def fill_large(self, queues: int, size: int) -> None:
        """Send one large message to each of so many origins."""
        self.queue.enqueue_messages((origin_of(number), bytes(size)) for number in range(queues))

    def fill_many(self, each: int, first: int, last: int, many: int = 1000) -> None:
        """Enqueue in calls that each go to many origins."""
        payloads = self._payloads()
        for start in range(first, last, many):
            names = [origin_of(number) for number in range(start, min(start + many, last))]
            self.queue.enqueue_messages((name, next(payloads)) for name in names for _ in range(each))

    @staticmethod
    def _payloads() -> Iterator[bytes]:
        """Payloads without end; they come again only long after."""
        return cycle([payload for _, payload in messages(50_000)])

    def pause(self, first: int, last: int) -> None:
        for number in range(first, last):
            self.queue.admin.pause(origin_of(number), "measured")

    def head(self, number: int = 0) -> None:
        assert self.queue.admin.force_set_head(origin_of(number))

    def claim(self, first: int, last: int) -> None:
        """Take all there is, the messages of these origins, in flight, and keep them there."""
        claimed = 0
        with self._in_rotation():
            # A plan lets a bounded number of new queues enter.
            while (block := self.queue.blocks.plan(limit=Weight(1 << 40, 1 << 40), lease=1e6)).messages:
                claimed += len(block.origins)
        assert claimed == last - first, claimed

    # -- in --

    def bulk_in(self, count: int, call: int = 1000, spread: str = "one") -> dict[str, float]:
        """Calls of `call` messages: to `one` origin each, origins in turn, or each to `many` origins."""
        todo = messages(count)
        if spread == "many":
            calls: Sequence[Any] = list(chunks(todo, call))
        else:
            calls = [
                (chunk[number % len(chunk)][0], [payload for _, payload in chunk])
                for number, chunk in enumerate(chunks(todo, call))
            ]
        with stopwatch() as told:
            if spread == "many":
                for pairs in calls:
                    self.queue.enqueue_messages(pairs)
            else:
                for origin, payloads in calls:
                    self._send(origin, payloads)
        return told

    def _send(self, origin: str, payloads: list[bytes]) -> None:
        if len(payloads) == 1:
            self.queue.enqueue_message(origin, payloads[0])
        else:
            self.queue.enqueue_messages(origin, payloads)

    def make(self, count: int) -> Sequence[Any]:
        return messages(count)

    def connect_sender(self) -> Send:
        queue = MessageQueue(self.dsn, ring=RING)
        queue.footprint(origin_of(0))

        def send(todo: Sequence[Any]) -> None:
            for origin, payload in todo:
                queue.enqueue_message(origin, payload)

        return send

    # -- mixed load --

    def keep(self, seconds: float) -> None:
        self.queue.admin.change_ring(keep_events=seconds)

    def side(self) -> load.Side:
        def message(number: int, at: int) -> tuple[str, bytes]:
            return origin_of(number % ORIGINS), at.to_bytes(8, "big") + bytes(SIZE - 8)

        return load.Side(message, self.connect_sender, self._connect_bulk, self._connect_consumer)

    def _connect_bulk(self) -> Send:
        queue = MessageQueue(self.dsn, ring=RING)
        queue.footprint(origin_of(0))
        return queue.enqueue_messages

    def _connect_consumer(self) -> Callable[[], Sequence[int]]:
        stamps: list[int] = []

        def note(batch: Any) -> None:
            stamps.extend(int.from_bytes(payload[:8], "big") for payload in batch.payloads)

        processor = batch_processor(note)

        def consume() -> Sequence[int]:
            stamps.clear()
            self.queue.service_queues(processor)
            return stamps

        return consume

    # -- out --

    def out_all(self, count: int, mode: str = "batch", **slices: int) -> dict[str, float]:
        """Service until nothing is left, by a `batch` processor, a `callable` per message, or in `block`s."""
        if mode == "block":
            return self._out_in_blocks()
        seen = 0

        def batch(batch: Any) -> None:
            nonlocal seen
            seen += len(batch.payloads)

        def one(_delivery: Any) -> None:
            nonlocal seen
            seen += 1

        processor = batch_processor(batch) if mode == "batch" else one
        with stopwatch() as told:
            while self.queue.service_queues(processor, **slices).processed:
                pass
        return {**told, "count": seen}

    def out_at(self, mode: str) -> dict[str, float]:
        """Service all, as one call or one block, or let every queue go back; return the largest memory so far."""
        if mode == "returned":
            told = {"count": self.queue.service_queues(lambda delivery: Yield()).returned}
        elif mode == "one block":
            told = {"count": int(self._one_block(None)["count"])}
        else:
            told = self.out_all(0, mode)
        return {**told, "memory": largest_memory()}

    def _out_in_blocks(self) -> dict[str, float]:
        seen = 0
        with stopwatch() as told:
            while done := self._one_block(None)["count"]:
                seen += int(done)
        return {**told, "count": seen}

    def block(self, count: int) -> dict[str, float]:
        """Plan, process in place and settle one block of `count` messages; return the time of each part."""
        told = self._one_block(Weight(count, 1 << 40))
        # Measured is what waits behind the same messages, so they must have been the same.
        assert told["count"] == count and told["origins"] == told["last"] + 1 == ORIGINS, told
        return told

    def _one_block(self, limit: Weight | None) -> dict[str, float]:
        clock = [time.perf_counter()]
        block = self.queue.blocks.plan(limit=limit)
        clock.append(time.perf_counter())
        self.queue.blocks.report(block, self._reports(block))
        clock.append(time.perf_counter())
        self.queue.blocks.settle(block)
        clock.append(time.perf_counter())
        plan, process, settle = (after - before for before, after in pairwise(clock))
        parts = {"plan": plan, "process": process, "settle": settle}
        served = {
            "origins": len(block.origins),
            "last": max(map(int, (name[-6:] for name in block.origins)), default=0),
        }
        return {**parts, **served, "seconds": clock[-1] - clock[0], "count": block.messages}

    @staticmethod
    def _reports(block: Block) -> Iterator[Report]:
        """Done, for each run of messages, once their payloads were there."""
        for batch in block.batches():
            assert batch.payloads
            yield batch.answer()

    # -- under load --

    def stamp(self, message: tuple[str, bytes]) -> tuple[str, bytes]:
        return message[0], stamped(message[1])

    def work(self, count: int) -> dict[str, list[int]]:
        """Let a worker service what comes; return how long each message waited."""
        waits: list[int] = []
        stop = threading.Event()

        def process(delivery: Any) -> None:
            if delivery.payload[0] == 0:
                # One of those that `half_full` left.
                return
            waits.append(wait_of(delivery.payload))
            if len(waits) == count:
                stop.set()

        self.queue.service_forever(process, stop=stop)
        return {"waits": waits}

    def flood(self, count: int, call: int = 10_000) -> None:
        """Send so many messages of one origin, then one of another."""
        payloads = self._payloads()
        for start in range(0, count, call):
            self._send(origin_of(0), list(islice(payloads, min(call, count - start))))
        self._send(origin_of(1), [next(payloads)])

    def until_quiet(self, block: int) -> dict[str, float]:
        """Run blocks until one has the message of the quiet origin."""
        before, blocks = 0, 0
        with stopwatch() as told:
            while True:
                done = self._one_block(Weight(block, 1 << 40))
                blocks += 1
                before += int(done["count"])
                if done["origins"] == 2:
                    break
        return {**told, "blocks": blocks, "before": before - 1}

    # -- planning --

    def plan(self, count: int) -> dict[str, float]:
        """Plan a block of `count` messages, then let it go."""
        with stopwatch() as told:
            block = self.queue.blocks.plan(limit=Weight(count, 1 << 40))
        self.queue.blocks.release(block)
        return {**told, "count": block.messages}

    def baseline(self, each: int, payloads: bool, origins: int = ORIGINS) -> dict[str, float]:
        names = [origin_of(number) for number in range(origins)]
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SELECT 1")
            with stopwatch() as told:
                walked = read_and_walk(connection, RING, names, each, payloads)
        return {**told, "count": walked}

    # -- looking --

    def blocks(self, count: int) -> None:
        """Plan, process and settle full blocks."""
        for _ in range(count):
            self._one_block(None)

    def inspect(self, step: str, last: int) -> dict[str, float]:
        """Look at the ring in one way; return the time, the largest memory so far, and whether it is of a part."""
        look = self.queue.inspect
        ways: dict[str, Callable[[], Any]] = {
            "first": self.queue.blocks.plan,
            "ring": lambda: look.ring(60),
            "queues": lambda: look.queues(limit=50),
            "backlog": lambda: look.backlog(10),
            "forecast": lambda: look.forecast(3),
            "explain": lambda: look.explain(origin_of(last)),
            "fairness": look.fairness,
        }
        with stopwatch() as told:
            found = ways[step]()
        if step == "first":
            self.queue.blocks.release(found)
        return {**told, "memory": largest_memory(), "partial": bool(getattr(found, "partial", False))}

    def waiting(self) -> dict[str, int]:
        return {"count": sum(footprint.count for footprint in self._footprints())}

    def _footprints(self) -> Iterable[Any]:
        after = ""
        while page := self.queue.footprints(after=after, limit=1000):
            yield from (footprint for _, footprint in page)
            after = page[-1][0]


def largest_memory() -> float:
    """Return the largest memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    serve(Ours())
