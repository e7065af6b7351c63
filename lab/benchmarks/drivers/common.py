"""Common parts of the drivers written in Python. Standard library only: it also runs in the peers' own environment.

A driver is a program that stays alive and executes commands, one JSON object per line on its
standard input: `{"do": "bulk_in", "count": 1000}`. It answers with one line that begins with `= `.
Times exclude the start of the driver, its connection and the making of messages.
"""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from lab.benchmarks.drivers import load

SIZE = 128
ORIGINS = 100
Send = Callable[[Sequence[Any]], None]


#: Digits of the time at the beginning of a stamped message, in microseconds since 1970.
STAMP = 16
#: Where the stamp begins in a message of JSON text.
FRAME = len('{"o":"origin-000000","m":"')


def now() -> int:
    return time.time_ns() // 1000


def stamped(text: Any, start: int = 0) -> Any:
    """Return a text, or bytes, with the time of now written into it."""
    stamp: Any = str(now())
    if isinstance(text, bytes):
        stamp = stamp.encode()
    return text[:start] + stamp + text[start + STAMP :]


def wait_of(text: str | bytes, start: int = 0) -> int:
    """Return the microseconds since a message was stamped."""
    return now() - int(text[start : start + STAMP])


def origin_of(number: int) -> str:
    return f"origin-{number:06d}"


def messages(count: int, origins: int = ORIGINS) -> list[tuple[str, bytes]]:
    """So many (origin, message) pairs, origins in turn, of bytes that no compression shrinks."""
    noise = random.Random(count).randbytes(SIZE * count)
    return [(origin_of(i % origins), noise[i * SIZE : (i + 1) * SIZE]) for i in range(count)]


def json_messages(count: int) -> list[dict[str, str]]:
    """Return queues of JSON whose text, origin included, is as long as one of our messages."""
    frame = len(json.dumps({"o": origin_of(0), "m": ""}, separators=(",", ":")))
    noise = random.Random(count).randbytes(SIZE * count).hex()
    width = SIZE - frame
    return [{"o": origin_of(i % ORIGINS), "m": noise[i * SIZE : i * SIZE + width]} for i in range(count)]


def stamped_json(number: int, at: int) -> str:
    """Return JSON text of one message's size that begins with its time."""
    frame = f'{{"t":{at},"o":"{origin_of(number % ORIGINS)}","m":"'
    return frame + "x" * (SIZE - len(frame) - 2) + '"}'


def chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


@contextlib.contextmanager
def stopwatch() -> Iterator[dict[str, float]]:
    """Measure the seconds of the body, in `seconds`, and its processor time, in `client`."""
    told: dict[str, float] = {}
    gc.collect()
    start, before = time.perf_counter(), time.process_time()
    yield told
    told["seconds"] = time.perf_counter() - start
    told["client"] = time.process_time() - before


class Clients:
    """Processes that each hold a connection and send single messages on command."""

    def __init__(self, number: int, connect: Callable[[], Send], make: Callable[[int], Sequence[Any]]) -> None:
        self._make = make
        self._pipes: list[Connection] = []
        context = multiprocessing.get_context("fork")
        for _ in range(number):
            ours, theirs = context.Pipe()
            context.Process(target=_client, args=(theirs, connect), daemon=True).start()
            self._pipes.append(ours)
        for pipe in self._pipes:
            pipe.recv()

    def send(self, count: int) -> dict[str, float]:
        """Return the seconds from the first client's start to the last one's end, and the processor time of all."""
        share = count // len(self._pipes)
        todo = self._make(share * len(self._pipes))
        for number, pipe in enumerate(self._pipes):
            pipe.send(todo[number * share : (number + 1) * share])
        for pipe in self._pipes:
            pipe.recv()
        # All have their messages; now they start together.
        for pipe in self._pipes:
            pipe.send("go")
        spans = [pipe.recv() for pipe in self._pipes]
        starts, ends, used = zip(*spans)
        return {"seconds": max(ends) - min(starts), "client": sum(used)}


def _client(pipe: Connection, connect: Callable[[], Send]) -> None:
    send = connect()
    pipe.send("ready")
    with contextlib.suppress(EOFError):
        while True:
            todo = pipe.recv()
            pipe.send("have")
            pipe.recv()
            start, before = time.perf_counter(), time.process_time()
            send(todo)
            pipe.send((start, time.perf_counter(), time.process_time() - before))
    os._exit(0)


class Driver:
    """A driver's commands are its public methods; each returns its result."""

    def __init__(self) -> None:
        self.dsn = os.environ["BENCH_DSN"]
        self._clients: dict[int, Clients] = {}

    def connect_sender(self) -> Send:
        """A connection of its own that sends each of the given messages in a transaction of its own."""
        raise NotImplementedError

    def make(self, count: int) -> Sequence[Any]:
        return json_messages(count)

    def stamp(self, message: Any) -> Any:
        """Return a message with the time of now in it."""
        return {**message, "m": stamped(message["m"])}

    def steady(self, count: int, rate: float, clients: int) -> dict[str, float]:
        """Send single messages at a steady rate, from so many processes; a late one waits for none."""
        team = Clients(clients, partial(paced, self.connect_sender, self.stamp, clients / rate), self.make)
        return {"seconds": team.send(count)}

    def single_in(self, count: int, clients: int) -> dict[str, float]:
        if clients not in self._clients:
            self._clients[clients] = Clients(clients, self.connect_sender, self.make)
        count -= count % clients
        return {**self._clients[clients].send(count), "count": count}

    def side(self) -> load.Side:
        """How this queue takes part in the mixed load."""
        raise NotImplementedError

    def keep(self, seconds: float) -> None:
        """Keep the traces of finished messages so long, if this queue keeps any."""

    def sustained(self, seconds: float, rate: int, every: float, keep: float) -> dict[str, Any]:
        """Run the mixed load, with a row of figures for each interval."""
        self.keep(keep)
        return load.run(self.side(), seconds, rate, every)


def paced(connect: Callable[[], Send], stamp: Callable[[Any], Any], gap: float) -> Send:
    """Return a sender that begins a message every `gap` seconds, or later if the one before it takes longer."""
    send = connect()

    def slowly(todo: Sequence[Any]) -> None:
        due = time.perf_counter() + random.random() * gap
        for message in todo:
            time.sleep(max(due - time.perf_counter(), 0))
            send([stamp(message)])
            due += gap

    return slowly


def serve(driver: Driver) -> None:
    """Execute the commands of standard input until it ends."""
    # Libraries may print; the answers go where nothing else does.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.stdin = open(os.dup(0))  # noqa: SIM115  # forked clients must not share the buffer
    for line in sys.stdin:
        order = json.loads(line)
        try:
            told = getattr(driver, order.pop("do"))(**order) or {}
        except Exception as error:
            told = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        answers.write("= " + json.dumps(told) + "\n")
